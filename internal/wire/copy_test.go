package wire

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// relay copies frames from in to out, each through the given head of fields and then as one run.
func relay(in, out net.Conn, pool *Pool, frames int) error {
	r, w := NewReader(in, pool), NewWriter(out, pool)
	defer r.Close()
	defer w.Close()
	for range frames {
		n, err := r.Next(1 << 30)
		if err != nil {
			return err
		}
		w.Begin(n)
		t := Tee{r, w}
		t.Int32()
		t.Bytes(r.Remaining())
		if err := errors.Join(r.Err(), w.End(), w.Flush()); err != nil {
			return err
		}
	}
	return nil
}

var relaySizes = []int{4, 5, 1000, BufferSize, SpliceThreshold, SpliceThreshold + BufferSize + 3, 1 << 20, 7, 5<<20 + 11, 4}

func checkRelay(t *testing.T, broker, in, out, client net.Conn) {
	t.Helper()
	var pool Pool
	defer pool.Close()
	var all []byte
	for _, n := range relaySizes {
		all = AppendFrame(all, noise(n))
	}
	send(t, broker, all)
	result := make(chan error, 1)
	go func() { result <- relay(in, out, &pool, len(relaySizes)) }()
	mustSame(t, mustRead(t, client, len(all)), all)
	must(t, <-result)
}

func TestCopySplicesExactlyTheFramesBytes(t *testing.T) {
	broker, in := tcpPair(t)
	out, client := tcpPair(t)
	checkRelay(t, broker, in, out, client)
}

func TestCopyBetweenOtherConnectionsFallsBack(t *testing.T) {
	broker, in := net.Pipe()
	out, client := net.Pipe()
	t.Cleanup(func() { in.Close(); client.Close(); out.Close() })
	checkRelay(t, broker, in, out, client)
}

func TestCopyFromTLSToTLS(t *testing.T) {
	config := tlsConfig(t)
	a, b := tcpPair(t)
	c, d := tcpPair(t)
	checkRelay(t, tls.Client(a, config), tls.Server(b, config), tls.Server(c, config), tls.Client(d, config))
}

func TestCopyFromPlainToTLS(t *testing.T) {
	config := tlsConfig(t)
	a, b := tcpPair(t)
	c, d := tcpPair(t)
	checkRelay(t, a, b, tls.Server(c, config), tls.Client(d, config))
}

func tlsConfig(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: roots, ServerName: "localhost",
	}
}

// A client that goes away in the middle of a large answer must not cost the link the answers behind it.
func TestALinkGoesOnAfterItsClientIsGone(t *testing.T) {
	for name, closeClient := range map[string]func(*net.TCPConn){
		"closed": func(c *net.TCPConn) { c.Close() },
		"reset":  func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			broker, in := tcpPair(t)
			out, client := tcpPair(t)
			var pool Pool
			defer pool.Close()
			large, after := noise(20<<20), noise(100)
			send(t, broker, AppendFrame(AppendFrame(nil, large), after))
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				_, _ = io.CopyN(io.Discard, client, 1<<20)
				closeClient(client)
			}()
			r, w := NewReader(in, &pool), NewWriter(out, &pool)
			n, err := r.Next(1 << 30)
			must(t, err)
			w.Begin(n)
			err = r.CopyN(w, n)
			<-gone
			if err == nil || w.Err() == nil || r.Err() != nil {
				t.Fatalf("the fault is on the wrong side: %v, reader %v, writer %v", err, r.Err(), w.Err())
			}
			must(t, r.Discard())
			if _, err = r.Next(1 << 30); err != nil {
				t.Fatal(err)
			}
			got, err := r.ReadAll(nil)
			must(t, err)
			mustSame(t, got, after)
		})
	}
}

func TestABrokerThatDiesInAnAnswerIsTheReadersFault(t *testing.T) {
	broker, in := tcpPair(t)
	out, client := tcpPair(t)
	var pool Pool
	defer pool.Close()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	go func() {
		_, _ = broker.Write(AppendFrame(nil, noise(1<<20))[:300_000])
		broker.Close()
	}()
	r, w := NewReader(in, &pool), NewWriter(out, &pool)
	n, err := r.Next(1 << 30)
	must(t, err)
	w.Begin(n)
	if err := r.CopyN(w, n); err != io.ErrUnexpectedEOF || r.Err() != err || w.Err() != nil {
		t.Fatal(err, r.Err(), w.Err())
	}
}

