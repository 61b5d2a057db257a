package proxy

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Classic consumer groups keep, over all cutovers, the member ids and the generation that their clients know. A cluster
// that a group was transplanted to has other ones, so for each (group, cluster) there is a bijection between the member ids
// shown and the real ones, and a shift: shown generation = real generation + shift. Everything that is not in the table
// is shown as it is.

// unknownGeneration is what a request carries that is not sent as a member, and an answer that has no generation.
const unknownGeneration = -1

// groupMap is the mapping of one group on one cluster. It is immutable.
//
// Invariants:
//
//  1. toReal and toShown are inverse to each other.
//  2. A generation of the cluster that was ever shown is shown as the same number for as long as the map's shift lives.
type groupMap struct {
	shift   int32             // shown − real; may be negative: a cluster that the group returns to has counted on
	toReal  map[string]string // member ids
	toShown map[string]string
}

// sameMap is the mapping of a group that never moved. It is shared and never written.
func sameMap() *groupMap { return &groupMap{} }

func newGroupMap(shift int32, toReal map[string]string) *groupMap {
	m := &groupMap{shift: shift, toReal: maps.Clone(toReal), toShown: make(map[string]string, len(toReal))}
	for shown, real := range toReal {
		m.toShown[real] = shown
	}
	return m
}

// real is the member id on the cluster.
func (m *groupMap) real(shown string) string {
	if r, ok := m.toReal[shown]; ok {
		return r
	}
	return shown
}

// shown is the member id as clients see it.
func (m *groupMap) shown(real string) string {
	if s, ok := m.toShown[real]; ok {
		return s
	}
	return real
}

// realGeneration never turns a generation into one that means "no member": a number that this cluster cannot have
// issued becomes 0, which no group has, so that the broker refuses it.
func (m *groupMap) realGeneration(shown int32) int32 {
	if shown < 0 || m.shift == 0 {
		return shown
	}
	return int32(min(max(int64(shown)-int64(m.shift), 0), 1<<31-1))
}

func (m *groupMap) shownGeneration(real int32) int32 {
	if real <= 0 || m.shift == 0 {
		return real
	}
	return int32(min(max(int64(real)+int64(m.shift), 1), 1<<31-1))
}

// without is m with one member less.
func (m *groupMap) without(shown string) *groupMap {
	if _, ok := m.toReal[shown]; !ok {
		return m
	}
	rest := maps.Clone(m.toReal)
	delete(rest, shown)
	return newGroupMap(m.shift, rest)
}

// memberInfo is what a member said when it joined, and what it was given. It is immutable.
type memberInfo struct {
	clientID   string
	instanceID *string
	timeouts   control.MemberTimeouts
	protocols  []kmsg.JoinGroupRequestProtocol // as the client sent them: virtual names. nil: not seen since the start
	assignment []byte                          // from the leader's last SyncGroup, virtual names. nil: not seen
}

// groupState is all that is known of one group. It is guarded by groupTable.mu.
type groupState struct {
	maps         map[string]*groupMap // by cluster; none: as shown
	generation   int32                // shown, the newest that a broker confirmed to a member; unknownGeneration if none
	protocolType string
	protocol     string
	leader       string                // shown
	members      map[string]memberInfo // by the id shown
	shadow       *shadowGroup          // members that we keep for clients; nil if none
	barrier      *barrier              // nil: none
	seenAt       time.Time             // last call of a member, or the first time that the group was heard of
}

// groupTable holds the groups of one virtual cluster.
type groupTable struct {
	mu       sync.Mutex // guards all below; held for look-ups and changes in memory, never across I/O
	byName   map[string]*groupState
	restored map[string]control.Group // of the control topic, until the active cluster is known
	dirty    map[string]struct{}      // groups whose record is to be saved
	wake     chan struct{}            // capacity 1: something is dirty
}

func newGroupTable() *groupTable {
	return &groupTable{byName: map[string]*groupState{}, dirty: map[string]struct{}{}, wake: make(chan struct{}, 1)}
}

// state returns the group's state, making one. The caller holds mu.
func (t *groupTable) state(group string) *groupState {
	st := t.byName[group]
	if st == nil {
		if len(t.byName)%staleCheck == staleCheck-1 {
			t.forgetStale()
		}
		st = &groupState{maps: map[string]*groupMap{}, members: map[string]memberInfo{}, generation: unknownGeneration, seenAt: time.Now()}
		t.byName[group] = st
	}
	return st
}

