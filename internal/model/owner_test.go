package model

// The steps of an owner, by the rules for the owner of a slot. Each function says whether the step can be taken in s, and
// takes it.

// takeOver gives out the next epoch: a crash of the owner before, its pause, or its decision to fence anew. The coordinator
// gives none out while the markers of the last one are not all written.
func (m *model) takeOver(s *state) bool {
	if s.unmarked != 0 || s.given == m.bounds.owners {
		return false
	}
	if o := s.newest(); o != nil {
		for part := range o.parts {
			o.parts[part].at, o.parts[part].live = places{}, 0 // a zombie's map is nobody's business
		}
	}
	s.given++
	s.unmarked = 1<<(m.bounds.parts+1) - 1
	if m.rules.journalFencedOnly && s.given > 1 {
		s.unmarked = 1
	}
	s.newest().phase = fenced
	return true
}

// recover reads back what landed, up to the own marker in each log.
func (m *model) recover(s *state, e uint8) bool {
	o := &s.owners[e-1]
	var n [capLogs]uint8
	if o.phase != fenced {
		return false
	}
	for i := range m.bounds.parts + 1 {
		l := &s.logs[i]
		n[i] = l.n
		if e > 1 && (m.rules.noMarkerWait || m.rules.journalFencedOnly && i > 0) {
			continue
		}
		at, ok := l.markerOf(e)
		if !ok {
			return false
		}
		n[i] = at + 1
	}
	own := owner{phase: running, journalEnd: prefixEnd(&s.logs[0], n[0]), journalLeader: s.logs[0].leader}
	results := m.replay(s, n)
	for part := range m.bounds.parts {
		f := results[part]
		l := &s.logs[part+1]
		own.parts[part] = copied{next: f.frontier, end: prefixEnd(l, n[part+1]), leader: l.leader}
		if e == s.given {
			own.parts[part].at, own.parts[part].live = f.at, f.live
		}
	}
	if m.rules.settled {
		own.phase, own.settled, own.nextClaim = recovered, settledAs(results[0].live, e, 0), 1
	}
	*o = own
	return true
}

func (l *log) markerOf(e uint8) (at uint8, ok bool) {
	for i, b := range l.all() {
		if b.kind == marker && b.epoch == e {
			return uint8(i), true
		}
	}
	return 0, false
}

func prefixEnd(l *log, n uint8) uint8 {
	prefix := log{n: n, batches: l.batches}
	return prefix.end()
}

// settle writes the settled record. answered: false if the link breaks, and the request is sent once more.
func (m *model) settle(s *state, e uint8, answered bool) bool {
	o := &s.owners[e-1]
	if o.phase != recovered {
		return false
	}
	if !answered {
		if s.left.breaks == 0 {
			return false
		}
		s.left.breaks--
		return s.addLate(late{0, o.settled})
	}
	switch v, base := s.logs[0].offer(o.settled); v {
	case appended, duplicate:
		o.phase, o.journalEnd, o.settled = running, base+1, batch{}
	case outOfOrder:
		o.phase = halted
	case fencedOff:
		o.phase = stopped
	}
	return true
}

// settleAgain writes a settled record while it runs: claims whose data has not landed yet count on.
func (m *model) settleAgain(s *state, e uint8) bool {
	o := &s.owners[e-1]
	if s.left.settles == 0 || o.phase != running || e != s.given || o.oldest(func(r round) bool { return r.claimRequest != acked }) >= 0 {
		return false
	}
	s.left.settles--
	switch v, base := s.logs[0].offer(settledAs(o.parts[0].live, e, o.nextClaim)); v {
	case appended, duplicate:
		o.nextClaim, o.journalEnd = o.nextClaim+1, base+1
	case outOfOrder:
		o.halt()
	case fencedOff:
		o.phase = stopped
	}
	return true
}

