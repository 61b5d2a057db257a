package replicator

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// endsEpochs makes the cluster say, once for a leader epoch of a topic, that it ends at 0: its tail was lost. asked is closed then.
func (s *side) endsEpochs(topic string, epoch int32) (asked chan struct{}) {
	asked = make(chan struct{})
	s.kafka.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.OffsetForLeaderEpochRequest)
		one := req.Topics[0]
		if one.Topic != topic || one.Partitions[0].LeaderEpoch != epoch {
			s.kafka.KeepControl()
			return nil, nil, false
		}
		close(asked)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = topic
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.Partition, p.LeaderEpoch, p.EndOffset = one.Partitions[0].Partition, epoch, 0
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
		return resp, nil, true
	})
	return asked
}

func await(t *testing.T, what string, c chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not in time: %s", what)
	}
}

// The leader epoch moves on, and is seen to, between a pump's look at it and its batch: the log is looked at before anything is
// sent under the new epoch, by the epoch before it (PROTOCOL §3, marker lost uncleanly).
func TestANewLeaderIsLookedAtBeforeAnythingIsSentToIt(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 3, time.Now())
	cfg := p.config(p.blue, p.green)
	cfg.MetadataInterval = time.Hour
	r := p.start(cfg)
	p.copied(r)
	slot := r.pump(journal.TP{Topic: "orders"}).slot
	before := slot.ownerNow()
	_, epoch, _ := r.target.leader("orders", 0)
	asked := p.green.endsEpochs("orders", int32(epoch))

	var moved, early atomic.Bool
	p.green.onProduce([]string{"orders"}, func(data bool) error {
		switch {
		case data && !closed(asked):
			early.Store(true)
		case !data && moved.CompareAndSwap(false, true): // the claim
			p.green.kafka.SleepControl(func() {
				if err := p.green.kafka.MoveTopicPartition("orders", 0, p.green.kafka.LeaderFor("orders", 0)); err != nil {
					t.Error(err)
				}
				if err := r.target.refresh(p.ctx); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	})
	p.blue.produce(t, "orders", 0, 10, 3, time.Now())
	await(t, "the end of the old epoch is asked for", asked)
	testkit.Eventually(t, patience, "slot is fenced anew", func() bool { return slot.ownerNow() != before })
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	if early.Load() {
		t.Fatal("data was sent before the new leader was looked at")
	}
}

func TestTheJournalsLeaderIsWatchedWhileNothingIsCopied(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 3, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	slot := r.pump(journal.TP{Topic: "orders"}).slot
	before := slot.ownerNow()
	topic := journal.Topic("blue", "green")
	_, epoch, _ := r.target.leader(topic, slot.n)
	asked := p.green.endsEpochs(topic, int32(epoch))
	if err := p.green.kafka.MoveTopicPartition(topic, slot.n, p.green.kafka.LeaderFor(topic, slot.n)); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the journal's old epoch is asked for", asked)
	testkit.Eventually(t, patience, "slot is fenced anew", func() bool { return slot.ownerNow() != before })
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
}

func TestNothingIsResumedBehindAJournalThatIsAnotherOne(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 3, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	slot := r.pump(journal.TP{Topic: "orders"}).slot
	owner, topic := slot.ownerNow(), journal.Topic("blue", "green")
	whole := journal.NewFold()
	if err := whole.Replay(p.ctx, p.green.client, topic, r.journalID, slot.n, -1, owner); err != nil {
		t.Fatal(err)
	}
	if whole.Last().Owner != owner || whole.Last().Epoch < 0 {
		t.Fatalf("the marker read last is %+v", whole.Last())
	}
	r.stop()
	other := whole.Last()
	other.Epoch++
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	f := journal.ResumeFold(whole, owner, 0, whole.Position(), other)
	next := journal.Owner{ID: owner.ID, Epoch: owner.Epoch + 1}
	if err := f.Replay(ctx, p.green.client, topic, r.journalID, slot.n, -1, next); !errors.Is(err, journal.ErrTailLost) || !strings.Contains(err.Error(), topic) {
		t.Fatalf("resumed: %v", err)
	}
}
