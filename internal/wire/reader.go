package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
)

// maxPeek is the largest field that is shown as a view, in bytes: longer than any string of the old encoding. What is
// larger is copied or skipped as it passes.
const maxPeek = 64 << 10

// Reader reads one frame after the other from a connection, or one message from memory. Its invariants:
//
//  1. Bytes buf[pos:end] are read from src and not consumed; they may go beyond the current frame.
//  2. left counts the bytes of the current frame that are not consumed, buffered or not. Nothing beyond it is handed out.
//  3. After err is set nothing is consumed, but by Next after a deadline between frames.
type Reader struct {
	// Resume is called when a deadline passes inside a frame. True: it has set another, the read goes on where it was.
	// So one who interrupts a reader by a deadline does not cut a frame in two. If nil, or false: the deadline is an error.
	Resume func() bool

	src      io.Reader // nil: all there is lies in buf
	tcp      *net.TCPConn
	pool     *Pool
	home     *[BufferSize]byte // the pooled buffer; buf is another one while a field is larger
	buf      []byte
	pos, end int
	left     int
	err      error
	splice   splicer
	arrival  arrival
}

// NewReader reads from src, which stays the caller's. Close gives the buffer back.
func NewReader(src io.Reader, pool *Pool) *Reader {
	r := &Reader{src: src, pool: pool, home: pool.getFixed()}
	r.tcp, _ = src.(*net.TCPConn)
	r.buf = r.home[:]
	return r
}

// NewBytesReader reads the message b (without a length in front) where it lies.
func NewBytesReader(b []byte) *Reader {
	return &Reader{buf: b, end: len(b), left: len(b)}
}

// Reset makes a reader of NewBytesReader begin anew with b.
func (r *Reader) Reset(b []byte) { r.buf, r.pos, r.end, r.left, r.err = b, 0, len(b), len(b), nil }

// Close ends the use of the reader and gives its buffer back. The connection stays open.
func (r *Reader) Close() {
	if r.home != nil {
		r.pool.putFixed(r.home)
		r.home, r.buf, r.pos, r.end, r.left = nil, nil, 0, 0, 0
		r.fail(os.ErrClosed)
	}
}

// Err is the first error; it says that the source failed or that its bytes are not what they should be.
func (r *Reader) Err() error { return r.err }

// Remaining counts the bytes of the current frame that are not consumed.
func (r *Reader) Remaining() int { return r.left }

// Buffered counts the bytes that are read and not consumed, of this frame and the next. Between frames: more than 0 means
// that the next one has begun.
func (r *Reader) Buffered() int { return r.end - r.pos }

