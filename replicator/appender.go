package replicator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// appender writes to the journal partition of a slot for one reign. What pumps hand in while a batch is under way goes
// together into the next one. A batch whose outcome is not known is sent again, the same bytes, until it is acked; nothing
// else is written under its sequence.
type appender struct {
	slot  *slot
	owner journal.Owner
	ready chan struct{} // capacity 1

	next     int32              // sequence of the next batch; owned by run, read after it ended
	position translate.Physical // after the last acked batch; likewise
	last     journal.Mark       // the last batch acked or read; likewise
	log      watched

	mu    sync.Mutex // guards queue
	queue []appending
}

type appending struct {
	records []journal.Record
	done    chan error // capacity 1
}

const maxAppendBytes = 768 << 10

// newAppender writes behind what was read, which ended with owner's marker.
func newAppender(s *slot, owner journal.Owner, read *journal.Fold) *appender {
	a := &appender{slot: s, owner: owner, ready: make(chan struct{}, 1), position: read.Position(), last: read.Last()}
	a.log = watched{journal.Topic(s.flow.cfg.From, s.flow.cfg.To), s.n, a.last.Epoch}
	return a
}

// wake makes it look whether the journal's leader changed, and at the queue.
func (a *appender) wake() {
	select {
	case a.ready <- struct{}{}:
	default:
	}
}

// append returns when the records are acked, in one batch, or ctx has ended: then it is not known whether they will be.
func (a *appender) append(ctx context.Context, records ...journal.Record) error {
	one := appending{records, make(chan error, 1)}
	a.mu.Lock()
	a.queue = append(a.queue, one)
	a.mu.Unlock()
	a.wake()
	select {
	case err := <-one.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take removes from the queue what goes into the next batch.
func (a *appender) take() []appending {
	a.mu.Lock()
	defer a.mu.Unlock()
	size, i := 0, 0
	for ; i < len(a.queue); i++ {
		for _, r := range a.queue[i].records {
			size += len(r.Key) + len(r.Value) + 32
		}
		if i > 0 && size > maxAppendBytes {
			break
		}
	}
	out := a.queue[:i:i]
	a.queue = a.queue[i:]
	return out
}

// run ends when ctx does, or with the reason why the slot is lost.
func (a *appender) run(ctx context.Context) error {
	for {
		group := a.take()
		if len(group) == 0 {
			if err := a.log.lookNow(ctx, a.slot.flow.target, a.position); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-a.ready:
			}
			continue
		}
		if err := a.write(ctx, group); err != nil {
			return err
		}
		for _, one := range group {
			one.done <- nil
		}
	}
}

func (a *appender) write(ctx context.Context, group []appending) error {
	var records []batch.Record
	now := time.Now().UnixMilli()
	for _, one := range group {
		for _, r := range one.records {
			records = append(records, batch.Record{Timestamp: now, Key: r.Key, Value: r.Value})
		}
	}
	f := a.slot.flow
	raw, err := f.codecs.Encode(records, batch.Params{
		LeaderEpoch: -1,
		Producer:    &batch.Producer{ID: a.owner.ID, Epoch: a.owner.Epoch, FirstSequence: a.next},
	})
	if err != nil {
		return fmt.Errorf("encode %d journal records: %w", len(records), err)
	}
	look := func(ctx context.Context, node int32, epoch translate.RealEpoch) error {
		return a.log.look(ctx, f.target, node, epoch, a.position)
	}
	out := a.slot.produce(ctx, delivery{topic: a.log.topic, id: f.journalID, partition: a.slot.n, bytes: raw}, look, mayRepeat)
	if out.err != nil {
		return fmt.Errorf("write to the journal: %w", out.err)
	}
	if base := translate.Physical(out.base); base != a.position {
		return fenceAnew{fmt.Sprintf("the journal acked at %d, expected was %d", base, a.position)}
	}
	a.last = journal.Mark{Owner: a.owner, Sequence: a.next, Epoch: out.epoch}
	a.next = journal.NextSequence(a.next, int64(len(records)))
	a.position += translate.Physical(len(records))
	return nil
}
