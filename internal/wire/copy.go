package wire

// SpliceThreshold is the least number of bytes, beyond what is buffered, for which the kernel moves them from connection
// to connection. Below it the system calls cost more than the copy.
const SpliceThreshold = 64 << 10

// CopyN moves the next n bytes of the frame to w, unseen. The first error is returned; it is r's or w's, where it sticks.
// If w fails, what was taken from r is counted all the same: r can Discard the rest of its frame and go on.
func (r *Reader) CopyN(w *Writer, n int) error {
	if n < 0 || n > r.left {
		r.fail(errShort)
	}
	for n > 0 && r.err == nil && w.err == nil {
		if r.Buffered() == 0 {
			if n >= SpliceThreshold && r.tcp != nil && w.tcp != nil {
				return r.spliceN(w, n)
			}
			if !r.fill(1) {
				break
			}
		}
		m := min(n, r.Buffered())
		w.put(r.take(m))
		n -= m
	}
	if r.err != nil {
		return r.err
	}
	return w.err
}

// spliceN moves n bytes of the frame from socket to socket; nothing is buffered in r.
func (r *Reader) spliceN(w *Writer, n int) error {
	if !w.reserve(n) || w.Flush() != nil {
		return w.err
	}
	for n > 0 {
		taken, readErr, writeErr := r.splice.move(r.pool, r.tcp, w.tcp, n)
		r.left -= taken
		n -= taken
		switch {
		case writeErr != nil:
			w.fail(writeErr)
			return writeErr
		case readErr != nil && !r.resume(readErr):
			r.fail(readError(readErr))
			return r.err
		}
	}
	return nil
}
