package replicator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// slot is a group of partitions that one process owns. Its goroutine goes through reigns:
//
//	own → fence → replay → recover → run pumps (or, when sealed, only hold still) → lose
//
// Losing it, by whatever reason, ends the context of all that the reign runs.
type slot struct {
	flow *Flow
	n    int32
	log  zerolog.Logger
	wake chan struct{} // capacity 1: look at the pumps again

	// gate: whoever produces under the slot's id holds it shared; a fence of single partitions, while the others go on, holds
	// it alone. Held across I/O, by design.
	gate sync.RWMutex

	kept remains // what the last reign left behind; owned by run

	mu      sync.Mutex // guards what follows
	pumps   []*pump
	mode    mode
	done    chan struct{}           // closed when a reign has recovered in this mode
	settled chan struct{}           // closed when the journal has settled records of all that it recovered; of a seal: of the whole slot
	reigned chan struct{}           // done of the last reign
	abandon context.CancelCauseFunc // ends the present reign; nil if there is none
	owner   journal.Owner
	ahead   *ahead // half of the fence of the next reign; nil: none
	trouble error  // why the slot is not owned; nil if it is
}

type mode uint8

const (
	copying mode = iota
	sealed       // fenced anew, and nothing is written
)

// ahead is the half of a fence that stops nothing: the next epoch of the slot, and a transaction over its partitions that only
// waits for its end. Until then the reign before it goes on, as a zombie may, but can fence nothing.
type ahead struct {
	owner journal.Owner  // zero: not known
	pumps map[*pump]bool // in the transaction, with the journal's partition; nil: there is none
}

// errAhead ends a reign because it has to fence, and its successor has the epoch for that.
var errAhead = errors.New("the slot is fenced anew, because the fence of its seal was prepared")

// remains says that parts are what the journal says up to a place in it.
type remains struct {
	valid    bool
	parts    map[journal.TP]*journal.Partition
	fold     *journal.Fold
	owner    journal.Owner
	next     int32 // journal sequence
	position translate.Physical
	last     journal.Mark // the batch before position
}

// errTouch ends a reign because a transactional id that is not used is forgotten after some days, and its producer after one.
var errTouch = errors.New("the slot is owned anew, so that it is not forgotten")

const touchAfter = 12 * time.Hour

// errMode ends a reign because the slot is to be sealed, or unsealed.
var errMode = errors.New("the slot changes its mode")

// orderly: the reign ended because we wanted it to.
func orderly(err error) bool {
	return errors.Is(err, errMode) || errors.Is(err, errTouch) || errors.Is(err, errReseed) || errors.Is(err, errAhead) ||
		errors.Is(err, errGone)
}

func newSlot(f *Flow, n int32) *slot {
	return &slot{
		flow: f, n: n, wake: make(chan struct{}, 1), done: make(chan struct{}), settled: make(chan struct{}),
		log: f.log.With().Int32("slot", n).Logger(),
	}
}

func (s *slot) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *slot) add(p *pump) {
	s.mu.Lock()
	s.pumps = append(s.pumps, p)
	s.mu.Unlock()
}

func (s *slot) remove(p *pump) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.pumps {
		if one == p {
			s.pumps = append(s.pumps[:i:i], s.pumps[i+1:]...)
			return
		}
	}
}

func (s *slot) members() []*pump {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pumps[:len(s.pumps):len(s.pumps)]
}

// set asks for a mode. The returned channel is closed when the slot has been fenced and recovered in it.
func (s *slot) set(m mode) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == copying && m == copying && s.ahead == nil {
		return s.done
	}
	s.mode, s.done, s.settled = m, make(chan struct{}), make(chan struct{}) // sealing again is fencing again
	if s.abandon != nil {
		s.abandon(errMode)
	}
	s.wakeUp()
	return s.done
}

// run reigns again and again until ctx ends.
func (s *slot) run(ctx context.Context) {
	wait := s.flow.cfg.RetryInterval
	for ctx.Err() == nil {
		begun := time.Now()
		err := s.reign(ctx)
		if ctx.Err() != nil {
			return
		}
		if orderly(err) {
			continue
		}
		var anew fenceAnew
		if errors.As(err, &anew) {
			s.log.Warn().Err(err).Msg("slot is fenced anew")
			if time.Since(begun) > wait {
				continue
			}
		} else {
			line := s.log.Warn().Err(err)
			if lost := (lostSlot{}); errors.As(err, &lost) {
				line = line.Str("hint", hintLost)
			}
			line.Msg("slot is not owned")
		}
		s.setTrouble(err)
		if time.Since(begun) > 10*wait {
			wait = s.flow.cfg.RetryInterval
		}
		s.rest(ctx, wait)
		wait = min(2*wait, 30*time.Second)
	}
}

// hintLost is the likely cause of a slot that is lost.
const hintLost = "another process may copy this virtual cluster; run one process for each virtual cluster; it is tried again"

// rest waits, but not longer than until the mode changes.
func (s *slot) rest(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	s.abandon = cancel
	changed := s.reigned != s.done
	s.mu.Unlock()
	if !changed {
		_ = sleep(ctx, d)
	}
	s.mu.Lock()
	s.abandon = nil
	s.mu.Unlock()
}

func (s *slot) setTrouble(err error) {
	s.mu.Lock()
	s.trouble = err
	s.mu.Unlock()
	for _, p := range s.members() {
		p.setSlotTrouble(err)
	}
	s.flow.progress.signal()
}

