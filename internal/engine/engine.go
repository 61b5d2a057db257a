package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/translate"
)

// settings are what engines of one process share.
type settings struct {
	Replication config.Replication
	Cutover     config.Cutover
	Limits      config.Limits
	Metrics     *obs.Metrics
	Memory      *proxy.Memory

	WatchInterval time.Duration
	Log           zerolog.Logger
}

// Engine is one virtual cluster.
type Engine struct {
	cfg      config.VirtualCluster
	opts     settings
	log      zerolog.Logger
	clusters map[string]*upstream // the two; never changed
	names    map[string]translate.Names
	topics   translate.Filter
	groups   translate.Filter
	store    *control.Store
	proxy    *proxy.Proxy
	driver   *cutover.Driver
	running  context.Context // of Run

	mu              sync.Mutex // guards what follows; never held across I/O
	snapshot        control.Snapshot
	route           *proxy.Route     // of snapshot; immutable
	flow            *flowRun         // nil while none runs
	flowProblem     error            // why the flow cannot run
	flowProblemTold time.Time        // in the log
	problem         error            // why clients are not served yet
	found           control.Snapshot // the record as it was read last before clients were served
	incomplete      error            // why not all brokers of the clusters are known, or shown
}

// newEngine wires one virtual cluster. Nothing is asked, and nothing listens, before Run.
func newEngine(cfg config.VirtualCluster, ups map[string]*upstream, names []string, opts settings) (*Engine, error) {
	e := &Engine{
		cfg: cfg, opts: opts, log: opts.Log.With().Str(obs.KeyVirtualCluster, cfg.Name).Logger(),
		clusters: make(map[string]*upstream), names: make(map[string]translate.Names),
		problem: errors.New("it has just started"), running: context.Background(),
	}
	logs := make(map[string]*control.Log)
	clusters := make(map[string]proxy.Cluster)
	if err := e.policies(); err != nil {
		return nil, err
	}
	for _, name := range []string{cfg.Active, cfg.Standby} {
		u := ups[name]
		e.clusters[name] = u
		logs[name] = control.NewLog(control.Config{
			Client: u.client, Cluster: name, VirtualCluster: cfg.Name, Names: names,
			ReplicationFactor: int16(opts.Replication.InternalReplicationFactor),
			Reachable:         func() error { _, err := u.health(); return err }, Log: e.log,
		})
		clusters[name] = proxy.Cluster{Client: u.client, Dial: u.dial, Names: e.names[name]}
	}
	e.store = control.NewStore(cfg.Name, logs)
	tls, err := listenerTLS(cfg.TLS)
	if err != nil {
		return nil, err
	}
	e.proxy, err = proxy.New(proxy.Config{
		VirtualCluster: cfg.Name, Listen: cfg.Listen, AdvertisedHost: cfg.AdvertisedHost,
		BrokerPortStart: cfg.BrokerPorts.Start, BrokerPortCount: cfg.BrokerPorts.Count, TLS: tls,
		Clusters: clusters, Topics: e.topics, Groups: e.groups,
		Limits: proxy.Limits{FrameBytes: opts.Limits.FrameBytes, ConnectionBytes: opts.Limits.ConnectionBytes, Connections: opts.Limits.Connections},
		Memory: opts.Memory, DrainTimeout: opts.Cutover.DrainTimeout,
		SaveGroups: e.saveGroups, Metrics: opts.Metrics, Log: opts.Log,
	})
	if err != nil {
		return nil, err
	}
	e.driver = cutover.New(cutover.Config{
		VirtualCluster: cfg.Name, Records: e.store, Archive: e.store, Gate: e.proxy, Groups: groupSeam{e}, Flow: flowSeam{e},
		Site: siteSeam{e}, Router: routerSeam{e}, MaxPause: opts.Cutover.MaxPause, Metrics: opts.Metrics.Cutover(cfg.Name), Log: opts.Log,
	})
	return e, nil
}

