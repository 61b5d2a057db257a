package replicator

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// refuse answers requests on topic with code for as long as the returned switch is on.
func (s *side) refuse(key kmsg.Key, topic string, code *kerr.Error) *atomic.Bool {
	on := &atomic.Bool{}
	s.kafka.ControlKey(int16(key), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		s.kafka.KeepControl()
		if !on.Load() {
			return nil, nil, false
		}
		id := s.kafka.TopicInfo(topic).TopicID
		mine := func(name string, other [16]byte) bool { return name == topic || other == id }
		kresp := kreq.ResponseKind()
		switch req := kreq.(type) {
		case *kmsg.FetchRequest:
			resp := kresp.(*kmsg.FetchResponse)
			for _, rt := range req.Topics {
				if !mine(rt.Topic, rt.TopicID) {
					return nil, nil, false
				}
				t := kmsg.NewFetchResponseTopic()
				t.Topic, t.TopicID = rt.Topic, rt.TopicID
				for _, rp := range rt.Partitions {
					p := kmsg.NewFetchResponseTopicPartition()
					p.Partition, p.ErrorCode = rp.Partition, code.Code
					t.Partitions = append(t.Partitions, p)
				}
				resp.Topics = append(resp.Topics, t)
			}
		case *kmsg.ProduceRequest:
			resp := kresp.(*kmsg.ProduceResponse)
			for _, rt := range req.Topics {
				if !mine(rt.Topic, rt.TopicID) {
					return nil, nil, false
				}
				t := kmsg.NewProduceResponseTopic()
				t.Topic, t.TopicID = rt.Topic, rt.TopicID
				for _, rp := range rt.Partitions {
					p := kmsg.NewProduceResponseTopicPartition()
					p.Partition, p.ErrorCode = rp.Partition, code.Code
					t.Partitions = append(t.Partitions, p)
				}
				resp.Topics = append(resp.Topics, t)
			}
		case *kmsg.ListOffsetsRequest:
			resp := kresp.(*kmsg.ListOffsetsResponse)
			for _, rt := range req.Topics {
				if rt.Topic != topic {
					return nil, nil, false
				}
				t := kmsg.NewListOffsetsResponseTopic()
				t.Topic = rt.Topic
				for _, rp := range rt.Partitions {
					p := kmsg.NewListOffsetsResponseTopicPartition()
					p.Partition, p.ErrorCode = rp.Partition, code.Code
					t.Partitions = append(t.Partitions, p)
				}
				resp.Topics = append(resp.Topics, t)
			}
		}
		return kresp, nil, true
	})
	return on
}

