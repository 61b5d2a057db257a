package control

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokenLog is a control log that can be read, and nothing else: its coordinator loads, and what is written gets no answer.
type brokenLog struct {
	sent   atomic.Pointer[kmsg.ProduceRequest] // the first batch that got no answer, and did not land
	mended atomic.Bool
	resent atomic.Bool // it was sent once more, to the mended log
}

func (p pair) breakLog(cluster string) *brokenLog {
	b, c := &brokenLog{}, p.clusters[cluster]
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		if b.mended.Load() {
			if first := b.sent.Load(); first != nil && bytes.Equal(req.Topics[0].Partitions[0].Records, first.Topics[0].Partitions[0].Records) {
				b.resent.Store(true)
			}
			return nil, nil, false
		}
		b.sent.CompareAndSwap(nil, req)
		return nil, errors.New("closed"), true
	})
	c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if b.mended.Load() {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, nil, true
	})
	return b
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// commitUnanswered is a driver that waits for the answer to Committed.
func (p pair) commitUnanswered(t *testing.T) (*Store, *brokenLog) {
	t.Helper()
	ctx, s := testContext(t), p.store()
	must(t, s.Fence(ctx))
	must(t, s.Save(ctx, sampleState(1, "blue", "green", Translating)))
	must(t, s.PutTopics(ctx, "green", []Topic{sampleTopic()}))
	green := p.breakLog("green")
	if err := s.Save(soon(t), sampleState(2, "green", "blue", Committed)); err == nil || green.sent.Load() == nil {
		t.Fatalf("Committed was not sent, or answered: %v", err)
	}
	return s, green
}

// Whether it was written is told by the target's log behind a fence, and by nothing else: its batch may still land.
func TestALogThatCannotBeFencedDecidesNothing(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	driver, green := p.commitUnanswered(t)
	for name, s := range map[string]*Store{"the driver": driver, "its successor": p.store()} {
		must(t, s.Fence(soon(t)))
		snap, err := s.Load(ctx)
		if !errors.Is(err, ErrUndecided) || len(snap.Unread) != 1 || snap.Unread[0] != "green" {
			t.Fatalf("%s reads generation %d, unread %v, error %v", name, snap.State.Generation, snap.Unread, err)
		}
	}
	green.mended.Store(true)
	leader := p.clients["green"].Broker(int(p.clusters["green"].LeaderFor(topicName, 0)))
	resp, err := leader.Request(ctx, pinned{green.sent.Load(), maxProduce}) // it lands late
	must(t, err)
	must(t, checkCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode))
	must(t, driver.Fence(ctx))
	snap, err := driver.Load(ctx)
	must(t, err)
	if snap.State.Generation != 2 || snap.State.Active != "green" || len(snap.Unread) != 0 {
		t.Errorf("behind the fence: %+v, unread %v", snap.State, snap.Unread)
	}
}

func TestWhatWasSentBeforeAFenceThatFailedIsNotSentAgain(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s, green := p.commitUnanswered(t)
	must(t, s.Fence(soon(t)))
	green.mended.Store(true)
	must(t, s.Save(ctx, sampleState(1, "blue", "green", Aborted))) // with a copy to green
	snap, err := s.Load(ctx)
	must(t, err)
	if snap.State.Generation != 1 || snap.State.Phase != Aborted || len(snap.Unread) != 0 {
		t.Errorf("%+v, unread %v", snap.State, snap.Unread)
	}
	if green.resent.Load() {
		t.Error("Committed was sent again")
	}
}

func TestAStandbyThatCannotBeFencedKeepsNobodyFromServing(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	first := p.store()
	must(t, first.Fence(ctx))
	must(t, first.Save(ctx, sampleState(1, "blue", "green", Idle)))
	green := p.breakLog("green")
	s := p.store()
	must(t, s.Fence(soon(t)))
	snap, err := s.Load(ctx)
	must(t, err)
	if snap.State.Generation != 1 || len(snap.Unread) != 1 || !strings.Contains(snap.Assumed, "green") {
		t.Fatalf("%+v", snap)
	}
	if err := s.FenceRest(soon(t)); err == nil {
		t.Error("green is said to be fenced")
	}
	green.mended.Store(true)
	must(t, s.FenceRest(ctx))
	snap, err = s.Load(ctx)
	must(t, err)
	if len(snap.Unread) != 0 || snap.Assumed != "" {
		t.Errorf("after the fence: unread %v, assumed %q", snap.Unread, snap.Assumed)
	}
}

// Nobody is served then, so the reason is all that an operator has.
func TestTheFirstStartSaysWhyALogCannotBeFenced(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	p.breakLog("blue")
	s := p.store()
	must(t, s.Fence(soon(t)))
	snap, err := s.Load(ctx)
	must(t, err)
	if !strings.Contains(snap.Assumed, "blue") || !strings.Contains(snap.Assumed, kerr.CoordinatorLoadInProgress.Message) {
		t.Errorf("assumed %q", snap.Assumed)
	}
}