func TestWhatIsChangedInPlaceIsPassedOn(t *testing.T) {
	for _, n := range []int{100, 300_000} {
		broker, in := tcpPair(t)
		out, client := tcpPair(t)
		want := noise(n)
		send(t, broker, AppendFrame(nil, want))
		r, w := NewReader(in, new(Pool)), NewWriter(out, new(Pool))
		_, err := r.Next(1 << 30)
		must(t, err)
		result := make(chan error, 1)
		go func() {
			r.Skip(3)
			copy(r.Peek(61), "patched")
			result <- errors.Join(r.CopyN(w, r.Remaining()), w.Flush())
		}()
		copy(want[3:], "patched")
		mustSame(t, mustRead(t, client, n-3), want[3:])
		must(t, <-result)
	}
}

func TestCopyOfMoreThanTheFrameHasRoomForWritesNothing(t *testing.T) {
	broker, in := tcpPair(t)
	out, _ := tcpPair(t)
	send(t, broker, AppendFrame(nil, noise(1<<20)))
	r, w := NewReader(in, new(Pool)), NewWriter(out, new(Pool))
	n, err := r.Next(1 << 30)
	must(t, err)
	w.Begin(n - 1)
	if err := r.CopyN(w, n); err == nil || w.Err() == nil || r.Err() != nil {
		t.Fatal(err, r.Err(), w.Err())
	}
}

// C21 (e): connections leave nothing behind.
func TestDescriptorsAreBackAfterManySplices(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc")
		}
		return len(entries)
	}
	before := count()
	var pool Pool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				broker, in := tcpPair(t)
				out, client := tcpPair(t)
				go func() { _, _ = broker.Write(AppendFrame(nil, noise(300_000))) }()
				go func() { _, _ = io.Copy(io.Discard, client) }()
				if err := relay(in, out, &pool, 1); err != nil {
					t.Error(err)
				}
				for _, c := range []net.Conn{broker, in, out, client} {
					c.Close()
				}
			}
		})
	}
	wg.Wait()
	pool.Close()
	if after := count(); after > before {
		t.Fatalf("%d descriptors before, %d after", before, after)
	}
}

// loop is a source without end of one frame.
type loop struct {
	frame []byte
	at    int
}

func (l *loop) Read(p []byte) (int, error) {
	n := copy(p, l.frame[l.at:])
	l.at = (l.at + n) % len(l.frame)
	return n, nil
}

func TestWalkingAllocatesNothing(t *testing.T) {
	var pool Pool
	h := NewHeaders()
	request := h.AppendRequestHeader(nil, 1, 12, 5, []byte("client"))
	request = append(request, noise(3*BufferSize)...)
	r, w := NewReader(&loop{frame: AppendFrame(nil, request)}, &pool), NewWriter(io.Discard, &pool)
	if n := testing.AllocsPerRun(200, func() {
		n, _ := r.Next(1 << 20)
		head, err := r.RequestHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		w.Begin(n)
		tee := Tee{r, w}
		tee.Bytes(head.BodyOffset)
		tee.Int64()
		w.PutInt64(r.Int64() + 1)
		w.PutUvarint(0)
		r.Skip(1)
		tee.Bytes(r.Remaining())
		if err := w.End(); err != nil {
			t.Fatal(err)
		}
		_ = w.Flush()
	}); n > 0.5 { // a garbage collection may empty the pool
		t.Fatalf("%v allocations per frame", n)
	}
}

func TestSplicingAllocatesNothing(t *testing.T) {
	broker, in := tcpPair(t)
	out, client := tcpPair(t)
	frame := AppendFrame(nil, noise(300_000))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := broker.Write(frame); err != nil {
				return
			}
		}
	})
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			if _, err := client.Read(buf); err != nil {
				return
			}
		}
	})
	defer func() { broker.Close(); in.Close(); client.Close(); wg.Wait() }()
	var pool Pool
	defer pool.Close()
	r, w := NewReader(in, &pool), NewWriter(out, &pool)
	if n := testing.AllocsPerRun(50, func() {
		n, err := r.Next(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		w.Begin(n)
		if err := errors.Join(r.CopyN(w, n), w.End(), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}); n > 0.5 {
		t.Fatalf("%v allocations per frame", n)
	}
}

func BenchmarkRelay(b *testing.B) {
	for name, size := range map[string]int{"1KiB": 1 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			broker, in := tcpPair(b)
			out, client := tcpPair(b)
			for _, c := range []net.Conn{broker, in, out, client} {
				_ = c.SetDeadline(time.Time{})
			}
			frame := AppendFrame(nil, noise(size))
			var pool Pool
			defer pool.Close()
			go func() { _, _ = io.Copy(io.Discard, client) }()
			send(b, broker, bytes.Repeat(frame, 1+b.N))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			if err := relay(in, out, &pool, b.N); err != nil {
				b.Fatal(err)
			}
		})
	}
}
