package replicator

import (
	"context"
	"errors"
	"fmt"

	"github.com/switchback-proxy/switchback/translate"
)

// errNotLooked: whether a log lost its tail cannot be said now, for an election is under way. Nothing is written until it can.
var errNotLooked = errors.New("the end of a leader epoch is not known yet")

// look is called before a batch is sent to node, which leads with epoch as far as known. An error: do not send.
type look func(ctx context.Context, node int32, epoch translate.RealEpoch) error

// watched is a log of the target that one goroutine writes, and how far it is known to be what that goroutine thinks it is.
type watched struct {
	topic     string
	partition int32
	looked    translate.RealEpoch // the newest leader epoch under which nothing of ours is missing; −1: none
}

// look looks, when there is a newer leader epoch, whether the log still has all below end: it asks where the epoch last looked
// at ends. The epoch of the last ack would not do, for that may be one that began after the loss.
func (w *watched) look(ctx context.Context, target *cluster, node int32, epoch translate.RealEpoch, end translate.Physical) error {
	if epoch <= w.looked {
		return nil
	}
	if w.looked >= 0 {
		at, known, err := epochEndAt(ctx, target, w.topic, w.partition, w.looked, node, epoch)
		switch {
		case err != nil:
			return errors.Join(errNotLooked, err)
		case known && at < end:
			return fenceAnew{fmt.Sprintf("epoch %d of %s-%d ends at %d on the target, known is up to %d", w.looked, w.topic,
				w.partition, at, end)}
		}
	}
	w.looked = epoch
	return nil
}

// lookNow looks while nothing is to be sent.
func (w *watched) lookNow(ctx context.Context, target *cluster, end translate.Physical) error {
	node, epoch, ok := target.leader(w.topic, w.partition)
	if !ok {
		return nil
	}
	if err := w.look(ctx, target, node, epoch, end); !errors.Is(err, errNotLooked) {
		return err
	}
	target.kick()
	return ctx.Err()
}

// watchEpochs looks, whenever one of the partition's two leaders changed, whether the log still has what is known of it. A
// target that lost its tail makes the slot be fenced anew, which finds out how much; a source that lost its tail stops the
// partition.
func (p *pump) watchEpochs(ctx context.Context) error {
	_, source, ok := p.flow.source.leader(p.source, p.tp.Partition)
	if ok && source != p.sourceEpoch {
		switch err := p.checkSource(ctx); {
		case errors.Is(err, errNotLooked):
			p.flow.source.kick()
		case err != nil:
			return err
		default:
			p.sourceEpoch = source
		}
	}
	return p.tail.lookNow(ctx, p.flow.target, p.part.PhysicalEnd)
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
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errors.Join(errNotLooked, err)
	case known && end <= p.onSource(last):
		return &trouble{
			fmt.Sprintf("the source's log diverged: its epoch %d ends at %d, and %d was copied from it (unclean leader election)",
				epoch, p.virtual(end), last),
			"records that were copied are gone at the source; compare both clusters, delete the topic on the standby, and let it be copied anew: switchback reseed TOPIC",
		}
	}
	return nil
}
