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

// listen binds the bootstrap address and a port for each virtual node, all or none.
func (p *Proxy) listen(ctx context.Context, nodes int) error {
	host, _, err := net.SplitHostPort(p.cfg.Listen)
	if err != nil {
		return fmt.Errorf("bootstrap address: %w", err)
	}
	var lc net.ListenConfig
	for node := int32(-1); node < int32(nodes); node++ {
		addr := p.cfg.Listen
		if node >= 0 {
			addr = net.JoinHostPort(host, strconv.Itoa(p.cfg.BrokerPortStart+int(node)))
		}
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			for _, bound := range p.ports {
				_ = bound.listener.Close()
			}
			p.ports = nil
			return fmt.Errorf("listen for virtual node %d: %w", node, err)
		}
		p.ports = append(p.ports, &port{node: node, listener: l})
	}
	return nil
}

// Addr is where the bootstrap listener is bound; nil before Start.
func (p *Proxy) Addr() net.Addr {
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
