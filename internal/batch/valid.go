package batch

import (
	"errors"
	"fmt"
	"math"
)

// ErrCRC is what CheckCRC answers for a batch whose bytes are not those that were written.
var ErrCRC = errors.New("batch: checksum mismatch")

// Valid checks what every later step takes for granted. b is exactly one batch.
//
//  1. b has a whole header, and batchLength + 12 = len(b).
//  2. Magic is 2.
//  3. Counts are not negative, and lastOffsetDelta ≥ numRecords − 1. (A batch without records is valid: the cleaner
//     leaves such.)
//  4. Base offset is not negative, and the end offset fits in an int64.
//  5. The codec is one of Kafka's.
//  6. Producer id, epoch and sequence are −1 or more.
//
// The checksum is not looked at: see CheckCRC.
func Valid(b []byte) error {
	if len(b) < HeaderSize {
		return fmt.Errorf("batch: %d bytes, a header has %d", len(b), HeaderSize)
	}
	h := Header(b)
	if h.Size() != len(b) {
		return fmt.Errorf("batch: length field says %d bytes in all, there are %d", h.Size(), len(b))
	}
	return h.Valid()
}

// Valid is the function Valid for one who has only the header: the records may still be under way.
func (h Header) Valid() error {
	if len(h) < HeaderSize {
		return fmt.Errorf("batch: %d bytes, a header has %d", len(h), HeaderSize)
	}
	count, last, base := h.NumRecords(), h.LastOffsetDelta(), h.BaseOffset()
	switch {
	case h.Magic() != 2:
		return fmt.Errorf("batch: magic %d is not 2", h.Magic())
	case h.Length() < HeaderSize-prefixSize:
		return fmt.Errorf("batch: length field %d is less than a header", h.Length())
	case count < 0 || last < 0:
		return fmt.Errorf("batch: negative record count %d or last offset delta %d", count, last)
	case last < count-1:
		return fmt.Errorf("batch: last offset delta %d is too small for %d records", last, count)
	case base < 0 || base > math.MaxInt64-int64(last)-1:
		return fmt.Errorf("batch: base offset %d out of range", base)
	case h.Codec() > Zstd:
		return fmt.Errorf("batch: unknown codec %d", h.Codec())
	case h.ProducerID() < -1 || h.ProducerEpoch() < -1 || h.FirstSequence() < -1:
		return fmt.Errorf("batch: producer id %d, epoch %d or sequence %d out of range",
			h.ProducerID(), h.ProducerEpoch(), h.FirstSequence())
	}
	return nil
}

// CheckCRC sums the whole batch b and compares.
func CheckCRC(b []byte) error {
	if want, got := Header(b).CRC(), computeCRC(b); want != got {
		return fmt.Errorf("%w: header says %08x, bytes give %08x", ErrCRC, want, got)
	}
	return nil
}
