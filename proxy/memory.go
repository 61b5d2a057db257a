package proxy

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/switchback-proxy/switchback/internal/obs"
)

// Memory bounds the bytes of frames that are held for the clients of a process. Requests that find no room wait in the order
// in which they came. What would make clients wait for each other for ever takes room beyond the limit:
//
//   - a small frame of a session that holds nothing: at most smallFrame for each connection;
//   - an answer that the gate's drain waits for, or whose session is over: a drain must not wait for calls that the gate holds;
//   - one other large answer at a time: what it holds then is given back when its client has it;
//   - what a request takes by its entries, beyond its frame, which is held already.
//
// Invariants:
//
//  1. used ≤ limit, but for the moment in which a loan that does not fit is taken back.
//  2. used + beyond is the sum of all loans.
//  3. waiting is the number of waiters in both queues; who gives room back and sees it above 0 lets in whom it can.
type Memory struct {
	limit   int64
	used    atomic.Int64
	beyond  atomic.Int64 // outside the limit
	waiting atomic.Int32

	mu       sync.Mutex // guards all below; taken only where something waits
	answers  []*waiter  // before all requests: an answer gives back what its request holds
	requests []*waiter
	ahead    bool // an answer that waited was let in beyond the limit

	decoding sync.Mutex // held while a large request is decoded: what that takes for the moment is not counted
}

// smallFrame is the largest frame, in bytes, that passes whatever others hold: a Heartbeat, a Fetch, a commit.
const smallFrame = 16 << 10

// loan is room that was taken. The zero value is none.
type loan struct {
	bytes  int64
	beyond bool // it counts there
	ahead  bool // and it is the one
}

// waiter is one who waits for room.
type waiter struct {
	bytes  int64
	answer bool
	loan   loan // set before granted
	// granted has capacity 1: a token says that loan is set.
	granted chan struct{}
}

// NewMemory makes a bound that the proxies of a process share. metrics may be nil.
func NewMemory(limitBytes int, metrics *obs.Metrics) *Memory {
	m := &Memory{limit: int64(limitBytes)}
	metrics.BufferedBytes(m.Held)
	return m
}

// Held is how many bytes are held now.
func (m *Memory) Held() int64 { return m.used.Load() + m.beyond.Load() }

// take takes room if there is some and nobody waits for it.
func (m *Memory) take(bytes int64) (loan, bool) {
	if m.waiting.Load() > 0 {
		return loan{}, false
	}
	if m.used.Add(bytes) <= m.limit {
		return loan{bytes: bytes}, true
	}
	m.give(loan{bytes: bytes})
	return loan{}, false
}

// takeBeyond takes room whether there is some or not.
func (m *Memory) takeBeyond(bytes int64) loan {
	if l, ok := m.take(bytes); ok {
		return l
	}
	m.beyond.Add(bytes)
	return loan{bytes: bytes, beyond: true}
}

// give gives room back.
func (m *Memory) give(l loan) {
	switch {
	case l.ahead:
		m.mu.Lock()
		m.ahead = false
		m.mu.Unlock()
		m.beyond.Add(-l.bytes)
	case l.beyond:
		m.beyond.Add(-l.bytes)
		return
	default:
		m.used.Add(-l.bytes)
	}
	if m.waiting.Load() > 0 {
		m.mu.Lock()
		m.letIn()
		m.mu.Unlock()
	}
}

// await puts w into its queue; w.granted says when there is room.
func (m *Memory) await(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting.Add(1) // before the look: who gives room back after it lets w in
	if w.answer {
		m.answers = append(m.answers, w)
	} else {
		m.requests = append(m.requests, w)
	}
	m.letIn()
}

// letIn lets in whom it can, in order. The caller holds mu.
func (m *Memory) letIn() {
	for len(m.answers) > 0 && m.grant(m.answers[0]) {
		m.answers = slices.Delete(m.answers, 0, 1)
	}
	for len(m.answers) == 0 && len(m.requests) > 0 && m.grant(m.requests[0]) {
		m.requests = slices.Delete(m.requests, 0, 1)
	}
}

