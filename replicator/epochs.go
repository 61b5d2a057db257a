package replicator

import (
	"context"
	"fmt"
)

// watchEpochs looks, whenever one of the partition's two leaders changed, whether the log still has what is known of it. A
// target that lost its tail makes the slot be fenced anew, which finds out how much; a source that lost its tail stops the
// partition.
func (p *pump) watchEpochs(ctx context.Context) error {
	_, source, ok := p.flow.source.leader(p.source, p.tp.Partition)
	if ok && source != p.epochs[0] {
		if err := p.checkSource(ctx); err != nil {
			return err
		}
		p.epochs[0] = source
	}
	_, target, ok := p.flow.target.leader(p.target, p.tp.Partition)
	if ok && target != p.epochs[1] {
		if err := p.checkTail(ctx); err != nil {
			return err
		}
		p.epochs[1] = target
	}
	return nil
}

// checkTail asks the target where the epoch of our last batch ends. Below it, a tail of ours was lost.
func (p *pump) checkTail(ctx context.Context) error {
	end, known, err := epochEnd(ctx, p.flow.target, p.target, p.tp.Partition, p.part.Last.Epoch)
	if err != nil || !known {
		return ctx.Err() // an election is under way: our next batch finds out by its offset
	}
	if end < p.part.PhysicalEnd {
		return fenceAnew{fmt.Sprintf("epoch %d of %v ends at %d on the target, known is up to %d", p.part.Last.Epoch, p.tp, end,
			p.part.PhysicalEnd)}
	}
	return nil
}

// checkSource asks the source where the epoch of the last record copied ends. Below that record, the source's log diverged
// from what was copied.
func (p *pump) checkSource(ctx context.Context) error {
	m := p.part.Map
	if m.Len() == 0 {
		return nil
	}
	last := m.ToVirtual(m.PhysicalEnd() - 1).Virtual
	epoch := p.era.Shift.Real(p.part.History.At(last))
	if last < p.era.Virtual {
		return nil
	}
	end, known, err := epochEnd(ctx, p.flow.source, p.source, p.tp.Partition, epoch)
	if err != nil || !known {
		return ctx.Err()
	}
	if end <= p.onSource(last) {
		return &trouble{
			fmt.Sprintf("the source's log diverged: its epoch %d ends at %d, and %d was copied from it (unclean leader election)",
				epoch, p.virtual(end), last),
			"records that were copied are gone at the source; compare both clusters, and seed the topic anew",
		}
	}
	return nil
}
