package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/internal/wire"
)

// session is one client connection. readLoop takes requests and sends them on, writeLoop takes answers and passes them
// back, in the order of requests.
type session struct {
	p    *Proxy
	node int32 // virtual node that the client connected to; -1: bootstrap
	conn net.Conn
	log  zerolog.Logger

	ctx    context.Context // ends when the client is of no more use: broken off, refused, or the proxy closes
	cancel context.CancelCauseFunc
	queue  chan *call    // in request order; closed by readLoop
	kick   chan struct{} // capacity 1: there may be links to close

	in     *wire.Reader      // readLoop's
	window [windowBytes]byte // readLoop's
	sent   names             // readLoop's
	out    *wire.Writer      // writeLoop's
	shown  names             // writeLoop's

	scratch  []byte       // writeLoop's, used again
	unswept  bool         // writeLoop's: there may be links to close
	fetching fetchSession // set by writeLoop, read by readLoop

	holding holding

	pending atomic.Int32 // calls in the queue, or taken from it and not answered
	held    atomic.Int32 // of them, those whose answer the gate's drain waits for

	sending chan struct{} // capacity 1, a lock: who holds it writes to links and into the queue. Not needed to answer
	closed  bool          // guarded by sending: the queue is closed

	mu    sync.Mutex // guards all below; not held across I/O
	links []*link    // all that are open
	ended bool       // no link may be added
}

func newSession(p *Proxy, conn net.Conn, node int32) *session {
	s := &session{
		p: p, node: node, conn: conn,
		queue: make(chan *call, p.cfg.Limits.QueuedCalls), kick: make(chan struct{}, 1), sending: make(chan struct{}, 1),
		holding: newHolding(),
		in:      wire.NewReader(conn, &p.pool), out: wire.NewWriter(conn, &p.pool),
		log: p.log.With().Str(obs.KeyClient, conn.RemoteAddr().String()).Int32(obs.KeyNode, node).Logger(),
	}
	s.ctx, s.cancel = context.WithCancelCause(p.ctx)
	return s
}

// run serves the client until it leaves, and returns why the session ended.
func (s *session) run() closeReason {
	written := make(chan struct{})
	go s.writeLoop(written)
	err := s.readLoop(s.ctx)
	reason := reasonOf(err, closedByClient)
	if reason == closedByClient || reason == closedByProxy {
		s.cancel(err)
	}
	s.closeQueue()
	s.leave()
	<-written
	s.end()
	if cause := context.Cause(s.ctx); reason == closedByClient && cause != nil {
		reason = reasonOf(cause, reason)
		err = cause
	}
	s.report(reason, err)
	return reason
}

// closeQueue lets writeLoop end when it has answered what is there.
func (s *session) closeQueue() {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	s.closed = true
	close(s.queue)
}

// leave makes writeLoop end soon. Answers that are under way to a client that is still there are passed on; for one that
// is gone, those are waited for that the gate's drain needs. Both for the drain timeout at most.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	gone := s.ctx.Err() != nil
	for _, l := range s.links {
		if gone && s.held.Load() == 0 {
			_ = l.conn.Close()
			continue
		}
		_ = l.conn.SetReadDeadline(time.Now().Add(s.p.cfg.DrainTimeout)) // a closed connection fails at the read
	}
}

// end frees everything.
func (s *session) end() {
	_ = s.conn.Close()
	s.in.Close()
	s.out.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		s.free(l)
	}
	s.links = nil
}

func (s *session) report(reason closeReason, err error) {
	switch reason {
	case closedByClient, closedByProxy, closedIdle:
		s.log.Debug().Err(err).Str(obs.KeyReason, string(reason)).Msg("session ended")
	default:
		s.p.trouble.warn(s.log, reason, err)
	}
}

// readLoop takes one request after the other and starts it, until the client leaves or does something that ends the session.
func (s *session) readLoop(ctx context.Context) error {
	for {
		c, err := s.readCall(ctx)
		if err != nil {
			return err
		}
		if err := s.start(ctx, c); err != nil {
			c.release()
			return err
		}
	}
}

// readCall reads a whole request, when there is room for it.
func (s *session) readCall(ctx context.Context) (*call, error) {
	size, err := s.awaitFrame()
	if err != nil {
		return nil, err
	}
	c := s.newCall()
	if err := s.readRequest(ctx, c, size); err != nil {
		c.release()
		return nil, err
	}
	s.p.metrics.BytesIn(size)
	s.p.metrics.Calls(c.key).Inc()
	return c, nil
}

// readRequest reads the frame that has begun.
func (s *session) readRequest(ctx context.Context, c *call, size int) error {
	if err := s.expect(); err != nil {
		return err
	}
	header, err := s.in.RequestHeader(s.p.headers)
	if err != nil {
		return s.readError(err, closedSlowFrame)
	}
	c.key, c.version, c.correlation, c.bodyAt = header.Key, header.Version, header.CorrelationID, header.BodyOffset
	room := size
	if c.key == int16(kmsg.Produce) && !s.p.route.Load().names.IsIdentity() {
		room *= rewrittenTakes
	}
	var waited bool
	if c.room, waited, err = s.roomForRequest(ctx, room); err != nil {
		return err
	}
	if waited {
		if err := s.expect(); err != nil {
			return err
		}
	}
	c.request = s.p.pool.Get()
	if streamed, err := s.cut(c, size); err != nil {
		return s.readError(err, closedSlowFrame)
	} else if streamed {
		return nil
	}
	if size <= wholeAtOnce { // it was taken into account already
		c.request.B = slices.Grow(c.request.B, size)
	}
	c.request.B, err = s.in.ReadAll(c.request.B)
	c.frame = c.request.B
	if err != nil {
		return s.readError(err, closedSlowFrame)
	}
	return nil
}

