package replicator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
)

// holdBack lets requests of a kind wait until release is called, from the next one on. asked counts them.
func (s *side) holdBack(t *testing.T, key int16) (asked *atomic.Int32, release func()) {
	t.Helper()
	asked = &atomic.Int32{}
	free, open := context.WithCancel(context.Background())
	t.Cleanup(open)
	s.kafka.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) {
		s.kafka.KeepControl()
		asked.Add(1)
		if free.Err() == nil {
			s.kafka.SleepControl(func() { <-free.Done() })
		}
		return nil, nil, false
	})
	return asked, open
}

// ends fails the test when do does not return in time.
func (p *pair) ends(what string, do func() error) error {
	p.t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		p.t.Fatalf("%s did not end in time", what)
		return nil
	}
}

func TestSealWaitsForNoMoreThanTheOffsetsOfOneGroupAndNotBeyondItsContext(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	stored, release := p.green.holdBack(t, int16(kmsg.OffsetCommit))
	groups := []string{"a", "b", "c"}
	for _, g := range groups {
		p.blue.commit(t, p, g, "orders", map[int32]int64{0: 5})
	}
	testkit.Eventually(t, patience, "offsets are being stored", func() bool { return stored.Load() > 0 })
	ctx, cancel := context.WithTimeout(p.ctx, 50*time.Millisecond)
	defer cancel()
	err := p.ends("Seal", func() error { _, err := r.Seal(ctx); return err })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Seal: %v", err)
	}
	_ = p.ends("Unseal", func() error { r.Unseal(); return nil })
	sealed := make(chan error, 1)
	go func() {
		_, err := r.Seal(p.ctx)
		sealed <- err
	}()
	testkit.Eventually(t, patience, "the seal waits", func() bool {
		r.groups.mu.Lock()
		defer r.groups.mu.Unlock()
		return r.groups.paused
	})
	release()
	if err := <-sealed; err != nil {
		t.Fatal(err)
	}
	if n := stored.Load(); n != 1 {
		t.Errorf("offsets of %d groups were stored before the seal had ended", n)
	}
	if _, err := r.FinalOffsets(p.ctx, noMembers); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		p.standsAt(t, p.green, g, "orders", 0, 6)
	}
}

func TestRefreshDoesNotWaitForAnotherOneBeyondItsContext(t *testing.T) {
	p := newPair(t)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	for _, other := range []token{r.source.refreshing, r.discovering} {
		if err := other.take(p.ctx); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(p.ctx, 50*time.Millisecond)
		err := p.ends("Refresh", func() error { return r.Refresh(ctx) })
		cancel()
		other.put()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Refresh: %v", err)
		}
	}
}

// lateCommit lets an offset of group g, set on the source, be stored on the target in a request that is given up and carried
// out after meanwhile.
func (p *pair) lateCommit(r *running, at int64, meanwhile func()) {
	p.t.Helper()
	stored, release := p.green.holdBack(p.t, int16(kmsg.OffsetCommit))
	p.blue.commit(p.t, p, "g", "orders", map[int32]int64{0: at})
	ctx, cancel := context.WithCancel(p.ctx)
	polled := make(chan error, 1)
	go func() { polled <- r.groups.poll(ctx) }()
	testkit.Eventually(p.t, patience, "the offset is on its way", func() bool { return stored.Load() > 0 })
	cancel()
	if err := <-polled; err == nil {
		p.t.Fatal("a poll without an answer succeeded")
	}
	meanwhile()
	release()
	p.standsAt(p.t, p.green, "g", "orders", 0, at+1)
}

func TestAnOffsetThatWasStoredWithoutAnAnswerIsNotLeftThere(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 100, time.Now())
	cfg := p.config(p.blue, p.green)
	cfg.CheckpointInterval = time.Hour
	r := p.start(cfg)
	p.copied(r)
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 20})
	if err := r.groups.poll(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.lateCommit(r, 50, func() {})
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 20}) // what the target was last known to have
	if err := r.groups.poll(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.standsAt(t, p.green, "g", "orders", 0, 21)

	// Late enough to overwrite what was stored after it.
	p.green.commit(t, p, "g", "orders", map[int32]int64{0: 51})
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.FinalOffsets(p.ctx, noMembers); err != nil {
		t.Fatal(err)
	}
	p.standsAt(t, p.green, "g", "orders", 0, 21)
}

func TestAGroupThatWasStoredWithoutAnAnswerDoesNotComeBack(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	cfg := p.config(p.blue, p.green)
	cfg.CheckpointInterval = time.Hour
	r := p.start(cfg)
	p.copied(r)
	p.lateCommit(r, 5, func() {})
	if _, err := kadm.NewClient(p.blue.client).DeleteGroup(p.ctx, "g"); err != nil {
		t.Fatal(err)
	}
	if err := r.groups.poll(p.ctx); err != nil {
		t.Fatal(err)
	}
	p.standsAt(t, p.green, "g", "orders", 0, -1)

	p.green.commit(t, p, "g", "orders", map[int32]int64{0: 6}) // late enough to come behind the deletion
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.FinalOffsets(p.ctx, noMembers); err != nil {
		t.Fatal(err)
	}
	p.standsAt(t, p.green, "g", "orders", 0, -1)
}
