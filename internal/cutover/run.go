package cutover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/obs"
)

const (
	saveTimeout  = 10 * time.Second // of one record
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// run is one cutover under way. Its goroutine owns all fields but cancel and decided.
type run struct {
	d        *Driver
	id       string
	dryRun   bool
	maxPause time.Duration

	ctx     context.Context // ends with the operator's abort or the end of the process
	cancel  context.CancelCauseFunc
	decided bool // Committed is being written, or was: an abort comes too late. Guarded by the Driver's mu

	before control.Snapshot // the record when the cutover began
	after  control.Snapshot // the record of the new generation; Generation 0: to be read
	ends   map[TP]End       // at Sealing
	sealed map[TP]Sealed

	heldSince time.Time // zero while the gate is open
	started   time.Time // of the phase
	recorded  bool      // the record may say that this cutover runs
	prepared  bool      // shadow members may exist
	stopped   bool      // the flow may be sealed, or prepared for it
}

func newRun(d *Driver, id string, maxPause time.Duration) *run {
	r := &run{d: d, id: id, maxPause: maxPause}
	r.ctx, r.cancel = context.WithCancelCause(d.base)
	return r
}

// begin takes the record, becomes its writer, and drives the cutover to its end.
func (r *run) begin(st control.State) {
	r.started = time.Now()
	err := r.takeRecord(&st)
	if err == nil && !r.dryRun {
		r.recorded = true
		err = r.save(r.ctx, st)
	}
	if err != nil {
		r.end(r.abort(st, err))
		return
	}
	r.transition(control.Idle, st, 0, nil)
	r.loop(st)
}

// takeRecord reads the record behind a fence, so that nobody else's can follow. A dry run only reads.
func (r *run) takeRecord(st *control.State) error {
	if !r.dryRun {
		if err := r.d.cfg.Records.Fence(r.ctx); err != nil {
			return err
		}
	}
	s, err := r.d.cfg.Records.Load(r.ctx)
	switch {
	case err != nil:
		return err
	case len(s.Unread) > 0:
		return &Error{Code: CodeClusterDown, Message: s.Assumed, Hint: "a planned move needs both clusters"}
	case s.State.Generation != st.Generation || s.State.Active != st.Active:
		return &Error{Code: CodeFenced, Message: fmt.Sprintf("another process moved %s: generation %d, active %s", st.VirtualCluster, s.State.Generation, s.State.Active), Hint: "restart this process"}
	}
	r.before = s
	st.Identity = s.State.Identity
	return nil
}

// resume ends what another process began.
func (r *run) resume(st control.State) {
	r.started, r.recorded = time.Now(), true
	if st.Phase.BeforeCommitted() {
		lost := &Error{
			Code:    CodeDriverLost,
			Message: fmt.Sprintf("the process that drove the cutover ended in phase %s", st.Phase),
			Hint:    "clients are on the old active; start another cutover",
		}
		r.end(r.abort(st, lost))
		return
	}
	r.setDecided()
	r.loop(st)
}

// loop drives the cutover from the phase of st to Done, or back if it fails before Committed.
func (r *run) loop(st control.State) {
	defer r.cancel(nil)
	backoff := firstBackoff
	for st.Phase != control.Done {
		ctx, cancel := r.stepContext(st.Phase)
		next, err := r.step(ctx, st)
		switch {
		case err != nil && st.Phase.BeforeCommitted(): // an operator's abort arrives here too
			failure := operatorError(st.Phase, st.Cutover.MaxPauseMillis, ctx, err)
			cancel()
			r.end(r.abort(st, failure))
			return
		case err != nil && r.ctx.Err() != nil: // the record resumes it
			cancel()
			r.d.stopped(r)
			return
		case err != nil:
			cancel()
			st = r.waitToRetry(st, err, backoff)
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		cancel()
		backoff = firstBackoff
		took := time.Since(r.started)
		if st, err = r.record(st, next); err != nil {
			return
		}
		r.transition(before(st), st, took, nil)
	}
	r.end(st)
}

// before is the phase that st came from.
func before(st control.State) control.Phase {
	if n := len(st.Cutover.Phases); n > 1 {
		return st.Cutover.Phases[n-2].Phase
	}
	return control.Idle
}

// record makes next durable. After an error the cutover is over, or left to the record.
func (r *run) record(st, next control.State) (control.State, error) {
	if r.dryRun {
		return next, nil
	}
	if next.Phase != control.Committed {
		err := r.saveOrRetry(st, next)
		if err != nil && st.Phase.BeforeCommitted() {
			r.end(r.abort(st, operatorError(st.Phase, st.Cutover.MaxPauseMillis, r.ctx, fmt.Errorf("record phase %s: %w", next.Phase, err))))
		} else if err != nil {
			r.d.stopped(r)
		}
		return next, err
	}
	if !r.setDecided() { // an abort came first
		err := context.Cause(r.ctx)
		r.end(r.abort(st, operatorError(st.Phase, st.Cutover.MaxPauseMillis, r.ctx, err)))
		return st, err
	}
	err := r.save(context.WithoutCancel(r.ctx), next)
	if err == nil {
		return next, nil
	}
	return r.resolve(st, next, err)
}

// saveOrRetry writes a record; from Committed on until it is written, since only forward is left.
func (r *run) saveOrRetry(st, next control.State) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := r.save(r.ctx, next)
		if err == nil || next.Phase.BeforeCommitted() || r.ctx.Err() != nil {
			return err
		}
		if errors.Is(err, control.ErrFenced) { // whoever fenced us carries it on by the record, and so may we
			_ = r.d.cfg.Records.Fence(r.ctx)
		}
		r.waitToRetry(st, err, backoff)
	}
}

