package translate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A map is encoded as
//
//	offset  bytes    field
//	0       1        format: 1 = map, version 1
//	1       1        flags: bit 0 a native segment is open; the others are 0
//	2       uvarint  start
//	        uvarint  frontier − start (of the closed part: the start of the open segment, if there is one)
//	        uvarint  physical start of the open segment; only if flag bit 0 is set
//	        uvarint  number of closed segments
//	                 for each closed segment, oldest first:
//	        uvarint    records<<2 | kind<<1 | moved     (kind: 0 mirrored, 1 native)
//	        uvarint    virtual offsets since the end of the one before (since start, for the first)
//	        uvarint    physical offsets since the end of the one before (since 0); only if moved = 1, otherwise 0
//	end−4   4        CRC32C (Castagnoli) of all before, big endian
//
// uvarint is the unsigned varint of protocol buffers. Version rule: a reader refuses a format that it does not know; any
// change of the layout takes a new number. A tail (see AppendTail) differs in its header:
//
//	0       1        format: 65 = tail, version 1
//	1       1        flags, as above
//	2       uvarint  from: from here on the tail says all that the map knew
//	        uvarint  back: the first segment starts at from − back, if it starts before from; else 0
//	        uvarint  frontier
//	        …        from the physical start of the open segment on as above; the first segment counts from (from − back, 0)
const (
	formatMap     = 1
	formatTail    = 65
	formatHistory = 129

	flagOpen = 1
	crcBytes = 4
)

// castagnoli is cheap: the standard library makes this table once.
func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// seal appends the checksum of what was appended to dst since start.
func seal(dst []byte, start int) []byte {
	return binary.BigEndian.AppendUint32(dst, castagnoli(dst[start:]))
}

// AppendBinary appends the encoded map to dst.
func (m *Map) AppendBinary(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, formatMap, m.flags())
	dst = binary.AppendUvarint(dst, uint64(m.start))
	dst = binary.AppendUvarint(dst, uint64(m.frontier-m.start))
	dst = m.appendRuns(dst, -1, m.start, m.closed)
	return seal(dst, start)
}

func (m *Map) flags() byte {
	if m.open {
		return flagOpen
	}
	return 0
}

// appendRuns encodes the open segment's place, the count and the closed segments that end after from; the first counts
// from (base, 0).
func (m *Map) appendRuns(dst []byte, from, base Virtual, count int64) []byte {
	if m.open {
		dst = binary.AppendUvarint(dst, uint64(m.openedAt))
	}
	dst = binary.AppendUvarint(dst, uint64(count))
	v, p := base, Physical(0)
	m.eachClosed(from, func(s Segment) bool {
		dst = appendRun(dst, v, p, s)
		v, p = s.End(), s.PhysicalEnd()
		return true
	})
	return dst
}

// DecodeMap decodes what AppendBinary made. Memory is bounded by a small multiple of len(b), which is not kept.
func DecodeMap(b []byte) (*Map, error) {
	m, err := decodeMap(b)
	if err != nil {
		return nil, fmt.Errorf("decode map: %w", err)
	}
	return m, nil
}

func decodeMap(b []byte) (*Map, error) {
	d := openDecoder(b, formatMap)
	flags := d.flags()
	start := d.offset(0)
	frontier := d.offset(start)
	m := NewMap(Virtual(start)).next()
	if flags&flagOpen != 0 {
		m.open, m.openedAt = true, Physical(d.offset(0))
	}
	v, p := m.start, Physical(0)
	for range d.count(2) {
		s := d.run(v, p)
		if d.err != nil {
			return nil, d.err
		}
		m.push(s)
		v, p = s.End(), s.PhysicalEnd()
	}
	m.frontier = Virtual(frontier)
	if err := d.finish(); err != nil {
		return nil, err
	}
	return m, m.valid()
}

var (
	errShort    = errors.New("ends too early")
	errChecksum = errors.New("checksum does not match")
	errNumber   = errors.New("number out of range")
	errTrailing = errors.New("bytes after the end")
)

// decoder reads one encoded value. After the first error everything reads as 0.
type decoder struct {
	b   []byte // what is left, without the checksum
	err error
}

// openDecoder checks format and checksum.
func openDecoder(b []byte, format byte) decoder {
	switch {
	case len(b) < 1+crcBytes:
		return decoder{err: errShort}
	case b[0] != format:
		return decoder{err: fmt.Errorf("format %d, want %d", b[0], format)}
	}
	body, sum := b[:len(b)-crcBytes], b[len(b)-crcBytes:]
	if castagnoli(body) != binary.BigEndian.Uint32(sum) {
		return decoder{err: errChecksum}
	}
	return decoder{b: body[1:]}
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) flags() byte {
	if len(d.b) == 0 {
		d.fail(errShort)
		return 0
	}
	f := d.b[0]
	d.b = d.b[1:]
	if f&^flagOpen != 0 {
		d.fail(fmt.Errorf("flags %#x: %w", f, errNumber))
	}
	return f
}

func (d *decoder) uvarint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return x
}

// offset reads a number that counts from base, at most MaxOffset in sum.
func (d *decoder) offset(base int64) int64 {
	x := d.uvarint()
	if x > uint64(MaxOffset-base) {
		d.fail(errNumber)
		return 0
	}
	return base + int64(x)
}

// count reads a number of things that take at least size bytes each, so it cannot promise more than there is.
func (d *decoder) count(size int) int {
	x := d.uvarint()
	if x > uint64(len(d.b)/size) {
		d.fail(errNumber)
		return 0
	}
	return int(x)
}

// run reads a closed segment behind one that ended at (v, p).
func (d *decoder) run(v Virtual, p Physical) Segment {
	head := d.uvarint()
	s := Segment{Kind: Kind(head >> 1 & 1), Records: int64(head >> 2)}
	s.Virtual = Virtual(d.offset(int64(v)))
	s.Physical = p
	if head&1 != 0 {
		s.Physical = Physical(d.offset(int64(p)))
	}
	if s.Records == 0 || s.Records > MaxOffset-int64(s.Virtual) || s.Records > MaxOffset-int64(s.Physical) {
		d.fail(errNumber)
	}
	return s
}

func (d *decoder) finish() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(errTrailing)
	}
	return d.err
}
