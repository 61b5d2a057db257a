package model

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// bounds keep a search finite.
type bounds struct {
	records, parts, owners, window uint8 // records and window: by partition and by slot
	largest                        uint8 // records in a batch
	left
}

// rules: the zero value is the protocol. Each switch but the first two leaves a rule out.
type rules struct {
	cautious bool // records are older than brokers remember producers
	settled  bool // a settled record is written after each recovery

	noMarkerWait       bool
	journalFencedOnly  bool
	dataBeforeAck      bool
	trustClaims        bool
	firstClaimWins     bool
	reuseDataSequence  bool
	reuseClaimSequence bool
	dropFailed         bool
	leadersNotWatched  bool
	journalNotWatched  bool // only the data partitions' leaders are
	lastAckAsked       bool // the epoch asked for is that of the last ack, not that of the last look
	settledNotChecked  bool // the last batch settled is not looked for at recovery
	leaderNotCompared  bool // it is looked for by owner and sequence alone
	anyBase            bool // an ack is taken whatever base offset it has
}

type model struct {
	bounds bounds
	rules  rules

	seed     maphash.Seed
	replayed map[logsKey][capData]found
	whole    map[uint64][capData]found // of whole logs, by their hash
	acks     map[ack]acknowledged
	numbers  map[string]uint16
	contents []string

	next []successor // of the state that is looked at
}

type successor struct {
	step  step
	state state
}

func newModel(b bounds, r rules) *model {
	return &model{
		bounds: b, rules: r, seed: maphash.MakeSeed(),
		replayed: map[logsKey][capData]found{}, whole: map[uint64][capData]found{}, acks: map[ack]acknowledged{}, numbers: map[string]uint16{},
	}
}

func (m *model) initial() state { return state{left: m.bounds.left} }

type op uint8

const (
	takeOver op = iota
	writeMarker
	writeMarkerTwice
	recoverOwner
	settle
	settleUnanswered
	settleAgain
	claimNext
	landClaim
	resendClaim
	sendData
	landData
	breakJournal
	breakData
	abandon
	drop
	watch
	landLate
	retain
	lose
	forget
)

// step names a step. epoch 0: not an owner's.
type step struct {
	op    op
	epoch uint8
	n     uint8 // the log, the data partition, or the late request
	count uint8 // records to claim, batches to lose
}

func (p step) String() string {
	name := [...]string{
		takeOver:         "the next epoch is given out",
		writeMarker:      "its marker is written",
		writeMarkerTwice: "its marker is written, the answer is lost: it will come again",
		recoverOwner:     "reads back what landed",
		settle:           "writes its settled record",
		settleUnanswered: "writes its settled record, the answer is lost",
		settleAgain:      "writes another settled record",
		claimNext:        "sends a claim",
		landClaim:        "its claim arrives and is answered",
		resendClaim:      "sends the claim once more",
		sendData:         "sends data",
		landData:         "its data arrives and is answered",
		breakJournal:     "its link to the journal breaks",
		breakData:        "its data link breaks",
		abandon:          "gives up its rounds",
		drop:             "drops the failed batch",
		watch:            "looks at the leader epoch",
		landLate:         "a late request arrives",
		retain:           "the source's log start moves up",
		lose:             "an unclean election loses the end of the log",
		forget:           "the broker forgets the producer",
	}[p.op]
	if p.epoch > 0 {
		name = fmt.Sprintf("owner %d: %s", p.epoch, name)
	}
	switch p.op {
	case writeMarker, writeMarkerTwice, watch, forget, lose:
		if p.n == 0 {
			return name + " (journal)"
		}
		return fmt.Sprintf("%s (data %d)", name, p.n-1)
	case sendData, landData, breakData, drop, abandon, retain, claimNext:
		return fmt.Sprintf("%s (data %d)", name, p.n)
	}
	return name
}

// try adds the state that p leads to, if p can be taken in s.
func (m *model) try(s *state, p step) {
	m.next = append(m.next, successor{p, *s})
	t := &m.next[len(m.next)-1].state
	if !m.take(t, p) {
		m.next = m.next[:len(m.next)-1]
		return
	}
	m.normalise(t)
}

func (m *model) take(s *state, p step) bool {
	switch p.op {
	case takeOver:
		return m.takeOver(s)
	case recoverOwner:
		return m.recover(s, p.epoch)
	case settle, settleUnanswered:
		return m.settle(s, p.epoch, p.op == settle)
	case settleAgain:
		return m.settleAgain(s, p.epoch)
	case claimNext:
		return m.claimNext(s, p.epoch, p.n, p.count)
	case landClaim:
		return m.landClaim(s, p.epoch)
	case resendClaim:
		return m.resendClaim(s, p.epoch)
	case sendData:
		return m.sendData(s, p.epoch, p.n)
	case landData:
		return m.landData(s, p.epoch, p.n)
	case breakJournal:
		return m.breakJournal(s, p.epoch)
	case breakData:
		return m.breakData(s, p.epoch, p.n)
	case abandon:
		return m.abandon(s, p.epoch, p.n)
	case drop:
		return m.drop(s, p.epoch, p.n)
	case watch:
		return m.watch(s, p.epoch, p.n)
	}
	return m.happen(s, p)
}

