package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Record is one record of any format, with its absolute numbers. Nil keys and values (null, a tombstone) are distinct
// from empty ones.
type Record struct {
	Offset     int64 // absolute: base offset + delta
	Timestamp  int64 // ms, the effective one: under LogAppendTime that of the batch; −1: none
	Attributes int8  // no bit is used as yet; kept
	Key, Value []byte
	Headers    []RecordHeader // in order; names may repeat
}

// RecordHeader is one header of a record. The key is bytes, because nothing makes producers send valid UTF-8.
type RecordHeader struct {
	Key   []byte
	Value []byte // nil: null
}

var errRecord = errors.New("batch: malformed record")

// rawRecord is a record of format 2 with only its deltas decoded.
//
//	length  attributes  timestampDelta  offsetDelta  │  key  value  headers
//	varint  int8        varlong         varint       │  rest, handed on unread
//
// length counts the bytes after itself.
type rawRecord struct {
	attributes     byte
	timestampDelta int64
	offsetDelta    int32
	rest           []byte // a view
}

// minRecordSize: seven one-byte fields. It bounds how many records n bytes can hold.
const minRecordSize = 7

// nextRaw reads the record that p begins with, and says how many bytes it took.
func nextRaw(p []byte) (r rawRecord, size int, err error) {
	length, n := binary.Varint(p)
	if n <= 0 || length < 1 || length > int64(len(p)-n) {
		return r, 0, errRecord
	}
	size = n + int(length)
	body := p[n:size:size]
	r.attributes = body[0]
	body = body[1:]
	if r.timestampDelta, n = binary.Varint(body); n <= 0 {
		return r, 0, errRecord
	}
	body = body[n:]
	delta, n := binary.Varint(body)
	if n <= 0 || delta < 0 || delta > math.MaxInt32 {
		return r, 0, errRecord
	}
	r.offsetDelta = int32(delta)
	r.rest = body[n:]
	return r, size, nil
}

// appendRaw appends r with other deltas.
func appendRaw(dst []byte, r rawRecord, timestampDelta int64, offsetDelta int32) []byte {
	length := 1 + varintSize(timestampDelta) + varintSize(int64(offsetDelta)) + len(r.rest)
	dst = binary.AppendVarint(dst, int64(length))
	dst = append(dst, r.attributes)
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, int64(offsetDelta))
	return append(dst, r.rest...)
}

// timestamp is the effective time of r in the batch of h.
func (r *rawRecord) timestamp(h Header) int64 {
	if h.TimestampType() == LogAppendTime {
		return h.MaxTimestamp()
	}
	return h.FirstTimestamp() + r.timestampDelta
}

// record decodes all of r; the result views the same bytes.
func (r *rawRecord) record(h Header) (Record, error) {
	out := Record{
		Offset:     h.BaseOffset() + int64(r.offsetDelta),
		Timestamp:  r.timestamp(h),
		Attributes: int8(r.attributes),
	}
	c := fields{b: r.rest}
	out.Key = c.bytes()
	out.Value = c.bytes()
	if n := c.count(2); n > 0 { // a header has two length bytes at least
		out.Headers = make([]RecordHeader, n)
		for i := range out.Headers {
			out.Headers[i].Key = c.bytes()
			out.Headers[i].Value = c.bytes()
			c.bad = c.bad || out.Headers[i].Key == nil // brokers refuse a null name
		}
	}
	if c.bad || len(c.b) != 0 {
		return Record{}, errRecord
	}
	return out, nil
}

// fields reads the variable length fields of a record. After the first bad one all are zero.
type fields struct {
	b   []byte
	bad bool
}

func (c *fields) varint() int64 {
	v, n := binary.Varint(c.b)
	if n <= 0 || c.bad {
		c.bad = true
		return 0
	}
	c.b = c.b[n:]
	return v
}

// bytes returns a view with no spare capacity; nil for null.
func (c *fields) bytes() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || n > int64(len(c.b)) || c.bad {
		c.bad = true
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

// count reads a number of elements, each of which needs at least size bytes.
func (c *fields) count(size int) int {
	n := c.varint()
	if n < 0 || n > int64(len(c.b)/size) {
		c.bad = true
		return 0
	}
	return int(n)
}

// varintSize is the length of v as a zigzag varint.
func varintSize(v int64) int {
	return (bits.Len64(uint64(v<<1^v>>63)|1) + 6) / 7
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

// appendRest appends what follows the deltas in a record of format 2.
func appendRest(dst []byte, r *Record) []byte {
	dst = appendNullable(dst, r.Key)
	dst = appendNullable(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(r.Headers[i].Key)))
		dst = append(dst, r.Headers[i].Key...)
		dst = appendNullable(dst, r.Headers[i].Value)
	}
	return dst
}

// eachRaw hands the records of a payload to visit, in order. It checks what a batch promises of them: as many as
// numRecords, offset deltas that rise and do not pass lastOffsetDelta.
func eachRaw(h Header, payload []byte, visit func(rawRecord) error) error {
	count, last, previous := int(h.NumRecords()), h.LastOffsetDelta(), int32(-1)
	for i := range count {
		r, n, err := nextRaw(payload)
		if err != nil {
			return fmt.Errorf("record %d of %d: %w", i, count, err)
		}
		if r.offsetDelta <= previous || r.offsetDelta > last {
			return fmt.Errorf("batch: offset delta %d follows %d, the last is to be %d", r.offsetDelta, previous, last)
		}
		previous, payload = r.offsetDelta, payload[n:]
		if err := visit(r); err != nil {
			return err
		}
	}
	if len(payload) != 0 {
		return fmt.Errorf("batch: %d bytes after the last of %d records", len(payload), count)
	}
	return nil
}
