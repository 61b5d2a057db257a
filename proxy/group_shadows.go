package proxy

import (
	"maps"
	"time"
)

// The part of groupTable that has to do with shadows.

// publish makes a shadow the group's own, with the mapping under which clients will take it over.
func (t *groupTable) publish(s *shadowGroup, shownGeneration int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.state(s.group)
	st.shadow = s
	t.settleLocked(st, s, shownGeneration)
}

// settle gives an unchanged shadow its final mapping: the group's generation may have grown without a change otherwise.
func (t *groupTable) settle(s *shadowGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := t.state(s.group)
	t.settleLocked(st, s, st.generation)
}

func (t *groupTable) settleLocked(st *groupState, s *shadowGroup, shownGeneration int32) {
	toReal := make(map[string]string, len(s.members))
	for _, m := range s.members {
		toReal[m.shown] = m.real
	}
	st.maps[s.cluster] = newGroupMap(shownGeneration-s.generation, toReal)
	if st.barrier != nil && st.barrier.cluster == s.cluster {
		st.barrier = nil
	}
}

// unpublish drops a shadow and its mapping.
func (t *groupTable) unpublish(s *shadowGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[s.group]; st != nil && st.shadow == s {
		st.shadow = nil
		delete(st.maps, s.cluster)
	}
}

// takenOver drops a shadow whose work is done: its mapping stays.
func (t *groupTable) takenOver(s *shadowGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[s.group]; st != nil && st.shadow == s {
		st.shadow = nil
	}
}

// shadowOf is the group's shadow on a cluster; nil if there is none.
func (t *groupTable) shadowOf(group, cluster string) *shadowGroup {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[group]; st != nil && st.shadow != nil && st.shadow.cluster == cluster {
		return st.shadow
	}
	return nil
}

// shadowsOn are all shadows on a cluster.
func (t *groupTable) shadowsOn(cluster string) []*shadowGroup {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*shadowGroup
	for _, st := range t.byName {
		if st.shadow != nil && st.shadow.cluster == cluster {
			out = append(out, st.shadow)
		}
	}
	return out
}

// stands says whether the standby's group is still as we left it, for all that its heartbeats showed.
func (t *groupTable) stands(s *shadowGroup) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !s.broken
}

// handOver ends, after a session, the heartbeats of shadows on the cluster that is active now.
func (t *groupTable) handOver(active string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.byName {
		if st.shadow != nil && st.shadow.cluster == active {
			st.shadow.until = time.Now().Add(st.shadow.longestSession())
		}
	}
}

// forgetCluster drops the mappings and barriers of a cluster whose groups were left.
func (t *groupTable) forgetCluster(cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.byName {
		delete(st.maps, cluster)
		if st.barrier != nil && st.barrier.cluster == cluster {
			st.barrier = nil
		}
	}
}

// forgetGone forgets the groups that the active cluster has no more, while clients of theirs may still try to join on it.
func (t *groupTable) forgetGone(to string, groups map[string]describedGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, st := range t.byName {
		if _, there := groups[name]; there {
			continue
		}
		if st.barrier != nil && st.barrier.cluster == to {
			st.barrier = nil
		}
		if st.shadow == nil && st.barrier == nil {
			delete(t.byName, name)
		}
	}
}

// lowerAll takes away all barriers on a cluster.
func (t *groupTable) lowerAll(cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, st := range t.byName {
		if st.barrier != nil && st.barrier.cluster == cluster {
			st.barrier = nil
			delete(st.maps, cluster)
		}
	}
}

// generation is the newest one that members know, as shown; unknownGeneration if no call has told.
func (t *groupTable) generation(group string) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[group]; st != nil {
		return st.generation
	}
	return unknownGeneration
}

// protocolType is that of the last JoinGroup; "" if none was seen.
func (t *groupTable) protocolType(group string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[group]; st != nil {
		return st.protocolType
	}
	return ""
}

// known is what is remembered of a group's members, by the ids shown, and who leads.
func (t *groupTable) known(group string) (members map[string]memberInfo, leader string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st := t.byName[group]; st != nil {
		return maps.Clone(st.members), st.leader
	}
	return nil, ""
}