func (m *Memory) grant(w *waiter) bool {
	w.loan = loan{bytes: w.bytes}
	if m.used.Add(w.bytes) > m.limit {
		m.used.Add(-w.bytes)
		if !w.answer || m.ahead {
			return false
		}
		m.ahead = true
		m.beyond.Add(w.bytes)
		w.loan.beyond, w.loan.ahead = true, true
	}
	m.waiting.Add(-1)
	w.granted <- struct{}{}
	return true
}

// giveUp ends the wait of w. If it was let in meanwhile it has its loan all the same.
func (m *Memory) giveUp(w *waiter) (l loan, granted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	queue := &m.requests
	if w.answer {
		queue = &m.answers
	}
	i := slices.Index(*queue, w)
	if i < 0 {
		<-w.granted
		return w.loan, true
	}
	*queue = slices.Delete(*queue, i, i+1)
	m.waiting.Add(-1)
	m.letIn() // those behind it may need less
	return loan{}, false
}

// holding is what one session holds.
type holding struct {
	bytes  atomic.Int64
	short  atomic.Bool   // readLoop waits for room
	eased  chan struct{} // capacity 1: with short, something was given back
	reads  waiter        // readLoop's
	writes waiter        // writeLoop's
}

func newHolding() holding {
	return holding{eased: make(chan struct{}, 1),
		reads: waiter{granted: make(chan struct{}, 1)}, writes: waiter{answer: true, granted: make(chan struct{}, 1)}}
}

// giveBack ends a loan to the session; it is none afterwards.
func (s *session) giveBack(l *loan) {
	if l.bytes == 0 {
		return
	}
	s.holding.bytes.Add(-l.bytes)
	s.p.memory.give(*l)
	*l = loan{}
	if s.holding.short.Load() {
		select {
		case s.holding.eased <- struct{}{}:
		default:
		}
	}
}

// roomForRequest waits until a request of n bytes may be held: within what one connection may hold, and what all may. The
// client is not read from meanwhile. It gives up when ctx ends.
func (s *session) roomForRequest(ctx context.Context, n int) (l loan, waited bool, err error) {
	bytes := min(int64(n), s.p.memory.limit)
	if held := s.holding.bytes.Load(); held == 0 || held+bytes <= int64(s.p.cfg.Limits.ConnectionBytes) {
		if l, ok := s.p.memory.take(bytes); ok {
			s.holding.bytes.Add(bytes)
			return l, false, nil
		}
	}
	s.holding.short.Store(true) // before the look: what is given back after it is told
	defer s.holding.short.Store(false)
	l, err = s.waitForRoom(ctx, bytes)
	s.holding.bytes.Add(l.bytes)
	return l, true, err
}

func (s *session) waitForRoom(ctx context.Context, bytes int64) (loan, error) {
	m, w := s.p.memory, &s.holding.reads
	for queued := false; ; {
		held := s.holding.bytes.Load()
		switch {
		case held == 0 && bytes <= smallFrame:
			if queued {
				if l, granted := m.giveUp(w); granted {
					return l, nil
				}
			}
			return m.takeBeyond(bytes), nil
		case !queued && (held == 0 || held+bytes <= int64(s.p.cfg.Limits.ConnectionBytes)):
			w.bytes = bytes
			m.await(w)
			queued = true
		}
		select {
		case <-w.granted:
			return w.loan, nil
		case <-s.holding.eased:
		case <-ctx.Done():
			if queued {
				l, _ := m.giveUp(w)
				m.give(l)
			}
			return loan{}, context.Cause(ctx)
		}
	}
}

// roomForAnswer waits until n bytes may be held for an answer to c. What the connection holds already does not matter: it
// holds that for calls which are answered after this one.
func (s *session) roomForAnswer(c *call, n int) loan {
	m, bytes := s.p.memory, int64(n)
	s.holding.bytes.Add(bytes)
	if bytes <= smallFrame || c.row.gate == holdAtCutover {
		return m.takeBeyond(bytes)
	}
	if l, ok := m.take(bytes); ok {
		return l
	}
	w := &s.holding.writes
	w.bytes = bytes
	m.await(w)
	defer s.headway()
	select {
	case <-w.granted:
		return w.loan
	case <-s.ctx.Done():
		if l, granted := m.giveUp(w); granted {
			return l
		}
		return m.takeBeyond(bytes)
	}
}
