package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// link is our connection to one real broker, for one session and one generation. Requests are written in the order of
// the session's queue, so the next answer on a link belongs to the oldest call of the queue that went there.
type link struct {
	addr       string
	generation translate.Generation
	conn       net.Conn
	out        *wire.Writer // belongs to who sends: readLoop, or writeLoop for a link of calls sent anew
	in         *wire.Reader // belongs to writeLoop

	pending atomic.Int32 // calls sent whose turn in the queue has not come or whose answer is not in
	held    atomic.Int32 // of those sent, and of what they owe, the calls that the gate's drain waits for
	owed    int          // writeLoop's while pending: calls without an answer (acks=0) that the next answer confirms
	broken  bool         // writeLoop's: answers can no longer be told apart, or none will come

	anew       bool      // for calls that are sent anew; fixed
	unanswered bool      // guarded by session.sending: the last call sent asks for no answer
	sentAt     time.Time // of that call; guarded by session.sending
	retired    bool      // guarded by session.mu: nothing is sent any more

	mu          sync.Mutex // guards all below and the read deadline
	waiting     bool       // writeLoop waits for an answer to begin
	parked      bool       // with waiting: the broker may take its time with that answer
	interrupted bool       // stop waiting
}

// errSuperseded: no answer has begun, and a newer route was published, or what is behind has to be answered first.
var errSuperseded = errors.New("the answer is waited for no longer")

// dial connects to a broker of the cluster.
func (p *Proxy) dial(ctx context.Context, cluster, addr string, generation translate.Generation) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := p.cfg.Clusters[cluster].Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to broker %s: %w", addr, err)
	}
	return &link{
		addr: addr, generation: generation, conn: conn,
		out: wire.NewWriter(conn, &p.pool), in: wire.NewReader(conn, &p.pool),
	}, nil
}

const dialTimeout = 5 * time.Second

// send writes a whole request.
func (l *link) send(message []byte, timeout time.Duration) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	return l.out.WriteFrame(message)
}

// refusal is what the end of a connection that the broker has closed means to the client, if anything: a broker closes it when
// it refuses a call without acks, as one that is not the leader does, and idle ones. A client that does not learn of the first
// sends to the wrong broker until it asks for metadata by itself.
func (l *link) refusal() error {
	if !l.unanswered || time.Since(l.sentAt) > refusalWithin {
		return nil
	}
	return closing(closedAcksNone, fmt.Errorf("broker %s closed the connection after a batch without acks", l.addr))
}

// refusalWithin is more than brokers take to refuse, and less than the shortest sensible connections.max.idle.ms.
const refusalWithin = 30 * time.Second

// next waits for the next answer to begin. errSuperseded if it was interrupted before that; an answer that has begun is
// waited for. parks says that the broker may keep the call until something happens.
func (l *link) next(limit int, parks bool) (size int, err error) {
	if err := l.startWaiting(parks); err != nil {
		return 0, err
	}
	size, err = l.in.Next(limit)
	interrupted := l.stopWaiting()
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return size, err
	case l.in.Buffered() > 0:
		return l.in.Next(limit) // an interrupt's deadline is gone now
	case interrupted:
		return 0, errSuperseded
	}
	return 0, err
}

func (l *link) startWaiting(parks bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting, l.parked = true, parks
	if l.interrupted {
		return l.conn.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

func (l *link) stopWaiting() (interrupted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	if l.interrupted {
		_ = l.conn.SetReadDeadline(time.Time{}) // a closed connection fails at the next read
	}
	return l.interrupted
}

// isHeld says whether the gate's drain waits for an answer on this link.
func (l *link) isHeld() bool { return l.held.Load() > 0 }

// isParked says whether writeLoop waits here for a call that the broker may keep for long.
func (l *link) isParked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting && l.parked
}

// interrupt makes a wait for an answer that has not begun end, now and from now on.
func (l *link) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted = true
	if l.waiting {
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// insist undoes interrupt: the answers on this link are waited for after all.
func (l *link) insist() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.interrupted = false
	_ = l.conn.SetReadDeadline(time.Time{})
}

// close is called by writeLoop, or when it has ended.
func (l *link) close() {
	_ = l.conn.Close()
	l.in.Close()
	l.out.Close()
}

// isGone says whether the other side has closed conn. Bytes that wait to be read do not matter. It never blocks.
func isGone(conn net.Conn) bool {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	raw, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	gone, err := peekClosed(raw)
	return gone || err != nil
}
