package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
)

// Message formats 0 (before Kafka 0.10) and 1 (before 0.11). Positions in bytes.
//
//	 0  offset      int64
//	 8  size        int32   bytes after this field
//	12  crc         uint32  CRC-32 (IEEE) of byte 16 to the end
//	16  magic       int8    0 or 1
//	17  attributes  int8    bits 0–2 codec, 3 timestamp type (format 1)
//	18  timestamp   int64   format 1 only, ms
//	    key         int32 length (−1: null) and bytes
//	    value       the same
//
// With a codec the message is a wrapper: its value is a compressed set of messages of the same format. In format 0 these
// have absolute offsets. In format 1 they count from 0 (with holes, if compacted) and the wrapper has the offset of the
// last; if the wrapper's offset is 0 they are as they stand (old librdkafka).
type message struct {
	offset     int64
	magic      int8
	attributes byte
	timestamp  int64 // −1 in format 0
	key, value []byte
}

var errMessage = errors.New("batch: malformed legacy message")

func (m *message) codec() Codec { return Codec(m.attributes & attrCodecMask) }

// nextMessage reads the message that p begins with; what it returns views p.
func nextMessage(p []byte) (m message, size int, err error) {
	size, err = entrySize(p)
	if err != nil {
		return m, 0, err
	}
	if size == 0 || size > len(p) || int8(p[posMagic]) > 1 {
		return m, 0, errMessage
	}
	p = p[:size]
	if want, got := binary.BigEndian.Uint32(p[12:]), crc32.ChecksumIEEE(p[16:]); want != got {
		return m, 0, fmt.Errorf("%w: message says %08x, bytes give %08x", ErrCRC, want, got)
	}
	m = message{offset: Header(p).BaseOffset(), magic: int8(p[posMagic]), attributes: p[17], timestamp: -1}
	rest := p[18:]
	if m.magic == 1 {
		m.timestamp = int64(binary.BigEndian.Uint64(rest))
		rest = rest[8:]
	}
	var ok bool
	if m.key, rest, ok = lengthBytes(rest); !ok {
		return m, 0, errMessage
	}
	if m.value, rest, ok = lengthBytes(rest); !ok || len(rest) != 0 {
		return m, 0, errMessage
	}
	return m, size, nil
}

// lengthBytes reads an int32 length and as many bytes; nil for −1.
func lengthBytes(p []byte) (b, rest []byte, ok bool) {
	if len(p) < 4 {
		return nil, nil, false
	}
	n := int32(binary.BigEndian.Uint32(p))
	p = p[4:]
	if n == -1 {
		return nil, p, true
	}
	if n < 0 || int(n) > len(p) {
		return nil, nil, false
	}
	return p[:n:n], p[n:], true
}