// Groups whose members died without a word are forgotten after staleTime, looked for whenever staleCheck new ones have come:
// so group names that clients make up do not fill the memory.
const (
	staleTime  = 24 * time.Hour
	staleCheck = 1024
)

func (t *groupTable) forgetStale() {
	for name, st := range t.byName {
		if st.shadow == nil && time.Since(st.seenAt) > staleTime {
			delete(t.byName, name)
		}
	}
}

// mapOf is the mapping of a group on a cluster; never nil.
func (t *groupTable) mapOf(cluster, group string) *groupMap {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mapLocked(cluster, group)
}

func (t *groupTable) mapLocked(cluster, group string) *groupMap {
	if st := t.byName[group]; st != nil && st.maps[cluster] != nil {
		return st.maps[cluster]
	}
	return sameMap()
}

// restore takes over the records of the control topic. They describe the mapping on the cluster that is active, which bind
// names.
func (t *groupTable) restore(records map[string]control.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restored = maps.Clone(records)
}

// bind gives restored records their cluster. What live traffic taught meanwhile is kept.
func (t *groupTable) bind(active string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, rec := range t.restored {
		st := t.state(name)
		if len(rec.Members) > 0 || rec.Shift != 0 {
			st.maps[active] = newGroupMap(rec.Shift, rec.Members)
		}
		if st.leader == "" {
			st.leader = rec.Leader
		}
		for shown, timeouts := range rec.Sessions {
			if _, known := st.members[shown]; !known {
				st.members[shown] = memberInfo{timeouts: timeouts}
			}
		}
	}
	t.restored = nil
}

// memberView is what a call of one member needs to know of its group, taken at one moment.
type memberView struct {
	*groupMap
	barred bool // the member has not joined on this cluster yet: see barrier
}

// enter looks up a group for a call of a member on a cluster. A member whose shadow we kept on that cluster has taken it
// over with this call.
func (t *groupTable) enter(cluster, group, member string) memberView {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := memberView{groupMap: t.mapLocked(cluster, group)}
	st := t.byName[group]
	if st == nil || member == "" {
		return v
	}
	st.seenAt = time.Now()
	if st.shadow != nil && st.shadow.cluster == cluster {
		st.shadow.takeOver(member)
	}
	st.endBarrier()
	v.barred = st.barrier.bars(cluster, member)
	return v
}

// confirmed remembers a generation that a broker accepted from a member.
func (t *groupTable) confirmed(group string, shownGeneration int32) {
	if shownGeneration < 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.state(group)
	st.generation = max(st.generation, shownGeneration)
}

// newcomer remembers that a broker gave out this member id, which is shown as it is.
func (t *groupTable) newcomer(cluster, group, member string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[group]; st != nil {
		st.endBarrier()
		st.barrier.admit(cluster, member)
	}
}

// joined takes a successful JoinGroup answer of a cluster: it registers the member and rewrites the answer to what is
// shown. info is what the request said.
func (t *groupTable) joined(cluster, group string, info memberInfo, protocolType string, resp *kmsg.JoinGroupResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.state(group)
	st.seenAt = time.Now()
	st.endBarrier()
	st.barrier.admit(cluster, resp.MemberID)
	t.recreated(st, cluster, resp.Generation)
	m := t.mapLocked(cluster, group)

	leads := resp.LeaderID == resp.MemberID
	first := resp.Generation == 1
	resp.MemberID, resp.LeaderID = m.shown(resp.MemberID), m.shown(resp.LeaderID)
	resp.Generation = m.shownGeneration(resp.Generation)
	listed := make(map[string]struct{}, len(resp.Members))
	for i := range resp.Members {
		resp.Members[i].MemberID = m.shown(resp.Members[i].MemberID)
		listed[resp.Members[i].MemberID] = struct{}{}
	}

	if first || resp.Generation > st.generation { // a group that is new on the broker counts anew
		st.generation = resp.Generation
	}
	st.protocolType, st.leader = protocolType, resp.LeaderID
	if resp.Protocol != nil {
		st.protocol = *resp.Protocol
	}
	if info.instanceID != nil {
		st.replace(cluster, resp.MemberID, *info.instanceID)
	}
	st.members[resp.MemberID] = info
	if leads {
		st.keepOnly(cluster, listed)
	}
	t.markDirty(group)
}

// recreated notices that the broker counts the generations of the group anew. A negative shift would then show numbers
// that no group has; a positive one stays right.
func (t *groupTable) recreated(st *groupState, cluster string, real int32) {
	m := st.maps[cluster]
	if m == nil || m.shift >= 0 || int64(real)+int64(m.shift) >= 1 {
		return
	}
	st.maps[cluster] = newGroupMap(0, m.toReal)
}

