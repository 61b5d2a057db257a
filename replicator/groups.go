package replicator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// Member is a member of a group on the target, as whom offsets are committed: a group with members takes them from nobody
// else. Generation is the member epoch of a KIP-848 group.
type Member struct {
	ID         string
	Generation int32
	InstanceID *string
}

// GroupState says how a group's offsets on the target are.
type GroupState string

const (
	GroupOK      GroupState = "ok"
	GroupStale   GroupState = "stale"   // no checkpoint for too long
	GroupBlocked GroupState = "blocked" // the group has members on the target; its offsets are stored at the cutover
)

// GroupStatus is what an operator sees of one group.
type GroupStatus struct {
	Group         string
	State         GroupState
	CheckpointAge time.Duration // since its offsets were last known to be the same on both sides; −1: never
	Reason, Hint  string
}

// groupSync carries the committed offsets of groups from the source to the target.
type groupSync struct {
	flow *Flow

	// polling: one poll at a time. Guards stored and unsure. Held across I/O: who takes it waits until nothing of a poll is under
	// way any more.
	polling token
	stored  map[string]offsets // what the target has of us, by group; at may be notKnown
	unsure  map[string]bool    // groups with a request whose outcome is not known: it may yet be carried out

	mu     sync.Mutex // guards what follows
	states map[string]*groupState
	lost   map[journal.TP]bool // partitions of target topics that are gone, and the offsets with them; not yet known to stored
	paused bool
	stop   context.CancelFunc // ends the poll that began last
}

type groupState struct {
	found        time.Time
	at           time.Time // of the last checkpoint; zero: none
	blocked      bool
	reason, hint string
}

// offset is a committed offset; on which side is said by where it is.
type offset struct {
	at       int64
	metadata string
}

// notKnown is no committed offset: one may be there, or not.
const notKnown = -1

type offsets map[journal.TP]offset

func newGroupSync(f *Flow) *groupSync {
	return &groupSync{
		flow: f, polling: newToken(), stored: map[string]offsets{}, unsure: map[string]bool{},
		states: map[string]*groupState{}, lost: map[journal.TP]bool{}, stop: func() {},
	}
}

// run polls until ctx ends.
func (g *groupSync) run(ctx context.Context) {
	tick := time.NewTicker(g.flow.cfg.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := g.poll(ctx); err != nil && ctx.Err() == nil {
			g.flow.log.Warn().Err(err).Msg("group offsets")
		}
	}
}

// pause ends polling, and returns when nothing of it is under way, or ctx has ended. resume lets it go on, in both cases.
//
// A poll ends before its next group. What it was about to store for this one is waited for: a request that is given up may
// still be carried out, later than FinalOffsets. It is no wait in vain, for those are stored by the same coordinator.
func (g *groupSync) pause(ctx context.Context) error {
	g.mu.Lock()
	g.paused = true
	g.stop()
	g.mu.Unlock()
	if err := g.polling.take(ctx); err != nil {
		return err
	}
	g.polling.put()
	return nil
}

func (g *groupSync) resume() {
	g.mu.Lock()
	g.paused = false
	g.mu.Unlock()
}

func (g *groupSync) poll(ctx context.Context) error {
	if err := g.polling.take(ctx); err != nil {
		return err
	}
	defer g.polling.put()
	polling, stop := context.WithCancel(ctx)
	defer stop()
	if !g.begin(stop) {
		return nil
	}
	g.takeLost()
	groups, err := g.read(polling, g.flow.source)
	switch {
	case polling.Err() != nil:
		return context.Cause(ctx) // nil: paused
	case err != nil:
		return err
	}
	var errs []error
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if polling.Err() != nil {
			break
		}
		_, err := g.store(ctx, group, g.translate(group, groups[group]), Member{Generation: -1})
		errs = append(errs, g.note(group, err))
	}
	for _, group := range slices.Sorted(maps.Keys(g.stored)) {
		if polling.Err() != nil {
			break
		}
		if _, there := groups[group]; !there {
			errs = append(errs, g.remove(ctx, group, g.stored[group]))
		}
	}
	return errors.Join(errs...)
}

// begin says whether a poll may begin. stop ends it before its next group.
func (g *groupSync) begin(stop context.CancelFunc) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stop = stop
	return !g.paused
}

// lose notes that the target's topic of a partition is gone. What its groups have in one of that name later is not known.
func (g *groupSync) lose(tp journal.TP) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost[tp] = true
}

// takeLost is called with polling held, before the source is asked.
func (g *groupSync) takeLost() {
	g.mu.Lock()
	lost := g.lost
	g.lost = map[journal.TP]bool{}
	g.mu.Unlock()
	for tp := range lost {
		for _, have := range g.stored {
			if _, ok := have[tp]; ok {
				have[tp] = offset{at: notKnown}
			}
		}
	}
}