// wholeAtOnce is the largest frame that memory is taken for before its bytes have come. Buffers of that size are used again.
const wholeAtOnce = 2 << 20

// expect gives the client time for the rest of a frame.
func (s *session) expect() error {
	if err := s.conn.SetReadDeadline(time.Now().Add(s.p.cfg.Limits.FrameTimeout)); err != nil {
		return closing(closedByClient, err)
	}
	if s.ctx.Err() != nil { // looked at after the deadline was set: whoever ends the session sets another one
		return context.Cause(s.ctx)
	}
	return nil
}

// awaitFrame waits for a request to begin. A client that waits for answers of ours is not idle.
func (s *session) awaitFrame() (size int, err error) {
	for {
		if err := s.conn.SetReadDeadline(time.Now().Add(s.p.cfg.Limits.IdleTimeout)); err != nil {
			return 0, closing(closedByClient, err)
		}
		if s.ctx.Err() != nil { // looked at after the deadline was set: whoever ends the session sets another one
			return 0, context.Cause(s.ctx)
		}
		size, err = s.in.Next(s.p.cfg.Limits.FrameBytes)
		if err == nil {
			return size, nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && s.ctx.Err() == nil && s.pending.Load() > 0 && s.in.Buffered() == 0 {
			continue
		}
		return 0, s.readError(err, closedIdle)
	}
}

// readError finds the reason in what the client's side of the connection says.
func (s *session) readError(err error, late closeReason) error {
	switch {
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return closing(late, err)
	case errors.Is(err, wire.ErrTLS):
		return closing(closedTLSHello, err)
	case errors.Is(err, wire.ErrFrameTooLarge):
		return closing(closedFrameSize, err)
	case errors.Is(err, wire.ErrUnknownVersion):
		return closing(closedUnsupported, err)
	case errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrHTTP):
		return closing(closedMalformed, err)
	}
	return closing(closedByClient, err)
}

// start sends a call through the gate, makes it physical, and sends it on.
func (s *session) start(ctx context.Context, c *call) error {
	if err := s.admit(c); err != nil {
		return err
	}
	if err := s.enterGate(ctx, c); err != nil {
		return err
	}
	if err := s.takeRoute(ctx, c); err != nil {
		return err
	}
	began := time.Now()
	if err := c.prepare(ctx); err != nil {
		return err
	}
	s.p.metrics.AddedLatency(time.Since(began))
	return s.forward(ctx, c)
}

// admit finds the row of a call, and refuses what is not offered. There is no general error answer, so the connection ends.
func (s *session) admit(c *call) error {
	route := s.p.route.Load()
	low, high, ok := s.p.offered(route.Identity, c.key)
	if ok {
		c.row = &s.p.apis[c.key]
	}
	tooNew := ok && c.key == int16(kmsg.ApiVersions) && c.version > high // answered by prepare
	if !ok || !tooNew && (c.version < low || c.version > high) {
		return closing(closedUnsupported, fmt.Errorf("%s v%d is not offered", obs.APIName(c.key), c.version))
	}
	return nil
}

// takeRoute gives a call the current route. While that is unknown, only those calls go on that the identity is enough for.
func (s *session) takeRoute(ctx context.Context, c *call) error {
	for c.route = s.p.route.Load(); c.route.Unknown; c.route = s.p.route.Load() {
		switch kmsg.Key(c.key) {
		case kmsg.ApiVersions, kmsg.Metadata, kmsg.DescribeCluster:
			return nil
		}
		s.p.trouble.note(s.log, "the cluster that knows the maps cannot be reached, calls wait", obs.KeyCluster, c.route.Active, nil)
		if err := s.standBy(ctx, c.route); err != nil {
			return err
		}
	}
	return nil
}

// standBy waits for a newer route, a moment at most, as long as the client is there.
func (s *session) standBy(ctx context.Context, route *Route) error {
	if isGone(s.conn) {
		return closing(closedByClient, errors.New("the client left while no broker could be reached"))
	}
	select {
	case <-route.superseded:
	case <-time.After(retryEvery):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// enterGate waits while the gate is shut. A client that is gone when it opens gets nothing done: it has sent its call
// elsewhere since.
func (s *session) enterGate(ctx context.Context, c *call) error {
	if c.row.gate == free {
		return nil
	}
	if s.p.gate.isShut() {
		s.p.metrics.Held(1)
		defer s.p.metrics.Held(-1)
	}
	waited, err := s.p.gate.enter(ctx)
	if err != nil {
		return err
	}
	c.inGate = true
	if c.row.gate == waitAtCutover {
		c.leaveGate()
	}
	if waited && isGone(s.conn) {
		return closing(closedByClient, errors.New("the client left while its call was held"))
	}
	return nil
}

// forward sends a call that is prepared to its broker, if it needs one, and puts it into the queue.
func (s *session) forward(ctx context.Context, c *call) error {
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.dispatch(ctx, c, s.linkTo); err != nil {
		return err
	}
	return s.push(ctx, c)
}

// push puts a call into the queue; from then on it is writeLoop's. Also when ctx has ended, if there is room: the call may have been
// sent, and the gate's drain waits for its answer.
func (s *session) push(ctx context.Context, c *call) error {
	s.pending.Add(1)
	if c.row.gate == holdAtCutover {
		s.held.Add(1)
	}
	select {
	case s.queue <- c:
		return nil
	default:
	}
	select {
	case s.queue <- c:
		return nil
	case <-ctx.Done():
		s.answered(c)
		return context.Cause(ctx)
	}
}

// answered takes a call out of the counts.
func (s *session) answered(c *call) {
	if c.row.gate == holdAtCutover {
		s.held.Add(-1)
	}
	s.pending.Add(-1)
}
