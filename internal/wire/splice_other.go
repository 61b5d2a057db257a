//go:build !linux

package wire

import (
	"io"
	"net"
)

type pipePool struct{}

func (*pipePool) close() {}

// splicer copies, where the kernel has no splice.
type splicer struct{ buf []byte }

func (s *splicer) move(_ *Pool, src, dst *net.TCPConn, n int) (taken int, readErr, writeErr error) {
	if s.buf == nil {
		s.buf = make([]byte, 4*BufferSize)
	}
	for taken < n {
		m, err := src.Read(s.buf[:min(len(s.buf), n-taken)])
		taken += m
		if _, writeErr = dst.Write(s.buf[:m]); writeErr != nil {
			return taken, nil, writeErr
		}
		if err == io.EOF && taken == n {
			err = nil
		}
		if err != nil {
			return taken, err, nil
		}
	}
	return taken, nil, nil
}