// note keeps how a group fared. Members on the target are no error: then the offsets are stored at the cutover.
func (g *groupSync) note(group string, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state(group)
	s.blocked = isMembersThere(err)
	switch {
	case s.blocked:
		return nil
	case err != nil:
		s.reason, s.hint = err.Error(), "our user needs READ on the group, on both clusters"
		return fmt.Errorf("group %s: %w", group, err)
	}
	s.at = time.Now()
	return nil
}

// isMembersThere: the commit of somebody who is no member was refused, because the group has members.
func isMembersThere(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) ||
		errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.StaleMemberEpoch)
}

// state is called with mu held.
func (g *groupSync) state(group string) *groupState {
	s := g.states[group]
	if s == nil {
		s = &groupState{found: time.Now()}
		g.states[group] = s
	}
	return s
}

// GroupStatus lists the groups, in order.
func (f *Flow) GroupStatus() []GroupStatus {
	g := f.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []GroupStatus
	for _, group := range slices.Sorted(maps.Keys(g.states)) {
		s := g.states[group]
		one := GroupStatus{Group: group, State: GroupOK, CheckpointAge: -1, Reason: s.reason, Hint: s.hint}
		if !s.at.IsZero() {
			one.CheckpointAge = time.Since(s.at)
		}
		switch {
		case s.blocked:
			one.State, one.Reason, one.Hint = GroupBlocked, "the group has members on "+f.cfg.To, "its offsets are stored at the cutover"
		case one.CheckpointAge < 0 || one.CheckpointAge > 3*f.cfg.CheckpointInterval+10*time.Second:
			one.State = GroupStale
		}
		out = append(out, one)
	}
	return out
}

// read returns the committed offsets of all selected groups of a cluster, by physical names. A group without offsets is in
// it. If a broker could not be asked, it is an error: a group that is missing would look deleted.
func (g *groupSync) read(ctx context.Context, c *cluster) (map[string]offsets, error) {
	list := kmsg.NewPtrListGroupsRequest()
	resp, err := list.RequestWith(ctx, c.client)
	if err != nil {
		return nil, journal.Cause(ctx, fmt.Errorf("list groups of %s: %w", c.name, err))
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("list groups of %s: %w", c.name, err)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	out := map[string]offsets{}
	for _, one := range resp.Groups {
		if !g.flow.cfg.Groups.Match(one.Group) || one.ProtocolType != "" && one.ProtocolType != "consumer" || one.GroupType == "share" {
			continue
		}
		ask := kmsg.NewOffsetFetchRequestGroup()
		ask.Group = one.Group
		req.Groups = append(req.Groups, ask)
		out[one.Group] = offsets{}
	}
	if len(req.Groups) == 0 {
		return out, nil
	}
	fetched, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, journal.Cause(ctx, fmt.Errorf("fetch offsets of %d groups of %s: %w", len(req.Groups), c.name, err))
	}
	for _, one := range fetched.Groups {
		err := kerr.ErrorForCode(one.ErrorCode)
		if errors.Is(err, kerr.GroupIDNotFound) { // deleted meanwhile
			delete(out, one.Group)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("fetch offsets of group %s of %s: %w", one.Group, c.name, err)
		}
		for _, t := range one.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("fetch offset of group %s, %s-%d of %s: %w", one.Group, t.Topic, p.Partition, c.name, err)
				}
				if p.Offset < 0 || out[one.Group] == nil { // no offset
					continue
				}
				o := offset{at: p.Offset}
				if p.Metadata != nil {
					o.metadata = *p.Metadata
				}
				out[one.Group][journal.TP{Topic: t.Topic, Partition: p.Partition}] = o
			}
		}
	}
	return out, nil
}

// translate turns offsets of the source into those of the target, still by virtual names. Partitions that are not copied are
// left out, and listed. A group never stands beyond the data: where it would, it stands at the log's end.
func (g *groupSync) translate(group string, in offsets) offsets {
	f := g.flow
	out := offsets{}
	var missing []string
	for on, o := range in {
		virtual, ok := f.cfg.SourceNames.Virtual(on.Topic)
		if !ok || !f.cfg.Topics.Match(virtual) {
			continue
		}
		tp := journal.TP{Topic: virtual, Partition: on.Partition}
		m, end, ok := f.standsOn(tp)
		if !ok {
			missing = append(missing, tp.String())
			continue
		}
		source := f.cfg.SourceMap(tp)
		if source == nil {
			source = translate.Identity()
		}
		v, status := translate.CommitToVirtual(source, translate.Physical(o.at))
		if status != translate.OK {
			continue
		}
		at, status := translate.CommitToPhysical(m, v, end)
		if status == translate.None {
			continue
		}
		out[tp] = offset{int64(at), o.metadata}
	}
	slices.Sort(missing)
	g.mu.Lock()
	s := g.state(group)
	s.reason, s.hint = "", ""
	if len(missing) > 0 {
		s.reason = fmt.Sprintf("%d partitions with offsets are not copied: %v", len(missing), missing[:min(len(missing), 10)])
		s.hint = "they were deleted, or are stopped"
	}
	g.mu.Unlock()
	return out
}