// policies compiles names and filters. The cluster that is active at first has the names that clients see.
func (e *Engine) policies() (err error) {
	naming := e.cfg.Topics.Naming
	e.names[e.cfg.Active], e.names[e.cfg.Standby] = translate.IdentityNames(), translate.IdentityNames()
	switch {
	case naming.Prefix != "":
		e.names[e.cfg.Standby] = translate.PrefixNames(naming.ResolvedPrefix(e.cfg.Active))
	case len(naming.Rename) > 0:
		if e.names[e.cfg.Standby], err = translate.RenameNames(naming.Rename); err != nil {
			return err
		}
	}
	if e.topics, err = translate.NewFilter(e.cfg.Topics.Include, e.cfg.Topics.Exclude); err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	if e.groups, err = translate.NewFilter(e.cfg.Groups.Include, e.cfg.Groups.Exclude); err != nil {
		return fmt.Errorf("groups: %w", err)
	}
	return nil
}

const (
	firstWait = 500 * time.Millisecond
	maxWait   = 5 * time.Second

	defaultWatchInterval = 5 * time.Second
	touchInterval        = 6 * time.Hour // a broker forgets an idle producer after a day
	closeTimeout         = 10 * time.Second
)

// fatal is an error that waiting does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Run serves until ctx ends. Its error says what cannot be mended by waiting.
func (e *Engine) Run(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx)) // ends after clients were told
	e.running = running
	defer cancel()
	defer e.close()
	if err := e.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("virtual cluster %s: %w", e.cfg.Name, err)
	}
	return e.watch(ctx)
}

// close ends what Run began: a cutover first, so that no client is held; then the sessions; then the copies.
func (e *Engine) close() {
	e.driver.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := e.proxy.Close(ctx); err != nil {
		e.log.Warn().Err(err).Msg("answers under way were given up")
	}
	e.stopFlow()
}

