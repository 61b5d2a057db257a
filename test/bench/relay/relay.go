// Package relay is the least that a proxy can be: it passes bytes on and looks at none. It is the limit that a Kafka proxy is
// measured against.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// Mode is how bytes get from one connection to the other.
type Mode string

const (
	// Splice leaves them in the kernel.
	Splice Mode = "splice"
	// Copy takes them through a buffer in user space.
	Copy Mode = "copy"
	// TLS ends TLS towards the client, and so copies.
	TLS Mode = "tls"
)

const copyBytes = 64 << 10

// Config says what a relay relays: one port for each target.
type Config struct {
	Mode    Mode
	Targets []string
	// Cert and Key are PEM files, for TLS.
	Cert, Key string
}

// Relay listens, once started.
type Relay struct {
	config    Config
	listeners []net.Listener
	workers   sync.WaitGroup
}

// Start listens on loopback. Addresses tell where.
func Start(ctx context.Context, config Config) (*Relay, error) {
	r := &Relay{config: config}
	var secure *tls.Config
	if config.Mode == TLS {
		cert, err := tls.LoadX509KeyPair(config.Cert, config.Key)
		if err != nil {
			return nil, fmt.Errorf("load certificate: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{cert}}
	}
	for _, target := range config.Targets {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.close()
			return nil, err
		}
		if secure != nil {
			l = tls.NewListener(l, secure)
		}
		r.listeners = append(r.listeners, l)
		r.workers.Go(func() { r.accept(ctx, l, target) })
	}
	context.AfterFunc(ctx, r.close)
	return r, nil
}

// Addresses are where the relay listens, in the order of the targets.
func (r *Relay) Addresses() []string {
	var addresses []string
	for _, l := range r.listeners {
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

// Wait returns when the context of Start has ended and every connection is closed.
func (r *Relay) Wait() { r.workers.Wait() }

func (r *Relay) close() {
	for _, l := range r.listeners {
		l.Close()
	}
}

func (r *Relay) accept(ctx context.Context, l net.Listener, target string) {
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		r.workers.Go(func() { r.serve(ctx, client, target) })
	}
}

func (r *Relay) serve(ctx context.Context, client net.Conn, target string) {
	defer client.Close()
	broker, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer broker.Close()
	defer context.AfterFunc(ctx, func() { client.Close(); broker.Close() })()
	done := make(chan struct{})
	go func() {
		r.pass(broker, client)
		broker.Close() // and so the other direction ends
		close(done)
	}()
	r.pass(client, broker)
	client.Close()
	<-done
}

func (r *Relay) pass(dst, src net.Conn) {
	if r.config.Mode == Splice {
		io.Copy(dst, src) // TCPConn.ReadFrom splices
		return
	}
	io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, copyBytes))
}
