package faultlink

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// echo answers what it is sent, on a free port of 127.0.0.1.
func echo(t *testing.T) (port int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func frame(key int16, client string, body int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(10+len(client)+body))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = append(b, 0, 9, 0, 0, 0, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(len(client)))
	b = append(b, client...)
	return append(b, bytes.Repeat([]byte{7}, body)...)
}

func dial(t *testing.T, port int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", "127.0.0.2:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func exchange(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	back := make([]byte, len(b))
	if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(b, back) {
		t.Fatalf("came back as %x, %v", back, err)
	}
}

func TestRelayPassesCountsDropsAndCuts(t *testing.T) {
	port := echo(t)
	r := Start(t, Config{From: "127.0.0.2", To: "127.0.0.1", First: port, Ports: 1})
	c := dial(t, port)
	exchange(t, c, append(frame(1, "reader", 40), frame(0, "writer", 100_000)...))
	exchange(t, c, frame(1, "reader", 0))
	counts := r.Counts()
	if counts[Call{"reader", 1}] != 2 || counts[Call{"writer", 0}] != 1 || len(counts) != 2 {
		t.Fatalf("counted %v", counts)
	}
	r.DropAnswers(true)
	if _, err := c.Write([]byte("lost")); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); r.DroppedBytes() < 4 && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
	if r.Cut() != 1 {
		t.Fatal("the connection was not known")
	}
	if n, err := c.Read(make([]byte, 10)); err == nil {
		t.Fatalf("read %d bytes after the cut", n)
	}
	if r.DroppedBytes() != 4 {
		t.Fatalf("dropped %d bytes, want 4", r.DroppedBytes())
	}
	r.DropAnswers(false)
	exchange(t, dial(t, port), []byte("again"))
}

// FuzzFrameCounter: no panic, and cutting the stream anywhere changes no count.
func FuzzFrameCounter(f *testing.F) {
	f.Add(append(frame(1, "reader", 4), frame(3, "", 0)...), 5)
	f.Add([]byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = max(0, min(cut, len(b)))
		count := func(parts ...[]byte) map[Call]int {
			counts := make(map[Call]int)
			c := frameCounter{count: func(call Call) { counts[call]++ }}
			for _, p := range parts {
				c.feed(p)
			}
			return counts
		}
		whole, parts := count(b), count(b[:cut], b[cut:])
		if len(whole) != len(parts) {
			t.Fatalf("whole %v, in parts %v", whole, parts)
		}
		for call, n := range whole {
			if parts[call] != n {
				t.Fatalf("whole %v, in parts %v", whole, parts)
			}
		}
	})
}
