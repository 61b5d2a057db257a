package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
)

// GroupFacts says how groups stand for a move.
type GroupFacts struct {
	Groups  int               // classic groups of the active cluster that clients may use
	Members int               // their members
	Moved   int               // groups that are ready on the standby: no client will notice
	Barrier int               // groups whose members will have to rejoin
	Idle    int               // groups without members
	Millis  int64             // what it took
	Reasons map[string]string // why groups are at the barrier, by group
}

const (
	// parallelGroups bounds the groups that are made at once.
	parallelGroups = 32
	// generationTime is how long PrepareGroups waits for a heartbeat of groups whose generation nobody knows: clients
	// send one every 3 s.
	generationTime = 4 * time.Second
	// recheckTime bounds what changed groups may cost while clients wait at the gate, and once more what it may cost to take
	// shadows out again; a barrier is the lesser evil then.
	recheckTime = time.Second
	// prepareTime bounds what one group may cost before: brokers wait for 3 s, by their default, for each further member of
	// a new group.
	prepareTime = time.Minute
	// transplantTries: a coordinator that moves, or a broker that picks another leader, is tried again.
	transplantTries = 3
)

// groupMove is the move that is being prepared or was made last.
type groupMove struct {
	mu       sync.Mutex // held by one of PrepareGroups, CheckGroups, DiscardGroups, RetireGroups at a time
	from, to string
	retire   map[string][]kmsg.LeaveGroupRequestMember // by group: who is to leave the old cluster
}

// PrepareGroups makes the shadow members of every stable group on the standby, while clients run. A group that cannot be
// prepared is no error: it will stand at the barrier.
func (p *Proxy) PrepareGroups(ctx context.Context, to string) (GroupFacts, error) {
	p.groups.move.mu.Lock()
	defer p.groups.move.mu.Unlock()
	from := p.route.Load().Active
	if p.groups.move.to != "" && (p.groups.move.to != to || p.groups.move.from != from) {
		p.discard(ctx)
	}
	p.groups.move.from, p.groups.move.to = from, to
	p.groups.suspend()
	return p.arrangeGroups(ctx, 0, generationTime)
}

// CheckGroups looks at the groups again when the gate is shut and all answers are in. A group that is still as it was gets
// its final mapping; one that changed is made anew if that is quick; all others are put behind the barrier.
func (p *Proxy) CheckGroups(ctx context.Context) (GroupFacts, error) {
	p.groups.move.mu.Lock()
	defer p.groups.move.mu.Unlock()
	if p.groups.move.to == "" {
		return GroupFacts{}, errors.New("check groups: none were prepared")
	}
	return p.arrangeGroups(ctx, recheckTime, 0)
}

// arrangeGroups brings every group into one of the states of GroupFacts. atMost bounds the time for all groups that have to
// be made, 0: prepareTime for each.
func (p *Proxy) arrangeGroups(ctx context.Context, atMost, waitGeneration time.Duration) (GroupFacts, error) {
	began := time.Now()
	from := p.groups.move.from
	names, err := p.list(ctx, from)
	if err != nil {
		return GroupFacts{}, err
	}
	if waitGeneration > 0 {
		p.awaitGenerations(ctx, names, waitGeneration)
	}
	groups, err := p.describe(ctx, from, names)
	if err != nil {
		return GroupFacts{}, err
	}
	a := arranging{p: p, from: from, to: p.groups.move.to, facts: GroupFacts{Reasons: map[string]string{}}}
	a.retire = map[string][]kmsg.LeaveGroupRequestMember{}
	if atMost > 0 {
		a.until = began.Add(atMost)
	}
	a.dropGone(ctx, groups)
	var running sync.WaitGroup
	slots := make(chan struct{}, parallelGroups)
	for _, g := range groups {
		slots <- struct{}{}
		running.Add(1)
		go func() {
			defer running.Done()
			a.group(ctx, g)
			<-slots
		}()
	}
	running.Wait()
	p.groups.move.retire = a.retire
	a.facts.Millis = time.Since(began).Milliseconds()
	return a.facts, context.Cause(ctx)
}