// start tries to begin until it succeeds, ctx ends, or something is wrong that waiting does not mend.
func (e *Engine) start(ctx context.Context) error {
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := e.begin(ctx)
		if err == nil {
			return nil
		}
		var f fatal
		if errors.As(err, &f) || errors.Is(err, errSameCluster) || ctx.Err() != nil {
			return err
		}
		e.setProblem(err)
		e.log.Warn().Err(err).Msg("cannot serve yet")
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

func (e *Engine) setProblem(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problem = err
}

// begin reads the record, listens, and starts the flow and what an earlier process left to do.
func (e *Engine) begin(ctx context.Context) error {
	if err := e.pingAll(ctx); err != nil {
		return err
	}
	if err := e.store.Fence(ctx); err != nil {
		return err
	}
	s, err := e.store.Load(ctx)
	if err != nil {
		return err
	}
	if s.State.Generation == 0 {
		if s.State, err = e.firstState(ctx, s); err != nil {
			return err
		}
	} else if s, err = e.knownState(ctx, s); err != nil {
		return err
	}
	if live, gone, err := e.liveTopics(ctx, s); err == nil { // else what does not fit is refused, and watch asks again
		e.noteGone(s.State.Active, gone)
		s = live
	}
	route, err := e.loadRoute(ctx, s)
	if err != nil {
		return err
	}
	e.setCurrent(s, &route)
	e.noteRefused(&route)
	e.proxy.SetGroups(s.Groups)
	if err := e.proxy.Start(ctx, route); err != nil {
		return fatal{err}
	}
	e.mu.Lock()
	e.problem = nil
	e.mu.Unlock()
	e.startFlow(s, &route)
	e.driver.Resume(s)
	e.metrics(s.State)
	e.log.Info().Int64(obs.KeyGeneration, int64(s.State.Generation)).Str("active", s.State.Active).Str("standby", s.State.Standby).
		Str("assumed", s.Assumed).Str(obs.KeyListener, e.cfg.Listen).Msg("serving")
	return nil
}

func (e *Engine) metrics(st control.State) {
	m := e.opts.Metrics.Cutover(e.cfg.Name)
	m.SetRoute(int64(st.Generation), st.Active, st.Standby)
	m.SetPhase("", string(st.Phase))
}

// pingAll asks both clusters who they are, and fails if they are one. That one is down is no error.
func (e *Engine) pingAll(ctx context.Context) error {
	var all sync.WaitGroup
	for _, u := range e.clusters {
		all.Go(func() { _ = u.ping(ctx) }) // kept by the upstream
	}
	all.Wait()
	return distinct(e.clusters[e.cfg.Active], e.clusters[e.cfg.Standby])
}

// anyDown says whether a cluster did not answer when it was asked last.
func (e *Engine) anyDown() bool {
	for _, u := range e.clusters {
		if _, err := u.health(); err != nil {
			return true
		}
	}
	return false
}

// firstState makes and saves the record of the first generation. It needs the cluster that is configured to be active.
func (e *Engine) firstState(ctx context.Context, s control.Snapshot) (control.State, error) {
	active := e.clusters[e.cfg.Active]
	if slices.Contains(s.Unread, e.cfg.Active) {
		_, down := active.health() // nil for one that answers, but not where the control log lies
		return s.State, fmt.Errorf("the first start needs the active cluster %s: %s", e.cfg.Active, errors.Join(errors.New(s.Assumed), down))
	}
	id, _, err := completeIdentity(ctx, control.Identity{}, active)
	if err != nil {
		return s.State, err
	}
	id, _, _ = e.identityNow(ctx, id) // what fails is asked again by watch
	if err := e.room(id, e.cfg.Active); err != nil {
		return s.State, fatal{err}
	}
	st := control.State{VirtualCluster: e.cfg.Name, Generation: 1, Active: e.cfg.Active, Standby: e.cfg.Standby, Phase: control.Idle, Identity: id}
	return st, e.store.Save(ctx, st)
}

// knownState checks a record against the configuration, and adds what an earlier process could not learn of a cluster.
func (e *Engine) knownState(ctx context.Context, s control.Snapshot) (control.Snapshot, error) {
	for _, name := range []string{s.State.Active, s.State.Standby} {
		if e.clusters[name] == nil {
			return s, fatal{fmt.Errorf("the control record is about clusters %s and %s; the configuration has %s and %s: names of clusters may not change", s.State.Active, s.State.Standby, e.cfg.Active, e.cfg.Standby)}
		}
	}
	e.setFound(s)
	if err := e.needsActive(s); err != nil {
		st := s.State // enough for clients to connect, and to wait
		known := proxy.Route{Generation: st.Generation, Active: st.Active, Standby: st.Standby, Identity: st.Identity, Unknown: true}
		if closed := e.proxy.Start(ctx, known); closed != nil {
			return s, fatal{closed}
		}
		return s, err
	}
	_, down := e.clusters[s.State.Active].health()
	if !s.State.Phase.Running() && down == nil { // else the record is the cutover's, or cannot be written
		id, added, _ := e.identityNow(ctx, s.State.Identity) // what fails is asked again by watch
		if len(added) > 0 {
			s.State.Identity = id
			if err := e.store.Save(ctx, s.State); err != nil {
				return s, err
			}
			e.log.Info().Strs(obs.KeyCluster, added).Msg("brokers added")
		}
	}
	return s, nil
}

// needsActive says why the route of a record cannot be known; nil if it can. From the second generation on it rests on the control
// log and the journal of the active cluster, of which there is no copy: without them offsets would be shown that are not the records'.
func (e *Engine) needsActive(s control.Snapshot) error {
	st := s.State
	if st.Generation <= 1 {
		return nil
	}
	if _, down := e.clusters[st.Active].health(); down != nil {
		return fmt.Errorf("the active cluster %s cannot be reached, and only it knows how offsets are shown in generation %d: %w", st.Active, st.Generation, down)
	}
	if s.FromCopy {
		return fmt.Errorf("the control log of %s, which is active, cannot be read, and only it knows how offsets are shown in generation %d", st.Active, st.Generation)
	}
	return nil
}

func (e *Engine) setFound(s control.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.found = s
}

// errNoRoom says that clients cannot be shown all brokers; waiting does not help.
var errNoRoom = errors.New("not all brokers can be shown to clients")

// room fails if there are not enough ports for an identity, the last brokers of which are those of cluster.
func (e *Engine) room(id control.Identity, cluster string) error {
	if n := nodeCount(id); n > e.cfg.BrokerPorts.Count {
		return fmt.Errorf("%w: %s has %d brokers, broker_ports has room for %d", errNoRoom, cluster, n, e.cfg.BrokerPorts.Count)
	}
	return nil
}

// identityNow adds what the clusters that answer can tell; added are those that told something new.
func (e *Engine) identityNow(ctx context.Context, id control.Identity) (out control.Identity, added []string, err error) {
	var errs []error
	for _, name := range []string{e.cfg.Active, e.cfg.Standby} {
		u := e.clusters[name]
		if _, err := u.health(); err != nil {
			continue
		}
		next, changed, err := completeIdentity(ctx, id, u)
		if full := e.room(next, name); changed && full != nil && nodeCount(next) > nodeCount(id) {
			err, changed = full, false
		}
		errs = append(errs, err)
		if changed {
			id, added = next, append(added, name)
		}
	}
	return id, added, errors.Join(errs...)
}

// watch keeps the view of both clusters fresh until ctx ends, or another process drives the virtual cluster: what we serve
// after that may be of a cluster that is not active any more.
func (e *Engine) watch(ctx context.Context) error {
	follower := control.NewFollower(e.store)
	touched := time.Now()
	for wait := firstWait; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = e.opts.WatchInterval
		_ = e.pingAll(ctx) // Status and Inspect say it
		if err := e.overtaken(ctx, follower); err != nil {
			return err
		}
		_ = e.store.FenceRest(ctx) // what fails is tried again; until it succeeds no move begins, and nothing is confirmed
		if !e.confirm(ctx) {       // what we write could take the place of a later record
			wait = min(wait, firstWait)
			continue
		}
		if err := e.growIdentity(ctx); err != nil {
			wait = min(wait, firstWait)
		}
		e.dropGone(ctx)
		if e.anyDown() {
			wait = min(wait, firstWait) // its return is noticed soon
		}
		if time.Since(touched) > touchInterval {
			if err := e.driver.Amend(ctx, func(*control.State) bool { return true }); err == nil {
				touched = time.Now()
			}
		}
	}
}

