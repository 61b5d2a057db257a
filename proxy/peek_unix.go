//go:build unix

package proxy

import (
	"net"

	"golang.org/x/sys/unix"
)

// peekClosed looks at the socket and takes nothing from it. An end behind bytes that nobody has read is seen where the system tells.
func peekClosed(conn *net.TCPConn) (gone bool, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return true, err
	}
	err = raw.Control(func(fd uintptr) {
		look := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | pollEnded}}
		if n, err := unix.Poll(look[:], 0); n == 0 && err == nil { // the usual case, and without an allocation
			return
		}
		if look[0].Revents&(pollEnded|unix.POLLHUP|unix.POLLERR) != 0 {
			gone = true
			return
		}
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			gone = n == 0
		case unix.EAGAIN, unix.EINTR:
		default:
			gone = true
		}
	})
	return gone, err
}
