package replicator

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// eras of the partition, oldest first; at least one.
func (p *pump) eras() []control.Era {
	f := p.flow
	n := 0
	if t := f.source.topic(p.source); t != nil {
		n = len(t.partitions)
	}
	if all := f.cfg.Eras(p.tp.Topic, n); int(p.tp.Partition) < len(all) && len(all[p.tp.Partition]) > 0 {
		return all[p.tp.Partition]
	}
	return []control.Era{{Generation: f.cfg.Generation, Cluster: f.cfg.From}}
}

func (p *pump) newestEra() control.Era {
	eras := p.eras()
	return eras[len(eras)-1]
}

// natives are the runs that clients wrote on the target while it was active.
func natives(eras []control.Era, target string) []journal.Native {
	var out []journal.Native
	for i, e := range eras[:len(eras)-1] {
		if e.Cluster == target {
			out = append(out, journal.Native{Virtual: e.Virtual, End: eras[i+1].Virtual, Physical: e.Physical, FirstEpoch: e.FirstEpoch})
		}
	}
	return out
}

// begin checks what is known of the partition against both clusters and the eras, before its log is read. part is nil if
// nothing is known.
func (p *pump) begin(ctx context.Context, part *journal.Partition) (*journal.Partition, *trouble) {
	eras := p.eras()
	p.waits = false
	if p.anew || part != nil && p.anotherOnBoth(part.SourceTopicID, part.TargetTopicID) {
		part = nil
	}
	p.mu.Lock()
	p.era = eras[len(eras)-1] // status reads it
	p.mu.Unlock()
	if p.era.Cluster != p.flow.cfg.From {
		return nil, &trouble{fmt.Sprintf("%s is active, not %s", p.era.Cluster, p.flow.cfg.From), "the flow runs in the wrong direction"}
	}
	runs := natives(eras, p.flow.cfg.To)
	if p.era.Generation < p.flow.cfg.Generation && (len(eras) > 1 || p.era.Virtual != 0 || p.era.Physical != 0) {
		return nil, &trouble{
			fmt.Sprintf("its newest era is of generation %d, now is %d: it was not part of a move", p.era.Generation, p.flow.cfg.Generation),
			"delete the topic on both clusters and make it anew, or exclude it",
		}
	}
	if t := p.checkIDs(part); t != nil {
		return nil, t
	}
	first := part == nil // reign of this generation that begins with the partition
	if part == nil {
		start, t := p.start(ctx, eras, runs)
		if t != nil {
			return nil, t
		}
		part = journal.NewPartition(p.tp, start)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	part.SourceTopicID, part.TargetTopicID = p.sourceID, p.targetID
	before := part.Frontier()
	if err := part.PutNative(runs); err != nil {
		return nil, &trouble{"the journal and the control topic disagree: " + err.Error(), hintAnew}
	}
	first = first || part.Frontier() > before // else clients wrote nothing since the journal's states, or they were taken over
	if states := p.flow.cfg.Producers(p.tp); first && states != nil {
		part.Producers = states.Clone()
	}
	if part.Frontier() < p.era.Virtual {
		return nil, &trouble{
			fmt.Sprintf("%d to %d, of an earlier era, are not on the target", part.Frontier(), p.era.Virtual-1),
			hintAnew,
		}
	}
	return part, nil
}

// start is where the virtual log of a partition begins that was never copied in this direction.
func (p *pump) start(ctx context.Context, eras []control.Era, runs []journal.Native) (translate.Virtual, *trouble) {
	if len(runs) > 0 {
		return runs[0].Virtual, nil
	}
	if len(eras) > 1 {
		return p.era.Virtual, nil
	}
	start, err := p.logStart(ctx)
	if err != nil {
		var code *kerr.Error
		p.waits = !errors.As(err, &code) || code.Retriable
		return 0, &trouble{"the source's log start is not known: " + err.Error(), "it is tried again"}
	}
	return p.virtual(start), nil
}

// led says whether the partition has a leader on the source, as far as known.
func (p *pump) led() bool {
	_, _, ok := p.flow.source.leader(p.source, p.tp.Partition)
	return ok
}

// logStart asks again while the leader moves. Without a leader it does not wait: the next metadata tells.
func (p *pump) logStart(ctx context.Context) (translate.Physical, error) {
	ctx, cancel := context.WithTimeout(ctx, p.flow.cfg.LeaderTimeout)
	defer cancel()
	for {
		if !p.led() {
			return 0, kerr.LeaderNotAvailable
		}
		start, err := journal.Offset(ctx, p.flow.source.client, p.source, p.tp.Partition, journal.Earliest)
		if err == nil || !kerr.IsRetriable(err) {
			return start, err
		}
		p.flow.source.kick()
		if sleep(ctx, kickInterval) != nil {
			return 0, err
		}
	}
}

// checkIDs finds topics that were deleted and made again.
func (p *pump) checkIDs(part *journal.Partition) *trouble {
	switch {
	case part == nil && p.anew:
		return nil
	case part == nil:
		if id, ok := p.flow.cfg.TargetID(p.tp.Topic); ok && known(id) && known(p.targetID) && id != p.targetID {
			return recreated("target", id, p.targetID)
		}
		return nil
	case known(part.SourceTopicID) && known(p.sourceID) && part.SourceTopicID != p.sourceID:
		return recreated("source", part.SourceTopicID, p.sourceID)
	case known(part.TargetTopicID) && known(p.targetID) && part.TargetTopicID != p.targetID:
		return recreated("target", part.TargetTopicID, p.targetID)
	}
	return nil
}

// anotherOnBoth says that neither of the pump's topics is the one with the id given: of what is known of those, nothing is theirs.
func (p *pump) anotherOnBoth(source, target [16]byte) bool {
	other := func(was, is [16]byte) bool { return known(was) && known(is) && was != is }
	return other(source, p.sourceID) && other(target, p.targetID)
}

func known(id [16]byte) bool { return id != [16]byte{} }

func recreated(side string, was, is [16]byte) *trouble {
	return &trouble{
		fmt.Sprintf("the %s topic was deleted and made again: its id was %x, now it is %x", side, was, is),
		"if that was meant, delete the topic on the standby, and let it be copied anew: switchback reseed TOPIC",
	}
}

const hintAnew = "delete the topic on the standby, and let it be copied anew: switchback reseed TOPIC"

// checkTarget judges what recovery found in the target's log.
func (p *pump) checkTarget(part *journal.Partition) *trouble {
	switch {
	case part.Foreign > 0:
		return &trouble{
			fmt.Sprintf("someone else wrote %d records to the target, from offset %d on (producer id %d)", part.Foreign,
				part.ForeignAt, part.FirstForeign.ID),
			"stop that writer; then " + hintAnew,
		}
	case part.Before > 0 && part.Map.Len() == 0:
		return &trouble{
			fmt.Sprintf("the target had %d records that no journal knows", part.Before),
			hintAnew,
		}
	}
	return nil
}
