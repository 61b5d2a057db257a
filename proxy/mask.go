package proxy

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/wire"
)

// Batches that lie in holes of the map (strays, orphans, what a fence left) belong to no virtual log and are not passed on.
// Their frame's length has been told by then, so as many bytes take their place. Behind other batches it is the beginning of a
// batch, which says of itself that it is longer. Where there is nothing else it is a mask: a control batch with one record, at
// the offset before the next record, so that no position moves past anything.
//
//	header     attributes 0x20 (control), no producer, no timestamp
//	one record
//	  key      00 00 | 00 00            version 0, type 0
//	  value    zeros, as many as it takes
//
// A batch too small for that (a record of less than four bytes, key and value together) has a shorter key, of a version
// that nobody knows, or none. A header without records, as the log cleaner leaves it of a producer's last batch, is
// replaced by another one: the next record's batch lies behind it.

// maskHead appends header and beginning of a mask of size bytes; the rest are zeros. size is that of a batch with at
// least one record, or of a header.
func maskHead(dst []byte, size int, offset int64, epoch int32) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, batch.HeaderSize)...)
	records := int32(0)
	if size > batch.HeaderSize {
		dst = maskRecord(dst, size-batch.HeaderSize)
		records = 1
	}
	h := batch.Header(dst[at:])
	h.SetBaseOffset(offset)
	h.SetLength(int32(size - 12))
	h.SetLeaderEpoch(epoch)
	h.SetMagic(2)
	h.SetAttributes(0x20)
	h.SetFirstTimestamp(-1)
	h.SetMaxTimestamp(-1)
	h.SetProducerID(-1)
	h.SetProducerEpoch(-1)
	h.SetFirstSequence(-1)
	h.SetNumRecords(records)
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, dst[at+21:])
	for rest := size - (len(dst) - at); rest > 0; rest -= len(nothing) {
		sum = crc32.Update(sum, table, nothing[:min(rest, len(nothing))])
	}
	h.SetCRC(sum)
	return dst
}

// maskRecord appends the beginning of the one record of a mask, of size bytes with its length.
func maskRecord(dst []byte, size int) []byte {
	key := []byte{0, 0, 0, 0}
	switch {
	case size < 9:
		key = nil
	case size < 11:
		key = []byte{0, 1}
	}
	length, lengthBytes := shorten(size)
	dst = appendVarint(dst, length, lengthBytes)
	dst = append(dst, 0, 0, 0) // attributes, timestamp delta, offset delta
	fixed := 4 + len(key) + 1  // those, the key's length, the key, the count of headers
	if key == nil {
		dst = binary.AppendVarint(dst, -1)
	} else {
		dst = binary.AppendVarint(dst, int64(len(key)))
	}
	dst = append(dst, key...)
	value, valueBytes := shorten(length - fixed)
	return appendVarint(dst, value, valueBytes)
}

// nothing is what the rest of a mask is made of.
var nothing [4096]byte

// shorten splits n bytes into a varint of that many bytes and what it counts.
func shorten(n int) (counted, varintBytes int) {
	for varintBytes = 1; ; varintBytes++ {
		if counted = n - varintBytes; counted < 1<<(7*varintBytes-1) {
			return max(counted, 0), varintBytes
		}
	}
}

// appendVarint appends v, zigzag encoded, in exactly n bytes.
func appendVarint(dst []byte, v, n int) []byte {
	u := uint64(v) << 1
	for ; n > 1; n-- {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// writeMask writes a mask of size bytes. scratch is overwritten.
func writeMask(out *wire.Writer, scratch []byte, size int, offset int64, epoch int32) []byte {
	scratch = maskHead(scratch[:0], size, offset, epoch)
	writeFilled(out, scratch, size)
	return scratch
}

// writeCutOff writes the first size bytes of a batch that is longer by one. size is at least that of a header.
func writeCutOff(out *wire.Writer, scratch []byte, size int, offset int64, epoch int32) []byte {
	scratch = append(scratch[:0], nothing[:batch.HeaderSize]...)
	h := batch.Header(scratch)
	h.SetBaseOffset(offset)
	h.SetLength(int32(size + 1 - 12))
	h.SetLeaderEpoch(epoch)
	h.SetMagic(2)
	writeFilled(out, scratch, size)
	return scratch
}

// writeFilled writes head, and zeros until it is size bytes.
func writeFilled(out *wire.Writer, head []byte, size int) {
	_, _ = out.Write(head) // sticks
	for rest := size - len(head); rest > 0; rest -= len(nothing) {
		_, _ = out.Write(nothing[:min(rest, len(nothing))]) // sticks
	}
}
