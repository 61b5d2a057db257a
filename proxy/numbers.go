package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/translate"
)

// Offsets and epochs of one partition as they pass. A nil *Partition has the default era: nothing changes.

// shownStart is a log start (inclusive): the first record at or after it.
func (p *Partition) shownOffset(physical int64) int64 {
	m := p.mapping()
	if m == nil || physical < 0 {
		return physical
	}
	return int64(m.ToVirtual(translate.Physical(physical)).Virtual)
}

// currentEpoch is what a client believes to be the present leader epoch, as the cluster has it. An epoch of an earlier era
// becomes −1, which asks for no check: no client notices, where FENCED_LEADER_EPOCH would cost some of them seconds.
func (p *Partition) currentEpoch(shown int32) int32 { return p.epochToCluster(shown) }

// shownEpoch is a leader epoch of the current era, as clients see it.
func (p *Partition) shownEpoch(real int32) int32 {
	return int32(p.shift().Show(translate.RealEpoch(real)))
}

// recordEpoch is the epoch shown for the record at v, whose batch has the epoch real on the cluster.
func (p *Partition) recordEpoch(kind translate.Kind, v translate.Virtual, real int32) int32 {
	if p == nil {
		return real
	}
	if kind == translate.Mirrored {
		return int32(p.History.At(v))
	}
	for i := len(p.Eras) - 1; i >= 0; i-- {
		if v >= p.Eras[i].Virtual {
			return int32(p.Eras[i].Shift.Show(translate.RealEpoch(real)))
		}
	}
	return real
}

// shownRecord is a record's offset and epoch as clients see them.
func (p *Partition) shownRecord(physical int64, epoch int32) (int64, int32) {
	m := p.mapping()
	if m == nil || physical < 0 {
		return physical, p.shownEpoch(epoch)
	}
	a := m.ToVirtual(translate.Physical(physical))
	if a.Segment.Records == 0 {
		return int64(a.Virtual), p.shownEpoch(epoch)
	}
	return int64(a.Virtual), p.recordEpoch(a.Segment.Kind, a.Virtual, epoch)
}

// notKnownYet is the code for an offset that the map does not have yet. Clients look for the leader and ask again.
// OFFSET_OUT_OF_RANGE would let auto.offset.reset skip records.
func notKnownYet() int16 { return kerr.NotLeaderForPartition.Code }