// claimNext sends the claim of the next count records.
func (m *model) claimNext(s *state, e, part, count uint8) bool {
	o := &s.owners[e-1]
	i := o.used()
	c := &o.parts[part]
	first := max(c.next, s.start[part])
	if o.phase != running || i >= m.window() || first+count > m.bounds.records {
		return false
	}
	for _, r := range o.window[:i] {
		if r.claimRequest == again || r.dataRequest == again || m.rules.cautious && r.part == part {
			return false // what was sent before goes first
		}
	}
	o.window[i] = round{part: part, first: first, count: count, claimSeq: o.nextClaim, dataSeq: c.nextSeq, predicted: o.expected(part), claimRequest: sent}
	o.nextClaim++
	c.next, c.nextSeq = first+count, c.nextSeq+count
	return true
}

func (m *model) window() uint8 { return min(m.bounds.window, capWindow) }

func (r round) claim(e uint8) batch {
	return batch{kind: claim, epoch: e, seq: r.claimSeq, first: r.first, count: r.count, part: r.part, dataSeq: r.dataSeq, predicted: r.predicted}
}

func (r round) data(e uint8) batch {
	return batch{kind: data, epoch: e, seq: r.dataSeq, first: r.first, count: r.count}
}

// landClaim lets the oldest claim on the link arrive, and its answer come back.
func (m *model) landClaim(s *state, e uint8) bool {
	o := &s.owners[e-1]
	i := o.oldest(func(r round) bool { return r.claimRequest == sent })
	if i < 0 {
		return false
	}
	v, base := s.logs[0].offer(o.window[i].claim(e))
	switch {
	case v == appended || v == duplicate:
		o.window[i].claimRequest = acked
		o.journalEnd = max(o.journalEnd, base+1)
	case o.phase != running:
		o.window[i].claimRequest = again // nobody listens
	case v == outOfOrder:
		o.halt()
	default:
		o.phase = stopped
	}
	return true
}

func (o *owner) oldest(is func(round) bool) int {
	for i, r := range o.window[:o.used()] {
		if is(r) {
			return i
		}
	}
	return -1
}

func (o *owner) halt() { o.phase = halted }

// resendClaim sends the oldest claim of unknown outcome once more, unchanged.
func (m *model) resendClaim(s *state, e uint8) bool {
	o := &s.owners[e-1]
	i := o.oldest(func(r round) bool { return r.claimRequest == again })
	if o.phase != running || i < 0 {
		return false
	}
	o.window[i].claimRequest = sent
	return true
}

// sendData sends the oldest batch of the partition that is not on the link: claimed, and in claim order.
func (m *model) sendData(s *state, e, part uint8) bool {
	o := &s.owners[e-1]
	i := o.oldest(func(r round) bool { return r.part == part && r.dataRequest != sent })
	if o.phase != running || i < 0 || o.window[i].claimRequest != acked && !m.rules.dataBeforeAck {
		return false
	}
	o.window[i].dataRequest = sent
	return true
}

// landData lets the oldest batch on the partition's link arrive, and its answer come back.
func (m *model) landData(s *state, e, part uint8) bool {
	o := &s.owners[e-1]
	i := o.oldest(func(r round) bool { return r.part == part && r.dataRequest == sent })
	if i < 0 {
		return false
	}
	r := o.window[i]
	v, base := s.logs[part+1].offer(r.data(e))
	switch {
	case o.phase != running: // nobody listens
		o.remove(i)
	case v == outOfOrder:
		o.halt()
	case v == fencedOff:
		o.phase = stopped
	case e != s.given && base != o.parts[part].end: // of the newest owner, journal.Partition says it
		o.halt()
	default:
		o.remove(i)
		m.publish(s, e, r, base)
	}
	return true
}

// publish notes where a round landed. What is published while a lost tail has not been seen yet is not held against anyone.
func (m *model) publish(s *state, e uint8, r round, base uint8) {
	o, l := &s.owners[e-1], &s.logs[r.part+1]
	c := &o.parts[r.part]
	c.end = base + r.count
	c.fresh = m.rules.lastAckAsked && c.leader != l.leader
	if e == s.given {
		a := m.acked(ack{c.live, r.claim(e), base, c.leader})
		if !a.ok {
			o.halt()
			return
		}
		c.live, c.at = a.live, a.at
	}
	if o.journalLeader != s.logs[0].leader || c.leader != l.leader || m.revived(s, e, l) {
		return
	}
	for i := range r.count {
		at, p := place(base+i)+1, &s.published[r.part][r.first+i]
		if *p != 0 && *p != at {
			s.wrong = moved
		}
		*p = at
	}
}

