package journal

import (
	"fmt"

	"github.com/switchback-proxy/switchback/translate"
)

// Native is a run that clients wrote on the target while it was active: virtual [Virtual, End) from Physical on.
type Native struct {
	Virtual, End translate.Virtual
	Physical     translate.Physical
	FirstEpoch   translate.Epoch
}

// PutNative puts the native runs of earlier eras into the map, oldest first, before the target's log is judged. A run that
// the map has already must agree with it; one that the map does not reach up to is refused, because what lies between would
// be taken for a gap. Nothing of ours lies in such a run, nor below it that was not judged and settled when the slots were
// sealed, so judging goes on behind the last one.
func (p *Partition) PutNative(runs []Native) error {
	for _, n := range runs {
		if n.End <= p.Frontier() {
			if err := p.agrees(n); err != nil {
				return err
			}
			continue
		}
		if n.Virtual > p.Frontier() {
			return fmt.Errorf("%v: the control topic has a native run [%d, %d), the journal ends at %d", p.TP, n.Virtual, n.End, p.Frontier())
		}
		m, err := p.Map.OpenNative(n.Virtual, n.Physical)
		if err == nil {
			m, err = m.CloseNative(n.End)
		}
		if err != nil {
			return fmt.Errorf("%v: the control topic has a native run [%d, %d) at %d: %w", p.TP, n.Virtual, n.End, n.Physical, err)
		}
		p.Map = m
		if n.End > n.Virtual {
			p.History = p.History.Append(n.FirstEpoch, n.Virtual)
		}
		p.PhysicalEnd = max(p.PhysicalEnd, m.PhysicalEnd(), n.Physical)
		p.Marker, p.pending = -1, nil
	}
	return nil
}

func (p *Partition) agrees(n Native) error {
	if n.Virtual == n.End || n.Virtual < p.Map.Start() {
		return nil
	}
	a := p.Map.ToPhysical(n.Virtual)
	if a.Kind != translate.Record || a.Physical != n.Physical || a.Segment.Kind != translate.Native {
		return fmt.Errorf("%v: the control topic has a native run [%d, %d) at %d, the journal has %v", p.TP,
			n.Virtual, n.End, n.Physical, a.Segment)
	}
	return nil
}
