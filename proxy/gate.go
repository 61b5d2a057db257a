package proxy

import (
	"context"
	"sync/atomic"
	"time"
)

// gateClass says what the gate does with a call during a cutover.
type gateClass uint8

const (
	free          gateClass = iota // passes always
	holdAtCutover                  // waits while the gate is shut; the drain waits for its answer
	waitAtCutover                  // waits while the gate is shut; nobody waits for its answer, which may take minutes
	refuse                         // not offered: the connection is closed
)

// gate holds calls while a cutover moves the virtual log. Calls of class holdAtCutover are counted from enter to leave.
//
// Invariant: a call that is inside entered before the gate shut. enter counts first and looks second, hold shuts first and
// drain looks second, so no call slips between them.
type gate struct {
	inside   atomic.Int64
	standing atomic.Int64          // calls that wait
	shut     atomic.Pointer[stand] // nil: open
	pause    atomic.Int64          // ms; the longest wait of the last hold
}

// stand is one time that the gate is shut.
type stand struct {
	opened  chan struct{}             // closed when the gate opens
	emptied chan struct{}             // capacity 1: nothing is inside, look again
	first   atomic.Pointer[time.Time] // since when a call stands; nil: none did
}

// enter lets a call of class holdAtCutover in, after it has waited for the gate to open. It gives up when ctx ends.
// Each nil answer is paired with one leave.
func (g *gate) enter(ctx context.Context) (waited bool, err error) {
	for {
		g.inside.Add(1)
		s := g.shut.Load()
		if s == nil {
			return waited, nil
		}
		g.leave()
		since := time.Now()
		s.first.CompareAndSwap(nil, &since)
		g.standing.Add(1)
		select {
		case <-s.opened:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		g.standing.Add(-1)
		if waited = true; err != nil {
			return true, err
		}
		g.raisePause(time.Since(since))
	}
}

func (g *gate) raisePause(stood time.Duration) {
	ms := int64((stood + time.Millisecond - 1) / time.Millisecond)
	for old := g.pause.Load(); ms > old && !g.pause.CompareAndSwap(old, ms); old = g.pause.Load() {
	}
}

// leave is called when the answer of the call is in from the broker, or can never be.
func (g *gate) leave() {
	if g.inside.Add(-1) > 0 {
		return
	}
	if s := g.shut.Load(); s != nil {
		select {
		case s.emptied <- struct{}{}:
		default:
		}
	}
}

// hold shuts the gate. Holding again while it is shut changes nothing.
func (g *gate) hold() {
	s := &stand{opened: make(chan struct{}), emptied: make(chan struct{}, 1)}
	if g.shut.CompareAndSwap(nil, s) {
		g.pause.Store(0)
	}
}

func (g *gate) isShut() bool { return g.shut.Load() != nil }

// drain waits until nothing is inside.
func (g *gate) drain(ctx context.Context) error {
	s := g.shut.Load()
	if s == nil {
		return errGateOpen
	}
	for g.inside.Load() > 0 {
		select {
		case <-s.emptied:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// release opens the gate; what stood there goes on. The pause is known when it returns, though the calls may not have run yet.
func (g *gate) release() {
	if s := g.shut.Swap(nil); s != nil {
		if first := s.first.Load(); first != nil {
			g.raisePause(time.Since(*first))
		}
		close(s.opened)
	}
}
