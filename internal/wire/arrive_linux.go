package wire

import (
	"errors"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arrival is the state of a wait in the kernel. It lives in a Reader, so that its callbacks are made once.
type arrival struct {
	conn       syscall.RawConn
	tcp        *net.TCPConn // of conn
	want       int          // bytes
	here       bool         // of one wait
	marked     bool         // SO_RCVLOWAT is want
	err        error        // of one wait
	look       func(fd uintptr) bool
	wipe, show func(fd uintptr)

	dst  []byte // of one look
	from int
	all  bool // dst is filled
}

// bind gets hold of the descriptor, once.
func (a *arrival) bind(tcp *net.TCPConn) (err error) {
	if a.tcp == tcp {
		return nil
	}
	if a.conn, err = tcp.SyscallConn(); err != nil {
		return err
	}
	a.tcp = tcp
	a.look = a.looked
	a.wipe = func(fd uintptr) { a.mark(int(fd), 1) }
	a.show = a.shown
	return nil
}

// await waits until want bytes lie in the socket's buffer. The kernel wakes us when they do, not before (SO_RCVLOWAT), and makes
// the buffer large enough, up to half of tcp_rmem's maximum. false: they will not come, or cannot all lie there.
func (a *arrival) await(tcp *net.TCPConn, want int) (here bool, err error) {
	if err := a.bind(tcp); err != nil {
		return false, err
	}
	a.want, a.here, a.err = want, false, nil
	err = a.conn.Read(a.look)
	if a.marked { // also after a deadline
		a.marked = false
		err = errors.Join(err, a.conn.Control(a.wipe))
	}
	if err == nil {
		err = a.err
	}
	return a.here, err
}

// looked says whether the wait is over.
func (a *arrival) looked(fd uintptr) bool {
	if a.count(int(fd)) {
		return true
	}
	if !a.marked {
		a.mark(int(fd), a.want)
		a.marked = true
	}
	// A wake-up may be of an arrival before the mark. What poll says is of now: with the mark it is silent unless all is
	// there, the other side has ended, or the kernel cannot hold more.
	state := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	if n, err := unix.Poll(state[:], 0); n == 0 && err == nil {
		return false
	}
	a.count(int(fd))
	return true
}

func (a *arrival) count(fd int) bool {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		a.err = os.NewSyscallError("ioctl", err)
		return true
	}
	a.here = n >= a.want
	return a.here
}

func (a *arrival) mark(fd, bytes int) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes); err != nil && a.err == nil {
		a.err = os.NewSyscallError("setsockopt", err)
	}
}

// peek fills dst with what lies in the socket's buffer, from byte from on (SO_PEEK_OFF, for TCP since Linux 6.9). It does not wait.
func (a *arrival) peek(tcp *net.TCPConn, dst []byte, from int) bool {
	if a.bind(tcp) != nil {
		return false
	}
	a.dst, a.from, a.all = dst, from, false
	err := a.conn.Control(a.show)
	a.dst = nil
	return err == nil && a.all
}

func (a *arrival) shown(fd uintptr) {
	if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEEK_OFF, a.from) != nil {
		return
	}
	// unix.Recvfrom would allocate the sender's address.
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&a.dst[0])), uintptr(len(a.dst)), unix.MSG_PEEK|unix.MSG_DONTWAIT, 0, 0)
	off := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEEK_OFF, -1) // else others that peek would look elsewhere
	a.all = errno == 0 && int(n) == len(a.dst) && off == nil
}
