package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// GapProducerID is the producer id of every gap marker. No broker issues it and it lies outside the scheme of shown ids.
const GapProducerID = int64(1) << 62

// GapMarker appends control batches that span [start, end) to dst: one, or several if the gap is longer than a batch can
// be (2^31 offsets). Clients must skip control records, so each moves on to end. epoch is the leader epoch shown there.
// An empty gap appends nothing.
//
//	header          attributes 0x30 (transactional, control), producer 1<<62, epoch 0, sequence −1, no timestamp (−1)
//	one record      offset delta = last offset delta of the batch
//	  key           00 00 | 00 00               version 0, type 0: ABORT
//	  value         00 00 | 00 00 00 00         version 0, coordinator epoch 0
//
// A batch without records, as the log cleaner leaves it, would be simpler, but kafkajs then fetches it for ever.
func GapMarker(dst []byte, start, end int64, epoch int32) []byte {
	for start < end {
		span := min(uint64(end)-uint64(start), maxGapSpan)
		dst = appendGapBatch(dst, start, int32(span-1), epoch)
		start += int64(span)
	}
	return dst
}

// maxGapSpan counts the offsets of the longest batch: its last offset delta is the largest int32.
const maxGapSpan = uint64(math.MaxInt32) + 1

// GapMarkerSize is the number of bytes that GapMarker appends for [start, end).
func GapMarkerSize(start, end int64) int {
	if start >= end {
		return 0
	}
	gap := uint64(end) - uint64(start)
	full, rest := int(gap/maxGapSpan), gap%maxGapSpan
	size := full * gapBatchSize(math.MaxInt32)
	if rest > 0 {
		size += gapBatchSize(int32(rest - 1))
	}
	return size
}

// gapBatchSize: header, length of the record (one byte), and the record.
func gapBatchSize(lastDelta int32) int { return HeaderSize + 1 + gapRecordSize(lastDelta) }

// gapRecordSize: attributes, timestamp delta, offset delta, key length and key, value length and value, header count.
func gapRecordSize(lastDelta int32) int {
	return 1 + 1 + varintSize(int64(lastDelta)) + 1 + 4 + 1 + 6 + 1
}

func appendGapBatch(dst []byte, base int64, lastDelta int32, epoch int32) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = binary.AppendVarint(dst, int64(gapRecordSize(lastDelta)))
	dst = append(dst, 0, 0)
	dst = binary.AppendVarint(dst, int64(lastDelta))
	dst = binary.AppendVarint(dst, 4)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.AppendVarint(dst, 6)
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	dst = append(dst, 0)

	h := Header(dst[at:])
	h.SetBaseOffset(base)
	h.SetLength(int32(len(h) - prefixSize))
	h.SetLeaderEpoch(epoch)
	h.SetMagic(2)
	h.SetAttributes(attrTransactional | attrControl)
	h.SetLastOffsetDelta(lastDelta)
	h.SetFirstTimestamp(-1)
	h.SetMaxTimestamp(-1)
	h.SetProducerID(GapProducerID)
	h.SetProducerEpoch(0)
	h.SetFirstSequence(-1)
	h.SetNumRecords(1)
	h.SetCRC(computeCRC(h))
	return dst
}

// IsGapMarker says that b is one of ours.
func IsGapMarker(b []byte) bool {
	h := Header(b)
	return h.Control() && h.ProducerID() == GapProducerID
}

// ControlKind is the type in the key of a control record.
type ControlKind int16

// Kinds that end a transaction. Brokers know more (KRaft's own), which appear in no topic of clients.
const (
	Abort  ControlKind = 0
	Commit ControlKind = 1
)

func (k ControlKind) String() string {
	switch k {
	case Abort:
		return "abort"
	case Commit:
		return "commit"
	}
	return fmt.Sprintf("control kind %d", int16(k))
}

// ErrNoMarker is what ControlType answers for a control batch whose record the cleaner has removed.
var ErrNoMarker = errors.New("batch: control batch without a record")

// ControlType reads the one record of a control batch. The coordinator epoch is that of an end of a transaction, −1 for
// other kinds. b is a whole valid batch.
func ControlType(b []byte) (kind ControlKind, coordinatorEpoch int32, err error) {
	h := Header(b)
	switch {
	case !h.Control():
		return 0, 0, errors.New("batch: not a control batch")
	case h.Codec() != None:
		return 0, 0, fmt.Errorf("batch: control batch compressed with %s", h.Codec())
	case h.NumRecords() == 0:
		return 0, 0, ErrNoMarker
	}
	raw, _, err := nextRaw(b[HeaderSize:])
	if err != nil {
		return 0, 0, err
	}
	r, err := raw.record(h)
	if err != nil {
		return 0, 0, err
	}
	if len(r.Key) < 4 {
		return 0, 0, fmt.Errorf("batch: control record with a key of %d bytes", len(r.Key))
	}
	kind = ControlKind(binary.BigEndian.Uint16(r.Key[2:]))
	if kind != Abort && kind != Commit {
		return kind, -1, nil
	}
	if len(r.Value) < 6 {
		return 0, 0, fmt.Errorf("batch: %s marker with a value of %d bytes", kind, len(r.Value))
	}
	return kind, int32(binary.BigEndian.Uint32(r.Value[2:])), nil
}
