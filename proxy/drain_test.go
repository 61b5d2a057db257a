package proxy

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinates makes a broker the coordinator of group g of blue: calls of the group have a link of their own.
func (x *stage) coordinates(broker string) {
	x.t.Helper()
	host, port, err := net.SplitHostPort(x.brokers[broker].listener.Addr().String())
	if err != nil {
		x.t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		x.t.Fatal(err)
	}
	x.p.groups.coordinators().learn("blue", "g", 1, host, int32(n))
}

func joinG() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 5, "g", "consumer", 10_000, 300_000
	return req
}

func syncG() *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, "g", "m", 1
	return req
}

func commitG() *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 7, "g", "m", 1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 3
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return req
}

// The members that a JoinGroup waits for may be at the gate.
func TestTheDrainDoesNotWaitForWhatABrokerMayKeep(t *testing.T) {
	for name, front := range map[string]kmsg.Request{"JoinGroup": joinG(), "SyncGroup": syncG()} {
		t.Run(name, func(t *testing.T) {
			x := newStage(t, nil)
			x.coordinates("green")
			c := x.connect()
			parked := c.send(front)
			x.brokers["green"].next(kmsg.Key(front.Key()))
			produce := produceTo("orders", -1, sampleBatch(-1, 0, 1))
			id := c.send(produce)
			x.brokers["blue"].next(kmsg.Produce).answer(t, produced("orders", 3, 0))
			x.p.gate.hold()
			if err := x.drained(x.brokers["blue"], 5*time.Second); err != nil {
				t.Fatal(err)
			}
			code := int16(0)
			switch r := c.receive(front, parked).(type) {
			case *kmsg.JoinGroupResponse:
				code = r.ErrorCode
			case *kmsg.SyncGroupResponse:
				code = r.ErrorCode
			}
			if code != kerr.NotCoordinator.Code {
				t.Errorf("%s is answered with %d", name, code)
			}
			if p := c.answered(produce, id); p.BaseOffset != 3 || p.ErrorCode != 0 {
				t.Errorf("answer %+v", p)
			}
			x.p.Release() // the cutover goes back
			again := c.send(commitG())
			x.brokers["green"].next(kmsg.OffsetCommit).answer(t, kmsg.NewPtrOffsetCommitResponse())
			c.receive(commitG(), again)
		})
	}
}

func TestTheDrainDoesNotWaitForAFetchBeforeACommit(t *testing.T) {
	x := newStage(t, nil)
	x.coordinates("green")
	c := x.connect()
	fetch, commit := fetchFrom("orders", 7), commitG()
	first := c.send(fetch)
	x.brokers["blue"].next(kmsg.Fetch)
	second := c.send(commit)
	a := x.brokers["green"].next(kmsg.OffsetCommit)
	x.p.gate.hold()
	drained := make(chan error, 1)
	go func() { drained <- x.p.Drain(x.ctx) }()
	if p := c.receive(fetch, first).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 || len(p.RecordBatches) != 0 {
		t.Errorf("answer %+v", p)
	}
	select {
	case err := <-drained:
		t.Fatalf("drained before the commit was answered: %v", err)
	default:
	}
	a.answer(t, kmsg.NewPtrOffsetCommitResponse())
	c.receive(commit, second)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
}

// What went without acks is confirmed by a request of our own, whose turn comes behind the JoinGroup.
func TestTheDrainConfirmsWhatStandsBeforeAJoinGroup(t *testing.T) {
	x := newStage(t, nil)
	x.coordinates("green")
	c := x.connect()
	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1)))
	x.brokers["blue"].next(kmsg.Produce)
	c.send(joinG())
	x.brokers["green"].next(kmsg.JoinGroup)
	x.p.gate.hold()
	if err := x.drained(x.brokers["blue"], 5*time.Second); err != nil {
		t.Fatal(err)
	}
}

// A link that is given up takes the answers with it that are behind on it.
func TestTheDrainWaitsForABatchBehindAFetchOnOneLink(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	fetch, produce := fetchFrom("orders", 7), produceTo("orders", -1, sampleBatch(-1, 0, 1))
	first, second := c.send(fetch), c.send(produce)
	a, b := x.brokers["blue"].next(kmsg.Fetch), x.brokers["blue"].next(kmsg.Produce)
	x.p.gate.hold()
	short, cancel := context.WithTimeout(x.ctx, 4*confirmEvery)
	defer cancel()
	if err := x.p.Drain(short); err == nil {
		t.Fatal("drained while an answer was under way")
	}
	a.answer(t, fetched("orders", 8, nil))
	b.answer(t, produced("orders", 3, 0))
	if p := c.receive(fetch, first).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.HighWatermark != 8 {
		t.Errorf("answer %+v", p)
	}
	c.answered(produce, second)
	if err := x.p.Drain(x.ctx); err != nil {
		t.Fatal(err)
	}
}

// The session may end while a call of it is on its way to the broker.
func TestACallThatWasSentIsWaitedForThoughItsSessionEnds(t *testing.T) {
	for range 20 {
		d := newDesk(t, 1, nil)
		d.s.cancel(nil)
		c := &call{s: d.s, row: &d.p.apis[kmsg.Produce]}
		if err := d.s.push(d.s.ctx, c); err != nil {
			t.Fatalf("the call is not in the queue: %v", err)
		}
	}
}

func TestTheDrainIsNotHeldUpByAFullQueueOfOtherCalls(t *testing.T) {
	x := newStage(t, func(c *Config) { c.Limits.QueuedCalls = 1 })
	c := x.connect()
	blue := x.brokers["blue"]
	c.send(fetchFrom("orders", 0))
	blue.next(kmsg.Fetch) // and kept
	for range 2 {         // the second one finds no room
		c.send(listOffsets("orders"))
		blue.next(kmsg.ListOffsets)
	}
	x.p.gate.hold()
	if err := x.drained(blue, time.Second); err != nil {
		t.Fatal(err)
	}
}
