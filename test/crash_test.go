//go:build e2e

package test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/proc"
	"github.com/switchback-proxy/switchback/test/product"
)

// TestKillNineInEveryPhaseOfAMove: the process is killed in one phase after the other and started again. Before Committed the move
// went back, from then on it goes forward; clients lose nothing, and read nothing twice, either way.
func TestKillNineInEveryPhaseOfAMove(t *testing.T) {
	w := newWorld(t, 6, nil)
	w.javaProps = keepMetadata()
	w.fill(t)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 300, 1500))
	run.MarkStart()
	at, forward := "blue", 0
	killedIn := order[1 : len(order)-1]
	for _, phase := range killedIn {
		p.Admin.WaitCaughtUp(t, w.topics(), 5000, 2*time.Minute)
		id, err := p.Admin.StartCutover(other(at))
		if err != nil {
			t.Fatalf("move to %s: %v", other(at), err)
		}
		seen := killAt(t, p, id, phase)
		p.Restart(t)
		end := waitOver(t, p.Admin, id)
		status, err := p.Admin.Status()
		if err != nil {
			t.Fatal(err)
		}
		want := at
		if end == "Done" {
			want = other(at)
			forward++
		}
		if status.Active != want {
			t.Fatalf("killed in %s, the move ended as %s, and %s is active", seen, end, status.Active)
		}
		if rank(seen) >= rank("Committed") && end != "Done" {
			t.Fatalf("killed in %s, the move ended as %s: a committed move has to go on", seen, end)
		}
		t.Logf("killed in %s: %s, %s is active", seen, end, status.Active)
		at = status.Active
		c.waitAcks(t, 50)
	}
	if forward == 0 || forward == len(killedIn) {
		t.Errorf("%d moves of %d went forward: the test did not test both ways", forward, len(killedIn))
	}
	run.Require(run.Finish(check.Config{Readers: readersOf(c.topics, c.readers())}))
}

// order is that of the phases.
var order = []string{"Preflight", "Preparing", "Holding", "Draining", "Sealing", "Translating", "Committed", "Switching", "Reversing", "Done"}

func rank(phase string) int { return slices.Index(order, phase) }

// killAt kills the process as soon as an event shows that the phase has begun, and returns the phase that it showed.
func killAt(t *testing.T, p *product.Product, id, phase string) (seen string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), cutoverTimeout)
	defer cancel()
	err := p.Admin.Events(ctx, id, func(c product.Cutover) bool {
		seen = c.Phase
		return rank(seen) < rank(phase)
	})
	p.Kill()
	if rank(seen) < rank(phase) {
		t.Fatalf("the events of cutover %s ended with phase %q: %v", id, seen, err)
	}
	return seen
}

// waitOver returns how a cutover ended that an earlier process began.
func waitOver(t *testing.T, admin *product.Admin, id string) (phase string) {
	t.Helper()
	proc.Until(t, cutoverTimeout, "the end of cutover "+id, func() error {
		c, err := admin.Cutover(id)
		if err != nil {
			return err
		}
		if phase = c.Phase; phase != "Done" && phase != "Aborted" {
			return fmt.Errorf("in phase %s", phase)
		}
		return nil
	})
	return phase
}
