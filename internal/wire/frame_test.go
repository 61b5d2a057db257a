package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestFramesArriveWholeHoweverTheBytesCome(t *testing.T) {
	var all []byte
	sizes := []int{0, 1, 3, 100, BufferSize - 4, BufferSize, BufferSize + 1, 3*BufferSize + 7, 200_000, 5}
	for _, n := range sizes {
		all = AppendFrame(all, noise(n))
	}
	for name, src := range map[string]io.Reader{
		"at once": bytes.NewReader(all), "byte by byte": iotest.OneByteReader(bytes.NewReader(all)),
		"halves": iotest.HalfReader(bytes.NewReader(all)), "error with data": iotest.DataErrReader(bytes.NewReader(all)),
	} {
		var pool Pool
		r := NewReader(src, &pool)
		for _, want := range sizes {
			n, err := r.Next(1 << 20)
			if err != nil || n != want || r.Remaining() != want {
				t.Fatalf("%s: %d, %v", name, n, err)
			}
			got, err := r.ReadAll(nil)
			must(t, err)
			mustSame(t, got, noise(n))
		}
		if _, err := r.Next(1 << 20); err != io.EOF {
			t.Fatalf("%s: at the end: %v", name, err)
		}
		r.Close()
	}
}

func TestAFrameCutOffIsNotTheEnd(t *testing.T) {
	all := AppendFrame(nil, noise(50))
	for cut := 1; cut < len(all); cut++ {
		r := NewReader(bytes.NewReader(all[:cut]), new(Pool))
		_, err := r.Next(100)
		if err == nil {
			_, err = r.ReadAll(nil)
		}
		if err != io.ErrUnexpectedEOF {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

// C21 (a): what is not Kafka is told apart, and nothing is allocated for it.
func TestLengthsAboveTheLimitAreRefusedByWhatTheyLookLike(t *testing.T) {
	for head, want := range map[string]error{
		"\x16\x03\x01\x02":    ErrTLS,
		"\x16\x03\x03\x00":    ErrTLS,
		"\x15\x03\x03\x00":    ErrTLS,
		"GET /":               ErrHTTP,
		"POST ":               ErrHTTP,
		"HTTP/1.1 400":        ErrHTTP,
		"\x00\x01\x00\x01":    ErrFrameTooLarge,
		"\x7f\xff\xff\xff":    ErrFrameTooLarge,
		"\xff\xff\xff\xff":    ErrFrameTooLarge,
		"\x80\x00\x00\x00...": ErrFrameTooLarge,
	} {
		r := NewReader(strings.NewReader(head), new(Pool))
		_, err := r.Next(1 << 16)
		if !errors.Is(err, want) {
			t.Errorf("%q: %v", head, err)
		}
		if _, again := r.Next(1 << 16); again != err {
			t.Errorf("%q: the second time %v", head, again)
		}
	}
	if _, err := NewReader(strings.NewReader("\x00\x01\x00\x00"), new(Pool)).Next(1 << 16); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	_, err := NewReader(strings.NewReader("\x00\x01\x00\x01"), new(Pool)).Next(1 << 16)
	if !strings.Contains(err.Error(), "65537") || !strings.Contains(err.Error(), "65536") {
		t.Errorf("the error names neither size nor limit: %v", err)
	}
}

func TestALiarCostsNoMoreThanWhatItSends(t *testing.T) {
	head := binary.BigEndian.AppendUint32(nil, 900<<20)
	r := NewReader(io.MultiReader(bytes.NewReader(head), bytes.NewReader(noise(200_000))), new(Pool))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := r.Next(1 << 30)
	must(t, err)
	got, err := r.ReadAll(nil)
	runtime.ReadMemStats(&after)
	if err != io.ErrUnexpectedEOF || len(got) != 200_000 {
		t.Fatal(len(got), err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
		t.Fatalf("%d bytes allocated", grown)
	}
}

func TestNextMayBeTriedAgainAfterADeadline(t *testing.T) {
	client, server := tcpPair(t)
	r := NewReader(server, new(Pool))
	for i := range 3 {
		must(t, server.SetReadDeadline(time.Now().Add(-time.Second)))
		if _, err := r.Next(100); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		must(t, server.SetReadDeadline(time.Now().Add(10*time.Second)))
		frame := AppendFrame(nil, noise(40+i))
		if _, err := client.Write(frame); err != nil {
			t.Fatal(err)
		}
		n, err := r.Next(100)
		must(t, err)
		got, err := r.ReadAll(nil)
		must(t, err)
		mustSame(t, got, noise(n))
	}
}

func TestADeadlineInsideAFrameAsksItsOwner(t *testing.T) {
	for name, walk := range map[string]func(*Reader, *Writer) error{
		"fields":  func(r *Reader, _ *Writer) error { r.Int64(); r.Skip(r.Remaining()); return r.Err() },
		"whole":   func(r *Reader, _ *Writer) error { _, err := r.ReadAll(nil); return err },
		"spliced": func(r *Reader, w *Writer) error { return r.CopyN(w, r.Remaining()) },
	} {
		t.Run(name, func(t *testing.T) {
			broker, in := tcpPair(t)
			out, client := tcpPair(t)
			message := noise(500_000)
			r, w := NewReader(in, new(Pool)), NewWriter(out, new(Pool))
			go func() { _, _ = io.Copy(io.Discard, client) }()
			if _, err := broker.Write(AppendFrame(nil, message)[:100_000]); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Next(1 << 20); err != nil {
				t.Fatal(err)
			}
			asked := 0
			r.Resume = func() bool {
				if asked++; asked == 1 {
					_, err := broker.Write(message[100_000-4:])
					must(t, err)
				}
				return in.SetReadDeadline(time.Now().Add(10*time.Second)) == nil
			}
			must(t, in.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
			must(t, walk(r, w))
			if asked == 0 || r.Remaining() != 0 {
				t.Fatal("not asked, or not done")
			}

			if _, err := broker.Write(AppendFrame(nil, message)[:1000]); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Next(1 << 20); err != nil {
				t.Fatal(err)
			}
			r.Resume = func() bool { return false }
			must(t, in.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
			if err := walk(r, w); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		})
	}
}

func TestNextWithAFrameHalfReadIsABug(t *testing.T) {
	r := NewReader(bytes.NewReader(AppendFrame(nil, noise(10))), new(Pool))
	_, err := r.Next(10)
	must(t, err)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	_, _ = r.Next(10)
}

func TestBuffersComeBackEmptyAndNotTooLarge(t *testing.T) {
	var pool Pool
	b := pool.Get()
	b.B = append(b.B, noise(maxKeptBytes+1)...)
	b.Release()
	c := pool.Get()
	if len(c.B) != 0 || cap(c.B) > maxKeptBytes {
		t.Fatal(len(c.B), cap(c.B))
	}
	c.Release()
}
