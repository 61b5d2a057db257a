package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
)

// walker reads one frame. After the first error it returns zeros.
type walker struct {
	in   *bufio.Reader
	left int // bytes of the frame that are still to be read
	err  error
}

var errShort = errors.New("the frame is too short")

// peek returns the next n bytes, valid until the next call, or nil.
func (w *walker) peek(n int) []byte {
	if w.err == nil && (n < 0 || n > w.left) {
		w.err = errShort
	}
	if w.err != nil {
		return nil
	}
	b, err := w.in.Peek(n)
	if err != nil {
		w.err = err
		return nil
	}
	return b
}

func (w *walker) skip(n int) {
	if w.err == nil && (n < 0 || n > w.left) {
		w.err = errShort
	}
	if w.err != nil {
		return
	}
	w.left -= n
	_, w.err = w.in.Discard(n)
}

func (w *walker) int16() int16 {
	b := w.peek(2)
	if b == nil {
		return 0
	}
	v := int16(binary.BigEndian.Uint16(b))
	w.skip(2)
	return v
}

func (w *walker) int32() int32 {
	b := w.peek(4)
	if b == nil {
		return 0
	}
	v := int32(binary.BigEndian.Uint32(b))
	w.skip(4)
	return v
}

func (w *walker) uvarint() int {
	v := uint64(0)
	for shift := 0; shift < 35; shift += 7 {
		b := w.peek(1)
		if b == nil {
			return 0
		}
		low, more := uint64(b[0]&0x7f), b[0]&0x80 != 0
		w.skip(1)
		if v |= low << shift; !more {
			return int(v)
		}
	}
	w.err = errors.New("a varint that does not end")
	return 0
}

// length is that of a compact array, string or byte field; nil counts as empty.
func (w *walker) length() int {
	n := w.uvarint() - 1
	if n > w.left {
		w.err = fmt.Errorf("a length of %d in %d bytes", n, w.left)
	}
	if n < 0 || w.err != nil {
		return 0
	}
	return n
}

func (w *walker) string() { w.skip(w.length()) }

func (w *walker) tags() {
	for range w.uvarint() {
		if w.err != nil {
			return
		}
		w.uvarint()
		w.skip(w.uvarint())
	}
}
