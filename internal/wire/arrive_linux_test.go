package wire

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What was awaited lies in the kernel, as a whole, and nothing of it is consumed. The kernel's buffer grows with use, so a young
// connection may not hold a large frame; one that is used does.
func TestAFrameIsAwaitedInTheKernel(t *testing.T) {
	var pool Pool
	defer pool.Close()
	client, in := tcpPair(t)
	r := NewReader(in, &pool)
	for _, size := range []int{1, 300 << 10, BufferSize, 1 << 20, 100 << 10} {
		frame, awaited := noise(size), 0
		for round := 0; awaited < 3; round++ {
			if round == 500 {
				t.Fatalf("%d bytes were never here as a whole", size)
			}
			send := make(chan struct{})
			go func() { // in two parts, so that there is something to wait for
				defer close(send)
				whole := AppendFrame(nil, frame)
				_, _ = client.Write(whole[:4+size/2])
				_, _ = client.Write(whole[4+size/2:])
			}()
			n, err := r.Next(4 << 20)
			must(t, err)
			here, err := r.Await()
			must(t, err)
			if r.Remaining() != n {
				t.Fatalf("%d of %d bytes are left", r.Remaining(), n)
			}
			if here {
				awaited++
			}
			if here && r.Buffered() < n {
				if in, err := r.arrival.inKernel(); err != nil || in+r.Buffered() < n {
					t.Fatalf("%d bytes in the kernel and %d buffered of %d: %v", in, r.Buffered(), n, err)
				}
			}
			got, err := r.ReadAll(nil)
			must(t, err)
			mustSame(t, got, frame)
			<-send
		}
	}
}

func TestAFrameThatDoesNotComeIsNotAwaited(t *testing.T) {
	var pool Pool
	defer pool.Close()
	began := func(t *testing.T) (client, in *net.TCPConn, r *Reader) {
		client, in = tcpPair(t)
		send(t, client, AppendFrame(nil, noise(30<<10))[:15<<10])
		r = NewReader(in, &pool)
		_, err := r.Next(1 << 20)
		must(t, err)
		return client, in, r
	}
	t.Run("the other side ends", func(t *testing.T) {
		client, _, r := began(t)
		must(t, client.CloseWrite())
		if here, err := r.Await(); here || err != nil {
			t.Fatal(here, err)
		}
		if _, err := r.ReadAll(nil); err == nil {
			t.Fatal("half a frame was read as a whole one")
		}
	})
	t.Run("the time is over", func(t *testing.T) {
		_, in, r := began(t)
		must(t, in.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		if here, err := r.Await(); here || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(here, err)
		}
		if low, err := r.arrival.lowWater(); err != nil || low != 1 {
			t.Fatalf("the socket waits for %d bytes (%v)", low, err)
		}
	})
	t.Run("no socket", func(t *testing.T) {
		client, in := net.Pipe()
		t.Cleanup(func() { in.Close() })
		send(t, client, AppendFrame(nil, noise(200<<10)))
		r := NewReader(in, &pool)
		_, err := r.Next(1 << 20)
		must(t, err)
		if here, err := r.Await(); here || err != nil {
			t.Fatal(here, err)
		}
	})
}

func (a *arrival) inKernel() (n int, err error) {
	controlErr := a.conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if controlErr != nil {
		err = controlErr
	}
	return n, err
}

func (a *arrival) lowWater() (n int, err error) {
	controlErr := a.conn.Control(func(fd uintptr) { n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT) })
	if controlErr != nil {
		err = controlErr
	}
	return n, err
}
