package proxy

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// drained drains while the broker answers what the proxy asks itself.
func (x *stage) drained(broker *scripted, within time.Duration) error {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, within)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- x.p.Drain(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case a := <-broker.requests:
			if a.key != int16(kmsg.ApiVersions) {
				x.t.Errorf("the broker got %s", kmsg.NameForKey(a.key))
			}
			a.answer(x.t, kmsg.NewPtrApiVersionsResponse())
		}
	}
}

// nothingPends waits until what the only session has sent is in the queue, and until every call of it had its turn.
func (x *stage) nothingPends() *session {
	x.t.Helper()
	s := x.p.openSessions()[0]
	s.sending <- struct{}{}
	<-s.sending
	testkit.Eventually(x.t, 5*time.Second, "every call had its turn", func() bool {
		for _, l := range s.openLinks() {
			if l.pending.Load() > 0 {
				return false
			}
		}
		return s.pending.Load() == 0
	})
	return s
}

// The session lives on, since the call in front is sent anew. What went without acks to the link that broke is neither
// there nor under way.
func TestACallWithoutAcksOnALinkThatBrokeLeavesTheGate(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	blue := x.brokers["blue"]
	front := listOffsets("orders")
	id := c.send(front)
	blue.next(kmsg.ListOffsets)
	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1)))
	blue.next(kmsg.Produce)
	blue.cut()
	blue.next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 3))
	c.receive(front, id)
	x.nothingPends()
	x.p.gate.hold()
	if err := x.drained(blue, 5*time.Second); err != nil {
		t.Fatalf("%v; inside: %d", err, x.p.gate.inside.Load())
	}
}

func TestABatchWithoutAcksGetsAnotherLinkWhenAnIdleOneWasClosed(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	for range 3 {
		c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1)))
		x.brokers["blue"].next(kmsg.Produce)
		s := x.nothingPends()
		s.openLinks()[0].sentAt = time.Now().Add(-time.Hour)
		x.brokers["blue"].cut()
	}
}

// A broker that does not lead the partition cannot say so otherwise; after a move that is so for every client that has not asked
// for metadata since.
func TestABrokerThatClosesAfterABatchWithoutAcksEndsTheSession(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1)))
	x.brokers["blue"].next(kmsg.Produce)
	x.nothingPends()
	x.brokers["blue"].cut()
	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1)))
	c.closed(5 * time.Second)
}

func TestLinksThatCarriedNoAcksAreClosedAfterAMove(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	at := []string{"green", "blue"}
	for g := translate.Generation(1); g < 5; g++ {
		broker := x.brokers[at[g%2]]
		c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1)))
		broker.next(kmsg.Produce)
		s := x.nothingPends()
		x.p.gate.hold()
		if err := x.drained(broker, 5*time.Second); err != nil {
			t.Fatal(err)
		}
		x.p.Publish(x.route(g+1, at[(g+1)%2]))
		x.p.Release()
		testkit.Eventually(t, 5*time.Second, "the link to the old cluster is closed", func() bool { return len(s.openLinks()) == 0 })
	}
}

// The queue is full, so nobody would wait for the answer.
func TestADrainThatGivesUpLeavesNoAnswerForAnotherCall(t *testing.T) {
	x := newStage(t, func(c *Config) { c.Limits.QueuedCalls = 1 })
	c := x.connect()
	blue := x.brokers["blue"]
	fetch, offsets := fetchFrom("orders", 0), listOffsets("orders")
	first := c.send(fetch)
	parked := blue.next(kmsg.Fetch)
	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 1))) // fills it
	blue.next(kmsg.Produce)
	x.p.gate.hold()
	ctx, cancel := context.WithTimeout(x.ctx, 200*time.Millisecond)
	defer cancel()
	if err := x.p.Drain(ctx); err == nil {
		t.Fatal("drained behind a Fetch that is not answered")
	}
	x.p.Release()
	blue.quiet()
	parked.answer(t, fetched("orders", 0, nil))
	c.receive(fetch, first)
	second := c.send(offsets)
	blue.next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 3))
	c.receive(offsets, second)
	x.nothingPends()
	x.p.gate.hold()
	if err := x.drained(blue, 5*time.Second); err != nil {
		t.Fatalf("%v; inside: %d", err, x.p.gate.inside.Load())
	}
}
