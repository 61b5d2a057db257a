package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/wire"
)

// errLost: the link broke before the answer of a call began.
var errLost = errors.New("the connection to the broker was lost")

// maxAnew bounds how often one call is sent anew.
const maxAnew = 8

// writeLoop answers calls in the order of the queue. It ends when readLoop has closed the queue and it is empty; done is
// closed then.
func (s *session) writeLoop(done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case c, more := <-s.queue:
			if !more {
				return
			}
			s.finish(c)
		case <-s.kick:
			s.sweepLinks()
		}
	}
}

// finish answers one call. If it cannot be answered nothing after it can, so the session ends.
func (s *session) finish(c *call) {
	err := s.deliver(c)
	if err != nil && s.ctx.Err() == nil {
		s.cancel(err)
		_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // readLoop takes nothing more
	}
	s.answered(c)
	if l := c.link; s.unswept || c.again > 0 || l != nil && (l.broken || l.generation < s.p.route.Load().Generation) {
		s.sweepLinks()
	}
	c.release()
}

// deliver gets the answer of a call to the client. For a client that is gone it only sees to it that answers that the
// drain waits for are in.
func (s *session) deliver(c *call) error {
	for {
		if s.ctx.Err() != nil {
			return s.drain(c)
		}
		err := s.deliverOnce(c)
		switch {
		case errors.Is(err, errReissue), errors.Is(err, errSuperseded), errors.Is(err, errLost):
			if c.ours { // its link is gone: there is nothing left to find out
				return nil
			}
			if err = s.anew(c, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

func (s *session) deliverOnce(c *call) error {
	if newer := s.p.route.Load(); c.later != nil && newer != c.route && c.row.gate != holdAtCutover { // a move has passed it by
		c.route = newer
		if err := c.prepare(s.ctx); err != nil {
			return err
		}
	}
	if c.later != nil {
		resp, err := c.later(s.ctx)
		if err != nil {
			return err
		}
		c.later, c.local = nil, resp
	}
	switch {
	case c.silent:
		if l := c.link; l != nil {
			if c.inGate && !l.broken { // inside until an answer on this link says that the broker has got so far
				l.owed++
				c.inGate = false
			}
			l.pending.Add(-1) // from here on readLoop may drop the link, and count out what it owes
		}
		return nil
	case c.local != nil:
		s.headway()
		return s.written(c.writeLocal(s.out))
	}
	return s.pass(c, s.out)
}

// headway gives the client time for what is written next.
func (s *session) headway() {
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.p.cfg.Limits.FrameTimeout)) // a closed connection fails at the write
}

// written counts what was written, and finds the reason if it was not.
func (s *session) written(err error) error {
	if err == nil {
		err = s.out.Flush()
	}
	if err != nil && s.out.Err() != nil {
		return s.readError(err, closedSlowReader)
	}
	return err
}

// pass reads a call's answer from its link and writes it to out.
func (s *session) pass(c *call, out *wire.Writer) error {
	l := c.link
	if l.broken {
		l.pending.Add(-1)
		return errLost
	}
	size, err := l.next(c.answerLimit(), c.parks())
	for errors.Is(err, errSuperseded) && c.row.gate == holdAtCutover {
		l.insist() // the gate's drain is for this: the answer comes from here
		size, err = l.next(c.answerLimit(), false)
	}
	if err != nil {
		s.breakLink(l)
		l.pending.Add(-1)
		if errors.Is(err, errSuperseded) {
			return errSuperseded
		}
		return fmt.Errorf("%w: %w", errLost, err)
	}
	s.headway()
	s.p.metrics.BytesOut(size)
	err = c.receive(size, out)
	switch {
	case l.in.Err() != nil || l.in.Remaining() == 0:
	case out.Err() != nil && s.held.Load() == 0: // nobody waits for what comes on this link
		s.breakLink(l)
	default:
		_ = l.in.Discard() // sticks
	}
	broke := l.in.Err()
	if broke != nil {
		s.breakLink(l)
	}
	s.settle(l, c) // from here on readLoop may drop the link
	if broke != nil {
		return closing(closedUpstream, broke)
	}
	if err != nil && out.Err() == nil {
		return err
	}
	return s.written(err)
}

// settle notes that the answer of a call came on a link: what went there before it has arrived.
func (s *session) settle(l *link, c *call) {
	s.forgive(l)
	if c.row.gate == holdAtCutover {
		l.held.Add(-1)
	}
	l.pending.Add(-1)
}

// parks says whether a broker may keep a call until something happens: records or members come.
func (c *call) parks() bool {
	switch kmsg.Key(c.key) {
	case kmsg.Fetch, kmsg.JoinGroup, kmsg.SyncGroup:
		return true
	}
	return false
}

// makeWay ends the wait for an answer that a broker may keep, if answers that the gate's drain waits for are behind it on other
// links. The call is answered as at a move. A link that carries such answers itself is left alone: they would be lost with it.
func (s *session) makeWay() {
	select {
	case s.sending <- struct{}{}: // so that nothing is being sent to the link
		defer func() { <-s.sending }()
	default:
		return // Drain comes again
	}
	if !s.isHeld() {
		return
	}
	for _, l := range s.openLinks() {
		if !l.isHeld() && l.isParked() {
			s.retire(l)
			l.interrupt()
			s.wake() // if the answer begins all the same, the link is left to be closed
		}
	}
}

// isHeld says whether the gate's drain waits for an answer of this session, or for what it has sent without asking for one.
func (s *session) isHeld() bool {
	return s.held.Load() > 0 || slices.ContainsFunc(s.openLinks(), (*link).isHeld)
}

// drain waits for the answer of a call whose client is gone, if the gate's drain needs it or one behind it.
func (s *session) drain(c *call) error {
	if c.silent || c.link == nil || s.held.Load() == 0 {
		return nil
	}
	err := s.pass(c, wire.NewWriter(io.Discard, &s.p.pool))
	if errors.Is(err, errReissue) {
		return nil
	}
	return err
}

// anew finds another answer for a call that gets none from its link: one that is made here, or a new link.
func (s *session) anew(c *call, why error) error {
	c.again++
	refused := errors.Is(why, errReissue) // the broker did nothing
	if c.again > maxAnew || !refused && c.row.gate == holdAtCutover {
		return closing(closedUpstream, fmt.Errorf("%s: %w", c.row.name, why))
	}
	if !refused {
		switch kmsg.Key(c.key) {
		case kmsg.Fetch:
			return c.answerEmpty()
		case kmsg.JoinGroup:
			resp := kmsg.NewPtrJoinGroupResponse()
			resp.ErrorCode = kerr.NotCoordinator.Code
			c.local = resp
			return nil
		case kmsg.SyncGroup:
			resp := kmsg.NewPtrSyncGroupResponse()
			resp.ErrorCode = kerr.NotCoordinator.Code
			c.local = resp
			return nil
		}
	}
	c.route = s.p.route.Load()
	if err := c.prepare(s.ctx); err != nil {
		return err
	}
	return s.dispatch(s.ctx, c, s.linkAnew)
}

// confirm makes sure that what was sent without asking for an answer (acks=0) has arrived: a broker takes the requests of
// a connection one by one, so the answer to a later one says so. A session that the drain does not wait for is left alone: with a
// full queue behind a call that a broker keeps it would hold up the drain.
func (s *session) confirm(ctx context.Context) error {
	if !s.isHeld() {
		return nil
	}
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	case <-s.ctx.Done():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.closed { // answers are waited for as it is; what got none has to be taken as arrived
		return nil
	}
	for _, l := range s.openLinks() {
		if l.anew || !l.unanswered {
			continue
		}
		c := &call{s: s, row: &s.p.apis[kmsg.ApiVersions], key: int16(kmsg.ApiVersions), correlation: ownCorrelation, ours: true, link: l}
		l.pending.Add(1)
		if err := s.push(ctx, c); err != nil { // before it is sent: an answer that nobody waits for would be taken for another call's
			l.pending.Add(-1)
			return err
		}
		message := s.p.headers.AppendRequestHeader(nil, c.key, 0, ownCorrelation, nil)
		if l.send(message, s.p.cfg.Limits.FrameTimeout) != nil {
			s.retire(l) // it is broken, as writeLoop finds out when it waits for the answer
		}
		l.unanswered = false
	}
	return nil
}

// ownCorrelation is the correlation id of requests of our own on a session's link.
const ownCorrelation = -1 << 31
