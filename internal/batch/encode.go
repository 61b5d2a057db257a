package batch

import (
	"errors"
	"fmt"
	"math"
)

// Params says what Encode cannot take from the records.
type Params struct {
	Codec         Codec
	BaseOffset    int64
	LeaderEpoch   int32
	TimestampType TimestampType // LogAppendTime: maxTimestamp is the largest time given. Brokers refuse it in Produce
	Transactional bool
	Producer      *Producer // if nil: none (−1)
}

// Encode writes records as one batch without holes: offsets are p.BaseOffset, +1, +2 …, whatever the records say. At
// least one record. The result is the caller's.
func (c *Codecs) Encode(records []Record, p Params) ([]byte, error) {
	w := c.newBuilder(nil, p.Codec, p.BaseOffset)
	for i := range records {
		if err := w.addRecord(&records[i]); err != nil {
			w.drop()
			return nil, err
		}
	}
	out, err := w.finish()
	if err != nil {
		return nil, err
	}
	h, attributes, producer := Header(out), Header(out).Attributes(), Producer{-1, -1, -1}
	if p.TimestampType == LogAppendTime {
		attributes |= attrLogAppendTime
	}
	if p.Transactional {
		attributes |= attrTransactional
	}
	if p.Producer != nil {
		producer = *p.Producer
	}
	h.SetLeaderEpoch(p.LeaderEpoch)
	change(h, attributes, producer)
	return out, nil
}

// Decode returns the records of the valid batch b. They view b, or, if it is compressed, memory of their own.
func (c *Codecs) Decode(b []byte) ([]Record, error) {
	h := Header(b)
	payload := b[HeaderSize:]
	if h.Codec() != None {
		var err error
		if payload, err = c.decompress(nil, payload, h.Codec()); err != nil {
			return nil, err
		}
	}
	if int(h.NumRecords()) > len(payload)/minRecordSize {
		return nil, fmt.Errorf("batch: %d bytes cannot hold %d records", len(payload), h.NumRecords())
	}
	records := make([]Record, 0, h.NumRecords())
	err := eachRaw(h, payload, func(r rawRecord) error {
		record, err := r.record(h)
		records = append(records, record)
		return err
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// builder writes one batch without holes, CreateTime, without producer and leader epoch. Its invariants:
//
//  1. buf[start:] is a blank header and then the records so far, not compressed. Without a codec buf is the result
//     itself; with one it is scratch.
//  2. Record i has offset delta i.
//  3. first is the timestamp of the first record, max the largest.
//
// finish or drop ends it; after that it must not be used.
type builder struct {
	codecs     *Codecs
	codec      Codec
	base       int64
	count      int32
	first, max int64

	dst     []byte // what the result is appended to
	buf     []byte
	start   int
	scratch *[]byte // buf's home, if compressed
	rest    []byte  // scratch for one record
}

func (c *Codecs) newBuilder(dst []byte, codec Codec, base int64) *builder {
	w := &builder{codecs: c, codec: codec, base: base, dst: dst}
	if codec == None {
		w.buf, w.start = dst, len(dst)
	} else {
		w.scratch = c.getScratch()
		w.buf = *w.scratch
	}
	var blank [HeaderSize]byte
	w.buf = append(w.buf, blank[:]...)
	return w
}

// size counts the bytes of the batch so far, before compression.
func (w *builder) size() int { return len(w.buf) - w.start }

// sizeWith is size after adding r.
func (w *builder) sizeWith(r rawRecord, timestamp int64) int {
	delta := int64(0)
	if w.count > 0 {
		delta = timestamp - w.first
	}
	body := 1 + varintSize(delta) + varintSize(int64(w.count)) + len(r.rest)
	return w.size() + varintSize(int64(body)) + body
}

var errTooManyRecords = errors.New("batch: too many records for one batch")

func (w *builder) add(r rawRecord, timestamp int64) error {
	if w.count == math.MaxInt32 {
		return errTooManyRecords
	}
	if w.count == 0 {
		w.first, w.max = timestamp, timestamp
	}
	w.max = max(w.max, timestamp)
	w.buf = appendRaw(w.buf, r, timestamp-w.first, w.count)
	w.count++
	return nil
}

func (w *builder) addRecord(r *Record) error {
	w.rest = appendRest(w.rest[:0], r)
	return w.add(rawRecord{attributes: byte(r.Attributes), rest: w.rest}, r.Timestamp)
}

// finish appends the batch to what newBuilder was given.
func (w *builder) finish() ([]byte, error) {
	defer w.drop()
	if w.count == 0 {
		return nil, errors.New("batch: no records to write")
	}
	out, at := w.buf, w.start
	if w.codec != None {
		at = len(w.dst)
		out = append(w.dst, w.buf[:HeaderSize]...)
		var err error
		if out, err = w.codecs.compress(out, w.buf[HeaderSize:], w.codec); err != nil {
			return nil, err
		}
	}
	if len(out)-at > math.MaxInt32 {
		return nil, fmt.Errorf("batch: %d bytes do not fit in one batch", len(out)-at)
	}
	w.fillHeader(Header(out[at:]))
	return out, nil
}

func (w *builder) fillHeader(h Header) {
	h.SetBaseOffset(w.base)
	h.SetLength(int32(len(h) - prefixSize))
	h.SetLeaderEpoch(-1)
	h.SetMagic(2)
	h.SetAttributes(int16(w.codec))
	h.SetLastOffsetDelta(w.count - 1)
	h.SetFirstTimestamp(w.first)
	h.SetMaxTimestamp(w.max)
	h.SetProducerID(-1)
	h.SetProducerEpoch(-1)
	h.SetFirstSequence(-1)
	h.SetNumRecords(w.count)
	h.SetCRC(computeCRC(h))
}

// drop gives scratch space back.
func (w *builder) drop() {
	if w.scratch != nil {
		*w.scratch = w.buf
		w.codecs.putScratch(w.scratch)
		w.scratch = nil
	}
}
