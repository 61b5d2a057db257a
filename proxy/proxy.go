package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// Config is all that a Proxy needs to know.
type Config struct {
	VirtualCluster                   string
	Listen                           string // bootstrap address, host:port
	AdvertisedHost                   string
	BrokerPortStart, BrokerPortCount int         // virtual node n listens on start + n
	TLS                              *tls.Config // towards clients; nil: plain
	Clusters                         map[string]Cluster
	Topics, Groups                   translate.Filter
	Limits                           Limits
	Memory                           *Memory       // what all clients make us hold; shared by the proxies of a process. If nil: 1 GiB of its own
	DrainTimeout                     time.Duration // how long answers are waited for when a session ends [30 s]
	// SaveGroups makes group records durable on the active cluster's control topic. If nil, they live in memory alone.
	SaveGroups func(ctx context.Context, groups []control.Group) error
	Metrics    *obs.Metrics // if nil, nothing is counted
	Log        zerolog.Logger
}

// Cluster is one upstream cluster as the proxy reaches it.
type Cluster struct {
	Client *kgo.Client // for our own requests; owned by the caller
	// Dial connects to a broker and authenticates; the connection is ready for the first request.
	Dial  func(ctx context.Context, addr string) (net.Conn, error)
	Names translate.Names
}

// Limits bound what clients can make us hold. Zero values take the defaults in brackets.
type Limits struct {
	FrameBytes       int           // the largest request, and the largest answer that is held [100 MiB]; at most ConnectionBytes
	ConnectionBytes  int           // of requests of one connection that are not answered, and of its answer that is held [128 MiB]
	Connections      int           // client connections [10,000]
	HandshakeTimeout time.Duration // TLS [10 s]
	IdleTimeout      time.Duration // between requests [10 min]
	FrameTimeout     time.Duration // from a frame's first byte to its last, and for what is written to make headway [30 s]
	QueuedCalls      int           // requests of one session that are not answered yet [64]
}

func (l *Limits) setDefaults() {
	setDefault(&l.ConnectionBytes, 128<<20)
	setDefault(&l.FrameBytes, 100<<20)
	l.FrameBytes = min(l.FrameBytes, l.ConnectionBytes)
	setDefault(&l.Connections, 10_000)
	setDefault(&l.HandshakeTimeout, 10*time.Second)
	setDefault(&l.IdleTimeout, 10*time.Minute)
	setDefault(&l.FrameTimeout, 30*time.Second)
	setDefault(&l.QueuedCalls, 64)
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Proxy serves one virtual cluster.
type Proxy struct {
	cfg     Config
	metrics *obs.ProxyMetrics
	log     zerolog.Logger
	trouble trouble
	memory  *Memory
	headers *wire.Headers
	pool    wire.Pool
	// calls and produceCalls are lent until a call is answered.
	calls, produceCalls sync.Pool
	apis                []row // by key
	gate                gate
	route               atomic.Pointer[Route]
	clusters            map[string]*addresses
	known               knownTopics
	seen                watermarks
	groups              *groupSide

	publishing sync.Mutex // guards gone, and that routes are published one after the other
	gone       map[goneTopic]bool

	ctx    context.Context // of all sessions; ends with Close
	cancel context.CancelCauseFunc

	mu       sync.Mutex // guards what follows
	ports    []*port    // the first is the bootstrap listener, the others are those of virtual nodes, in order
	sessions map[*session]struct{}
	closed   bool
	running  sync.WaitGroup // accept loops and sessions
}

// New checks the configuration. Nothing listens before Start.
func New(cfg Config) (*Proxy, error) {
	cfg.Limits.setDefaults()
	setDefault(&cfg.DrainTimeout, 30*time.Second)
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", cfg.VirtualCluster, err)
	}
	p := &Proxy{
		cfg: cfg, metrics: cfg.Metrics.Proxy(cfg.VirtualCluster), headers: wire.NewHeaders(), apis: apis(),
		log:      cfg.Log.With().Str(obs.KeyVirtualCluster, cfg.VirtualCluster).Logger(),
		clusters: make(map[string]*addresses), sessions: make(map[*session]struct{}), groups: newGroupSide(),
	}
	if p.memory = cfg.Memory; p.memory == nil {
		p.memory = NewMemory(defaultMemory, nil)
	}
	p.cfg.Limits.FrameBytes = min(p.cfg.Limits.FrameBytes, int(p.memory.limit))
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	for name, c := range cfg.Clusters {
		p.clusters[name] = &addresses{ctx: p.ctx, client: c.Client}
	}
	return p, nil
}

const defaultMemory = 1 << 30

func (c *Config) validate() error {
	var errs []error
	if c.AdvertisedHost == "" {
		errs = append(errs, errors.New("no advertised host"))
	}
	if c.BrokerPortCount < 1 {
		errs = append(errs, errors.New("no broker ports"))
	}
	for name, one := range c.Clusters {
		if one.Client == nil || one.Dial == nil {
			errs = append(errs, fmt.Errorf("cluster %s has no client or no dialer", name))
		}
	}
	return errors.Join(errs...)
}