// steps finds all that can happen in s. What plainly cannot is not tried: a state is large.
func (m *model) steps(s *state) []successor {
	m.next = m.next[:0]
	if s.unmarked == 0 && s.given < m.bounds.owners {
		m.try(s, step{op: takeOver})
	}
	for e := uint8(1); e <= s.given; e++ {
		m.stepsOf(s, e)
	}
	for i := range m.bounds.parts + 1 {
		if s.unmarked&(1<<i) != 0 {
			m.try(s, step{op: writeMarker, n: i})
			m.try(s, step{op: writeMarkerTwice, n: i})
		}
		if s.left.forgets > 0 {
			m.try(s, step{op: forget, n: i})
		}
		if s.left.losses > 0 {
			for lost := range s.logs[i].n {
				m.try(s, step{op: lose, n: i, count: lost + 1})
			}
		}
	}
	for i, l := range s.late {
		if l.b.kind != nothing {
			m.try(s, step{op: landLate, n: uint8(i)})
		}
	}
	for part := range m.bounds.parts {
		if s.left.retention > 0 {
			m.try(s, step{op: retain, n: part})
		}
	}
	return m.next
}

func (m *model) stepsOf(s *state, e uint8) {
	o := &s.owners[e-1]
	switch o.phase {
	case fenced:
		m.try(s, step{op: recoverOwner, epoch: e})
		return
	case recovered:
		m.try(s, step{op: settle, epoch: e})
		m.try(s, step{op: settleUnanswered, epoch: e})
	}
	if s.left.settles > 0 {
		m.try(s, step{op: settleAgain, epoch: e})
	}
	for i := range m.bounds.parts + 1 {
		m.try(s, step{op: watch, epoch: e, n: i})
	}
	if o.used() > 0 {
		m.try(s, step{op: landClaim, epoch: e})
		m.try(s, step{op: resendClaim, epoch: e})
		if s.left.breaks > 0 {
			m.try(s, step{op: breakJournal, epoch: e})
		}
	}
	for part := range m.bounds.parts {
		if o.used() > 0 {
			for _, p := range []op{sendData, landData, breakData, abandon, drop} {
				m.try(s, step{op: p, epoch: e, n: part})
			}
		}
		for count := range m.bounds.largest {
			m.try(s, step{op: claimNext, epoch: e, n: part, count: count + 1})
		}
	}
}

// counterexample is the shortest way to a state that must not be.
type counterexample struct {
	why   string
	steps []step
}

type result struct {
	states  int
	atRest  int // states in which the newest owner has reached the end
	depth   int
	bad     *counterexample
	aborted bool // more states than allowed
}

type node struct {
	parent int32
	step   step
}

// search explores all states, at most limit of them (0: no limit), until one must not be.
func (m *model) search(limit int) result {
	seen := map[uint64]struct{}{} // by hash: of a million states two are taken for one once in 10^7 searches
	var nodes []node
	type open struct {
		state state
		node  int32
	}
	var level, deeper []open
	var r result
	visit := func(s *state, parent int32, p step) bool {
		h := maphash.Comparable(m.seed, *s)
		if _, ok := seen[h]; ok {
			return true
		}
		seen[h] = struct{}{}
		nodes = append(nodes, node{parent, p})
		deeper = append(deeper, open{*s, int32(len(nodes) - 1)})
		why, rest := m.check(s)
		if rest {
			r.atRest++
		}
		if why != "" {
			r.bad = &counterexample{why: why, steps: way(nodes)}
		}
		return why == ""
	}
	first := m.initial()
	more := visit(&first, -1, step{})
	for more && len(deeper) > 0 {
		level, deeper = deeper, level[:0]
		r.depth++
		for i := range level {
			for _, n := range m.steps(&level[i].state) {
				if more = visit(&n.state, level[i].node, n.step); !more {
					break
				}
			}
			if r.aborted = limit > 0 && len(nodes) > limit; r.aborted {
				more = false
			}
			if !more {
				break
			}
		}
	}
	r.states = len(nodes)
	return r
}

// way is how the newest node was reached.
func way(nodes []node) []step {
	var out []step
	for i := int32(len(nodes) - 1); i > 0; i = nodes[i].parent {
		out = append([]step{nodes[i].step}, out...)
	}
	return out
}

// trace tells a way, state by state.
func (m *model) trace(steps []step) string {
	var b strings.Builder
	s := m.initial()
	for i, p := range steps {
		if !m.take(&s, p) {
			fmt.Fprintf(&b, "%2d. %v: cannot be taken\n", i+1, p)
			break
		}
		m.normalise(&s)
		fmt.Fprintf(&b, "%2d. %v\n    %v\n", i+1, p, &s)
	}
	return b.String()
}
