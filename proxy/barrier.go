package proxy

import (
	"time"
)

// A group that is rebalancing when the gate shuts cannot be transplanted: its members come back by a rejoin. Until a member
// has joined on the new cluster the barrier stands between it and the broker, which does not know it:
//
//	Heartbeat, SyncGroup   REBALANCE_IN_PROGRESS: the member rejoins
//	JoinGroup              passes with the member id "", as of a new member
//	OffsetCommit           passes as a simple commit (no member, no generation) while the group is empty on the cluster;
//	                       once others have rejoined, REBALANCE_IN_PROGRESS: the commit is tried again after the rejoin
//	LeaveGroup             succeeds
//
// Members are told apart by their ids: those that the new cluster gave out are admitted, all others are from before.

// barrier is guarded by groupTable.mu. The nil barrier bars nobody.
type barrier struct {
	cluster  string
	deadline time.Time // from then on nobody is barred; zero until the switch was seen
	waits    time.Duration
	admitted map[string]struct{} // real ids that the cluster gave out
}

// defaultBarrierTime is how long members have to come back if their rebalance timeouts are not known; it is the Java
// client's default of max.poll.interval.ms.
const defaultBarrierTime = 5 * time.Minute

// bars says whether a member has to rejoin first. The time runs from the first call that asks.
func (b *barrier) bars(cluster, member string) bool {
	if b == nil || b.cluster != cluster {
		return false
	}
	if b.deadline.IsZero() {
		b.deadline = time.Now().Add(b.waits)
	}
	_, in := b.admitted[member]
	return !in && time.Now().Before(b.deadline)
}

// endBarrier takes away a barrier that bars nobody any more.
func (st *groupState) endBarrier() {
	if b := st.barrier; b != nil && !b.deadline.IsZero() && !time.Now().Before(b.deadline) {
		st.barrier = nil
	}
}

// admit lets a member pass that the cluster has given an id.
func (b *barrier) admit(cluster, real string) {
	if b != nil && b.cluster == cluster {
		b.admitted[real] = struct{}{}
	}
}

// raise puts the barrier before a group on a cluster. Generations shown go on above what was shown before.
func (t *groupTable) raise(cluster, group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.state(group)
	waits := defaultBarrierTime
	if longest := st.longestRebalance(); longest > 0 {
		waits = longest
	}
	st.barrier = &barrier{cluster: cluster, waits: waits, admitted: map[string]struct{}{}}
	st.maps[cluster] = newGroupMap(max(st.generation, 0), nil)
}

// lower takes the barrier away: the move did not take place.
func (t *groupTable) lower(cluster, group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.byName[group]
	if st == nil || st.barrier == nil || st.barrier.cluster != cluster {
		return
	}
	st.barrier = nil
	delete(st.maps, cluster)
}

func (st *groupState) longestRebalance() time.Duration {
	var longest int32
	for _, info := range st.members {
		longest = max(longest, info.timeouts.RebalanceMillis)
	}
	return time.Duration(longest) * time.Millisecond
}