// revived: the owner's successor has settled without it, but the log lost the successor's marker and takes the zombie's
// batches again. They are strays; nobody asks a zombie for its map.
func (m *model) revived(s *state, e uint8, l *log) bool {
	return m.rules.settled && e != s.given && l.leader+s.logs[0].leader > 0
}

// breakJournal breaks the link to the journal: what is on it lands late, or never.
func (m *model) breakJournal(s *state, e uint8) bool {
	o := &s.owners[e-1]
	if s.left.breaks == 0 || o.phase != running || o.oldest(func(r round) bool { return r.claimRequest == sent }) < 0 {
		return false
	}
	s.left.breaks--
	for i := range o.window[:o.used()] {
		if r := &o.window[i]; r.claimRequest == sent {
			r.claimRequest = again
			if !s.addLate(late{0, r.claim(e)}) {
				return false
			}
		}
	}
	return true
}

// breakData breaks the link to a data partition. A cautious owner fences anew, others send all of it once more.
func (m *model) breakData(s *state, e, part uint8) bool {
	o := &s.owners[e-1]
	if s.left.breaks == 0 || o.phase != running || o.oldest(func(r round) bool { return r.part == part && r.dataRequest == sent }) < 0 {
		return false
	}
	s.left.breaks--
	for i := range o.window[:o.used()] {
		if r := &o.window[i]; r.part == part && r.dataRequest == sent {
			r.dataRequest = again
			if !s.addLate(late{part + 1, r.data(e)}) {
				return false
			}
		}
	}
	if m.rules.cautious {
		o.halt()
	}
	return true
}

// abandon gives up the rounds of a partition whose data was never sent; newer claims take their sequences.
func (m *model) abandon(s *state, e, part uint8) bool {
	o := &s.owners[e-1]
	i := o.oldest(func(r round) bool { return r.part == part })
	if s.left.abandons == 0 || o.phase != running || i < 0 {
		return false
	}
	first := o.window[i]
	for _, r := range o.window[:o.used()] {
		if r.part != part && r.claimRequest != acked && m.rules.reuseClaimSequence {
			return false
		}
		if r.part == part && !m.mayAbandon(r) {
			return false
		}
	}
	s.left.abandons--
	if first.claimRequest != acked {
		o.nextClaim = first.claimSeq
	}
	o.parts[part].next, o.parts[part].nextSeq = first.first, first.dataSeq
	for i := int(o.used()) - 1; i >= 0; i-- {
		if o.window[i].part == part {
			o.remove(i)
		}
	}
	return true
}

func (m *model) mayAbandon(r round) bool {
	claimed := r.claimRequest == acked || m.rules.reuseClaimSequence && r.claimRequest == again
	unused := r.dataRequest == unsent || m.rules.reuseDataSequence && r.dataRequest == again
	return claimed && unused
}

// drop gives up a failed batch and goes on with the next one, under the next sequence.
func (m *model) drop(s *state, e, part uint8) bool {
	o := &s.owners[e-1]
	i := o.oldest(func(r round) bool { return r.part == part && r.dataRequest == again })
	if !m.rules.dropFailed || o.phase != running || i < 0 || i+1 == int(o.used()) {
		return false
	}
	o.remove(i)
	return true
}

// watch takes note of a new leader epoch: if it began below what was acked, the tail is lost.
func (m *model) watch(s *state, e, i uint8) bool {
	o := &s.owners[e-1]
	seen, end := &o.journalLeader, o.journalEnd
	if i > 0 {
		seen, end = &o.parts[i-1].leader, o.parts[i-1].end
	}
	l := &s.logs[i]
	if o.phase != running && o.phase != recovered || m.rules.leadersNotWatched || m.rules.journalNotWatched && i == 0 || *seen == l.leader {
		return false
	}
	*seen = l.leader
	if i > 0 && o.parts[i-1].fresh {
		return true // asks for the end of an epoch that began after the loss
	}
	if l.leaderStart < end {
		o.halt()
	}
	return true
}
