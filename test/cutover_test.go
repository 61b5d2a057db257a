//go:build e2e

package test

import (
	"context"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/test/faultlink"
	"github.com/switchback-proxy/switchback/test/product"
)

const cutoverTimeout = 90 * time.Second

// TestLiveClientsCrossTenTimes: no client notices ten planned moves there and back, under load.
func TestLiveClientsCrossTenTimes(t *testing.T) {
	w := newWorld(t, int32(size(t, "PARTITIONS", 12, 30)), nil)
	w.fill(t)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 600, 2000))
	run.MarkStart()
	m := &mover{world: w, run: run, crowd: c, product: p, at: "blue"}
	for range size(t, "CUTOVERS", 10, 10) {
		m.move(t)
	}
	report := run.Finish(check.Config{Readers: readersOf(c.topics, c.readers())})
	run.Require(report)
	requireFirstEpochs(t, w)
	t.Logf("pauses by the product's own account: %v; longest without an ack: %s; longest without a record read: %s",
		m.pauses, report.LongestAckPause, report.LongestReadPause)
}

// TestLiveClientsCrossWithAnswersLostAtTheGate: the same, while at each move the answers in flight are lost and all
// connections cut. A retry must find its first copy on the other side.
func TestLiveClientsCrossWithAnswersLostAtTheGate(t *testing.T) {
	w := newWorld(t, int32(size(t, "PARTITIONS", 12, 30)), nil)
	w.fill(t)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs(), AdvertisedHost: "127.0.0.2"})
	first, ports := p.Ports()
	relay := faultlink.Start(t, faultlink.Config{From: "127.0.0.2", To: "127.0.0.1", First: first, Ports: ports})
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 600, 2000))
	run.MarkStart()
	began := time.Now()
	m := &mover{world: w, run: run, crowd: c, product: p, at: "blue", relay: relay}
	for range size(t, "LOSSY_CUTOVERS", 6, 10) {
		m.move(t)
	}
	elapsed := time.Since(began)
	report := run.Finish(check.Config{Readers: readersOf(c.topics, c.readers())})
	run.Require(report)
	requireFirstEpochs(t, w)
	if relay.DroppedBytes() == 0 {
		t.Error("no answer was lost: the test did not test")
	}
	t.Logf("%d bytes of answers lost; longest without an ack: %s", relay.DroppedBytes(), report.LongestAckPause)
	requireNoSpin(t, relay, elapsed)
}

// mover moves the clients to and fro. With a relay it loses answers at each gate.
type mover struct {
	world   *world
	run     *clients.Run
	crowd   *crowd
	product *product.Product
	relay   *faultlink.Relay // may be nil
	at      string           // the active cluster
	moves   int
	pauses  []time.Duration // by the product's own account
}

// move waits until the other side is ready, moves, and sees that everyone goes on: who hangs is found at the move that did it.
func (m *mover) move(t *testing.T) {
	t.Helper()
	admin := m.product.Admin
	admin.WaitCaughtUp(t, m.world.topics(), 5000, 2*time.Minute)
	m.at = other(m.at)
	m.moves++
	id, err := admin.StartCutover(m.at)
	if err != nil {
		t.Fatalf("move %d to %s: %v", m.moves, m.at, err)
	}
	if m.relay != nil {
		loseAnswers(t, admin, id, m.relay, m.moves%2 == 0)
	}
	done := admin.WaitCutover(t, id, cutoverTimeout)
	m.pauses = append(m.pauses, time.Duration(done.PauseMS)*time.Millisecond)
	t.Logf("move %d to %s: pause %d ms (%s)", m.moves, m.at, done.PauseMS, done.UnderGate())
	m.crowd.waitAcks(t, 50)
	if failed := m.run.Errors(); failed > 0 {
		t.Fatalf("after move %d to %s, applications saw %d errors:\n%s", m.moves, m.at, failed, m.run.Why())
	}
	if status, err := admin.Status(); err != nil || status.Active != m.at {
		t.Fatalf("after move %d the active cluster is %q, want %q (%v)", m.moves, status.Active, m.at, err)
	}
}

// loseAnswers drops what brokers answer from the moment the gate begins to shut, or early from Preparing on, until it is shut;
// then it cuts all connections.
func loseAnswers(t *testing.T, admin *product.Admin, id string, relay *faultlink.Relay, early bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cutoverTimeout)
	defer cancel()
	cut := false
	err := admin.Events(ctx, id, func(c product.Cutover) bool {
		switch c.Phase {
		case "Preflight":
			return true
		case "Preparing":
			relay.DropAnswers(early)
			return true
		case "Holding":
			relay.DropAnswers(true)
			return true
		default: // the gate is shut, or it is all over
			relay.Cut()
			relay.DropAnswers(false)
			cut = true
			return false
		}
	})
	relay.DropAnswers(false)
	if !cut {
		relay.Cut()
		t.Errorf("the events of cutover %s showed no phase after Holding: %v", id, err)
	}
}

// requireFirstEpochs fails if a producer had to begin a new epoch: it got a sequence error, and what it writes again under a new
// epoch is not known as a duplicate by anybody.
func requireFirstEpochs(t *testing.T, w *world) {
	t.Helper()
	const shown = 1 << 40 // ids below it are those of slots, and of producers that bypass the proxy
	for partition := range w.partitions {
		for _, side := range []*cluster.Cluster{w.blue, w.green} {
			for _, r := range side.ReadPartition(t, orders, partition) {
				if r.ProducerID >= shown && r.ProducerEpoch > 0 {
					t.Errorf("%s-%d: %.40q at %d was written by producer %d in epoch %d", orders, partition, r.Value, r.Offset, r.ProducerID, r.ProducerEpoch)
					return
				}
			}
		}
	}
}

// requireNoSpin fails if some client fetched so often that it must have gone in a circle.
func requireNoSpin(t *testing.T, relay *faultlink.Relay, elapsed time.Duration) {
	t.Helper()
	const fetch, limit = 1, 500 // a second
	for call, n := range relay.Counts() {
		if rate := float64(n) / elapsed.Seconds(); call.Key == fetch && rate > limit {
			t.Errorf("%s fetched %.0f times a second", call.Client, rate)
		}
	}
}
