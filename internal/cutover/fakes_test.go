package cutover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

var (
	errFault = errors.New("injected fault")
	errDead  = errors.New("this process is dead")
)

// disk outlives processes: the record and the logs.
type disk struct {
	mu     sync.Mutex
	state  control.State
	topics map[string]map[string]control.Topic // by cluster, by name
	ends   map[TP]End
	unread []string
}

func newDisk() *disk {
	return &disk{
		state: control.State{VirtualCluster: "main", Generation: 1, Active: "blue", Standby: "green", Phase: control.Idle},
		topics: map[string]map[string]control.Topic{
			"blue": {}, "green": {},
		},
		ends: map[TP]End{
			{"orders", 0}: {HighWatermark: 10, LastStableOffset: 10, LeaderEpoch: 2, TopicID: [16]byte{1}},
			{"orders", 1}: {HighWatermark: 0, LastStableOffset: 0, TopicID: [16]byte{1}},
			{"bills", 0}:  {HighWatermark: 7, LastStableOffset: 7, TopicID: [16]byte{2}},
		},
	}
}

// fault is what happens at the next calls of an operation.
type fault struct {
	kind  string // fail, block (until the context ends), slow (the same, but no error), lost (done, then an error), crash
	after int    // calls that go well first
	times int
	err   error
}

// process is one run of the program: a driver, and in one fake all that it drives.
type process struct {
	disk   *disk
	driver *Driver

	mu       sync.Mutex // guards all below
	dead     bool
	faults   map[string]*fault
	reached  map[string]chan struct{} // closed when a fault is met
	calls    []string
	shut     bool
	flow     string // running or sealed, in the direction of the record
	shadows  bool
	retired  bool
	route    translate.Generation
	reversed bool
	onSeal   func() // what the world does meanwhile
	frontier map[TP]translate.Virtual

	published control.Snapshot
}

func start(t *testing.T, d *disk) *process {
	t.Helper()
	p := &process{disk: d, faults: map[string]*fault{}, reached: map[string]chan struct{}{}, flow: "running", route: d.state.Generation, frontier: map[TP]translate.Virtual{}}
	p.driver = New(Config{
		VirtualCluster: "main", Records: p, Archive: p, Gate: p, Groups: shadowGroups{p}, Flow: p, Site: p, Router: p,
		MaxPause: 20 * time.Second, AbortTimeout: 300 * time.Millisecond, Log: zerolog.Nop(),
	})
	t.Cleanup(p.driver.Close)
	s, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	p.driver.Resume(s)
	return p
}

func (p *process) load() (control.Snapshot, error) {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	s := control.Snapshot{State: p.disk.state.Clone(), Topics: map[string]control.Topic{}, Unread: p.disk.unread}
	if len(s.Unread) > 0 {
		s.Assumed = "green is down"
	}
	for name, t := range p.disk.topics[s.State.Active] {
		s.Topics[name] = t
	}
	return s, nil
}

func (p *process) on(op, kind string, times int) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[op] = &fault{kind: kind, times: times}
	p.reached[op] = make(chan struct{})
	return p
}

// do runs one operation with its fault, if there is one. effect is under mu.
func (p *process) do(ctx context.Context, op string, effect func()) error {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return errDead
	}
	p.calls = append(p.calls, op)
	f := p.faults[op]
	if f != nil && f.after > 0 {
		f.after--
		f = nil
	}
	if f == nil || f.times == 0 {
		effect()
		p.mu.Unlock()
		return ctx.Err()
	}
	f.times--
	p.meet(op)
	switch f.kind {
	case "crash":
		p.dead = true
	case "lost":
		effect()
	}
	p.mu.Unlock()
	switch f.kind {
	case "block":
		<-ctx.Done()
		return ctx.Err()
	case "crash":
		return errDead
	case "slow":
		<-ctx.Done()
		return nil
	}
	if f.err != nil {
		return f.err
	}
	return fmt.Errorf("%s: %w", op, errFault)
}

func (p *process) meet(op string) {
	select {
	case <-p.reached[op]:
	default:
		close(p.reached[op])
	}
}

func (p *process) Fence(ctx context.Context) error { return p.do(ctx, "fence", func() {}) }

func (p *process) Load(ctx context.Context) (s control.Snapshot, err error) {
	if err := p.do(ctx, "load", func() {}); err != nil {
		return s, err
	}
	return p.load()
}

func (p *process) Save(ctx context.Context, st control.State) error {
	return p.do(ctx, "save "+string(st.Phase), func() {
		p.disk.mu.Lock()
		defer p.disk.mu.Unlock()
		p.disk.state = st.Clone()
	})
}

func (p *process) PutTopics(ctx context.Context, cluster string, topics []control.Topic) error {
	return p.do(ctx, "put topics", func() {
		p.disk.mu.Lock()
		defer p.disk.mu.Unlock()
		for _, t := range topics {
			p.disk.topics[cluster][t.Name] = t
		}
	})
}

func (p *process) PutGroups(ctx context.Context, _ string, _ []control.Group) error {
	return p.do(ctx, "put groups", func() {})
}

func (p *process) DropStale(ctx context.Context, _ string, _ translate.Generation, _ func(context.Context, []string) ([]string, error)) error {
	return p.do(ctx, "drop stale", func() {})
}

func (p *process) Hold(ctx context.Context) error {
	return p.do(ctx, "hold", func() { p.shut = true })
}
func (p *process) Drain(ctx context.Context) error { return p.do(ctx, "drain", func() {}) }
func (p *process) Release()                        { _ = p.do(context.Background(), "release", func() { p.shut = false }) }
func (p *process) PauseMillis() int64              { return 123 }

// shadowGroups is the process as Groups, whose method names the record has too.
type shadowGroups struct{ p *process }