// Start binds every listener and serves until Close. All virtual nodes listen when it returns without an error. It is called again as
// long as the route was unknown.
func (p *Proxy) Start(ctx context.Context, route Route) error {
	if route.nodes() < 1 {
		return errors.New("the route has no virtual node")
	}
	if _, ok := p.cfg.Clusters[route.Active]; !ok {
		return fmt.Errorf("active cluster %q is not configured", route.Active)
	}
	p.publishing.Lock()
	p.publish(route, route.Generation > 1)
	p.publishing.Unlock()
	if !route.Unknown {
		p.groups.start(p)
	}
	return p.Grow(ctx, route.nodes())
}

// Publish makes a route the current one, unless one of a later generation is. Calls of the free class that are pending on an older
// one are answered here or sent anew.
func (p *Proxy) Publish(route Route) {
	p.publishing.Lock()
	defer p.publishing.Unlock()
	p.publish(route, false)
}

// publish with inherited says that clients may have written to the active cluster in this generation before: who did is
// asked of the brokers. The caller holds publishing.
func (p *Proxy) publish(route Route, inherited bool) {
	old := p.route.Load()
	if old != nil && !old.Unknown && route.Generation < old.Generation {
		return // who made it had not seen the move yet
	}
	route = p.withoutGone(route)
	next := route.prepare(p.cfg.Clusters[route.Active].Names)
	next.seam = newSeam(route.Generation, inherited)
	if old != nil && !old.Unknown && old.Generation == route.Generation {
		next.seam = old.seam
	}
	p.route.Store(next)
	if old == nil {
		return
	}
	close(old.superseded)
	for _, s := range p.openSessions() {
		s.supersede(next.Generation)
	}
}

func (p *Proxy) openSessions() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*session, 0, len(p.sessions))
	for s := range p.sessions {
		out = append(out, s)
	}
	return out
}

// Hold shuts the gate: calls of class holdAtCutover wait, no errors.
func (p *Proxy) Hold(context.Context) error {
	p.gate.hold()
	return nil
}

// Drain waits until every answer of a held class is in from the broker, and everything that was sent without asking for
// an answer has arrived. The gate is shut.
func (p *Proxy) Drain(ctx context.Context) error {
	for { // calls that were on their way to a link when the gate shut may be sent without acks after the first round
		for _, s := range p.openSessions() {
			if err := s.confirm(ctx); err != nil {
				return fmt.Errorf("wait for what was sent without acks: %w", err)
			}
		}
		round, cancel := context.WithTimeout(ctx, confirmEvery)
		err := p.gate.drain(round)
		cancel()
		if err == nil || errors.Is(err, errGateOpen) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for %d calls under way: %w", p.gate.inside.Load(), context.Cause(ctx))
		}
		for _, s := range p.openSessions() {
			s.makeWay()
		}
	}
}

const confirmEvery = 50 * time.Millisecond

// Release opens the gate again, after Publish or when the cutover goes back.
func (p *Proxy) Release() { p.gate.release() }

// PauseMillis is the longest time that a call stood at the gate in the last Hold.
func (p *Proxy) PauseMillis() int64 { return p.gate.pause.Load() }

// Ready says why the proxy cannot serve; nil if it can.
func (p *Proxy) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.ports) == 0 {
		return errors.New("the proxy does not listen")
	}
	return nil
}

// Close ends all sessions and listeners and waits for every goroutine. When ctx ends first, answers under way are
// given up.
func (p *Proxy) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	for _, port := range p.ports {
		_ = port.listener.Close()
	}
	p.mu.Unlock()
	p.cancel(closing(closedByProxy, errors.New("the proxy closes")))
	for _, s := range p.openSessions() {
		_ = s.conn.SetDeadline(time.Unix(1, 0))
	}
	stop := context.AfterFunc(ctx, p.breakLinks)
	defer stop()
	p.running.Wait()
	p.groups.close()
	p.pool.Close()
	return context.Cause(ctx)
}

// breakLinks ends every wait for an answer.
func (p *Proxy) breakLinks() {
	for _, s := range p.openSessions() {
		for _, l := range s.openLinks() {
			_ = l.conn.Close()
		}
	}
}

func (p *Proxy) cluster(name string) *addresses { return p.clusters[name] }

// trouble logs what may happen a thousand times a second once in a while.
type trouble struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

const troubleEvery = time.Second

func (t *trouble) due(what string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.last[what]) < troubleEvery {
		return false
	}
	if t.last == nil {
		t.last = make(map[string]time.Time)
	}
	t.last[what] = now
	return true
}

// warn tells why a session ended.
func (t *trouble) warn(log zerolog.Logger, reason closeReason, err error) {
	if t.due(string(reason)) {
		log.Warn().Err(err).Str(obs.KeyReason, string(reason)).Msg("session ended")
	}
}

// note tells of a passing trouble with one thing.
func (t *trouble) note(log zerolog.Logger, what, key, value string, err error) {
	if t.due(what + key + value) {
		log.Warn().Err(err).Str(key, value).Msg(what)
	}
}
