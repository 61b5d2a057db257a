package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
)

// groupSide is all of a Proxy that has to do with groups.
type groupSide struct {
	tab  *groupTable
	cos  *coordinators
	move groupMove

	ctx     context.Context // of shadows and the saver; ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup // shadows and the saver

	saving    sync.Mutex // held while records are taken and saved; guards suspended
	suspended bool       // a move is under way
}

func newGroupSide() *groupSide {
	ctx, cancel := context.WithCancel(context.Background())
	return &groupSide{tab: newGroupTable(), cos: newCoordinators(), ctx: ctx, cancel: cancel}
}

func (g *groupSide) table() *groupTable          { return g.tab }
func (g *groupSide) coordinators() *coordinators { return g.cos }

// movingTo is the cluster that shadows are made on; "" while no move is under way.
func (g *groupSide) movingTo() string {
	g.move.mu.Lock()
	defer g.move.mu.Unlock()
	return g.move.to
}

// publish makes a shadow known and starts its heartbeats. shownGeneration is what its members know.
func (g *groupSide) publish(p *Proxy, s *shadowGroup, shownGeneration int32) {
	ctx, cancel := context.WithCancel(g.ctx)
	s.stop, s.finished = cancel, make(chan struct{})
	g.tab.publish(s, shownGeneration)
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		s.beat(ctx, p)
	}()
}

// start binds restored records to the active cluster and begins to save records.
func (g *groupSide) start(p *Proxy) {
	g.tab.bind(p.route.Load().Active)
	if p.cfg.SaveGroups == nil {
		return
	}
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		g.save(g.ctx, p)
	}()
}

// close ends everything that start and moves began, and waits for it. Shadow members stay in their groups until their
// sessions end.
func (g *groupSide) close() {
	g.cancel()
	g.running.Wait()
}

// saveEvery gathers the changes of a rebalance into one write.
const saveEvery = 200 * time.Millisecond

// save writes the records of groups that changed until ctx ends. What cannot be saved is tried again: until then a
// restarted process would know less of the group and use defaults.
func (g *groupSide) save(ctx context.Context, p *Proxy) {
	for {
		select {
		case <-g.tab.wake:
		case <-ctx.Done():
			return
		}
		if sleep(ctx, saveEvery) != nil {
			return
		}
		records, err := g.saveOnce(ctx, p)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		p.log.Warn().Err(err).Int("groups", len(records)).Msg("group records not saved, trying again")
		if sleep(ctx, 5*saveEvery) != nil {
			return
		}
		g.tab.putBack(records)
	}
}

// saveOnce saves what has changed, and returns what it tried to save.
func (g *groupSide) saveOnce(ctx context.Context, p *Proxy) ([]control.Group, error) {
	g.saving.Lock()
	defer g.saving.Unlock()
	if g.suspended {
		return nil, nil // resume wakes us
	}
	records := g.tab.takeDirty(p.route.Load().Active)
	if len(records) == 0 {
		return nil, nil
	}
	return records, p.cfg.SaveGroups(ctx, records)
}

// suspend lets no record be saved until resume, and waits for the one under way: records of the old cluster's mapping must
// not arrive where the new cluster's are, which the move itself saves.
func (g *groupSide) suspend() {
	g.saving.Lock()
	defer g.saving.Unlock()
	g.suspended = true
}

func (g *groupSide) resume() {
	g.saving.Lock()
	g.suspended = false
	g.saving.Unlock()
	g.tab.wakeSaver()
}

// Groups are the records of all groups as they stand on the active cluster.
func (p *Proxy) Groups() map[string]control.Group {
	out := map[string]control.Group{}
	for _, rec := range p.groups.table().records(p.activeCluster()) {
		out[rec.Name] = rec
	}
	return out
}

// SetGroups restores what Groups, or GroupRecords before a move, returned. It is called before Start.
func (p *Proxy) SetGroups(records map[string]control.Group) { p.groups.table().restore(records) }

func (p *Proxy) activeCluster() string {
	if r := p.route.Load(); r != nil {
		return r.Active
	}
	return ""
}
