package load

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Positions in a batch of format 2, which is
//
//	 0 base offset int64 · 8 length int32 (of what follows) · 12 leader epoch int32 · 16 magic int8 · 17 crc uint32 (of what
//	follows) · 21 attributes int16 · 23 last offset delta int32 · 27 first, 35 highest timestamp int64 · 43 producer id int64 ·
//	51 producer epoch int16 · 53 first sequence int32 · 57 records int32 · 61 the records
const (
	batchLength     = 8
	batchCRC        = 17
	batchAttributes = 21
	batchLastDelta  = 23
	batchTimestamp  = 27
	batchProducerID = 43
	batchEpoch      = 51
	batchSequence   = 53
	batchRecords    = 57
	batchHeader     = 61
)

// template is a batch to be sent again and again.
type template struct {
	bytes   []byte
	records int
	// sentAt is where the value of the first record begins: 8 bytes for the time at which the batch was sent.
	sentAt int
}

// newTemplate builds a batch of uncompressed records without keys.
func newTemplate(records, recordBytes int) template {
	t := template{records: records, bytes: make([]byte, batchHeader, batchHeader+records*(recordBytes+16))}
	value := filler(max(recordBytes, 8))
	for i := range records {
		record := []byte{0} // attributes
		record = binary.AppendVarint(record, 0)
		record = binary.AppendVarint(record, int64(i))
		record = binary.AppendVarint(record, -1) // no key
		record = binary.AppendVarint(record, int64(len(value)))
		at := len(record)
		record = append(record, value...)
		record = append(record, 0) // no headers
		t.bytes = binary.AppendVarint(t.bytes, int64(len(record)))
		if i == 0 {
			t.sentAt = len(t.bytes) + at
		}
		t.bytes = append(t.bytes, record...)
	}
	b, now := t.bytes, uint64(time.Now().UnixMilli())
	binary.BigEndian.PutUint32(b[batchLength:], uint32(len(b)-batchLength-4))
	binary.BigEndian.PutUint32(b[12:], 0xffffffff)
	b[16] = 2
	binary.BigEndian.PutUint32(b[batchLastDelta:], uint32(records-1))
	binary.BigEndian.PutUint64(b[batchTimestamp:], now)
	binary.BigEndian.PutUint64(b[batchTimestamp+8:], now)
	setProducer(b, -1, -1, -1)
	binary.BigEndian.PutUint32(b[batchRecords:], uint32(records))
	seal(b)
	return t
}

// filler is text that does not repeat within a page, as records do not.
func filler(n int) []byte {
	b, x := make([]byte, n), uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = 'a' + byte(x%26)
	}
	return b
}

func setProducer(b []byte, id int64, epoch int16, sequence int32) {
	binary.BigEndian.PutUint64(b[batchProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[batchEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[batchSequence:], uint32(sequence))
}

func seal(b []byte) {
	table := crc32.MakeTable(crc32.Castagnoli) // the same one each time; nothing is made
	binary.BigEndian.PutUint32(b[batchCRC:], crc32.Checksum(b[batchAttributes:], table))
}