// awaitGenerations waits a moment for groups whose generation nobody knows, after a restart.
func (p *Proxy) awaitGenerations(ctx context.Context, names []string, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	groups, err := p.describe(ctx, p.groups.move.from, names)
	if err != nil {
		return
	}
	unknown := func() bool {
		for _, g := range groups {
			if len(g.Members) > 0 && p.groups.table().generation(g.Group) < 0 {
				return true
			}
		}
		return false
	}
	for unknown() && sleep(ctx, 20*time.Millisecond) == nil {
	}
}

// arranging is one turn over all groups.
type arranging struct {
	p        *Proxy
	from, to string
	until    time.Time // for making groups; zero: prepareTime for each

	mu     sync.Mutex // guards facts and retire
	facts  GroupFacts
	retire map[string][]kmsg.LeaveGroupRequestMember
}

// group arranges one group.
func (a *arranging) group(ctx context.Context, g describedGroup) {
	shadow := a.p.groups.table().shadowOf(g.Group, a.to)
	var why error
	switch {
	case g.ErrorCode != 0:
		why = fmt.Errorf("describe group %q of %s: %w", g.Group, a.from, kerr.ErrorForCode(g.ErrorCode))
	case g.State == stateEmpty || g.State == stateDead || len(g.Members) == 0:
		a.dismiss(ctx, shadow)
		a.p.groups.table().lower(a.to, g.Group)
		a.count(g, func(f *GroupFacts) { f.Idle++ })
		return
	case g.State != stateStable:
		why = fmt.Errorf("%w: %s", errNotStable, g.State)
	case shadow != nil && a.p.groups.table().stands(shadow) && shadow.same(g):
		a.p.groups.table().settle(shadow)
	default:
		why = a.transplant(ctx, g, shadow)
	}
	if why == nil {
		a.count(g, func(f *GroupFacts) { f.Moved++ })
		return
	}
	a.dismiss(ctx, a.p.groups.table().shadowOf(g.Group, a.to))
	a.p.groups.table().raise(a.to, g.Group)
	a.count(g, func(f *GroupFacts) { f.Barrier++; f.Reasons[g.Group] = why.Error() })
}

func (a *arranging) transplant(ctx context.Context, g describedGroup, shadow *shadowGroup) error {
	until := a.until
	if until.IsZero() {
		until = time.Now().Add(prepareTime)
	}
	joins, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for try := 1; ; try++ {
		s, err := a.p.transplant(joins, a.from, a.to, g, shadow)
		if err == nil {
			return nil
		}
		shadow = nil // used up
		a.leave(ctx, s)
		again := errors.Is(err, errLostLeader) || errors.Is(err, kerr.NotCoordinator)
		if !again || try == transplantTries || joins.Err() != nil {
			return err
		}
		a.p.groups.coordinators().forget(a.to, g.Group)
	}
}

// dropGone undoes what was prepared for groups that the active cluster has no more.
func (a *arranging) dropGone(ctx context.Context, groups map[string]describedGroup) {
	for _, s := range a.p.groups.table().shadowsOn(a.to) {
		if _, there := groups[s.group]; !there {
			a.dismiss(ctx, s)
		}
	}
	a.p.groups.table().forgetGone(a.to, groups)
}

// dismiss takes a shadow out of the standby's group.
func (a *arranging) dismiss(ctx context.Context, s *shadowGroup) {
	if s == nil {
		return
	}
	s.dismiss()
	a.p.groups.table().unpublish(s)
	a.leave(ctx, s)
}

// leave takes a shadow's members out of the standby's group. While clients wait at the gate it is given recheckTime for all groups.
func (a *arranging) leave(ctx context.Context, s *shadowGroup) {
	if s == nil {
		return
	}
	if !a.until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, a.until.Add(recheckTime))
		defer cancel()
	}
	if err := a.p.leaveAnyway(ctx, s.cluster, s.group, s.leaving()); err != nil {
		a.p.log.Warn().Err(err).Str("group", s.group).Msg("shadow members stay until their sessions end")
	}
}

