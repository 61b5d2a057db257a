package proxy

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/translate"
)

// linkFinder returns a link to a broker of the active cluster of route.
type linkFinder func(ctx context.Context, route *Route, addr string) (*link, error)

// dispatch sends a prepared call to its broker. While the whole cluster cannot be reached the call waits here, for it or
// for a newer route, and the client sees nothing but delay; if only this broker cannot be reached, the session ends, as
// with a broker that is gone, and the client looks for another leader. A call that is answered here needs no broker.
func (s *session) dispatch(ctx context.Context, c *call, find linkFinder) error {
	for failed := 0; !c.isHere(); {
		if c.route.Unknown {
			c.local = c.offline(true)
			break
		}
		l, err := s.reach(ctx, c, find)
		if err == nil {
			if newer := s.p.route.Load(); newer != c.route && c.row.gate != holdAtCutover {
				c.route = newer
				if err := c.prepare(ctx); err != nil {
					return err
				}
				continue
			}
			if err = s.sendOn(l, c); err == nil {
				return nil
			}
		}
		failed++
		if err := s.unreachable(ctx, c, failed, err); err != nil {
			return err
		}
	}
	return s.dropStreamed(c)
}

// sendOn sends a call on a link. After an error the broker has not got the whole request, so it did nothing.
func (s *session) sendOn(l *link, c *call) error {
	streamed := c.streamed
	var err error
	if streamed {
		err = s.stream(l, c)
	} else {
		err = l.send(c.message(), s.p.cfg.Limits.FrameTimeout)
	}
	if err != nil {
		s.retire(l)
		if streamed || l.pending.Load() > 0 { // on another link it could overtake what is pending here
			return closing(closedUpstream, err)
		}
		return errors.Join(l.refusal(), err)
	}
	if c.physical != nil { // if the call is sent anew, it is made anew
		c.physical.Release()
		c.physical = nil
	}
	l.pending.Add(1)
	if c.row.gate == holdAtCutover {
		l.held.Add(1)
	}
	l.unanswered, l.sentAt = c.silent, time.Now()
	c.link = l
	return nil
}

// unreachable decides what becomes of a call whose broker cannot be reached.
func (s *session) unreachable(ctx context.Context, c *call, failed int, why error) error {
	if c.offline != nil {
		if c.local = c.offline(false); c.local != nil {
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ends := (*closeError)(nil); errors.As(why, &ends) {
		return why
	}
	alive := s.p.cluster(c.route.Active).refresh(ctx) == nil
	if !alive && c.offline != nil && ctx.Err() == nil {
		c.local = c.offline(true)
		return nil
	}
	waits := c.row.to == toCoordinator && failed <= coordinatorTries && !s.p.gate.isShut() // the drain waits for none that was not sent
	if alive && failed > 1 && !waits {
		return closing(closedUpstream, why)
	}
	if alive && failed == 1 {
		return nil // perhaps under a new address
	}
	if !alive {
		s.p.trouble.note(s.log, "cluster cannot be reached, calls wait", obs.KeyCluster, c.route.Active, why)
	}
	if err := s.standBy(ctx, c.route); err != nil {
		return err
	}
	if newer := s.p.route.Load(); newer != c.route {
		c.route = newer
		return c.prepare(ctx)
	}
	return nil
}

const (
	retryEvery = 250 * time.Millisecond
	// coordinatorTries is how often a coordinator is looked for: a cluster takes up to 18 s to notice that a broker is gone.
	coordinatorTries = 80
)

// reach returns a link to the broker that is to get a call.
func (s *session) reach(ctx context.Context, c *call, find linkFinder) (*link, error) {
	if c.row.to == toCoordinator {
		who, err := s.p.groups.coordinators().find(ctx, c.route.Active, s.p.cfg.Clusters[c.route.Active].Client, c.group)
		if err == nil {
			l, err := find(ctx, c.route, who.addr)
			if err != nil {
				s.p.groups.coordinators().forget(c.route.Active, c.group)
			}
			return l, err
		}
		// no coordinator is known: the broker asked says so in its own words
	}
	var err error
	var buf [8]int32
	for _, broker := range s.candidates(buf[:0], c) {
		var addr string
		if addr, err = s.p.cluster(c.route.Active).of(ctx, broker); err != nil {
			continue
		}
		var l *link
		if l, err = find(ctx, c.route, addr); err == nil {
			return l, nil
		}
	}
	if err == nil {
		err = errors.New("the virtual cluster has no brokers")
	}
	return nil, err
}

// candidates appends the real brokers that may get a call, the best first.
func (s *session) candidates(out []int32, c *call) []int32 {
	first := c.route.brokerBehind(max(s.node, 0))
	if s.node >= 0 && c.row.to != toAny {
		return append(out, first)
	}
	out = append(out, first)
	for _, b := range c.route.Identity.Nodes[c.route.Active] {
		if b != first {
			out = append(out, b)
		}
	}
	return out
}

// linkTo returns readLoop's link to a broker, and connects if there is none.
func (s *session) linkTo(ctx context.Context, route *Route, addr string) (*link, error) {
	l, err := s.openLink(route.Generation, addr, false)
	if l != nil || err != nil {
		return l, err
	}
	return s.connect(ctx, route, addr, false)
}

// linkAnew returns writeLoop's own link, for calls that are sent anew one at a time: on readLoop's links requests that
// are behind this call in the queue may be under way already.
func (s *session) linkAnew(ctx context.Context, route *Route, addr string) (*link, error) {
	l, err := s.openLink(route.Generation, addr, true)
	if l != nil || err != nil {
		return l, err
	}
	return s.connect(ctx, route, addr, true)
}

func (s *session) connect(ctx context.Context, route *Route, addr string, anew bool) (*link, error) {
	l, err := s.p.dial(ctx, route.Active, addr, route.Generation)
	if err != nil {
		return nil, err
	}
	l.anew = anew
	return l, s.addLink(l)
}

// openLink finds a link that can be used; nil if there is none. One that the broker has closed meanwhile, as idle ones are, is
// dropped. But if it did so soon after a call without acks it has refused that call, and the client has to learn it.
func (s *session) openLink(generation translate.Generation, addr string, anew bool) (*link, error) {
	s.mu.Lock()
	i := slices.IndexFunc(s.links, func(l *link) bool {
		return !l.retired && l.anew == anew && l.generation == generation && l.addr == addr
	})
	if i < 0 {
		s.mu.Unlock()
		return nil, nil
	}
	l := s.links[i]
	s.mu.Unlock()
	if l.pending.Load() > 0 || !isGone(l.conn) {
		return l, nil
	}
	if err := l.refusal(); err != nil {
		return nil, err
	}
	s.dropLink(l)
	return nil, nil
}

// openLinks are all links.
func (s *session) openLinks() []*link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.links)
}