// overtaken says that another process drives the virtual cluster. A cutover of ours finds that out by itself, and what it
// writes is not to be taken for another's.
func (e *Engine) overtaken(ctx context.Context, f *control.Follower) error {
	before := e.driver.State()
	if e.driver.Running() != "" {
		return nil
	}
	err := f.Overtaken(ctx, before.Generation)
	if err == nil || e.driver.Running() != "" || e.driver.State().Generation != before.Generation {
		return nil
	}
	e.log.Error().Err(err).Msg("stop serving")
	return err
}

// confirm takes back what was assumed while a log could not be read, once both can be read and the record is the one that is
// served; if it is not, overtaken says so. It is false while that is not known of clusters that answer.
func (e *Engine) confirm(ctx context.Context) bool {
	if e.current().Assumed == "" || e.anyDown() {
		return true
	}
	now, err := e.store.Load(ctx)
	if err != nil || len(now.Unread) > 0 {
		return false
	}
	e.mu.Lock()
	served := &e.snapshot
	agrees := now.State.Generation == served.State.Generation && now.State.Active == served.State.Active
	if agrees {
		served.Assumed, served.Unread = "", nil
	}
	e.mu.Unlock()
	if agrees {
		e.log.Info().Int64(obs.KeyGeneration, int64(now.State.Generation)).Msg("both control logs agree; nothing is assumed any more")
	}
	return agrees
}

