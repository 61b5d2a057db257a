package cutover

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/obs"
)

// Config is what a Driver works with. All are needed but Metrics.
type Config struct {
	VirtualCluster string
	Records        Records
	Archive        Archive
	Gate           Gate
	Groups         Groups
	Flow           Flow
	Site           Site
	Router         Router
	MaxPause       time.Duration // where an Order does not say; if 0, 30 s
	AbortTimeout   time.Duration // what going back may take, the gate is open by then; if 0, 30 s
	Metrics        *obs.CutoverMetrics
	Log            zerolog.Logger
}

// Order asks for a move.
type Order struct {
	To       string
	Mode     string // control.ModePlanned; if empty, that
	DryRun   bool   // Preflight only; nothing is recorded
	MaxPause time.Duration
}

// kept is how many cutovers are remembered; older ones are forgotten, oldest first.
const kept = 64

// Driver runs the cutovers of one virtual cluster, one at a time. Methods may be called from any goroutine.
type Driver struct {
	cfg  Config
	base context.Context // ends with Close
	end  context.CancelCauseFunc
	wait sync.WaitGroup // of the goroutine that drives

	mu          sync.Mutex // guards the fields below; never held across I/O
	last        control.State
	order       []string                 // ids, oldest first
	known       map[string]control.State // by id
	running     *run
	amending    chan struct{} // closed when an amendment of the record is over; nil while there is none
	subscribers map[*subscriber]struct{}
}

// New returns a Driver that knows of no cutover yet.
func New(cfg Config) *Driver {
	if cfg.MaxPause == 0 {
		cfg.MaxPause = 30 * time.Second
	}
	if cfg.AbortTimeout == 0 {
		cfg.AbortTimeout = 30 * time.Second
	}
	base, end := context.WithCancelCause(context.Background())
	return &Driver{cfg: cfg, base: base, end: end, known: make(map[string]control.State), subscribers: make(map[*subscriber]struct{})}
}

// Close ends a running cutover, back or at its next resting place, and waits for it.
func (d *Driver) Close() {
	d.end(errShutdown())
	d.wait.Wait()
}

// Resume takes over what the record says: a cutover that was not committed goes back, one that was goes on, both in the
// background. Called once, before Start.
func (d *Driver) Resume(s control.Snapshot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = s.State.Clone()
	c := s.State.Cutover
	if c == nil {
		return
	}
	d.remember(s.State)
	if !s.State.Phase.Running() {
		return
	}
	r := newRun(d, c.ID, time.Duration(c.MaxPauseMillis)*time.Millisecond)
	r.before = s
	d.running = r
	d.wait.Go(func() { r.resume(s.State.Clone()) })
}

// Start begins a cutover and returns its id. The error is an *Error.
func (d *Driver) Start(order Order) (string, error) {
	if order.Mode == "" {
		order.Mode = control.ModePlanned
	}
	if order.MaxPause == 0 {
		order.MaxPause = d.cfg.MaxPause
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.awaitAmendment()
	if err := d.refuse(order); err != nil {
		return "", err
	}
	r := newRun(d, newID(), order.MaxPause)
	r.dryRun = order.DryRun
	st := d.last.Clone()
	now := time.Now().UTC()
	st.Phase = control.Preflight
	st.Cutover = &control.Cutover{
		ID: r.id, From: st.Active, To: order.To, Mode: order.Mode, DryRun: order.DryRun, StartedAt: now,
		MaxPauseMillis: order.MaxPause.Milliseconds(), Phases: []control.PhaseRecord{{Phase: control.Preflight, StartedAt: now}},
	}
	d.running = r
	d.remember(st)
	d.wait.Go(func() { r.begin(st) })
	return r.id, nil
}

// awaitAmendment waits, without mu, until no amendment is under way. mu is held before and after.
func (d *Driver) awaitAmendment() {
	for d.amending != nil {
		over := d.amending
		d.mu.Unlock()
		<-over
		d.mu.Lock()
	}
}

// refuse says why an order cannot be taken; nil if it can.
func (d *Driver) refuse(order Order) error {
	switch {
	case d.base.Err() != nil:
		return errShutdown()
	case d.running != nil:
		return &Error{Code: CodeRunning, Message: fmt.Sprintf("cutover %s of %s is running", d.running.id, d.cfg.VirtualCluster), Hint: "wait for its end, or abort it"}
	case d.last.Generation == 0:
		return errUnread()
	case order.Mode == control.ModeForced:
		return &Error{Code: CodeNotBuilt, Message: "forced moves are not built", Hint: "bring the active cluster back, or point clients at the standby by hand"}
	case order.Mode != control.ModePlanned:
		return &Error{Code: "bad_request", Message: fmt.Sprintf("mode %q", order.Mode), Hint: "planned or forced"}
	case order.To == d.last.Active:
		return &Error{Code: CodeBadTarget, Message: fmt.Sprintf("%s is active already", order.To), Hint: "the standby is " + d.last.Standby}
	case order.To != d.last.Standby:
		return &Error{Code: CodeBadTarget, Message: fmt.Sprintf("%q is not the standby", order.To), Hint: "the standby is " + d.last.Standby}
	case order.MaxPause < 0:
		return &Error{Code: "bad_request", Message: "max_pause is negative", Hint: "such as 30s"}
	}
	return nil
}

func newID() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return time.Now().UTC().Format("20060102-150405-") + hex.EncodeToString(b[:])
}

