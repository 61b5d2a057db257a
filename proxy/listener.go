package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/switchback-proxy/switchback/internal/obs"
)

// port is one listener: of the bootstrap address (node −1) or of one virtual node.
type port struct {
	node     int32
	listener net.Listener
}

// Grow binds the bootstrap address and a port for each virtual node, where that is not done yet, all or none, and accepts clients
// there. A route must not have more nodes than were bound.
func (p *Proxy) Grow(ctx context.Context, nodes int) error {
	if nodes > p.cfg.BrokerPortCount {
		return fmt.Errorf("%d virtual nodes do not fit %d broker ports: raise broker_ports.count", nodes, p.cfg.BrokerPortCount)
	}
	host, _, err := net.SplitHostPort(p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("bootstrap address: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	var lc net.ListenConfig
	var bound []*port
	for node := int32(len(p.ports)) - 1; node < int32(nodes); node++ {
		addr, what := p.cfg.Listen, "the bootstrap listener"
		if node >= 0 {
			what = fmt.Sprintf("virtual node %d", node)
			addr = net.JoinHostPort(host, strconv.Itoa(p.cfg.BrokerPortStart+int(node)))
		}
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			for _, one := range bound {
				_ = one.listener.Close()
			}
			return fmt.Errorf("listen for %s: %w", what, err)
		}
		bound = append(bound, &port{node: node, listener: l})
	}
	p.ports = append(p.ports, bound...)
	for _, one := range bound {
		p.running.Add(1)
		go p.acceptLoop(one)
	}
	return nil
}

// Addr is where the bootstrap listener is bound; nil before Start.
func (p *Proxy) Addr() net.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ports) == 0 {
		return nil
	}
	return p.ports[0].listener.Addr()
}

// acceptPause is how long an acceptor rests when the system has no descriptor left.
const acceptPause = 50 * time.Millisecond

func (p *Proxy) acceptLoop(port *port) {
	defer p.running.Done()
	for {
		conn, err := port.listener.Accept()
		switch {
		case err == nil:
			p.accept(conn, port.node)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			p.trouble.note(p.log, "connection not accepted", obs.KeyListener, port.listener.Addr().String(), err)
			select {
			case <-time.After(acceptPause):
			case <-p.ctx.Done():
				return
			}
		}
	}
}

// accept makes a connection a session, or closes it.
func (p *Proxy) accept(conn net.Conn, node int32) {
	if p.cfg.TLS != nil {
		conn = tls.Server(conn, p.cfg.TLS)
	}
	s := newSession(p, conn, node)
	p.mu.Lock()
	full := len(p.sessions) >= p.cfg.Limits.Connections
	if full || p.closed {
		p.mu.Unlock()
		s.cancel(nil)
		s.end()
		if full {
			p.metrics.Refused(string(closedLimit))
			p.trouble.warn(s.log, closedLimit, fmt.Errorf("there are %d connections", p.cfg.Limits.Connections))
		}
		return
	}
	p.sessions[s] = struct{}{}
	p.running.Add(1)
	p.mu.Unlock()
	go p.serve(s)
}

// serve runs a session to its end.
func (p *Proxy) serve(s *session) {
	defer p.running.Done()
	p.metrics.SessionOpened()
	reason := closedHandshake
	if err := s.handshake(); err != nil {
		p.trouble.warn(s.log, reason, err)
		s.end()
	} else {
		reason = s.run()
	}
	p.metrics.SessionClosed(string(reason))
	p.mu.Lock()
	delete(p.sessions, s)
	p.mu.Unlock()
	s.cancel(nil)
}

// handshake makes TLS ready where it is spoken.
func (s *session) handshake() error {
	conn, ok := s.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.p.cfg.Limits.HandshakeTimeout)
	defer cancel()
	return conn.HandshakeContext(ctx)
}
