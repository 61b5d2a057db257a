package replicator

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// C06. A flow dies at a random step, before a request is delivered or after it, of the journal or of the data, and another
// one goes on. Old timestamps: no batch may be sent twice then, so the same is tried with records that are days old.
func TestACrashAtAnyStepLeavesTheMapExact(t *testing.T) {
	for _, age := range []time.Duration{0, 72 * time.Hour} {
		t.Run("age "+age.String(), func(t *testing.T) { crashes(t, age) })
	}
}

func crashes(t *testing.T, age time.Duration) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	p.green.create(t, "orders", 2, nil)
	random := rand.New(rand.NewPCG(1, uint64(age)))
	at := time.Now().Add(-age)

	var left atomic.Int64 // requests until something happens
	var action atomic.Pointer[crash]
	p.green.onProduce([]string{"orders"}, func(data bool) error {
		c := action.Load()
		if c == nil || c.data != data || left.Add(-1) >= 0 {
			return nil
		}
		c.once.Do(func() { close(c.happened) })
		c.link.cut.Store(true)
		if c.drop {
			return errCut
		}
		return nil
	})
	n := 0
	for i := range 16 {
		l := newLink(t, p.green)
		c := &crash{link: l, data: i%2 == 0, drop: i/2%2 == 0, happened: make(chan struct{})}
		left.Store(random.Int64N(6))
		action.Store(c)
		cfg := p.config(p.blue, p.green)
		cfg.Target = l.client
		r := p.start(cfg)
		testkit.Eventually(t, patience, "crash happens", func() bool {
			p.blue.produce(t, "orders", int32(n/10%2), n, 1+random.IntN(5), at)
			n += 10
			return closed(c.happened)
		})
		r.stop()
	}
	action.Store(nil)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	p.exact(r, p.blue, p.green, "orders", 1)
}

type crash struct {
	link     *link
	data     bool // at a request with data; else with journal records
	drop     bool // the request is not delivered; else its answer is lost
	once     sync.Once
	happened chan struct{}
}

// The link breaks, again and again, and the process lives.
func TestABrokenLinkLosesNothing(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	l := newLink(t, p.green)
	cfg := p.config(p.blue, p.green)
	cfg.Target = l.client
	r := p.start(cfg)
	n := 0
	for i := range 12 {
		for range 5 {
			p.blue.produce(t, "orders", int32(n/10%2), n, 3, time.Now().Add(-time.Duration(i%2)*72*time.Hour))
			n += 10
		}
		l.cut.Store(true)
		time.AfterFunc(15*time.Millisecond, func() { l.cut.Store(false) })
		testkit.Eventually(t, patience, "link is back", func() bool { return !l.cut.Load() })
	}
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	p.exact(r, p.blue, p.green, "orders", 1)
}

// Two processes want the same slots: at every instant one of them at most writes, and what both have written is exact.
func TestTwoProcessesThatFightForASlotStayExact(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	a, b := p.start(p.config(p.blue, p.green)), p.start(p.config(p.blue, p.green))
	p.copied(a)
	n := 0
	for i := range 6 { // they take the slot from each other
		slot := a.pump(journal.TP{Topic: "orders"}).slot
		before := slot.ownerNow()
		testkit.Eventually(t, patience, "slot is owned anew "+strconv.Itoa(i), func() bool {
			p.blue.produce(t, "orders", int32(n%2), n*10, 3, time.Now())
			n++
			return slot.ownerNow() != before
		})
	}
	b.stop()
	p.copied(a)
	p.exact(a, p.blue, p.green, "orders", 0)
	p.exact(a, p.blue, p.green, "orders", 1)
}
