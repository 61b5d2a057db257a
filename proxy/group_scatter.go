package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A request that names several groups is answered here: clients sort groups by the coordinators that they see, which are
// not the real ones. Each real coordinator gets a request of its own, over a connection of our own.

// scatterTime bounds the time that one such call may take; clients wait for 30 s and more.
const scatterTime = 10 * time.Second

// scatter is one call that is put together from several.
type scatter struct {
	c    *call
	ask  func(groups []string) kmsg.Request        // real, in the call's version; may be called again for a group
	take func(resp kmsg.Response) map[string]int16 // keeps the answers, as clients see them; returns each group's code
	fail func(group string, code int16)            // a group that no broker answered for
	left map[string][]string                       // coordinator address → groups still to ask
}

// run asks for all groups. What a broker denies to be coordinator of is looked up anew and asked once more.
func (s *scatter) run(ctx context.Context, groups []string) {
	ctx, cancel := context.WithTimeout(ctx, scatterTime)
	defer cancel()
	for round := 0; len(groups) > 0; round++ {
		denied := s.round(ctx, groups)
		for _, group := range denied {
			s.c.s.p.groups.coordinators().forget(s.c.route.Active, group)
		}
		if round > 0 {
			return // what was denied twice keeps the answer it has
		}
		groups = denied
	}
}

// round asks each coordinator once and returns the groups that were denied.
func (s *scatter) round(ctx context.Context, groups []string) (denied []string) {
	p, active := s.c.s.p, s.c.route.Active
	s.left = map[string][]string{}
	for _, group := range groups {
		at, err := p.groups.coordinators().find(ctx, active, p.cfg.Clusters[active].Client, group)
		if err != nil {
			s.fail(group, codeOf(err))
			continue
		}
		s.left[at.addr] = append(s.left[at.addr], group)
	}
	for addr, names := range s.left {
		resp, err := p.askBroker(ctx, active, addr, s.c.clientID(), s.ask(names))
		if err != nil {
			for _, group := range names {
				p.groups.coordinators().forget(active, group)
				s.fail(group, kerr.CoordinatorNotAvailable.Code)
			}
			continue
		}
		for group, code := range s.take(resp) {
			if code == kerr.NotCoordinator.Code {
				denied = append(denied, group)
			}
		}
	}
	return denied
}

// codeOf is the code of the cluster in err; one that clients retry if the cluster said nothing.
func codeOf(err error) int16 {
	var said *kerr.Error
	if errors.As(err, &said) {
		return said.Code
	}
	return kerr.CoordinatorNotAvailable.Code
}

// askBroker sends one request over a connection that is made for it.
func (p *Proxy) askBroker(ctx context.Context, cluster, addr, clientID string, req kmsg.Request) (kmsg.Response, error) {
	conn, err := p.cfg.Clusters[cluster].Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	b := newBrokerConn(conn, clientID)
	defer b.close()
	return b.ask(ctx, req)
}
