package replicator

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// What is being written right now does not make a partition lag: under a constant load it has caught up, and stays so.
func TestAPartitionUnderConstantLoadHasCaughtUp(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	ctx, stop := context.WithCancel(p.ctx)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		tick := time.NewTicker(2 * time.Millisecond) // 500 records a second
		defer tick.Stop()
		for ctx.Err() == nil {
			p.blue.client.Produce(ctx, &kgo.Record{Topic: "orders", Value: []byte("v")}, nil)
			<-tick.C
		}
	}()
	const enough = 100 // in a row
	row := 0
	testkit.Eventually(t, patience, "caught up, again and again", func() bool {
		row++
		for _, s := range r.Status() {
			if s.State != StateCaughtUp || s.LagMillis >= caughtUpWithin.Milliseconds() || s.Frontier < 1 {
				row = 0
			}
		}
		return row >= enough && len(r.Status()) == 1
	})
	stop()
	<-loaded
	p.copied(r)
	testkit.Eventually(t, patience, "no lag", func() bool {
		for _, s := range r.Status() {
			if s.State != StateCaughtUp || s.LagMillis != 0 || s.LagRecords != 0 {
				return false
			}
		}
		return true
	})
}

func TestTheLagIsThatOfTheOldestRecordNotCopied(t *testing.T) {
	now := time.Now()
	f := newFeed("orders", [16]byte{}, 0, nil)
	f.answered = now
	if e := f.ends(0); e.stable >= 0 {
		t.Fatalf("before any answer: %+v", e)
	}
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds-100) * time.Second) }
	f.stable, f.high, f.next = 30, 35, 30
	f.see(10, at(1))
	f.see(10, at(2)) // nothing new
	f.see(20, at(10))
	f.see(30, at(50))
	for _, c := range []struct {
		copied int64
		behind int // seconds
	}{{0, 99}, {9, 99}, {10, 90}, {19, 90}, {29, 50}, {30, 0}} {
		e := f.ends(translate.Physical(c.copied))
		if got := int(e.behind.Seconds()); got != c.behind || e.copied != (c.behind == 0) || !e.fetched {
			t.Errorf("copied up to %d: %d s behind, expected %d: %+v", c.copied, got, c.behind, e)
		}
	}
	for i := range 10 * maxSights { // few are kept, and never a later time than the true one
		f.see(translate.Physical(int64(31+i)), now.Add(time.Duration(i)*time.Second))
	}
	if len(f.seen) > maxSights || f.seen[0].at.After(now) || f.seen[0].below < 31 {
		t.Fatalf("%d sights, the first %+v", len(f.seen), f.seen[0])
	}
}

// A target that is slow fills the feeds; the source is not asked then, and is not to be blamed when there is room again.
func TestASourceIsSilentOnlySinceItIsAsked(t *testing.T) {
	var total atomic.Int64
	f := newFeed("orders", [16]byte{}, 0, &total)
	f.begin(0)
	longAgo := time.Now().Add(-time.Minute)
	f.answered, f.bytes = longAgo, feedBytes
	if e := f.ends(0); e.silent != 0 {
		t.Errorf("full, and silent for %v", e.silent)
	}
	f.take()
	if e := f.ends(0); e.silent > time.Second {
		t.Errorf("just emptied, and silent for %v", e.silent)
	}
	f.answered = longAgo // an answer is wanted all the time
	f.take()
	if e := f.ends(0); e.silent < time.Minute {
		t.Errorf("asked for a minute, and silent for %v", e.silent)
	}
}