// DecodeLegacy returns the records of whole messages of format 0 or 1 that lie side by side, such as one Batch of an
// Iterator or a run of them. Offsets are absolute, wrappers are unpacked, times are the effective ones (−1 in format 0).
// The records view set, or memory of their own where it is compressed.
func (c *Codecs) DecodeLegacy(set []byte) ([]Record, error) {
	var records []Record
	err := c.eachLegacy(set, func(m *message, _ Codec) error {
		records = append(records, Record{Offset: m.offset, Timestamp: m.timestamp, Key: m.key, Value: m.value})
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Upgrade re-encodes whole messages of format 0 or 1 that lie side by side as v2 batches: one per contiguous run of
// offsets and codec, of at most maxBytes before compression (a record that is larger stays alone). Each has its base
// offset, CreateTime, no producer and no leader epoch. The batches are the caller's.
func (c *Codecs) Upgrade(set []byte, maxBytes int) ([][]byte, error) {
	runs := runWriter{codecs: c, maxBytes: maxBytes}
	var rest []byte
	err := c.eachLegacy(set, func(m *message, codec Codec) error {
		rest = appendRest(rest[:0], &Record{Key: m.key, Value: m.value})
		runs.codec = codec
		return runs.add(rawRecord{rest: rest}, m.offset, m.timestamp)
	})
	return runs.end(err)
}

// eachLegacy visits the records of a set in order, with absolute offsets and effective times, and says which codec each
// came in.
func (c *Codecs) eachLegacy(set []byte, visit func(*message, Codec) error) error {
	for len(set) > 0 {
		m, size, err := nextMessage(set)
		if err != nil {
			return err
		}
		set = set[size:]
		if m.codec() == None {
			err = visit(&m, None)
		} else {
			err = c.unwrap(&m, visit)
		}
		if err != nil {
			return fmt.Errorf("at offset %d: %w", m.offset, err)
		}
	}
	return nil
}

func (c *Codecs) unwrap(wrapper *message, visit func(*message, Codec) error) error {
	inner, err := c.innerMessages(wrapper)
	if err != nil {
		return err
	}
	shift := int64(0)
	if last := inner[len(inner)-1].offset; wrapper.magic == 1 && wrapper.offset != 0 {
		if shift = wrapper.offset - last; shift < 0 {
			return fmt.Errorf("batch: wrapper offset is below the last inner offset %d", last)
		}
	}
	for i := range inner {
		inner[i].offset += shift
		if wrapper.magic == 1 && wrapper.attributes&attrLogAppendTime != 0 {
			inner[i].timestamp = wrapper.timestamp
		}
		if err := visit(&inner[i], wrapper.codec()); err != nil {
			return err
		}
	}
	return nil
}

// innerMessages unpacks a wrapper, one level deep as in Kafka. At least one message.
func (c *Codecs) innerMessages(wrapper *message) ([]message, error) {
	value := wrapper.value
	switch codec := wrapper.codec(); {
	case codec > LZ4:
		return nil, fmt.Errorf("batch: codec %d in message format %d", codec, wrapper.magic)
	case codec == LZ4 && wrapper.magic == 0:
		value = mendLZ4(value)
	}
	set, err := c.decompress(nil, value, wrapper.codec())
	if err != nil {
		return nil, err
	}
	var inner []message
	for len(set) > 0 {
		m, size, err := nextMessage(set)
		switch {
		case err != nil:
			return nil, err
		case m.codec() != None:
			return nil, errors.New("batch: compressed message inside a compressed message")
		case m.magic != wrapper.magic:
			return nil, fmt.Errorf("batch: message of format %d inside format %d", m.magic, wrapper.magic)
		}
		inner, set = append(inner, m), set[size:]
	}
	if len(inner) == 0 {
		return nil, errors.New("batch: empty wrapper message")
	}
	return inner, nil
}

// mendLZ4 corrects the header checksum of an LZ4 frame. Format 0 clients summed the frame's magic number along with the
// descriptor (KAFKA-3160), and decoders refuse that. Frames that are right, or none, are returned as they are.
//
//	magic 4 | FLG 1 | BD 1 | [content size 8] | [dictionary id 4] | HC 1
func mendLZ4(frame []byte) []byte {
	if len(frame) < 7 || binary.LittleEndian.Uint32(frame) != 0x184d2204 {
		return frame
	}
	end := 6
	if frame[4]&0x08 != 0 {
		end += 8
	}
	if frame[4]&0x01 != 0 {
		end += 4
	}
	if len(frame) <= end {
		return frame
	}
	sum := byte(xxh32(frame[4:end]) >> 8)
	if frame[end] == sum {
		return frame
	}
	frame = slices.Clone(frame)
	frame[end] = sum
	return frame
}

// xxh32 is xxHash32 with seed 0 for inputs of less than 16 bytes, which an LZ4 descriptor is.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h += binary.LittleEndian.Uint32(b) * p3
		h = bits.RotateLeft32(h, 17) * p4
	}
	for _, c := range b {
		h += uint32(c) * p5
		h = bits.RotateLeft32(h, 11) * p1
	}
	h ^= h >> 15
	h *= p2
	h ^= h >> 13
	h *= p3
	return h ^ h>>16
}