// The fence may be done while the journal's leader still takes no records: then the move must wait.
func TestNothingIsSettledBeforeTheJournalSaysSo(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.blue.produce(t, "orders", 0, 0, 5, time.Now())
	p.copied(r)
	refused := p.green.refuse(kmsg.Produce, journal.Topic("blue", "green"), kerr.NotEnoughReplicas)
	refused.Store(true)
	sealed, err := r.Seal(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(p.ctx, 100*time.Millisecond)
	defer cancel()
	if err := r.Settled(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("settled with a journal that takes nothing: %v", err)
	}
	refused.Store(false)
	if err := r.Settled(p.ctx); err != nil {
		t.Fatal(err)
	}
	r.stop()
	loaded, err := journal.Load(p.ctx, p.green.client, "blue", "green")
	tp := journal.TP{Topic: "orders"}
	if err != nil || loaded[tp] == nil || loaded[tp].Frontier() != sealed[tp].Frontier {
		t.Fatalf("sealed at %d, the journal has %+v (%v)", sealed[tp].Frontier, loaded[tp], err)
	}
}

// A partition that has no leader while its slot recovers joins later, with all that the journal knows of it.
func TestAPartitionThatJoinsLateKeepsItsMap(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.green.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.blue.produce(t, "orders", 0, 0, 50, time.Now())
	p.copied(r)
	r.stop()
	if err := p.blue.kafka.DeleteRecords("orders", 0, 30); err != nil { // so that a copy from the start on cannot be mistaken for the old one
		t.Fatal(err)
	}
	away := p.green.refuse(kmsg.Fetch, "orders", kerr.NotLeaderForPartition)
	away.Store(true)
	cfg := p.config(p.blue, p.green)
	cfg.LeaderTimeout = 200 * time.Millisecond
	r = p.start(cfg)
	pump := p.late(r)
	away.Store(false)
	p.blue.produce(t, "orders", 0, 50, 5, time.Now())
	p.copied(r)
	m, _ := r.Map(pump.tp)
	if n := len(p.green.read(t, "orders", 0)); n != 55 || m.Start() != 0 || len(r.Strays()) > 0 {
		t.Fatalf("%d records on green of 55, the map begins at %d, strays %v", n, m.Start(), r.Strays())
	}
}

// late waits until the slot of orders has been recovered without it.
func (p *pair) late(r *running) *pump {
	p.t.Helper()
	tp := journal.TP{Topic: "orders"}
	testkit.Eventually(p.t, patience, "the slot is owned", func() bool {
		pump := r.pump(tp)
		if pump == nil {
			return false
		}
		pump.slot.mu.Lock()
		defer pump.slot.mu.Unlock()
		return closed(pump.slot.settled)
	})
	pump := r.pump(tp)
	if s := pump.status(); s.State != StateProbing {
		p.t.Fatalf("orders is %s", s.State)
	}
	return pump
}

// The same in the third generation, in a process that goes on: what is below the native run stays in the map.
func TestALateJoinInALaterGenerationLosesNothing(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.green.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.blue.produce(t, "orders", 0, 0, 50, time.Now())
	p.copied(r)
	sealed, err := r.Seal(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Settled(p.ctx); err != nil {
		t.Fatal(err)
	}
	r.stop()
	tp := journal.TP{Topic: "orders"}
	s := sealed[tp]
	p.green.produce(t, "orders", 0, 1000, 5, time.Now())
	p.blue.produce(t, "orders", 0, 1000, 5, time.Now()) // the copies
	cfg := p.config(p.blue, p.green)
	cfg.Generation, cfg.LeaderTimeout = 3, 200*time.Millisecond
	cfg.Eras = func(string, int) [][]control.Era {
		return [][]control.Era{{
			{Generation: 1, Cluster: "blue"},
			{Generation: 2, Cluster: "green", Virtual: s.Frontier, Physical: s.Physical, Shift: 100, FirstEpoch: 100},
			{Generation: 3, Cluster: "blue", Virtual: s.Frontier + 5, Physical: 55, Shift: 200, FirstEpoch: 200},
		}}
	}
	r = p.start(cfg)
	p.copied(r)
	away := p.green.refuse(kmsg.Fetch, "orders", kerr.NotLeaderForPartition)
	away.Store(true)
	slot := r.pump(tp).slot
	before := slot.ownerNow()
	slot.mu.Lock()
	slot.settled = make(chan struct{})
	slot.mu.Unlock()
	slot.end(fenceAnew{"a test asks for it"})
	testkit.Eventually(t, patience, "slot is fenced anew", func() bool { return slot.ownerNow() != before })
	p.late(r)
	away.Store(false)
	p.copied(r)
	m, _ := r.Map(tp)
	for v := range s.Frontier + 5 {
		if a := m.ToPhysical(v); a.Kind != translate.Record {
			t.Fatalf("%d is %v now", v, a)
		}
	}
}

// What was found wrong of a partition is found again in each reign, also in one that reads only the end of the journal.
func TestAStoppedPartitionStaysStoppedWhenTheSlotIsOwnedAnew(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	r.stop()
	if err := p.blue.kafka.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 100, 4, time.Now())
	r = p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "the source topic was deleted")
	slot := r.pump(journal.TP{Topic: "orders"}).slot
	for range 2 {
		before := slot.ownerNow()
		slot.mu.Lock()
		slot.settled = make(chan struct{})
		settled := slot.settled
		slot.mu.Unlock()
		slot.end(errTouch)
		await(t, "the slot is owned anew", settled)
		if now := slot.ownerNow(); now == before {
			t.Fatalf("the slot was not owned anew: %v", now)
		}
		stopsWith(t, r, "orders", "the source topic was deleted")
	}
	if n := len(p.green.read(t, "orders", 0)); n != 10 {
		t.Fatalf("%d records on green of 10", n)
	}
}

