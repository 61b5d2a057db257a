package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
)

// Writer gathers what is put into it and writes it to a connection. Its invariants:
//
//  1. buf is not written yet; it is nil while there is nothing, so an idle writer holds no memory.
//  2. Between Begin and End room counts the bytes that the frame may still take; more is refused before it is buffered, so
//     a frame never says another length than it has. Outside a frame room is −1.
//  3. After err is set nothing is written.
type Writer struct {
	dst  io.Writer
	tcp  *net.TCPConn
	pool *Pool
	home *[BufferSize]byte
	buf  []byte
	room int
	err  error
	vec  [2][]byte
	bufs net.Buffers // of vec; kept here so that it does not escape to the heap at each use
}

// NewWriter writes to dst, which stays the caller's.
func NewWriter(dst io.Writer, pool *Pool) *Writer {
	w := &Writer{dst: dst, pool: pool, room: -1}
	w.tcp, _ = dst.(*net.TCPConn)
	return w
}

// Err is the first error; it says that the destination failed, or that a frame and its length do not agree.
func (w *Writer) Err() error { return w.err }

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
		w.release()
	}
}

// Close drops what is not flushed and gives the buffer back. The connection stays open.
func (w *Writer) Close() { w.fail(net.ErrClosed) }

func (w *Writer) release() {
	if w.home != nil {
		w.pool.putFixed(w.home)
		w.home, w.buf = nil, nil
	}
}

// Begin writes the length of a frame of size bytes, which must follow before End.
func (w *Writer) Begin(size int) {
	if w.room >= 0 {
		w.fail(fmt.Errorf("wire: a frame begins with %d bytes of another one missing", w.room))
		return
	}
	w.PutInt32(int32(size))
	w.room = size
}

// End ends a frame. It does not flush.
func (w *Writer) End() error {
	if w.err == nil && w.room != 0 {
		w.fail(fmt.Errorf("wire: %d bytes are missing at the end of a frame", w.room))
	}
	w.room = -1
	return w.err
}

// reserve accounts for n bytes.
func (w *Writer) reserve(n int) bool {
	if w.err != nil {
		return false
	}
	if w.room >= 0 {
		if n > w.room {
			w.fail(fmt.Errorf("wire: %d bytes for a frame with room for %d", n, w.room))
			return false
		}
		w.room -= n
	}
	return true
}

// next returns the place for n bytes (at most BufferSize), or a place that leads nowhere after an error.
func (w *Writer) next(n int) []byte {
	if !w.reserve(n) || len(w.buf)+n > BufferSize && w.Flush() != nil {
		return make([]byte, n) // not written, never read
	}
	if w.home == nil {
		w.home = w.pool.getFixed()
		w.buf = w.home[:0]
	}
	at := len(w.buf)
	w.buf = w.buf[:at+n]
	return w.buf[at:]
}

func (w *Writer) PutInt8(v int8)   { w.next(1)[0] = byte(v) }
func (w *Writer) PutInt16(v int16) { binary.BigEndian.PutUint16(w.next(2), uint16(v)) }
func (w *Writer) PutInt32(v int32) { binary.BigEndian.PutUint32(w.next(4), uint32(v)) }
func (w *Writer) PutInt64(v int64) { binary.BigEndian.PutUint64(w.next(8), uint64(v)) }

// PutUUID writes 16 bytes.
func (w *Writer) PutUUID(v [16]byte) { copy(w.next(16), v[:]) }

// UvarintSize is the length in bytes of v as an unsigned varint.
func UvarintSize(v uint32) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// PutUvarint writes an unsigned varint.
func (w *Writer) PutUvarint(v uint32) {
	binary.PutUvarint(w.next(UvarintSize(v)), uint64(v))
}

// PutString writes a string with an int16 length; nil is null.
func (w *Writer) PutString(b []byte) {
	if b == nil {
		w.PutInt16(-1)
		return
	}
	if len(b) > 1<<15-1 {
		w.fail(fmt.Errorf("wire: a string of %d bytes does not fit its length", len(b)))
		return
	}
	w.PutInt16(int16(len(b)))
	w.put(b)
}

// PutCompactString writes a string with a varint length; nil is null.
func (w *Writer) PutCompactString(b []byte) {
	if b == nil {
		w.PutUvarint(0)
		return
	}
	w.PutUvarint(uint32(len(b)) + 1)
	w.put(b)
}

// PutArrayLen writes an int32 count; −1 is null.
func (w *Writer) PutArrayLen(n int) { w.PutInt32(int32(n)) }

// PutCompactArrayLen writes a varint count; −1 is null.
func (w *Writer) PutCompactArrayLen(n int) { w.PutUvarint(uint32(n + 1)) }

// PutNoTags writes an empty set of tagged fields.
func (w *Writer) PutNoTags() { w.PutInt8(0) }

// Write writes p. What is buffered and a p that does not fit go out together. p is not kept.
func (w *Writer) Write(p []byte) (int, error) {
	w.put(p)
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *Writer) put(p []byte) {
	if !w.reserve(len(p)) || len(p) == 0 {
		return
	}
	if w.home == nil {
		w.home = w.pool.getFixed()
		w.buf = w.home[:0]
	}
	if len(w.buf)+len(p) <= BufferSize {
		w.buf = append(w.buf, p...)
		return
	}
	if w.tcp != nil {
		w.gather(p)
		return
	}
	if len(w.buf) > 0 { // fill up, so that TLS makes whole records
		n := copy(w.buf[len(w.buf):BufferSize], p)
		w.buf = w.buf[:len(w.buf)+n]
		p = p[n:]
		if w.Flush() != nil {
			return
		}
	}
	if _, err := w.dst.Write(p); err != nil {
		w.fail(err)
	}
}

// gather writes the buffer and p with one system call.
func (w *Writer) gather(p []byte) {
	w.vec = [2][]byte{w.buf, p}
	w.bufs = w.vec[:]
	_, err := w.bufs.WriteTo(w.tcp)
	w.vec, w.bufs = [2][]byte{}, nil
	if err != nil {
		w.fail(err)
		return
	}
	w.release()
}

// WriteFrame writes a whole message as a frame and flushes.
func (w *Writer) WriteFrame(message []byte) error {
	w.Begin(len(message))
	w.put(message)
	if err := w.End(); err != nil {
		return err
	}
	return w.Flush()
}

// Buffered counts the bytes that are not written yet.
func (w *Writer) Buffered() int { return len(w.buf) }

// Flush writes what is buffered and gives the buffer back.
func (w *Writer) Flush() error {
	if w.err != nil || len(w.buf) == 0 {
		return w.err
	}
	if _, err := w.dst.Write(w.buf); err != nil {
		w.fail(err)
		return err
	}
	w.release()
	return nil
}