func (r *run) save(ctx context.Context, st control.State) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	return r.d.cfg.Records.Save(ctx, st)
}

// resolve finds out whether Committed was written although its ack is missing. Behind a new fence it cannot be written any
// more, so what is read then is the truth. Until it can be read nothing may move: the gate stays shut.
func (r *run) resolve(st, next control.State, cause error) (control.State, error) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		s, err := r.readAnew()
		switch {
		case err == nil && s.State.Generation >= next.Generation && s.State.Cutover != nil && s.State.Cutover.ID == r.id:
			return s.State.Clone(), nil
		case err == nil && s.State.Generation >= next.Generation:
			r.end(r.abort(st, &Error{Code: CodeFenced, Message: "another process moved " + st.VirtualCluster, Hint: "restart this process"}))
			return st, control.ErrFenced
		case err == nil:
			r.end(r.abort(st, operatorError(st.Phase, st.Cutover.MaxPauseMillis, r.ctx, fmt.Errorf("record phase Committed: %w", cause))))
			return st, cause
		case r.d.base.Err() != nil: // the record resumes it
			r.d.stopped(r)
			return st, err
		}
		waiting := st.Clone()
		waiting.Cutover.Error = &Error{
			Code:    CodeUndecided,
			Message: fmt.Sprintf("Committed was sent to %s, its answer is missing (%v), and the record cannot be read: %v", next.Active, cause, err),
			Hint:    "clients wait until the control topic can be read; bring that cluster back",
		}
		r.d.publish(waiting)
		r.sleep(r.d.base, backoff)
	}
}

// readAnew reads the record behind a fence of every log: one that could not be fenced is among those not read.
func (r *run) readAnew() (control.Snapshot, error) {
	ctx, cancel := context.WithTimeout(r.d.base, saveTimeout)
	defer cancel()
	if err := r.d.cfg.Records.Fence(ctx); err != nil {
		return control.Snapshot{}, err
	}
	s, err := r.d.cfg.Records.Load(ctx)
	if err == nil && len(s.Unread) > 0 {
		err = errors.New(s.Assumed)
	}
	return s, err
}