func (r *Reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// Next begins the next frame and returns its size, at most limit. The current one must be consumed. It is io.EOF if the
// connection ended between frames. After a deadline Next may be called again: no byte is lost.
func (r *Reader) Next(limit int) (size int, err error) {
	if r.left != 0 {
		panic(fmt.Sprintf("wire: next frame with %d bytes of this one left", r.left))
	}
	if errors.Is(r.err, os.ErrDeadlineExceeded) {
		r.err = nil
	}
	if r.err != nil {
		return 0, r.err
	}
	if !r.fill(lengthSize) {
		if r.err == io.ErrUnexpectedEOF && r.Buffered() == 0 {
			r.err = io.EOF
		}
		return 0, r.err
	}
	size, err = frameSize(r.buf[r.pos:r.pos+lengthSize], limit)
	if err != nil {
		r.fail(err)
		return 0, err
	}
	r.pos += lengthSize
	r.left = size
	return size, nil
}

// need makes the next n bytes of the frame lie in the buffer.
func (r *Reader) need(n int) bool {
	switch {
	case r.err != nil:
		return false
	case n > r.left:
		r.fail(errShort)
		return false
	case n <= r.end-r.pos:
		return true
	}
	return r.fill(n)
}

// fill reads until n bytes lie in the buffer, and as many more as come along.
func (r *Reader) fill(n int) bool {
	if r.src == nil {
		r.fail(errShort)
		return false
	}
	r.makeRoom(n)
	for r.end-r.pos < n {
		m, err := r.src.Read(r.buf[r.end:])
		r.end += m
		if err != nil && r.end-r.pos < n && !r.resume(err) {
			r.fail(readError(err))
			return false
		}
	}
	return true
}

// resume says whether err is a deadline inside a frame that the owner takes no notice of.
func (r *Reader) resume(err error) bool {
	return r.left > 0 && r.Resume != nil && errors.Is(err, os.ErrDeadlineExceeded) && r.Resume()
}

// readError: that the source ended is known to be early by whoever needs more. Next sees to the case between frames.
func readError(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// makeRoom moves what is buffered to the front of a buffer of at least n bytes.
func (r *Reader) makeRoom(n int) {
	switch {
	case r.pos == r.end:
		if len(r.buf) != len(r.home) { // a large field is over
			r.buf = r.home[:]
		}
		r.pos, r.end = 0, 0
	case r.pos+n > len(r.buf):
		r.end = copy(r.buf, r.buf[r.pos:r.end])
		r.pos = 0
	}
	if n > len(r.buf) {
		large := make([]byte, n)
		r.end = copy(large, r.buf[r.pos:r.end])
		r.pos, r.buf = 0, large
	}
}

// Peek shows the next n bytes and does not consume them. They may be changed in place, and CopyN then passes them on so:
// that is how the header of a record batch is rewritten on its way. (In memory this changes what NewBytesReader was given.)
func (r *Reader) Peek(n int) []byte {
	if n > maxPeek && r.src != nil {
		r.fail(fmt.Errorf("%w: a field of %d bytes, at most %d are read at once", ErrMalformed, n, maxPeek))
	}
	if !r.need(n) {
		return nil
	}
	return r.buf[r.pos : r.pos+n : r.pos+n]
}

// PeekUpTo shows the next n bytes, or all that are left of the frame if that is less.
func (r *Reader) PeekUpTo(n int) []byte { return r.Peek(min(n, r.left)) }

// take consumes n bytes that need has made available.
func (r *Reader) take(n int) []byte {
	b := r.buf[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	r.left -= n
	return b
}

// zeros is what integers are read from after an error.
var zeros [16]byte

func (r *Reader) fixed(n int) []byte {
	if !r.need(n) {
		return zeros[:n]
	}
	return r.take(n)
}

func (r *Reader) Int8() int8   { return int8(r.fixed(1)[0]) }
func (r *Reader) Int16() int16 { return int16(binary.BigEndian.Uint16(r.fixed(2))) }
func (r *Reader) Int32() int32 { return int32(binary.BigEndian.Uint32(r.fixed(4))) }
func (r *Reader) Int64() int64 { return int64(binary.BigEndian.Uint64(r.fixed(8))) }

// UUID reads 16 bytes, such as a topic id.
func (r *Reader) UUID() [16]byte { return [16]byte(r.fixed(16)) }

// Uvarint reads an unsigned varint of at most 32 bits.
func (r *Reader) Uvarint() uint32 {
	for n := 1; ; n++ {
		if !r.need(n) {
			return 0
		}
		if c := r.buf[r.pos+n-1]; c >= 0x80 && n < maxUvarint {
			continue
		}
		v, n, err := uvarint(r.buf[r.pos : r.pos+n])
		if err != nil {
			r.fail(err)
			return 0
		}
		r.take(n)
		return v
	}
}

// bytes reads n bytes as a view; nil for −1.
func (r *Reader) bytes(n int64) []byte {
	switch {
	case n == -1 || r.err != nil:
		return nil
	case n < 0 || n > int64(r.left):
		r.fail(errShort)
		return nil
	}
	if r.Peek(int(n)) == nil {
		return nil
	}
	return r.take(int(n))
}

// String reads a string with an int16 length. It is a view; nil for null.
func (r *Reader) String() []byte { return r.bytes(int64(r.Int16())) }

// CompactString reads a string with a varint length. It is a view; nil for null.
func (r *Reader) CompactString() []byte { return r.bytes(int64(r.Uvarint()) - 1) }

// ArrayLen reads an int32 count; −1 is null. A count above the bytes that are left is an error, so loops are bounded.
func (r *Reader) ArrayLen() int { return r.count(int64(r.Int32())) }

// CompactArrayLen reads a varint count; −1 is null. Bounded as by ArrayLen.
func (r *Reader) CompactArrayLen() int {
	n := r.Uvarint()
	if r.err != nil {
		return 0
	}
	return r.count(int64(n) - 1)
}

func (r *Reader) count(n int64) int {
	if r.err == nil && (n < -1 || n > int64(r.left)) {
		r.fail(fmt.Errorf("%w: %d elements in %d bytes", ErrMalformed, n, r.left))
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// Skip consumes n bytes unseen.
func (r *Reader) Skip(n int) {
	if n < 0 || n > r.left {
		r.fail(errShort)
	}
	for n > 0 && r.err == nil {
		if r.Buffered() == 0 && !r.fill(1) {
			return
		}
		m := min(n, r.Buffered())
		r.take(m)
		n -= m
	}
}

// SkipTags consumes tagged fields.
func (r *Reader) SkipTags() {
	for n := r.Uvarint(); n > 0 && r.err == nil; n-- {
		r.Uvarint()
		r.Skip(int(min(int64(r.Uvarint()), math.MaxInt32)))
	}
}

// Discard consumes the rest of the frame.
func (r *Reader) Discard() error {
	r.Skip(r.left)
	return r.err
}

// readStep bounds by how much a buffer grows at once, in bytes: a sender that announces more than it sends costs no more
// than twice what it sent, and this.
const readStep = 64 << 10

// ReadAll consumes the rest of the frame and appends it to dst, which grows as the bytes arrive.
func (r *Reader) ReadAll(dst []byte) ([]byte, error) {
	for r.left > 0 && r.err == nil {
		if n := min(r.left, r.Buffered()); n > 0 {
			dst = append(dst, r.take(n)...)
			continue
		}
		if r.src == nil {
			r.fail(errShort)
			break
		}
		if cap(dst) == len(dst) {
			dst = slices.Grow(dst, min(r.left, max(readStep, len(dst))))
		}
		room := min(r.left, cap(dst)-len(dst))
		n, err := r.src.Read(dst[len(dst) : len(dst)+room])
		dst = dst[:len(dst)+n]
		r.left -= n
		if err != nil && r.left > 0 && !r.resume(err) {
			r.fail(readError(err))
		}
	}
	return dst, r.err
}

// Await waits until the rest of the frame has come, read or in the kernel's buffer, and consumes nothing: then what is done
// with it waits for nobody. false: it has not all come, because the source is no plain TCP connection, the kernel cannot hold that
// much, or the other side ended; whoever reads it finds out. A deadline is an error, and sticks.
func (r *Reader) Await() (here bool, err error) {
	missing := r.left - r.Buffered()
	if missing <= 0 || r.err != nil || r.tcp == nil {
		return missing <= 0 && r.err == nil, r.err
	}
	if here, err = r.arrival.await(r.tcp, missing); err != nil {
		r.fail(err)
	}
	return here, r.err
}

// PeekAt shows len(dst) bytes of the frame, from the byte on that is at behind what is consumed, and consumes nothing. They must have
// come, see Await. nil: the kernel cannot show them.
func (r *Reader) PeekAt(dst []byte, at int) []byte {
	if r.err != nil || at < 0 || at+len(dst) > r.left {
		return nil
	}
	n := 0
	if at < r.Buffered() {
		n = copy(dst, r.buf[r.pos+at:r.end])
	}
	if n < len(dst) && (r.tcp == nil || !r.arrival.peek(r.tcp, dst[n:], at+n-r.Buffered())) {
		return nil
	}
	return dst
}

// RequestHeader shows the header of the current frame and consumes nothing: BodyOffset bytes of it may be copied or
// skipped. The client id is a view.
func (r *Reader) RequestHeader(h *Headers) (RequestHeader, error) {
	var out RequestHeader
	err := r.header(func(b []byte) (err error) {
		out, err = h.ParseRequest(b)
		return err
	})
	return out, err
}

// ResponseHeader shows the header of the current frame, an answer to the given key and version, and consumes nothing.
func (r *Reader) ResponseHeader(h *Headers, key, version int16) (ResponseHeader, error) {
	var out ResponseHeader
	err := r.header(func(b []byte) (err error) {
		out, err = h.ParseResponse(b, key, version)
		return err
	})
	return out, err
}

// header calls parse with more and more of the frame until it is enough.
func (r *Reader) header(parse func([]byte) error) error {
	for n := 256; ; n *= 8 {
		n = min(n, maxPeek)
		b := r.PeekUpTo(n)
		if r.err != nil {
			return r.err
		}
		err := parse(b)
		if err == nil {
			return nil
		}
		if err != errShort || len(b) == r.left || n == maxPeek {
			r.fail(err)
			return err
		}
	}
}
