package replicator

import (
	"context"
	"sync/atomic"
	"time"
)

// pace lets small things happen together. Under a constant load of little batches all fetchers ask, and all pumps begin their
// rounds, at the same ticks: brokers get few requests with many partitions instead of many with one, and the journal few
// batches with many claims. What is large enough by itself does not wait, nor does anything while somebody waits for the
// pumps to arrive.
type pace struct {
	hurried atomic.Int32 // how many wait for the pumps
}

const (
	tick       = 40 * time.Millisecond
	fetchPhase = 0
	roundPhase = 10 * time.Millisecond // after the fetches of the tick have been answered
	smallRound = 64 << 10              // what has fewer bytes waits for a tick
)

// wait returns at the next tick, phase later.
func (p *pace) wait(ctx context.Context, phase time.Duration) error {
	if p.hurried.Load() > 0 {
		return nil
	}
	now := time.Now().Add(-phase)
	return sleep(ctx, now.Truncate(tick).Add(tick).Sub(now))
}

// hurry ends the waiting until the returned function is called.
func (p *pace) hurry() (enough func()) {
	p.hurried.Add(1)
	return func() { p.hurried.Add(-1) }
}
