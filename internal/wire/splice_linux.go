package wire

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel moves bytes from socket to pipe to socket. net.TCPConn.ReadFrom does so too, but after an error it tells
// neither which side failed nor how much was taken from the source, and a link must outlive a client that is gone.

const (
	pipeBytes    = 1 << 20 // the most that an unprivileged process may ask for
	maxIdlePipes = 64
	spliceFlags  = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
)

type pipe struct{ r, w int }

func (p *pipe) close() {
	_ = unix.Close(p.r)
	_ = unix.Close(p.w)
}

// pipePool keeps empty pipes.
type pipePool struct {
	mu   sync.Mutex // guards idle
	idle []*pipe
}

func (pp *pipePool) get() (*pipe, error) {
	pp.mu.Lock()
	if n := len(pp.idle); n > 0 {
		p := pp.idle[n-1]
		pp.idle = pp.idle[:n-1]
		pp.mu.Unlock()
		return p, nil
	}
	pp.mu.Unlock()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	p := &pipe{r: fds[0], w: fds[1]}
	_, _ = unix.FcntlInt(uintptr(p.w), unix.F_SETPIPE_SZ, pipeBytes) // a smaller pipe works too
	return p, nil
}

func (pp *pipePool) put(p *pipe) {
	pp.mu.Lock()
	keep := len(pp.idle) < maxIdlePipes
	if keep {
		pp.idle = append(pp.idle, p)
	}
	pp.mu.Unlock()
	if !keep {
		p.close()
	}
}

func (pp *pipePool) close() {
	pp.mu.Lock()
	idle := pp.idle
	pp.idle = nil
	pp.mu.Unlock()
	for _, p := range idle {
		p.close()
	}
}

// splicer is the state of a move between two sockets. It lives in a Reader, so that its callbacks are made once.
type splicer struct {
	src, dst       syscall.RawConn
	srcTCP, dstTCP *net.TCPConn // of src and dst
	pipe           *pipe
	want, got      int   // of one call
	err            error // of one call
	fill, drain    func(fd uintptr) bool
}

// move takes n bytes from src and gives them to dst. taken counts what has left src, also if dst did not get all of it.
func (s *splicer) move(pool *Pool, src, dst *net.TCPConn, n int) (taken int, readErr, writeErr error) {
	if readErr, writeErr = s.bind(src, dst); readErr != nil || writeErr != nil {
		return 0, readErr, writeErr
	}
	if s.pipe, readErr = pool.pipes.get(); readErr != nil {
		return 0, readErr, nil
	}
	inPipe := 0
	defer func() {
		if inPipe == 0 {
			pool.pipes.put(s.pipe)
		} else {
			s.pipe.close()
		}
		s.pipe = nil
	}()
	for taken < n {
		s.want = min(n-taken, pipeBytes)
		if readErr = s.call(s.src.Read, s.fill); readErr != nil {
			return taken, readErr, nil
		}
		if s.got == 0 {
			return taken, io.EOF, nil
		}
		taken += s.got
		for inPipe = s.got; inPipe > 0; inPipe -= s.got {
			s.want = inPipe
			if writeErr = s.call(s.dst.Write, s.drain); writeErr != nil {
				return taken, nil, writeErr
			}
		}
	}
	return taken, nil, nil
}

// bind gets hold of the descriptors, once per pair of connections.
func (s *splicer) bind(src, dst *net.TCPConn) (readErr, writeErr error) {
	if s.fill == nil {
		s.fill = func(fd uintptr) bool { return s.step(int(fd), s.pipe.w) }
		s.drain = func(fd uintptr) bool { return s.step(s.pipe.r, int(fd)) }
	}
	if s.srcTCP != src {
		if s.src, readErr = src.SyscallConn(); readErr != nil {
			return readErr, nil
		}
		s.srcTCP = src
	}
	if s.dstTCP != dst {
		if s.dst, writeErr = dst.SyscallConn(); writeErr != nil {
			return nil, writeErr
		}
		s.dstTCP = dst
	}
	return nil, nil
}

// call waits with the runtime's poller (so deadlines count) and runs step until it is done.
func (s *splicer) call(wait func(func(uintptr) bool) error, step func(uintptr) bool) error {
	s.got, s.err = 0, nil
	if err := wait(step); err != nil {
		return err
	}
	return s.err
}

// step splices once; false means: not ready, wait. The pipe is empty before it is filled and holds want when it is
// drained, so only the socket can be what is not ready.
func (s *splicer) step(from, to int) (done bool) {
	for {
		n, err := unix.Splice(from, nil, to, nil, s.want, spliceFlags)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.err = os.NewSyscallError("splice", err)
		default:
			s.got = int(n)
		}
		return true
	}
}