// Amend changes the record while no cutover runs, which cannot begin meanwhile: change says whether to save what it did.
// Used for what clients see of brokers, and to be remembered by brokers.
func (d *Driver) Amend(ctx context.Context, change func(*control.State) (save bool)) error {
	d.mu.Lock()
	if d.running != nil || d.amending != nil || d.last.Generation == 0 || d.base.Err() != nil {
		d.mu.Unlock()
		return &Error{Code: CodeRunning, Message: "the record cannot be changed now", Hint: "it is tried again when no cutover runs"}
	}
	d.amending = make(chan struct{})
	st := d.last.Clone()
	d.mu.Unlock()
	var err error
	changed := change(&st)
	if changed {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		err = d.cfg.Records.Save(ctx, st)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.amending)
	d.amending = nil
	if changed && err == nil {
		d.last = st
	}
	return err
}

// Abort asks a cutover to go back. It returns at once; the end is an event. The error is an *Error.
func (d *Driver) Abort(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, ok := d.known[id]
	switch {
	case !ok:
		return d.unknown(id)
	case !st.Phase.Running():
		return &Error{Code: CodeTooLate, Message: fmt.Sprintf("cutover %s is over: %s", id, st.Phase), Hint: "there is nothing to abort; the other way is another cutover"}
	case d.running == nil || d.running.id != id || !st.Phase.BeforeCommitted() || d.running.decided:
		return &Error{Code: CodeTooLate, Message: fmt.Sprintf("cutover %s is in phase %s", id, st.Phase), Hint: "from Committed on it only goes forward; move back with another cutover"}
	}
	d.running.cancel(errOperator())
	return nil
}

// unknown says why there is no cutover of this id: the record may name one as soon as it is read. mu is held.
func (d *Driver) unknown(id string) *Error {
	if d.last.Generation == 0 {
		return errUnread()
	}
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("no cutover %q is known", id), Hint: "the status names the last one"}
}

// Get returns a cutover by its id.
func (d *Driver) Get(id string) (control.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, ok := d.known[id]
	if !ok {
		return control.State{}, d.unknown(id)
	}
	return st.Clone(), nil
}

// State is the record as it is now: of the running cutover, if one runs and is not a dry run.
func (d *Driver) State() control.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last.Clone()
}

// Running is the id of the running cutover, empty if none runs.
func (d *Driver) Running() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == nil {
		return ""
	}
	return d.running.id
}

// remember keeps st as the newest state of its cutover and hands it to who listens. mu is held.
func (d *Driver) remember(st control.State) {
	id := st.Cutover.ID
	if _, ok := d.known[id]; !ok {
		d.order = append(d.order, id)
		if len(d.order) > kept {
			delete(d.known, d.order[0])
			d.order = d.order[1:]
		}
	}
	st = st.Clone()
	d.known[id] = st
	if !st.Cutover.DryRun {
		d.last = st
	}
	for s := range d.subscribers {
		if s.id == id {
			s.offer(st)
			if !st.Phase.Running() {
				d.drop(s)
			}
		}
	}
}

func (d *Driver) publish(st control.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remember(st)
}

// finished makes room for the next cutover, and then tells of the end: who sees it may start another one.
func (d *Driver) finished(st control.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
	d.remember(st)
}

// Subscribe returns a channel that gets the state of a cutover now and at each change; it is closed after Done or Aborted.
// A reader who is slow loses states in between, never the last one. stop ends it early.
func (d *Driver) Subscribe(id string) (states <-chan control.State, stop func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st, ok := d.known[id]
	if !ok {
		return nil, nil, d.unknown(id)
	}
	s := &subscriber{id: id, states: make(chan control.State, 64)}
	s.offer(st)
	if !st.Phase.Running() {
		close(s.states)
		return s.states, func() {}, nil
	}
	d.subscribers[s] = struct{}{}
	return s.states, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.drop(s)
	}, nil
}

// subscriber gets the states of one cutover. mu of the Driver is held by all that send or close.
type subscriber struct {
	id     string
	states chan control.State
}

func (s *subscriber) offer(st control.State) {
	for {
		select {
		case s.states <- st:
			return
		default:
		}
		select {
		case <-s.states: // the oldest makes room
		default:
		}
	}
}

// drop ends a subscription, once. mu is held.
func (d *Driver) drop(s *subscriber) {
	if _, ok := d.subscribers[s]; ok {
		delete(d.subscribers, s)
		close(s.states)
	}
}
