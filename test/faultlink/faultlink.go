// Package faultlink is a TCP relay that does to connections what networks do: it loses answers and cuts. It also counts requests per
// client and API, since a client that asks in a circle shows nowhere else.
//
// The relay stands on another loopback host, on the same ports as what is behind it. So a proxy that advertises that host sends
// its clients through the relay, for the bootstrap address and for every broker.
package faultlink

import (
	"encoding/binary"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Config says which addresses are relayed: From:port to To:port, for Ports ports from First on.
type Config struct {
	From, To     string
	First, Ports int
}

// Relay relays until its test ends.
type Relay struct {
	config    Config
	listeners []net.Listener
	wg        sync.WaitGroup
	dropping  atomic.Bool  // answers are read and thrown away
	dropped   atomic.Int64 // bytes

	mu     sync.Mutex            // guards the fields below
	conns  map[net.Conn]net.Conn // client → server
	closed bool
	counts map[Call]int64
}

// Call is what is counted.
type Call struct {
	Client string // client id
	Key    int16  // API key
}

// Start listens on all ports.
func Start(t testing.TB, config Config) *Relay {
	t.Helper()
	r := &Relay{config: config, conns: make(map[net.Conn]net.Conn), counts: make(map[Call]int64)}
	for port := config.First; port < config.First+config.Ports; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort(config.From, strconv.Itoa(port)))
		if err != nil {
			r.Close()
			t.Fatalf("fault link: %v", err)
		}
		r.listeners = append(r.listeners, l)
		r.wg.Add(1)
		go r.accept(l, net.JoinHostPort(config.To, strconv.Itoa(port)))
	}
	t.Cleanup(r.Close)
	return r
}

// DropAnswers makes what servers send from now on vanish, on old and new connections, until it is called with false. A
// connection that lost bytes is of no use to its client: Cut it.
func (r *Relay) DropAnswers(on bool) { r.dropping.Store(on) }

// DroppedBytes is how much has vanished so far.
func (r *Relay) DroppedBytes() int64 { return r.dropped.Load() }

// Cut ends all connections, on both sides, and returns how many there were. Clients may connect again at once.
func (r *Relay) Cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.conns)
	for client, server := range r.conns {
		client.Close()
		server.Close()
	}
	clear(r.conns)
	return n
}

// Counts is a copy of the calls counted so far.
func (r *Relay) Counts() map[Call]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[Call]int64, len(r.counts))
	for call, n := range r.counts {
		counts[call] = n
	}
	return counts
}

// Close ends everything and waits for it.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, l := range r.listeners {
		l.Close()
	}
	r.Cut()
	r.wg.Wait()
}

func (r *Relay) accept(l net.Listener, target string) {
	defer r.wg.Done()
	for {
		client, err := l.Accept()
		if err != nil {
			return // closed
		}
		r.wg.Add(1)
		go r.relay(client, target)
	}
}

func (r *Relay) relay(client net.Conn, target string) {
	defer r.wg.Done()
	defer client.Close()
	server, err := net.DialTimeout("tcp", target, time.Second)
	if err != nil {
		return // the client sees its connection end, as it would without us
	}
	defer server.Close()
	if !r.register(client, server) {
		return
	}
	defer r.forget(client)
	r.wg.Add(1)
	go r.requests(client, server)
	r.answers(client, server)
}

func (r *Relay) register(client, server net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.conns[client] = server
	return true
}

func (r *Relay) forget(client net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, client)
}

// requests copies to the server until either side ends.
func (r *Relay) requests(client, server net.Conn) {
	defer r.wg.Done()
	defer server.Close()
	counter := frameCounter{count: r.count}
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		counter.feed(b[:n])
		if n > 0 {
			if _, err := server.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// answers copies to the client, or drops, until either side ends.
func (r *Relay) answers(client, server net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if r.dropping.Load() {
			r.dropped.Add(int64(n))
		} else if n > 0 {
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *Relay) count(call Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[call]++
}

const (
	headBytes      = 4 + 2 + 2 + 4 + 2 // size, key, version, correlation id, length of the client id
	clientIDBytes  = 255               // longer ones are cut
	frameSizeBytes = 4
)

// frameCounter finds the requests in a stream. It reads their heads and skips the rest.
type frameCounter struct {
	count func(Call)
	head  []byte // of the current frame, up to headBytes + clientIDBytes
	left  int    // bytes of the frame that are still to come, beyond head
	known bool   // the frame is counted: the rest is skipped
}

func (f *frameCounter) feed(b []byte) {
	for len(b) > 0 {
		if f.known {
			n := min(f.left, len(b))
			b, f.left = b[n:], f.left-n
			if f.left == 0 {
				f.known, f.head = false, f.head[:0]
			}
			continue
		}
		n := min(f.missing(), len(b))
		f.head = append(f.head, b[:n]...)
		b = b[n:]
		if f.missing() == 0 {
			f.finish()
		}
	}
}

// missing is how many bytes of the head are still to come, as far as can be told.
func (f *frameCounter) missing() int {
	if len(f.head) < frameSizeBytes {
		return frameSizeBytes - len(f.head)
	}
	return min(f.size(), headBytes+f.clientBytes()) - len(f.head)
}

// size is that of the frame with its size field.
func (f *frameCounter) size() int {
	return frameSizeBytes + max(0, int(int32(binary.BigEndian.Uint32(f.head))))
}

func (f *frameCounter) clientBytes() int {
	if len(f.head) < headBytes {
		return 0
	}
	return min(clientIDBytes, max(0, int(int16(binary.BigEndian.Uint16(f.head[headBytes-2:])))))
}

func (f *frameCounter) finish() {
	if len(f.head) >= headBytes {
		f.count(Call{Client: string(f.head[headBytes:]), Key: int16(binary.BigEndian.Uint16(f.head[4:]))})
	}
	f.left = f.size() - len(f.head)
	f.known = f.left > 0
	if !f.known {
		f.head = f.head[:0]
	}
}