// replace forgets the members that a static one was before it started again. There may have been no rebalance, so that no leader's
// answer says that they are gone.
func (st *groupState) replace(cluster, shown, instanceID string) {
	for id, before := range st.members {
		if id == shown || before.instanceID == nil || *before.instanceID != instanceID {
			continue
		}
		delete(st.members, id)
		if m := st.maps[cluster]; m != nil {
			st.maps[cluster] = m.without(id)
		}
	}
}

// keepOnly forgets the members that the leader's answer did not list.
func (st *groupState) keepOnly(cluster string, listed map[string]struct{}) {
	for shown := range st.members {
		if _, ok := listed[shown]; !ok {
			delete(st.members, shown)
		}
	}
	m := st.maps[cluster]
	if m == nil {
		return
	}
	rest := maps.Clone(m.toReal)
	maps.DeleteFunc(rest, func(shown, _ string) bool { _, ok := listed[shown]; return !ok })
	if len(rest) < len(m.toReal) {
		st.maps[cluster] = newGroupMap(m.shift, rest)
	}
}

// synced remembers what the leader assigned, by the ids shown and in virtual names.
func (t *groupTable) synced(group string, assignments []kmsg.SyncGroupRequestGroupAssignment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.state(group)
	for _, a := range assignments {
		if info, ok := st.members[a.MemberID]; ok {
			info.assignment = slices.Clone(a.MemberAssignment)
			st.members[a.MemberID] = info
		}
	}
}

// left forgets a member that the broker took out of the group; a static one may be named by its instance id alone. A group
// that nobody is left in is forgotten as a whole.
func (t *groupTable) left(cluster, group, shown string, instanceID *string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.byName[group]
	if st == nil {
		return
	}
	for id, info := range st.members {
		if shown == "" && instanceID != nil && info.instanceID != nil && *info.instanceID == *instanceID {
			shown = id
		}
	}
	delete(st.members, shown)
	if m := st.maps[cluster]; m != nil {
		st.maps[cluster] = m.without(shown)
	}
	t.markDirty(group)
	t.forgetIdle(group, st)
}

// deleted forgets a group that the broker has deleted.
func (t *groupTable) deleted(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.byName[group]
	if st == nil {
		return
	}
	st.members, st.generation, st.leader = map[string]memberInfo{}, unknownGeneration, ""
	clear(st.maps)
	t.markDirty(group)
	t.forgetIdle(group, st)
}

// forgetIdle forgets a group that has no members: nobody remembers an id or a generation of it.
func (t *groupTable) forgetIdle(group string, st *groupState) {
	for _, m := range st.maps {
		if len(m.toReal) > 0 {
			return
		}
	}
	st.endBarrier()
	if len(st.members) == 0 && st.shadow == nil && st.barrier == nil {
		delete(t.byName, group)
	}
}

// records are the control records of all groups as they stand on a cluster.
func (t *groupTable) records(cluster string) []control.Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []control.Group
	for _, name := range slices.Sorted(maps.Keys(t.byName)) {
		out = append(out, t.byName[name].record(name, cluster))
	}
	for _, name := range slices.Sorted(maps.Keys(t.restored)) {
		if t.byName[name] == nil {
			out = append(out, t.restored[name])
		}
	}
	return out
}

func (st *groupState) record(name, cluster string) control.Group {
	rec := control.Group{Name: name, Leader: st.leader, Members: map[string]string{}, Sessions: map[string]control.MemberTimeouts{}}
	if m := st.maps[cluster]; m != nil {
		rec.Shift = m.shift
		maps.Copy(rec.Members, m.toReal)
	}
	for shown, info := range st.members {
		rec.Sessions[shown] = info.timeouts
	}
	return rec
}

// markDirty asks for the group's record to be saved. The caller holds mu.
func (t *groupTable) markDirty(group string) {
	t.dirty[group] = struct{}{}
	t.wakeSaver()
}

func (t *groupTable) wakeSaver() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// takeDirty returns the records to save, as they stand on the active cluster. A group that is gone has an empty record.
func (t *groupTable) takeDirty(active string) []control.Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]control.Group, 0, len(t.dirty))
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		if st := t.byName[name]; st != nil {
			out = append(out, st.record(name, active))
		} else {
			out = append(out, control.Group{Name: name})
		}
	}
	clear(t.dirty)
	return out
}

// putBack marks records dirty again that could not be saved.
func (t *groupTable) putBack(records []control.Group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rec := range records {
		t.markDirty(rec.Name)
	}
}
