package replicator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/translate"
)

// Config is one direction of one virtual cluster. Source and Target are plain clients: they neither consume nor join a
// group. Their options are used for clients of the flow's own.
type Config struct {
	From, To                 string // names of the clusters
	Source, Target           *kgo.Client
	VirtualCluster           string
	SourceNames, TargetNames translate.Names
	Topics, Groups           translate.Filter
	Generation               translate.Generation // 0: 1

	// Eras are those of a topic's partitions, up to the current generation. If nil, or if it returns less than partitions: one
	// era that begins at 0.
	Eras func(topic string, partitions int) [][]control.Era
	// SourceMap is the full map of the source, for committed offsets. If nil, virtual = physical there.
	SourceMap func(journal.TP) *translate.Map
	// Producers are the states, by shown id, that the generation began with. The flow goes on with them: what the journal has is of
	// the last generation in this direction. If nil, or if it returns nil, none are known.
	Producers func(journal.TP) *journal.Producers
	// TargetID is the id that the control topic has for a topic on the target; a target topic with another one was re-created
	// or wiped. If nil, or if ok is false, only the journal knows.
	TargetID func(topic string) (id [16]byte, ok bool)

	OnLostRange        string        // OnLostHalt (default) or OnLostSkip
	CheckpointInterval time.Duration // 0: 5 s
	MetadataInterval   time.Duration // 0: 5 s
	RetryInterval      time.Duration // first wait of what is tried again: a lost slot, a refused batch. 0: 1 s
	LeaderTimeout      time.Duration // how long a slot waits for partitions that have no leader, before it goes on without them. 0: 15 s
	Slots              int           // 0: 16
	ReplicationFactor  int16         // of the journal; 0: 3, or the number of brokers if that is less
	Metrics            *obs.Metrics  // nil: none
	Log                zerolog.Logger
}

// What to do when the source has lost records that were not copied yet.
const (
	OnLostHalt = "halt" // stop the partition
	OnLostSkip = "skip" // the lost range is a gap
)

func (c Config) withDefaults() Config {
	c.Generation = max(c.Generation, 1)
	if c.Eras == nil {
		c.Eras = func(string, int) [][]control.Era { return nil }
	}
	if c.SourceMap == nil {
		c.SourceMap = func(journal.TP) *translate.Map { return translate.Identity() }
	}
	if c.Producers == nil {
		c.Producers = func(journal.TP) *journal.Producers { return nil }
	}
	if c.TargetID == nil {
		c.TargetID = func(string) ([16]byte, bool) { return [16]byte{}, false }
	}
	if c.OnLostRange == "" {
		c.OnLostRange = OnLostHalt
	}
	for _, d := range []*time.Duration{&c.CheckpointInterval, &c.MetadataInterval} {
		if *d <= 0 {
			*d = 5 * time.Second
		}
	}
	if c.RetryInterval <= 0 {
		c.RetryInterval = time.Second
	}
	if c.LeaderTimeout <= 0 {
		c.LeaderTimeout = 15 * time.Second
	}
	if c.Slots <= 0 {
		c.Slots = 16
	}
	return c
}

// Flow is one direction of one virtual cluster.
type Flow struct {
	cfg    Config
	log    zerolog.Logger
	codecs *batch.Codecs

	source, target *cluster
	sender         *sender
	fetchers       *fetchers
	pace           pace
	slots          []*slot
	groups         *groupSync

	journalID    [16]byte
	journalBytes atomic.Int64  // size of the journal; −1: not known
	ready        chan struct{} // closed when the journal exists and the slots run
	progress     broadcast     // some pump went on, or changed its state

	discovering token // one discovery at a time

	mu        sync.Mutex // guards what follows
	topics    map[string]*topicState
	pumps     map[journal.TP]*pump
	reseeding map[journal.TP]bool // the next pump of this partition takes nothing from the journal
	fatal     error               // why nothing runs; nil while all is well
}

// New makes a flow. Nothing happens before Run.
func New(cfg Config) *Flow {
	cfg = cfg.withDefaults()
	f := &Flow{
		cfg:       cfg,
		log:       cfg.Log.With().Str("flow", cfg.From+"."+cfg.To).Logger(),
		codecs:    batch.NewCodecs(0),
		ready:     make(chan struct{}),
		topics:    map[string]*topicState{},
		pumps:     map[journal.TP]*pump{},
		reseeding: map[journal.TP]bool{},

		discovering: newToken(),
	}
	f.progress.init()
	f.journalBytes.Store(-1)
	f.source = newCluster(cfg.From, cfg.Source)
	f.target = newCluster(cfg.To, cfg.Target)
	f.sender = newSender(f.target)
	f.fetchers = newFetchers(f.source, &f.pace)
	for n := range cfg.Slots {
		f.slots = append(f.slots, newSlot(f, int32(n)))
	}
	f.groups = newGroupSync(f)
	return f
}

// Run copies until ctx ends, and returns when all has stopped. It is called once.
func (f *Flow) Run(ctx context.Context) error {
	if err := f.open(); err != nil {
		return err
	}
	defer f.close()
	defer f.cfg.Metrics.ShowFlow(f.cfg.From+"."+f.cfg.To, f.sample)()
	if err := f.prepare(ctx); err != nil {
		return err
	}
	// Slots settle when they end, so the sender outlives them.
	sendCtx, endSender := context.WithCancel(context.WithoutCancel(ctx))
	var sending, working sync.WaitGroup
	sending.Go(func() { f.sender.run(sendCtx) })
	working.Go(func() { f.fetchers.run(ctx) })
	for _, s := range f.slots {
		working.Go(func() { s.run(ctx) })
	}
	close(f.ready)
	working.Go(func() { f.groups.run(ctx) })
	working.Go(func() { f.weigh(ctx) })
	f.watch(ctx)
	working.Wait()
	endSender()
	sending.Wait()
	return context.Cause(ctx)
}