// standsOn returns the target's map and the end of its log that belongs to it.
func (f *Flow) standsOn(tp journal.TP) (*translate.Map, translate.Physical, bool) {
	p := f.pump(tp)
	if p == nil {
		return nil, 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part == nil {
		return nil, 0, false
	}
	return p.part.Map, p.part.PhysicalEnd, true
}

// store commits what differs from what the target has, and deletes what the source has no more. It returns how many offsets
// it committed.
func (g *groupSync) store(ctx context.Context, group string, want offsets, as Member) (int, error) {
	have := g.stored[group]
	send := offsets{}
	for tp, o := range want {
		if there, ok := have[tp]; !ok || there != o {
			send[tp] = o
		}
	}
	gone := offsets{}
	for tp, o := range have {
		if _, ok := want[tp]; !ok {
			gone[tp] = o
		}
	}
	if len(send) > 0 {
		if refused, err := g.commit(ctx, group, send, as); err != nil {
			g.doubt(group, send, refused)
			return 0, err
		}
	}
	if len(gone) > 0 {
		if err := g.deleteOffsets(ctx, group, gone); err != nil {
			g.doubt(group, send, nil)
			g.doubt(group, gone, nil)
			return len(send), err
		}
	}
	g.stored[group] = want
	return len(send), nil
}

// doubt notes that a request about these partitions failed. What is not refused may have been carried out, or will be: it is
// sent again, or deleted again, whatever the source has by then.
func (g *groupSync) doubt(group string, asked, refused offsets) {
	have := offsets{}
	maps.Copy(have, g.stored[group])
	for tp := range asked {
		if _, ok := refused[tp]; !ok {
			have[tp] = offset{at: notKnown}
			g.unsure[group] = true
		}
	}
	if len(have) > 0 {
		g.stored[group] = have
	}
}

// commit returns with an error what the target refused for good: that is not stored.
func (g *groupSync) commit(ctx context.Context, group string, send offsets, as Member) (refused offsets, err error) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = group, as.ID, as.Generation, as.InstanceID
	at := map[string]int{}
	for tp, o := range send {
		name := g.flow.cfg.TargetNames.Physical(tp.Topic)
		i, ok := at[name]
		if !ok {
			i = len(req.Topics)
			at[name] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = name
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = tp.Partition, o.at, -1
		p.Metadata = kmsg.StringPtr(o.metadata)
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	resp, err := req.RequestWith(ctx, g.flow.target.client)
	if err != nil {
		return nil, journal.Cause(ctx, err)
	}
	refused = offsets{}
	for _, t := range resp.Topics {
		virtual, _ := g.flow.cfg.TargetNames.Virtual(t.Topic)
		for _, p := range t.Partitions {
			code := kerr.ErrorForCode(p.ErrorCode)
			if code == nil {
				continue
			}
			if !kerr.IsRetriable(code) {
				tp := journal.TP{Topic: virtual, Partition: p.Partition}
				refused[tp] = send[tp]
			}
			if err == nil {
				err = fmt.Errorf("commit %s-%d: %w", t.Topic, p.Partition, code)
			}
		}
	}
	return refused, err
}

// remove deletes what a group, which the source has no more, has of the copied topics on the target. If it has nothing else,
// the group goes too. So it never comes back with a later move.
func (g *groupSync) remove(ctx context.Context, group string, have offsets) error {
	err := g.deleteOffsets(ctx, group, have)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		g.doubt(group, have, nil)
		return fmt.Errorf("group %s is gone on %s: %w", group, g.flow.cfg.From, err)
	}
	if g.unsure[group] { // it may come back: it is deleted again each time, the last time by FinalOffsets
		g.doubt(group, have, nil)
	} else {
		delete(g.stored, group)
	}
	g.mu.Lock()
	delete(g.states, group)
	g.mu.Unlock()
	return nil
}

// deleteOffsets is given partitions by their virtual names.
func (g *groupSync) deleteOffsets(ctx context.Context, group string, gone offsets) error {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	at := map[string]int{}
	for tp := range gone {
		name := g.flow.cfg.TargetNames.Physical(tp.Topic)
		i, ok := at[name]
		if !ok {
			i = len(req.Topics)
			at[name] = i
			t := kmsg.NewOffsetDeleteRequestTopic()
			t.Topic = name
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		p.Partition = tp.Partition
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	resp, err := req.RequestWith(ctx, g.flow.target.client)
	if err != nil {
		return journal.Cause(ctx, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err == nil, errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.GroupSubscribedToTopic):
			default:
				return fmt.Errorf("delete the offset of %s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}