// abort goes back: the gate first, then the flow, the shadow members, the record. It has its own deadline, not that of the
// phase that failed, and returns the state in which nothing is held.
func (r *run) abort(st control.State, cause error) control.State {
	var failure *Error
	if !errors.As(cause, &failure) {
		failure = operatorError(st.Phase, st.Cutover.MaxPauseMillis, r.ctx, cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), r.d.cfg.AbortTimeout)
	defer cancel()
	st = st.Clone()
	if !r.heldSince.IsZero() {
		r.d.cfg.Gate.Release()
		st.Cutover.PauseMillis = r.d.cfg.Gate.PauseMillis()
	}
	if r.stopped {
		r.d.cfg.Flow.Unseal()
	}
	if r.prepared {
		r.d.cfg.Groups.Discard(ctx)
	}
	from := st.Phase
	took := time.Since(r.started)
	closePhase(&st, took, nil)
	st.Phase, st.Cutover.Error = control.Aborted, failure
	if r.recorded {
		r.recordAborted(ctx, &st)
	}
	r.transition(from, st, took, failure)
	return st
}

// recordAborted writes the end of a cutover that went back. If that cannot be done, a later process finds a cutover that
// was not committed, and goes back as well: the end is the same.
func (r *run) recordAborted(ctx context.Context, st *control.State) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := r.save(ctx, *st)
		if err == nil || errors.Is(err, control.ErrFenced) {
			return
		}
		if !r.sleep(ctx, backoff) {
			failure := *st.Cutover.Error
			failure.Message += fmt.Sprintf(" (the record still says %s: %v)", before(*st), err)
			st.Cutover.Error = &failure
			return
		}
	}
}

// stepContext bounds what runs while the gate is shut.
func (r *run) stepContext(phase control.Phase) (context.Context, context.CancelFunc) {
	if phase == control.Holding && r.heldSince.IsZero() {
		r.heldSince = time.Now()
	}
	if r.heldSince.IsZero() || !phase.BeforeCommitted() {
		return context.WithCancel(r.ctx)
	}
	return context.WithDeadlineCause(r.ctx, r.heldSince.Add(r.maxPause), errMaxPause)
}

// waitToRetry tells what a committed cutover waits for, and waits.
func (r *run) waitToRetry(st control.State, err error, backoff time.Duration) control.State {
	shown := st.Clone()
	shown.Cutover.Error = &Error{Code: string(st.Phase) + "_retried", Message: err.Error(), Hint: "the cutover is committed and goes on as soon as this succeeds"}
	r.d.publish(shown)
	r.sleep(r.ctx, backoff)
	return st
}

// sleep is false if ctx ended first.
func (r *run) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// setDecided closes the way back; false if an abort came first.
func (r *run) setDecided() bool {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.ctx.Err() != nil {
		return false
	}
	r.decided = true
	return true
}

// transition tells of a change of phase: the one log line, the metrics, the subscribers.
func (r *run) transition(from control.Phase, st control.State, took time.Duration, failure *Error) {
	event := obs.PhaseChanged{
		VirtualCluster: st.VirtualCluster, Cutover: r.id, Mode: st.Cutover.Mode, From: string(from), To: string(st.Phase),
		Generation: int64(st.Generation), Took: took,
	}
	if failure != nil {
		event.Err, event.Hint = failure, failure.Hint
	}
	event.Log(r.d.cfg.Log)
	r.d.cfg.Metrics.SetPhase(string(from), string(st.Phase))
	r.started = time.Now()
	if st.Phase.Running() {
		r.d.publish(st)
	}
}

// end is the last thing a run does.
func (r *run) end(st control.State) {
	if !r.dryRun {
		r.d.cfg.Metrics.Ended(st.Cutover.Mode, string(st.Phase), time.Duration(st.Cutover.PauseMillis)*time.Millisecond)
	}
	r.d.cfg.Metrics.SetPhase(string(st.Phase), string(control.Idle))
	r.d.finished(st)
}

// stopped leaves a committed, or undecided, cutover to the record: the process ends.
func (d *Driver) stopped(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
	for s := range d.subscribers {
		if s.id == r.id {
			d.drop(s)
		}
	}
}
