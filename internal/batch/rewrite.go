package batch

import "hash/crc32"

// Producer is the identity under which a batch is written.
type Producer struct {
	ID            int64
	Epoch         int16
	FirstSequence int32 // of the first record; the others follow by one each
}

// Patch gives a batch another base offset and leader epoch. Both lie outside the CRC: 12 bytes are written, nothing else
// is read or changed. b may be the header alone.
func Patch(b []byte, base int64, epoch int32) {
	h := Header(b)
	h.SetBaseOffset(base)
	h.SetLeaderEpoch(epoch)
}

// SetProducer gives a batch another producer and corrects its CRC. Only the header is read and written, so b may be the
// header alone, with the records still under way.
func SetProducer(b []byte, p Producer) {
	h := Header(b)
	change(h, h.Attributes(), p)
}

// Rewrite makes a batch that was read from one log ready to be produced to another: base offset, no leader epoch (−1), a
// new producer, no longer transactional, no delete horizon (which would let the target's cleaner drop tombstones before
// its own time). Records stay as they are, compressed or not. b may be the header alone.
//
// The batch has no holes and CreateTime, or brokers refuse it: see Codecs.SplitHoles and Codecs.ToCreateTime.
func Rewrite(b []byte, base int64, p Producer) {
	Patch(b, base, -1)
	h := Header(b)
	change(h, h.Attributes()&^(attrTransactional|attrDeleteHorizon), p)
}

// change writes attributes and producer, and moves the CRC along by what these bytes contributed. The records are not
// summed again. So it costs the same for any size, needs no record byte, and a batch that was damaged before stays
// recognisably damaged instead of getting a good checksum over bad bytes.
func change(h Header, attributes int16, p Producer) {
	covered := h[posAttributes:HeaderSize]
	old := crc32.Checksum(covered, castagnoli)
	h.SetAttributes(attributes)
	h.SetProducerID(p.ID)
	h.SetProducerEpoch(p.Epoch)
	h.SetFirstSequence(p.FirstSequence)
	diff := old ^ crc32.Checksum(covered, castagnoli)
	h.SetCRC(h.CRC() ^ shiftCRC(diff, uint32(max(h.Size()-HeaderSize, 0))))
}

// A CRC is linear: for heads A and A' of one length before the same tail T,
//
//	crc(A'T) = crc(AT) ⊕ x^(8·|T|)·(crc(A) ⊕ crc(A'))   mod P
//
// Polynomials are bit reversed, as everywhere with CRC-32C: bit 31 is x^0.

// shiftCRC multiplies crc by x^(8·tail) mod P: what crc becomes after tail zero bytes.
func shiftCRC(crc, tail uint32) uint32 {
	for k := 3; tail != 0; k, tail = k+1, tail>>1 { // 8·tail = tail << 3
		if tail&1 != 0 {
			crc = multiply(powers[k], crc)
		}
	}
	return crc
}

// multiply is a·b mod P.
func multiply(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; m != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

// powers[k] is x^(2^k) mod P, for the 3 + 32 bits of a shift by up to 2^32 − 1 bytes.
var powers = func() (t [35]uint32) {
	t[0] = 1 << 30 // x
	for k := 1; k < len(t); k++ {
		t[k] = multiply(t[k-1], t[k-1])
	}
	return t
}()