func TestAnUnknownLogStartIsAskedForAgain(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 3, time.Now())
	away := p.blue.refuse(kmsg.ListOffsets, "orders", kerr.LeaderNotAvailable)
	away.Store(true)
	cfg := p.config(p.blue, p.green)
	cfg.LeaderTimeout = 200 * time.Millisecond
	r := p.start(cfg)
	stopsWith(t, r, "orders", "log start is not known")
	away.Store(false)
	testkit.Eventually(t, patience, "orders is not stopped any more", func() bool { return statusOf(r, "orders", 0).State != StateStopped })
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
}

// What was judged up to the marker of the seal is settled, also of a topic that the source does not show any more by then. The settled
// records are so large that they take several batches of the journal.
func TestATopicThatIsHiddenBehindTheSealIsSettled(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 4, nil)
	cfg := p.config(p.blue, p.green)
	cfg.Slots = 1
	r := p.start(cfg)
	for n := range int32(4) {
		p.blue.produce(t, "orders", n, 0, 5, time.Now())
	}
	p.copied(r)
	for _, pump := range r.allPumps() {
		pump.mu.Lock()
		for id := range int64(maxAppendBytes / 30) {
			pump.part.Producers.Add(id, 0, 0, 0, 0, time.Now().UnixMilli())
		}
		pump.mu.Unlock()
	}
	refused := p.green.refuse(kmsg.Produce, journal.Topic("blue", "green"), kerr.NotEnoughReplicas)
	refused.Store(true)
	sealed, err := r.Seal(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	p.hide(t, "orders", kerr.LeaderNotAvailable, 1)
	stopsWith(t, r, "orders", "not on the source any more")
	refused.Store(false)
	if err := r.Settled(p.ctx); err != nil {
		t.Fatal(err)
	}
	r.stop()
	loaded, err := journal.Load(p.ctx, p.green.client, "blue", "green")
	if err != nil {
		t.Fatal(err)
	}
	for tp, at := range sealed {
		if part := loaded[tp]; part.Frontier() != at.Frontier {
			t.Errorf("%v is sealed at %d, the journal has it up to %d", tp, at.Frontier, part.Frontier())
		}
	}
}

// The reign that sealed is lost before it has settled, and the one after it cannot read the log: then nobody has settled it.
func TestAPartitionThatTheNextReignOfASealCannotReadIsNotSettled(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	cfg := p.config(p.blue, p.green)
	cfg.LeaderTimeout = 200 * time.Millisecond
	r := p.start(cfg)
	p.copied(r)
	p.blue.produce(t, "orders", 0, 0, 5, time.Now())
	p.copied(r)
	refused := p.green.refuse(kmsg.Produce, journal.Topic("blue", "green"), kerr.NotEnoughReplicas)
	refused.Store(true)
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.green.refuse(kmsg.Fetch, "orders", kerr.NotLeaderForPartition).Store(true)
	slot := r.pump(journal.TP{Topic: "orders"}).slot
	before := slot.ownerNow()
	slot.mu.Lock()
	slot.abandon(errTouch)
	slot.mu.Unlock()
	testkit.Eventually(t, patience, "slot is fenced anew", func() bool { return slot.ownerNow() != before })
	refused.Store(false)
	ctx, cancel := context.WithTimeout(p.ctx, time.Second)
	defer cancel()
	if err := r.Settled(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("settled with a log that was not read: %v", err)
	}
}

// A target whose brokers are there and take nothing must not look as if all were well.
func TestATargetThatTakesNothingIsAReason(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	on := p.green.refuse(kmsg.Produce, "orders", kerr.NotEnoughReplicas)
	on.Store(true)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	testkit.Eventually(t, patience, "the reason is shown", func() bool {
		s := statusOf(r, "orders", 0)
		return s.State == StateCopying && strings.Contains(s.Reason, "has not taken what was sent") && s.Hint != ""
	})
	on.Store(false)
	p.copied(r)
	testkit.Eventually(t, patience, "the reason is gone", func() bool {
		s := statusOf(r, "orders", 0)
		return s.State == StateCaughtUp && s.Reason == ""
	})
}