// open makes the flow's own clients: with versions that the fence allows and whose topics have names, and with connections that nobody else's requests
// stand before ours on.
func (f *Flow) open() error {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.AddPartitionsToTxn), 3)
	versions.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
	versions.SetMaxKeyVersion(int16(kmsg.OffsetCommit), 9) // later ones name topics by id alone
	versions.SetMaxKeyVersion(int16(kmsg.OffsetFetch), 9)
	for _, c := range []*cluster{f.source, f.target} {
		opts := append(slices.Clone(c.base.Opts()), kgo.MaxVersions(versions), kgo.RequiredAcks(kgo.AllISRAcks()))
		client, err := kgo.NewClient(opts...)
		if err != nil {
			f.close()
			return fmt.Errorf("client for %s: %w", c.name, err)
		}
		c.client = client
		for c == f.target && len(c.spare) < min(spareClients, len(f.slots)) {
			if client, err = kgo.NewClient(opts...); err != nil {
				f.close()
				return fmt.Errorf("client for %s: %w", c.name, err)
			}
			c.spare = append(c.spare, client)
		}
	}
	return nil
}

const spareClients = 16

func (f *Flow) close() {
	for _, c := range []*cluster{f.source, f.target} {
		if c.client != nil {
			c.client.Close()
		}
		for _, one := range c.spare {
			one.Close()
		}
	}
}

// prepare makes the journal and finds the first topics. It tries until ctx ends.
func (f *Flow) prepare(ctx context.Context) error {
	for wait := f.cfg.RetryInterval; ; wait = min(2*wait, 30*time.Second) {
		err := f.tryPrepare(ctx)
		if err == nil {
			return nil
		}
		f.setFatal(err)
		f.log.Error().Err(err).Msg("flow cannot start")
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (f *Flow) tryPrepare(ctx context.Context) error {
	if err := f.refresh(ctx); err != nil {
		return err
	}
	replication := f.cfg.ReplicationFactor
	if replication <= 0 {
		replication = int16(min(3, len(f.target.nodes())))
	}
	f.target.loadConfigs(ctx)
	id, err := journal.Create(ctx, f.target.client, f.cfg.From, f.cfg.To, int32(f.cfg.Slots), replication, f.target.oldFormat.Load())
	if err != nil {
		return err
	}
	f.journalID = id
	if err := f.target.refresh(ctx); err != nil {
		return err
	}
	err = f.discover(ctx)
	f.setFatal(nil)
	if err != nil {
		f.log.Warn().Err(err).Msg("not all topics could be made on the target")
	}
	return nil
}

// refresh looks at both clusters at once.
func (f *Flow) refresh(ctx context.Context) error {
	var errs [2]error
	var both sync.WaitGroup
	for i, c := range []*cluster{f.source, f.target} {
		both.Go(func() { errs[i] = c.refresh(ctx) })
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

func (f *Flow) setFatal(err error) {
	f.mu.Lock()
	f.fatal = err
	f.mu.Unlock()
}

// watch looks for new topics and partitions, and for leaders that moved.
func (f *Flow) watch(ctx context.Context) {
	tick := time.NewTicker(f.cfg.MetadataInterval)
	defer tick.Stop()
	for {
		full := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			full = true
		case <-f.source.kicked:
		case <-f.target.kicked:
		}
		err := f.refresh(ctx)
		if err == nil && full {
			err = f.discover(ctx)
		}
		if err != nil && ctx.Err() == nil {
			f.log.Warn().Err(err).Msg("look for topics")
		}
		for _, s := range f.slots {
			s.wakeUp()
		}
		if !full && sleep(ctx, kickInterval) != nil {
			return
		}
	}
}

// kickInterval is the least time between two metadata requests that errors ask for.
const kickInterval = 50 * time.Millisecond

// allPumps is a snapshot, in order.
func (f *Flow) allPumps() []*pump {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Collect(maps.Values(f.pumps))
	slices.SortFunc(out, func(a, b *pump) int { return a.tp.Compare(b.tp) })
	return out
}

func (f *Flow) pump(tp journal.TP) *pump {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pumps[tp]
}

// Map is the target's map of a partition, as far as it is copied now.
func (f *Flow) Map(tp journal.TP) (*translate.Map, bool) {
	p := f.pump(tp)
	if p == nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part == nil {
		return nil, false
	}
	return p.part.Map, true
}

// Partition is a snapshot of all that the journal knows of a partition.
func (f *Flow) Partition(tp journal.TP) (*journal.Partition, bool) {
	p := f.pump(tp)
	if p == nil {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part == nil {
		return nil, false
	}
	return p.part.Clone(), true
}

// Strays are the copies of ours that no map has.
func (f *Flow) Strays() []journal.Stray {
	var out []journal.Stray
	for _, p := range f.allPumps() {
		p.mu.Lock()
		if p.part != nil {
			out = append(out, p.part.Strays...)
		}
		p.mu.Unlock()
	}
	return out
}

// sleep waits for d or the end of ctx, whose cause it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 && ctx.Err() == nil {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// token is a lock that is held across I/O: who waits for it does so with a context.
type token chan struct{}

func newToken() token { return make(token, 1) }

// take returns the cause if ctx ends first; then the token is not taken.
func (t token) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t token) put() { <-t }

// broadcast wakes all who wait for a change.
type broadcast struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

func (b *broadcast) init() { b.ch = make(chan struct{}) }

// wait returns a channel that is closed at the next change.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *broadcast) signal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}
