package batch

import (
	"encoding/binary"
	"hash/crc32"
)

// HeaderSize is the size in bytes of the header of a v2 batch; the records follow it.
const HeaderSize = 61

// prefixSize counts the bytes before what batchLength counts: base offset and batchLength itself.
const prefixSize = 12

// A v2 batch. Positions are in bytes, integers big endian.
//
//	 0  baseOffset            int64  ┐
//	 8  batchLength           int32  │ bytes after this field            outside the CRC:
//	12  partitionLeaderEpoch  int32  │                                   Patch may change them freely
//	16  magic                 int8   │ 2
//	17  crc                   uint32 ┘ CRC-32C of byte 21 to the end
//	21  attributes            int16  ┐ bits 0–2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
//	23  lastOffsetDelta       int32  │ kept when the cleaner removes the last records
//	27  firstTimestamp        int64  │ ms; the base of the records' deltas (with bit 6 it is also the delete horizon)
//	35  maxTimestamp          int64  │ ms; with LogAppendTime the time of every record
//	43  producerId            int64  │ −1: none                          inside the CRC
//	51  producerEpoch         int16  │
//	53  baseSequence          int32  │
//	57  numRecords            int32  │
//	61  records                      ┘ one compressed block, or plain records if the codec is none
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posFirstTimestamp  = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posFirstSequence   = 53
	posNumRecords      = 57
)

const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// Codec is the compression of a batch, by its number in the attributes.
type Codec int8

// The codecs of Kafka; 5 to 7 are not assigned.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "unknown"
}

// TimestampType says who set the timestamps.
type TimestampType int8

// CreateTime: each record has its own. LogAppendTime: the broker's clock, one time for the batch, in maxTimestamp.
const (
	CreateTime TimestampType = iota
	LogAppendTime
)

// Header is a view of a v2 batch: at least its first HeaderSize bytes, or the whole batch. A shorter one panics.
// Values are as found on the wire, unchecked: call Valid first on anything that came from the network.
type Header []byte

func (h Header) BaseOffset() int64  { return int64(binary.BigEndian.Uint64(h[posBaseOffset:])) }
func (h Header) Length() int32      { return int32(binary.BigEndian.Uint32(h[posLength:])) }
func (h Header) LeaderEpoch() int32 { return int32(binary.BigEndian.Uint32(h[posLeaderEpoch:])) }
func (h Header) Magic() int8        { return int8(h[posMagic]) }
func (h Header) CRC() uint32        { return binary.BigEndian.Uint32(h[posCRC:]) }
func (h Header) Attributes() int16  { return int16(binary.BigEndian.Uint16(h[posAttributes:])) }
func (h Header) LastOffsetDelta() int32 {
	return int32(binary.BigEndian.Uint32(h[posLastOffsetDelta:]))
}
func (h Header) FirstTimestamp() int64 { return int64(binary.BigEndian.Uint64(h[posFirstTimestamp:])) }
func (h Header) MaxTimestamp() int64   { return int64(binary.BigEndian.Uint64(h[posMaxTimestamp:])) }
func (h Header) ProducerID() int64     { return int64(binary.BigEndian.Uint64(h[posProducerID:])) }
func (h Header) ProducerEpoch() int16  { return int16(binary.BigEndian.Uint16(h[posProducerEpoch:])) }
func (h Header) FirstSequence() int32  { return int32(binary.BigEndian.Uint32(h[posFirstSequence:])) }
func (h Header) NumRecords() int32     { return int32(binary.BigEndian.Uint32(h[posNumRecords:])) }

// Size is the size in bytes of the whole batch, as the header claims.
func (h Header) Size() int { return prefixSize + int(h.Length()) }

// NextOffset is the offset after the batch (exclusive end), also if its last records were compacted away.
func (h Header) NextOffset() int64 { return h.BaseOffset() + int64(h.LastOffsetDelta()) + 1 }

// LastSequence is the sequence of the last record, inclusive; sequences wrap from the largest int32 to 0. It counts by
// the last offset delta, as brokers do, and is −1 if the batch has no sequence.
func (h Header) LastSequence() int32 {
	first := h.FirstSequence()
	if first < 0 {
		return -1
	}
	return int32((int64(first) + int64(h.LastOffsetDelta())) & 0x7fffffff)
}

func (h Header) Codec() Codec { return Codec(h.Attributes() & attrCodecMask) }

func (h Header) TimestampType() TimestampType {
	if h.Attributes()&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

func (h Header) Transactional() bool    { return h.Attributes()&attrTransactional != 0 }
func (h Header) Control() bool          { return h.Attributes()&attrControl != 0 }
func (h Header) HasDeleteHorizon() bool { return h.Attributes()&attrDeleteHorizon != 0 }

// HasHoles says that offsets inside the batch have no record (the cleaner's work). Brokers refuse such a batch.
func (h Header) HasHoles() bool { return int64(h.NumRecords()) != int64(h.LastOffsetDelta())+1 }

// The setters write one field and leave the CRC alone: those of the first 17 bytes need no more, after the others the
// caller sets the CRC anew.

func (h Header) SetBaseOffset(v int64)  { binary.BigEndian.PutUint64(h[posBaseOffset:], uint64(v)) }
func (h Header) SetLength(v int32)      { binary.BigEndian.PutUint32(h[posLength:], uint32(v)) }
func (h Header) SetLeaderEpoch(v int32) { binary.BigEndian.PutUint32(h[posLeaderEpoch:], uint32(v)) }
func (h Header) SetMagic(v int8)        { h[posMagic] = byte(v) }
func (h Header) SetCRC(v uint32)        { binary.BigEndian.PutUint32(h[posCRC:], v) }
func (h Header) SetAttributes(v int16)  { binary.BigEndian.PutUint16(h[posAttributes:], uint16(v)) }
func (h Header) SetLastOffsetDelta(v int32) {
	binary.BigEndian.PutUint32(h[posLastOffsetDelta:], uint32(v))
}
func (h Header) SetFirstTimestamp(v int64) {
	binary.BigEndian.PutUint64(h[posFirstTimestamp:], uint64(v))
}
func (h Header) SetMaxTimestamp(v int64) { binary.BigEndian.PutUint64(h[posMaxTimestamp:], uint64(v)) }
func (h Header) SetProducerID(v int64)   { binary.BigEndian.PutUint64(h[posProducerID:], uint64(v)) }
func (h Header) SetProducerEpoch(v int16) {
	binary.BigEndian.PutUint16(h[posProducerEpoch:], uint16(v))
}
func (h Header) SetFirstSequence(v int32) {
	binary.BigEndian.PutUint32(h[posFirstSequence:], uint32(v))
}
func (h Header) SetNumRecords(v int32) { binary.BigEndian.PutUint32(h[posNumRecords:], uint32(v)) }

// castagnoli is the polynomial of v2 batches; formats 0 and 1 use IEEE.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// computeCRC sums a whole batch from its attributes to its end.
func computeCRC(b []byte) uint32 { return crc32.Checksum(b[posAttributes:], castagnoli) }
