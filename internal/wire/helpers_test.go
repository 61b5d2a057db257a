package wire

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// tcpPair is two ends of a connection over loopback.
func tcpPair(t testing.TB) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	deadline := time.Now().Add(20 * time.Second)
	_ = dialed.SetDeadline(deadline)
	_ = accepted.SetDeadline(deadline)
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = rng.Read(b)
	return b
}

// send writes all of b in the background; the error, if any, shows on the other side.
func send(t testing.TB, c net.Conn, b []byte) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = c.Write(b)
	}()
	t.Cleanup(func() { c.Close(); <-done })
}

func mustRead(t testing.TB, r io.Reader, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		t.Fatal(err)
	}
	return b
}

func mustSame(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		n := 0
		for n < min(len(got), len(want)) && got[n] == want[n] {
			n++
		}
		t.Fatalf("%d bytes, want %d; the first difference is at %d", len(got), len(want), n)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