// growIdentity records and shows brokers that are new, and a cluster that was down at the start. An error passes; what does not is
// said by the status.
func (e *Engine) growIdentity(ctx context.Context) error {
	id, added, incomplete := e.identityNow(ctx, e.current().State.Identity)
	e.setIncomplete(incomplete)
	if len(added) == 0 && errors.Is(incomplete, errNoRoom) {
		return nil
	}
	if len(added) == 0 {
		return incomplete
	}
	err := e.proxy.Grow(ctx, nodeCount(id))
	if err == nil {
		err = e.driver.Amend(ctx, func(st *control.State) bool { st.Identity = id; return true })
	}
	if err != nil {
		e.setIncomplete(errors.Join(incomplete, fmt.Errorf("new brokers of %s are not shown yet: %w", strings.Join(added, " and "), err)))
		return err
	}
	e.showIdentity(id)
	e.log.Info().Strs(obs.KeyCluster, added).Msg("brokers added")
	return nil
}

// setIncomplete logs what is new.
func (e *Engine) setIncomplete(err error) {
	e.mu.Lock()
	before := e.incomplete
	e.incomplete = err
	e.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		e.log.Warn().Err(err).Msg("not all brokers are known")
	}
}

// showIdentity publishes the current route with another identity. Every virtual node of it has a listener.
func (e *Engine) showIdentity(id control.Identity) {
	e.mu.Lock()
	e.snapshot.State.Identity = id
	route := *e.route
	route.Identity = id
	e.route = &route
	e.mu.Unlock()
	e.proxy.Publish(route)
}

// dropGone takes topics out of the route and of the flow that are gone, or were created anew, on the active cluster.
func (e *Engine) dropGone(ctx context.Context) {
	live, gone, err := e.liveTopics(ctx, e.current())
	if err != nil || len(gone) == 0 {
		return
	}
	// Within an amendment, because no cutover can begin meanwhile.
	_ = e.driver.Amend(ctx, func(*control.State) bool {
		s, route := e.view()
		if s.State.Generation != live.State.Generation {
			return false
		}
		next := *route
		next.Topics = maps.Clone(route.Topics)
		for _, name := range gone {
			delete(next.Topics, name)
		}
		s.Topics = live.Topics
		e.setCurrent(s, &next)
		e.proxy.Publish(next)
		e.noteGone(s.State.Active, gone)
		e.stopFlow() // it counts by the eras that are gone
		e.startFlow(s, &next)
		return false
	})
}

// noteGone takes records of topics that are gone out of the active cluster's log. That it fails is no harm: they are found
// again.
func (e *Engine) noteGone(active string, gone []string) {
	if len(gone) == 0 {
		return
	}
	e.log.Warn().Strs(obs.KeyTopic, gone).Msg("topics were deleted, or created anew, since the last move; their record is dropped")
	ctx, cancel := context.WithTimeout(e.running, closeTimeout)
	defer cancel()
	if err := e.store.RemoveTopics(ctx, active, gone); err != nil {
		e.log.Warn().Err(err).Msg("drop topic records")
	}
}

func (e *Engine) setCurrent(s control.Snapshot, route *proxy.Route) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot, e.route = s, route
}

// current is the record that the route is made of.
func (e *Engine) current() control.Snapshot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snapshot
}

// view is the record and its route.
func (e *Engine) view() (control.Snapshot, *proxy.Route) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.snapshot, e.route
}

func (e *Engine) flowProblemNow() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flowProblem
}

// saveGroups makes group records durable where the active cluster is.
func (e *Engine) saveGroups(ctx context.Context, groups []control.Group) error {
	return e.store.PutGroups(ctx, e.current().State.Active, groups)
}