// reign owns the slot once, from its fence to its loss.
func (s *slot) reign(parent context.Context) error {
	ctx, abandon := context.WithCancelCause(parent)
	defer abandon(nil)
	s.mu.Lock()
	s.abandon = abandon
	mode, done, settled, ahead := s.mode, s.done, s.settled, s.ahead
	s.reigned, s.ahead = done, nil
	s.mu.Unlock()
	for _, p := range s.members() {
		p.probe()
	}
	defer func() {
		s.mu.Lock()
		s.abandon = nil
		s.mu.Unlock()
	}()
	kept := s.kept
	s.kept = remains{}
	r := &reign{slot: s, flow: s.flow, lose: abandon, running: map[*pump]bool{}, took: newSteps()}
	defer r.stopAppender()
	if mode == copying || ahead != nil && ahead.owner == (journal.Owner{}) {
		ahead = nil // it may be old, or came to nothing
	}
	pumps, err := r.recover(ctx, kept, ahead)
	if err != nil {
		return journal.Cause(ctx, err)
	}
	if mode == sealed { // nothing is claimed before the settled records, so who waits for the seal may go on meanwhile
		r.announce(done)
	}
	if err := r.settleAll(ctx, pumps); err != nil {
		return journal.Cause(ctx, err)
	}
	r.took.step("settle")
	if mode == copying || r.whole() {
		closeOnce(settled)
	}
	if mode == copying {
		r.announce(done)
	}
	s.log.Debug().Int("partitions", len(r.running)).Object("millis", r.took).Msg("slot is owned")
	return r.hold(ctx, mode)
}

// whole: every partition of the slot that was ever recovered is so in this reign. One that joins late is not, and none joins a sealed
// slot: what the reign before had read of it, and Seal told, may be in no settled record.
func (r *reign) whole() bool {
	return !slices.ContainsFunc(r.slot.members(), func(p *pump) bool { return !r.running[p] && p.recovered() })
}

// announce tells who waits that the slot is fenced and recovered.
func (r *reign) announce(done chan struct{}) {
	r.slot.setTrouble(nil)
	closeOnce(done)
	r.flow.progress.signal()
}

// closeOnce is for the reigns of one slot, which follow each other.
func closeOnce(c chan struct{}) {
	if !closed(c) {
		close(c)
	}
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reign is one ownership of a slot.
type reign struct {
	slot        *slot
	flow        *Flow
	lose        context.CancelCauseFunc
	owner       journal.Owner
	took        *steps
	fold        *journal.Fold
	parts       map[journal.TP]*journal.Partition // all that is known: of the journal, or, once recovered, the pump's own
	appender    *appender
	appendCtx   context.Context // of the appender: it outlives the pumps
	endAppender context.CancelFunc
	appended    chan struct{} // closed when the appender has ended

	running map[*pump]bool // recovered in this reign
	wg      sync.WaitGroup
}

// hold runs the pumps, or keeps still, until the reign is over, and says why it is.
func (r *reign) hold(ctx context.Context, m mode) error {
	pumpCtx, stopPumps := context.WithCancel(ctx)
	if m == copying {
		for p := range r.running {
			r.start(pumpCtx, p)
		}
		r.look(ctx, pumpCtx)
	} else {
		<-ctx.Done()
	}
	stopPumps()
	r.wg.Wait()
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errMode) && r.slot.isSealed(): // it settles behind its fence, when nobody waits for it
		r.slot.kept.valid = true
	case errors.Is(cause, errAhead): // the broker may refuse what we write
	case orderly(cause), errors.Is(cause, context.Canceled):
		r.leave(r.appendCtx)
	}
	r.stopAppender()
	if r.slot.kept.valid {
		a := r.appender
		r.slot.kept = remains{true, r.parts, r.fold, r.owner, a.next, a.position, a.last}
	}
	return cause
}

// startAppender begins to write to the journal behind what was replayed.
func (r *reign) startAppender(ctx context.Context) {
	r.appender = newAppender(r.slot, r.owner, r.fold)
	r.appendCtx, r.endAppender = context.WithCancel(context.WithoutCancel(ctx))
	r.appended = make(chan struct{})
	go func() {
		defer close(r.appended)
		if err := r.appender.run(r.appendCtx); r.appendCtx.Err() == nil {
			r.lose(err)
		}
	}()
}

func (r *reign) stopAppender() {
	if r.appender != nil {
		r.endAppender()
		<-r.appended
	}
}

// leaveTimeout bounds, in retry intervals, what an orderly end may take: it saves time later, no more.
const leaveTimeout = 4

// leave settles what changed, so that the next owner need not look far back.
func (r *reign) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout*r.flow.cfg.RetryInterval)
	defer cancel()
	var changed []*pump
	for p := range r.running {
		if p.unsettled > 0 {
			changed = append(changed, p)
		}
	}
	r.slot.kept.valid = r.settleAll(ctx, changed) == nil
}

// look starts pumps that come later: those of new partitions, and of partitions that had no leader.
func (r *reign) look(ctx, pumpCtx context.Context) {
	touch := time.NewTimer(touchAfter)
	defer touch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-touch.C:
			r.lose(errTouch)
			return
		case <-r.slot.wake:
		}
		r.appender.wake()
		var late []*pump
		for _, p := range r.slot.members() {
			if !r.running[p] && r.canFence(p) && !(p.waits && !p.led()) {
				late = append(late, p)
			}
		}
		if len(late) == 0 {
			continue
		}
		if err := r.join(ctx, late); err != nil {
			r.lose(err)
			return
		}
		for _, p := range late {
			r.start(pumpCtx, p)
		}
		r.flow.progress.signal()
	}
}

func (r *reign) start(ctx context.Context, p *pump) {
	if p.runnable() {
		r.wg.Go(func() { p.run(ctx, r) })
	}
}