// addLink keeps a link for this session.
func (s *session) addLink(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		l.close()
		return closing(closedByClient, net.ErrClosed)
	}
	s.links = append(s.links, l)
	return nil
}

// retire lets no more calls go to a link.
func (s *session) retire(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.retired = true
}

// breakLink is called by writeLoop when no answer of a link can be used any more.
func (s *session) breakLink(l *link) {
	l.broken = true
	s.retire(l)
	_ = l.conn.Close()
	s.forgive(l)
	l.held.Store(0)
}

// dropLink closes a link on which nothing is pending.
func (s *session) dropLink(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.links, l); i >= 0 {
		s.links = slices.Delete(s.links, i, i+1)
		s.free(l)
	}
}

// free closes a link and counts out what it still owed.
func (s *session) free(l *link) {
	l.close()
	s.forgive(l)
}

// forgive counts out of the gate what went to a link without asking for an answer: it has arrived, or nobody will say so.
func (s *session) forgive(l *link) {
	for ; l.owed > 0; l.owed-- {
		l.held.Add(-1)
		s.p.gate.leave()
	}
}

// sweepLinks closes links that nothing is pending on and nothing will be sent on: of earlier generations, and broken ones.
// It runs on writeLoop. While readLoop sends it leaves them for the next time.
func (s *session) sweepLinks() {
	select {
	case s.sending <- struct{}{}:
		defer func() { <-s.sending }()
	default:
		s.unswept = true
		return
	}
	s.unswept = false
	now := s.p.route.Load().Generation
	for _, l := range s.openLinks() {
		if l.pending.Load() == 0 && (l.generation < now || s.isRetired(l)) {
			s.dropLink(l)
		}
	}
}

func (s *session) isRetired(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.retired
}

// supersede is called when a route of a later generation was published: calls of the free class that wait for answers of
// earlier ones are answered here or sent anew.
func (s *session) supersede(generation translate.Generation) {
	for _, l := range s.openLinks() {
		if l.generation < generation {
			l.interrupt()
		}
	}
	s.wake()
}

// wake makes writeLoop look for links to close.
func (s *session) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}
