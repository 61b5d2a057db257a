package batch

import (
	"errors"
	"fmt"
	"math"
)

var errControl = errors.New("batch: control batches are not re-encoded")

// payload is the records of b, decompressed. If scratch is not nil it is theirs and must go back once they are no longer
// needed; else they are a view of b.
func (c *Codecs) payload(b []byte) (records []byte, scratch *[]byte, err error) {
	h := Header(b)
	if h.Codec() == None {
		return b[HeaderSize:], nil, nil
	}
	scratch = c.getScratch()
	records, err = c.decompress(*scratch, b[HeaderSize:], h.Codec())
	if err != nil {
		c.putScratch(scratch)
		return nil, nil, err
	}
	*scratch = records
	return records, scratch, nil
}

// SplitHoles turns a batch with compacted holes into batches without, one per run of offsets, each with its own base
// offset, all with b's codec. A batch without holes is returned as it is (a view of b); one without records gives none.
// What is re-encoded has CreateTime (see ToCreateTime), no producer, no leader epoch: Rewrite sets them.
func (c *Codecs) SplitHoles(b []byte) ([][]byte, error) {
	h := Header(b)
	switch {
	case h.Control():
		return nil, errControl
	case h.NumRecords() == 0:
		return nil, nil
	case !h.HasHoles():
		return [][]byte{b}, nil
	}
	return c.cut(b, math.MaxInt)
}

// SplitSize turns a batch into batches of at most maxBytes each, counted before compression (so compressed ones come out
// smaller), for a target that takes no larger ones. One record that is larger stays alone, as large as it is. Holes are
// split too, and all is re-encoded as by SplitHoles.
func (c *Codecs) SplitSize(b []byte, maxBytes int) ([][]byte, error) {
	if Header(b).Control() {
		return nil, errControl
	}
	return c.cut(b, maxBytes)
}

