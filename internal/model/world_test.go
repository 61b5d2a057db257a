package model

import "fmt"

// happen takes the steps that are no owner's.
func (m *model) happen(s *state, p step) bool {
	switch p.op {
	case writeMarker, writeMarkerTwice:
		return m.writeMarker(s, p.n, p.op == writeMarkerTwice)
	case landLate:
		l := s.late[p.n]
		if l.b.kind == nothing {
			return false
		}
		s.late[p.n] = late{}
		sortLate(&s.late)
		v, _ := s.logs[l.log].offer(l.b)
		return v == appended // else nothing has changed but that it is gone, which is as good as never landing
	case retain:
		if s.left.retention == 0 || s.start[p.n] == m.bounds.records {
			return false
		}
		s.left.retention--
		s.start[p.n]++
		return true
	case lose:
		return m.lose(s, p.n, p.count)
	case forget:
		l := &s.logs[p.n]
		if s.left.forgets == 0 || p.n == 0 || l.forgot == l.n {
			return false
		}
		s.left.forgets--
		l.forgot = l.n
		return true
	}
	return false
}

// writeMarker is the coordinator's request to one log; twice: its answer is lost, and it comes again some time.
func (m *model) writeMarker(s *state, i uint8, twice bool) bool {
	if s.unmarked&(1<<i) == 0 || twice && s.left.markers == 0 {
		return false
	}
	b := batch{kind: marker, epoch: s.given}
	s.unmarked &^= 1 << i
	if twice {
		s.left.markers--
		if !s.addLate(late{i, b}) {
			return false
		}
	}
	v, _ := s.logs[i].offer(b)
	return v == appended
}

// lose takes the last n batches of a log, and what was published of them. Each log loses at most once.
func (m *model) lose(s *state, i, n uint8) bool {
	l := &s.logs[i]
	if s.left.losses == 0 || l.n < n || l.leader > 0 {
		return false
	}
	s.left.losses--
	gone := l.all()[l.n-n:]
	if i == 0 {
		for _, b := range gone {
			if b.kind != claim {
				continue
			}
			for r := b.first; r < b.first+b.count; r++ {
				s.published[b.part][r] = 0
			}
		}
	}
	l.lose(n)
	if i > 0 {
		for r, at := range s.published[i-1] {
			if at > place(l.end()) {
				s.published[i-1][r] = 0
			}
		}
	}
	return true
}

// normalise makes states equal that differ only in what can have no effect any more.
func (m *model) normalise(s *state) {
	for e := uint8(1); e <= s.given; e++ {
		o := &s.owners[e-1]
		if o.phase == halted || o.phase == stopped {
			m.bury(o)
		}
	}
	if s.left.losses > 0 || s.left.forgets > 0 {
		return
	}
	m.forgetPowerless(s)
}

// forgetPowerless: where nothing can be lost or forgotten any more, the fence is for ever.
func (m *model) forgetPowerless(s *state) {
	fenced := func(i, e uint8) bool { return s.logs[i].producer().epoch > e }
	for i := range s.late {
		l := &s.late[i]
		if l.b.kind == nothing {
			continue
		}
		p := s.logs[l.log].producer()
		_, there := s.logs[l.log].lastFive(l.b, p)
		if l.b.epoch < p.epoch || l.b.kind != marker && l.b.epoch == p.epoch && there {
			*l = late{}
			sortLate(&s.late)
		}
	}
	for e := uint8(1); e < s.given; e++ {
		powerless := s.owners[e-1].phase != stopped || s.owners[e-1].used() > 0
		for i := range m.bounds.parts + 1 {
			powerless = powerless && fenced(i, e)
		}
		if powerless {
			s.owners[e-1] = owner{phase: stopped}
		}
	}
}

// bury forgets of an owner that sends nothing any more all but what is on its links.
func (m *model) bury(o *owner) {
	kept := owner{phase: stopped}
	n := 0
	for _, r := range o.window[:o.used()] {
		if r.claimRequest == sent || r.dataRequest == sent {
			if r.claimRequest != sent {
				r.claimRequest = acked
			}
			if r.dataRequest != sent {
				r.dataRequest = unsent
			}
			kept.window[n] = r
			n++
		}
	}
	*o = kept
}

// check says what is wrong in s; "" if nothing. rest: the newest owner has reached the end.
func (m *model) check(s *state) (why string, rest bool) {
	if s.wrong == moved {
		return "a record is published in two places", false
	}
	replayed := m.replayAll(s)
	o := s.newest()
	rest = o != nil && o.phase == running && o.used() == 0 && o.journalLeader == s.logs[0].leader || m.blind(o)
	for part := range m.bounds.parts {
		if why := m.checkReplay(s, part, replayed[part]); why != "" {
			return why, false
		}
		if o == nil || o.phase != running && o.phase != recovered {
			continue
		}
		if why := m.checkLive(s, part, replayed[part]); why != "" {
			return why, false
		}
		c := o.parts[part]
		rest = rest && max(c.next, s.start[part]) == m.bounds.records && (c.leader == s.logs[part+1].leader || m.rules.leadersNotWatched)
	}
	if rest {
		for part := range m.bounds.parts {
			if why := m.checkRest(s, part, replayed[part]); why != "" {
				return why, true
			}
		}
	}
	return "", rest
}

// blind: an owner that does not watch rests whatever elections there were.
func (m *model) blind(o *owner) bool {
	return (m.rules.leadersNotWatched || m.rules.journalNotWatched) && o != nil && o.phase == running && o.used() == 0
}

func (m *model) checkReplay(s *state, part uint8, f found) string {
	if f.strayed {
		return "a stray is in the replayed map"
	}
	if why := s.wrongPlace(part, f.at); why != "" {
		return "the replayed map has " + why
	}
	for r, at := range s.published[part] {
		if at != 0 && f.at[r] != at {
			return fmt.Sprintf("record %d was published at %d, a replay has it at %d", r, int(at)-1, int(f.at[r])-1)
		}
	}
	return ""
}

func (m *model) checkLive(s *state, part uint8, f found) string {
	o := s.newest()
	c := o.parts[part]
	if o.journalLeader != s.logs[0].leader || c.leader != s.logs[part+1].leader {
		return "" // a tail may be lost, which the owner has still to find
	}
	if why := s.wrongPlace(part, c.at); why != "" {
		return "the live map has " + why
	}
	for r, at := range c.at {
		if at != 0 && f.at[r] != at {
			return fmt.Sprintf("the live map has record %d at %d, a replay has it at %d", r, int(at)-1, int(f.at[r])-1)
		}
	}
	return ""
}

func (m *model) checkRest(s *state, part uint8, f found) string {
	c := s.newest().parts[part]
	for r := s.start[part]; r < m.bounds.records; r++ {
		if c.at[r] == 0 {
			return fmt.Sprintf("at rest: the source has record %d, the map does not", r)
		}
	}
	if why := s.wrongPlace(part, c.at); why != "" {
		return "at rest: the live map has " + why
	}
	if f.at != c.at {
		return fmt.Sprintf("at rest: the live map is %v, a replay's is %v", c.at, f.at)
	}
	return ""
}

// wrongPlace says which record is not where at has it.
func (s *state) wrongPlace(part uint8, at places) string {
	for r, p := range at {
		if p == 0 {
			continue
		}
		if there, ok := s.logs[part+1].recordAt(uint8(p - 1)); !ok || there != uint8(r) {
			return fmt.Sprintf("record %d at %d, where it is not", r, p-1)
		}
	}
	return ""
}