func (g shadowGroups) Prepare(ctx context.Context, _ string) (Facts, error) {
	err := g.p.do(ctx, "prepare", func() { g.p.shadows = true })
	return Facts{"groups_prepared": int64(3)}, err
}
func (g shadowGroups) Check(ctx context.Context) (Facts, error) {
	return Facts{"groups_changed": int64(0)}, g.p.do(ctx, "check", func() {})
}
func (g shadowGroups) Records() []control.Group { return []control.Group{{Name: "app"}} }
func (g shadowGroups) Discard(ctx context.Context) {
	_ = g.p.do(ctx, "discard", func() { g.p.shadows = false })
}
func (g shadowGroups) Retire(ctx context.Context, _ string) {
	_ = g.p.do(ctx, "retire", func() { g.p.retired = true })
}

func (p *process) Refresh(ctx context.Context) error { return p.do(ctx, "refresh", func() {}) }

func (p *process) Ends(ctx context.Context) (map[TP]End, error) {
	out := map[TP]End{}
	err := p.do(ctx, "ends", func() {
		p.disk.mu.Lock()
		defer p.disk.mu.Unlock()
		for tp, e := range p.disk.ends {
			out[tp] = e
		}
	})
	return out, err
}

func (p *process) Reach(ctx context.Context, ends map[TP]translate.Virtual, progress func(done, total int)) error {
	progress(0, len(ends))
	return p.do(ctx, "reach", func() {
		for tp, v := range ends {
			p.frontier[tp] = v
		}
	})
}

func (p *process) PrepareSeal(ctx context.Context) error {
	return p.do(ctx, "prepare seal", func() { p.flow = "prepared" })
}

func (p *process) Seal(ctx context.Context) (map[TP]Sealed, error) {
	out := map[TP]Sealed{}
	err := p.do(ctx, "seal", func() {
		p.flow = "sealed"
		for tp, v := range p.frontier {
			out[tp] = Sealed{Frontier: v, Next: translate.Physical(v) + 2, TargetEpoch: 1, TopicID: [16]byte{9}}
		}
		if p.onSeal != nil {
			p.onSeal()
		}
	})
	return out, err
}

func (p *process) Unseal() {
	_ = p.do(context.Background(), "unseal", func() { p.flow = "running" })
}
func (p *process) Settled(ctx context.Context) error {
	return p.do(ctx, "settled", func() {})
}
func (p *process) FinalOffsets(ctx context.Context) (int, error) {
	return 3, p.do(ctx, "final offsets", func() {})
}
func (p *process) Inspect(ctx context.Context, _, _ string) (Facts, error) {
	return Facts{"partitions": int64(3)}, p.do(ctx, "inspect", func() {})
}
func (p *process) Warm(ctx context.Context, _ string) (Facts, error) {
	return Facts{}, p.do(ctx, "warm", func() {})
}

func (p *process) Gone(context.Context, []string) ([]string, error) { return nil, nil }

func (p *process) Publish(ctx context.Context, s control.Snapshot) error {
	return p.do(ctx, "publish", func() { p.route, p.published = s.State.Generation, s })
}

func (p *process) Reverse(ctx context.Context, _ control.Snapshot) error {
	return p.do(ctx, "reverse", func() { p.reversed, p.flow = true, "running" })
}

// order starts a move to the standby of the record.
func (p *process) order(t *testing.T) string {
	t.Helper()
	id, err := p.driver.Start(Order{To: p.driver.State().Standby})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// finish waits for the end of a cutover and returns its last state; the zero state if its process ended first.
func (p *process) finish(t *testing.T, id string) control.State {
	t.Helper()
	states, stop, err := p.driver.Subscribe(id)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	var last control.State
	for {
		select {
		case st, more := <-states:
			if !more {
				return last
			}
			last = st
		case <-deadline.C:
			t.Fatalf("no end within 10 s; last %s, calls %s", last.Phase, p.log())
		}
	}
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.calls, ", ")
}

// await waits until a fault is met.
func (p *process) await(t *testing.T, op string) {
	t.Helper()
	p.mu.Lock()
	met := p.reached[op]
	p.mu.Unlock()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	select {
	case <-met:
	case <-deadline.C:
		t.Fatalf("%s was not called; calls %s", op, p.log())
	}
}

// settled checks that nothing is held and that all agrees with the end.
func (p *process) settled(t *testing.T, st control.State, want control.Phase) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	rec := p.disk.state
	if st.Phase != want {
		t.Errorf("ended in %s, want %s: %+v", st.Phase, want, st.Cutover.Error)
	}
	if p.shut {
		t.Error("the gate is shut")
	}
	if p.flow != "running" {
		t.Errorf("the flow is %s", p.flow)
	}
	switch want {
	case control.Aborted:
		if rec.Generation != 1 || rec.Active != "blue" || p.route != 1 || p.shadows || p.reversed || st.Cutover.Error == nil {
			t.Errorf("after going back: record %+v, route %d, shadows %v, reversed %v, error %v", rec, p.route, p.shadows, p.reversed, st.Cutover.Error)
		}
	case control.Done:
		if rec.Generation != 2 || rec.Active != "green" || rec.Standby != "blue" || rec.Phase != control.Done || p.route != 2 || !p.reversed || !p.retired || st.Cutover.Error != nil {
			t.Errorf("after the move: record %+v, route %d, reversed %v, retired %v, error %v", rec, p.route, p.reversed, p.retired, st.Cutover.Error)
		}
		if eras := p.disk.topics["green"]["orders"].Partitions; len(eras) != 2 || len(eras[0]) != 2 {
			t.Errorf("eras of the target: %+v", eras)
		}
	}
	if t.Failed() {
		t.Logf("calls: %s", strings.Join(p.calls, ", "))
	}
}
