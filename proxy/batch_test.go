package proxy

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/switchback-proxy/switchback/internal/batch"
)

// sampleBatch is a batch of n = last − first + 1 records without keys, as a producer sends it. id −1: no idempotence.
func sampleBatch(id int64, first, last int32) []byte {
	return batchAt(0, id, 0, first, int(last-first)+1, "value")
}

// batchAt is a batch of n records at an offset.
func batchAt(base, id int64, epoch int16, first int32, n int, value string) []byte {
	b := make([]byte, batch.HeaderSize)
	for i := range n {
		r := []byte{0, 0}
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, -1)
		r = binary.AppendVarint(r, int64(len(value)))
		r = append(r, value...)
		r = append(r, 0)
		b = binary.AppendVarint(b, int64(len(r)))
		b = append(b, r...)
	}
	h := batch.Header(b)
	h.SetBaseOffset(base)
	h.SetLength(int32(len(b) - 12))
	h.SetLeaderEpoch(-1)
	h.SetMagic(2)
	h.SetLastOffsetDelta(int32(n - 1))
	h.SetFirstTimestamp(1)
	h.SetMaxTimestamp(1)
	h.SetProducerID(id)
	h.SetProducerEpoch(epoch)
	h.SetFirstSequence(first)
	if id < 0 {
		h.SetProducerEpoch(-1)
		h.SetFirstSequence(-1)
	}
	h.SetNumRecords(int32(n))
	h.SetCRC(crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// fixCRC makes the checksum right after a change.
func fixCRC(b []byte) {
	batch.Header(b).SetCRC(crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}
