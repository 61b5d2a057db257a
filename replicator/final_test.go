package replicator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A group whose members went to the target by themselves keeps what it has there; one with members on both sides stops the move.
func TestAGroupThatMovedByItselfIsLeftAloneAndOneOnBothSidesIsAnError(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 100, time.Now())
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 40})
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.standsAt(t, p.green, "g", "orders", 0, 41)
	join(t, p, p.green)
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 60}) // an old offset that somebody sets by hand
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := r.FinalOffsets(p.ctx, noMembers); err != nil || n != 0 {
		t.Fatalf("%d offsets, %v; want the group left alone", n, err)
	}
	if s := r.GroupStatus(); len(s) != 1 || s[0].State != GroupBlocked {
		t.Errorf("status %+v, want one blocked group", s)
	}
	join(t, p, p.blue)
	if _, err := r.FinalOffsets(p.ctx, noMembers); !errors.Is(err, kerr.UnknownMemberID) {
		t.Errorf("members on both sides: %v", err)
	}
}

// join makes a member of group g that reads orders, and waits until it has its partition.
func join(t *testing.T, p *pair, side *side) {
	t.Helper()
	assigned := make(chan struct{}, 1)
	member, err := kgo.NewClient(append(side.client.Opts(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			if len(got["orders"]) > 0 {
				assigned <- struct{}{}
			}
		}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	go member.PollFetches(p.ctx)
	select {
	case <-assigned:
	case <-p.ctx.Done():
		t.Fatal("the member got nothing")
	}
}
