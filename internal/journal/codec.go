package journal

import (
	"encoding/binary"
	"errors"
	"math"
)

var (
	errShort   = errors.New("ends too early")
	errNumber  = errors.New("number out of range")
	errVersion = errors.New("unknown version")
	errMore    = errors.New("bytes after the end")
)

// reader reads one encoded value; after the first error everything reads as 0. uvarint and varint are those of protocol
// buffers.
type reader struct {
	b   []byte
	err error
}

// open checks the version byte.
func open(b []byte, version byte) *reader {
	r := &reader{b: b}
	if v := r.byte(); r.err == nil && v != version {
		r.fail(errVersion)
	}
	return r
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail(errShort)
		return 0
	}
	b := r.b[0]
	r.b = r.b[1:]
	return b
}

func (r *reader) uvarint() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.b = r.b[n:]
	return x
}

// in reads a number of at most limit.
func (r *reader) in(limit uint64) int64 {
	x := r.uvarint()
	if x > limit {
		r.fail(errNumber)
		return 0
	}
	return int64(x)
}

func (r *reader) int64() int64 { return r.in(math.MaxInt64) }
func (r *reader) int32() int32 { return int32(r.in(math.MaxInt32)) }
func (r *reader) int16() int16 { return int16(r.in(math.MaxInt16)) }

// optional reads a number that may be −1: it is stored plus one.
func (r *reader) optional() int64 { return r.in(math.MaxInt64) - 1 }

// count reads a number of things that take at least size bytes each, so it cannot promise more than there is.
func (r *reader) count(size int) int {
	x := r.uvarint()
	if x > uint64(len(r.b)/size) {
		r.fail(errNumber)
		return 0
	}
	return int(x)
}

// bytes returns a view of what was given to open.
func (r *reader) bytes() []byte {
	n := r.count(1)
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) id() (id [16]byte) {
	if len(r.b) < len(id) {
		r.fail(errShort)
		return id
	}
	r.b = r.b[copy(id[:], r.b):]
	return id
}

func (r *reader) finish() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail(errMore)
	}
	return r.err
}

func putUint[T ~int64 | ~int32 | ~int16 | ~int](b []byte, v T) []byte {
	return binary.AppendUvarint(b, uint64(v))
}

func putOptional[T ~int64 | ~int32](b []byte, v T) []byte {
	return binary.AppendUvarint(b, uint64(int64(v)+1))
}

func putBytes(b, v []byte) []byte { return append(putUint(b, len(v)), v...) }