// ToCreateTime turns a batch with LogAppendTime, which producers may not send, into one with CreateTime in which each
// record has the time that readers saw: that of the batch. Other batches are returned as they are (a view of b). The
// result has no holes; a batch with holes is an error, SplitHoles deals with both.
func (c *Codecs) ToCreateTime(b []byte) ([]byte, error) {
	h := Header(b)
	switch {
	case h.TimestampType() == CreateTime:
		return b, nil
	case h.Control():
		return nil, errControl
	case h.HasHoles():
		return nil, fmt.Errorf("batch: %d records over %d offsets: split the holes", h.NumRecords(), h.LastOffsetDelta()+1)
	}
	out, err := c.cut(b, math.MaxInt)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// cut re-encodes b, with a new batch at every hole and wherever maxBytes would be passed. The batches are the caller's.
func (c *Codecs) cut(b []byte, maxBytes int) (out [][]byte, err error) {
	h := Header(b)
	payload, scratch, err := c.payload(b)
	if err != nil {
		return nil, err
	}
	if scratch != nil {
		defer c.putScratch(scratch)
	}
	runs := runWriter{codecs: c, codec: h.Codec(), maxBytes: maxBytes}
	err = eachRaw(h, payload, func(r rawRecord) error {
		return runs.add(r, h.BaseOffset()+int64(r.offsetDelta), r.timestamp(h))
	})
	return runs.end(err)
}

// runWriter writes records as batches that are each one contiguous run of offsets.
type runWriter struct {
	codecs   *Codecs
	codec    Codec // of the next batch
	maxBytes int   // of a batch, before compression
	w        *builder
	out      [][]byte
}

// add takes records in the order of their offsets.
func (s *runWriter) add(r rawRecord, offset, timestamp int64) error {
	if s.w != nil {
		next := s.w.base + int64(s.w.count)
		if offset < next {
			return fmt.Errorf("batch: offset %d follows %d", offset, next-1)
		}
		if offset > next || s.codec != s.w.codec || s.w.sizeWith(r, timestamp) > s.maxBytes {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	if s.w == nil {
		s.w = s.codecs.newBuilder(nil, s.codec, offset)
	}
	return s.w.add(r, timestamp)
}

func (s *runWriter) flush() error {
	b, err := s.w.finish()
	s.w = nil
	if err == nil {
		s.out = append(s.out, b)
	}
	return err
}

// end returns the batches, or err if there is one.
func (s *runWriter) end(err error) ([][]byte, error) {
	if err == nil && s.w != nil {
		err = s.flush()
	}
	if err != nil {
		if s.w != nil {
			s.w.drop()
		}
		return nil, err
	}
	return s.out, nil
}

// CanCoalesce says that b may follow a in one batch: b begins where a ends, with the same codec and timestamp type; both
// are data, without holes. Producers do not matter, the writer sets its own.
func CanCoalesce(a, b []byte) bool {
	return follows(a, b) && Header(a).Codec() == Header(b).Codec()
}

// SmallBytes is the size up to which a batch is small: its request costs a broker far more than its records.
const SmallBytes = 4 << 10

// CanCoalesceSmall is CanCoalesce for small batches, whose codecs may differ.
func CanCoalesceSmall(a, b []byte) bool {
	return follows(a, b) && (len(a) <= SmallBytes && len(b) <= SmallBytes || Header(a).Codec() == Header(b).Codec())
}

func follows(a, b []byte) bool {
	x, y := Header(a), Header(b)
	return x.NextOffset() == y.BaseOffset() && x.TimestampType() == y.TimestampType() &&
		!x.Control() && !y.Control() && !x.HasHoles() && !y.HasHoles()
}

// Coalesce appends one batch to dst that holds the records of the first batches of the list: as many as may be joined
// (CanCoalesce) without passing maxBytes, at least one. used says how many. The bound counts the batch before
// compression, so compressed ones come out smaller. One batch alone is appended as it is, whatever its size
// and timestamp type.
//
// Large compressed batches are left alone.
//
// Only deltas are rewritten; keys, values and headers are copied unread. The result has CreateTime (LogAppendTime: each
// record keeps the time of its batch), no producer, no leader epoch. On an error dst is as it was.
func (c *Codecs) Coalesce(dst []byte, batches [][]byte, maxBytes int) (out []byte, used int, err error) {
	return c.coalesce(dst, batches, maxBytes, CanCoalesce)
}

// CoalesceSmall is Coalesce, but small batches are joined whatever their codecs (CanCoalesceSmall). If they differ, the result
// has the first one that compresses.
func (c *Codecs) CoalesceSmall(dst []byte, batches [][]byte, maxBytes int) (out []byte, used int, err error) {
	return c.coalesce(dst, batches, maxBytes, CanCoalesceSmall)
}

func (c *Codecs) coalesce(dst []byte, batches [][]byte, maxBytes int, may func(a, b []byte) bool) (out []byte, used int, err error) {
	if len(batches) == 0 {
		return dst, 0, errors.New("batch: nothing to coalesce")
	}
	first := Header(batches[0])
	n := joinable(batches, maxBytes, may)
	if n == 1 {
		return append(dst, first...), 1, nil
	}
	codec := first.Codec()
	for i := 1; i < n && codec == None; i++ {
		codec = Header(batches[i]).Codec()
	}
	w := c.newBuilder(dst, codec, first.BaseOffset())
	for used < n {
		fits, err := c.join(w, batches[used], min(maxBytes, c.limit))
		if err != nil {
			w.drop()
			return dst, 0, err
		}
		if !fits {
			break
		}
		used++
	}
	if used <= 1 {
		w.drop()
		return append(dst, first...), 1, nil
	}
	if out, err = w.finish(); err != nil {
		return dst, 0, err
	}
	return out, used, nil
}

// maxJoinBytes is the largest compressed batch that is joined with others: recompressing a larger one costs more than
// the request it would save.
const maxJoinBytes = 64 << 10

// joinable counts the first batches that look as if they may be joined, by their headers and sizes, so that a batch which
// will go alone is not decompressed to find that out. Deltas change length, so join has the last word on maxBytes.
func joinable(batches [][]byte, maxBytes int, may func(a, b []byte) bool) int {
	n, total, first := 0, HeaderSize, Header(batches[0])
	if first.Control() || first.HasHoles() {
		return 1
	}
	for ; n < len(batches); n++ {
		size := len(batches[n]) - HeaderSize
		total += size
		if total > maxBytes || Header(batches[n]).Codec() != None && size > maxJoinBytes || n > 0 && !may(batches[n-1], batches[n]) {
			break
		}
	}
	return max(n, 1)
}

// join adds all records of b to w, or none if they do not fit in maxBytes.
func (c *Codecs) join(w *builder, b []byte, maxBytes int) (fits bool, err error) {
	h := Header(b)
	if int64(w.count)+int64(h.NumRecords()) > math.MaxInt32 {
		return false, nil
	}
	payload, scratch, err := c.payload(b)
	if err != nil {
		return false, err
	}
	if scratch != nil {
		defer c.putScratch(scratch)
	}
	before, count, latest := len(w.buf), w.count, w.max
	err = eachRaw(h, payload, func(r rawRecord) error {
		return w.add(r, r.timestamp(h))
	})
	if err != nil {
		return false, err
	}
	if w.size() > maxBytes {
		w.buf, w.count, w.max = w.buf[:before], count, latest
		return false, nil
	}
	return true, nil
}
