package relay

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"testing"
	"time"
)

func TestBytesPassUnchangedBothWays(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { echo.Close() })
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	for _, mode := range []Mode{Splice, Copy} {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := Start(ctx, Config{Mode: mode, Targets: []string{echo.Addr().String()}})
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, r.Addresses()[0])
		cancel()
		r.Wait()
	}
}

func roundTrip(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	sent := make([]byte, 3<<20)
	rand.Read(sent)
	go c.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatal("other bytes came back")
	}
}