// count notes what became of a group, and who leaves the old cluster after the switch.
func (a *arranging) count(g describedGroup, what func(*GroupFacts)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts.Groups++
	a.facts.Members += len(g.Members)
	what(&a.facts)
	if a.p.groups.table().generation(g.Group) < 0 {
		return // no client of ours is in it
	}
	for _, m := range g.Members {
		a.retire[g.Group] = append(a.retire[g.Group], kmsg.LeaveGroupRequestMember{MemberID: m.MemberID, InstanceID: m.InstanceID})
	}
}

// ShadowMember is the member as which a group's final offsets are to be stored on the standby: a group that has members
// there refuses others. The id is the real one. ok is false for a group without members there.
func (p *Proxy) ShadowMember(group string) (id string, generation int32, instanceID *string, ok bool) {
	s := p.groups.table().shadowOf(group, p.groups.movingTo())
	if s == nil {
		return "", unknownGeneration, nil, false
	}
	m := s.members[0]
	return m.real, s.generation, m.instanceID, true
}

// GroupRecords are the records of all groups as they will stand on the standby.
func (p *Proxy) GroupRecords() []control.Group {
	return p.groups.table().records(p.groups.movingTo())
}

// DiscardGroups undoes PrepareGroups: the move goes back.
func (p *Proxy) DiscardGroups(ctx context.Context) {
	p.groups.move.mu.Lock()
	defer p.groups.move.mu.Unlock()
	p.discard(ctx)
}

func (p *Proxy) discard(ctx context.Context) {
	to := p.groups.move.to
	if to == "" || to == p.route.Load().Active {
		return
	}
	a := arranging{p: p, to: to}
	var running sync.WaitGroup
	slots := make(chan struct{}, parallelGroups)
	for _, s := range p.groups.table().shadowsOn(to) {
		slots <- struct{}{}
		running.Add(1)
		go func() {
			defer running.Done()
			a.dismiss(ctx, s)
			<-slots
		}()
	}
	running.Wait()
	p.groups.table().lowerAll(to)
	p.groups.move.to, p.groups.move.retire = "", nil
	p.groups.resume()
}

// RetireGroups leaves the groups on the old cluster, after the switch. Members there would hold up the way back by a
// session. Shadows whose clients do not come are given up after a session.
func (p *Proxy) RetireGroups(ctx context.Context, from string) {
	p.groups.move.mu.Lock()
	defer p.groups.move.mu.Unlock()
	p.groups.table().handOver(p.route.Load().Active)
	retire := p.groups.move.retire
	if retire == nil {
		retire = p.rememberedMembers(ctx, from)
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, parallelGroups)
	for group, members := range retire {
		slots <- struct{}{}
		running.Add(1)
		go func() {
			defer running.Done()
			if err := p.leave(ctx, from, group, members); err != nil {
				p.log.Warn().Err(err).Str("group", group).Msg("members stay in the group on the old cluster until their sessions end")
			}
			<-slots
		}()
	}
	running.Wait()
	p.groups.table().forgetCluster(from)
	p.groups.move.to, p.groups.move.retire = "", nil
	p.groups.resume()
}

// rememberedMembers finds, in a process that did not prepare the move itself, the members that its clients still have on the
// old cluster: those whose ids are the ones shown. The others leave when their sessions end.
func (p *Proxy) rememberedMembers(ctx context.Context, from string) map[string][]kmsg.LeaveGroupRequestMember {
	names, err := p.list(ctx, from)
	if err != nil {
		return nil
	}
	groups, err := p.describe(ctx, from, names)
	if err != nil {
		return nil
	}
	out := map[string][]kmsg.LeaveGroupRequestMember{}
	for _, g := range groups {
		known, _ := p.groups.table().known(g.Group)
		for _, m := range g.Members {
			if _, ours := known[m.MemberID]; ours {
				out[g.Group] = append(out[g.Group], kmsg.LeaveGroupRequestMember{MemberID: m.MemberID, InstanceID: m.InstanceID})
			}
		}
	}
	return out
}
