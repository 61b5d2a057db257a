package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

var legacyCodecs = []Codec{None, Gzip, Snappy, LZ4}

// C07: old message formats come out with the same keys, values, times and offsets.
func TestLegacyPlainMessagesKeepNullsTimesAndOffsets(t *testing.T) {
	set := bytes.Join([][]byte{
		legacyMessage(0, 5, 0, 0, nil, []byte("v0")),
		legacyMessage(0, 9, 0, 0, []byte("tombstone"), nil),
		legacyMessage(1, 10, 0, -7, []byte{}, []byte{}),
		legacyMessage(1, 11, attrLogAppendTime, 1234, []byte("k"), []byte("v1")),
	}, nil)
	mustEqual(t, must[[]Record](t)(NewCodecs(0).DecodeLegacy(set)), []Record{
		{Offset: 5, Timestamp: -1, Value: []byte("v0")},
		{Offset: 9, Timestamp: -1, Key: []byte("tombstone")},
		{Offset: 10, Timestamp: -7, Key: []byte{}, Value: []byte{}},
		{Offset: 11, Timestamp: 1234, Key: []byte("k"), Value: []byte("v1")},
	})
}

func TestLegacyWrappersGiveAbsoluteOffsets(t *testing.T) {
	inner := func(magic int8, offsets ...int64) (out [][]byte) {
		for _, o := range offsets {
			out = append(out, legacyMessage(magic, o, 0, 100+o, []byte("k"), []byte{byte(o)}))
		}
		return out
	}
	for _, codec := range legacyCodecs[1:] {
		for name, c := range map[string]struct {
			set  []byte
			want []int64
		}{
			"format 0, absolute":       {legacyWrapper(t, 0, 22, codec, 0, 0, inner(0, 20, 21, 22)...), []int64{20, 21, 22}},
			"format 0, compacted":      {legacyWrapper(t, 0, 29, codec, 0, 0, inner(0, 20, 25, 29)...), []int64{20, 25, 29}},
			"format 1, relative":       {legacyWrapper(t, 1, 1002, codec, 0, 0, inner(1, 0, 1, 2)...), []int64{1000, 1001, 1002}},
			"format 1, compacted":      {legacyWrapper(t, 1, 1009, codec, 0, 0, inner(1, 0, 4, 9)...), []int64{1000, 1004, 1009}},
			"format 1, wrapper at 0":   {legacyWrapper(t, 1, 0, codec, 0, 0, inner(1, 0, 1, 2)...), []int64{0, 1, 2}},
			"format 1, inner absolute": {legacyWrapper(t, 1, 1002, codec, 0, 0, inner(1, 1001, 1002)...), []int64{1001, 1002}},
		} {
			records := must[[]Record](t)(NewCodecs(0).DecodeLegacy(c.set))
			var got []int64
			for _, r := range records {
				got = append(got, r.Offset)
			}
			t.Run(name, func(t *testing.T) { mustEqual(t, got, c.want) })
			mustEqual(t, withoutTimes(kgoDecode(t, c.set, c.want[0])), withoutTimes(records))
		}
	}
}

// withoutTimes: a consumer shows "no time" in a way of its own.
func withoutTimes(records []Record) []Record {
	out := slices.Clone(records)
	for i := range out {
		out[i].Timestamp = 0
	}
	return out
}

func TestLegacyWrapperWithLogAppendTimeRulesItsMessages(t *testing.T) {
	set := legacyWrapper(t, 1, 8, Gzip, attrLogAppendTime, 555, legacyMessage(1, 0, 0, 1, nil, nil), legacyMessage(1, 1, 0, 2, nil, nil))
	for _, r := range must[[]Record](t)(NewCodecs(0).DecodeLegacy(set)) {
		if r.Timestamp != 555 {
			t.Fatal(r.Timestamp)
		}
	}
}

// The checksum byte of an LZ4 frame of a format 0 client covers the magic number too (KAFKA-3160).
func TestLegacyLZ4FrameWithTheOldHeaderChecksum(t *testing.T) {
	set := legacyWrapper(t, 0, 3, LZ4, 0, 0, legacyMessage(0, 3, 0, 0, nil, bytes.Repeat([]byte("x"), 1000)))
	frame := set[26:] // offset, size, crc, magic, attributes, null key, length of the value
	if binary.LittleEndian.Uint32(frame) != 0x184d2204 {
		t.Fatal("not at the frame")
	}
	right := frame[6]
	if frame[6] = byte(xxh32(frame[:6]) >> 8); frame[6] == right {
		t.Fatal("the old checksum is the same: choose other bytes")
	}
	m := legacyMessage(0, 3, byte(LZ4), 0, nil, frame)
	records := must[[]Record](t)(NewCodecs(0).DecodeLegacy(m))
	mustEqual(t, records, []Record{{Offset: 3, Timestamp: -1, Value: bytes.Repeat([]byte("x"), 1000)}})
}

func TestUpgradeWritesDenseV2Batches(t *testing.T) {
	set := bytes.Join([][]byte{
		legacyMessage(0, 5, 0, 0, nil, []byte("a")),
		legacyMessage(1, 6, 0, 60, []byte("k"), nil),
		legacyMessage(1, 9, 0, 90, nil, []byte("after a hole")),
		legacyWrapper(t, 1, 12, Gzip, 0, 0, legacyMessage(1, 0, 0, 100, nil, []byte("x")), legacyMessage(1, 2, 0, 120, nil, []byte("y"))),
		legacyWrapper(t, 1, 14, Gzip, 0, 0, legacyMessage(1, 0, 0, 130, nil, []byte("z")), legacyMessage(1, 1, 0, 140, nil, []byte("z"))),
	}, nil)
	c := NewCodecs(0)
	out := must[[][]byte](t)(c.Upgrade(set, 1<<20))
	var got []Record
	var bases []int64
	var codecs []Codec
	for _, b := range out {
		mustBeSound(t, b)
		bases, codecs = append(bases, Header(b).BaseOffset()), append(codecs, Header(b).Codec())
		got = append(got, mustDecode(t, b)...)
	}
	mustEqual(t, bases, []int64{5, 9, 10, 12})
	mustEqual(t, codecs, []Codec{None, None, Gzip, Gzip})
	mustEqual(t, got, must[[]Record](t)(c.DecodeLegacy(set)))

	if out := must[[][]byte](t)(c.Upgrade(set, 1)); len(out) != 7 {
		t.Fatalf("at a limit of one byte: %d batches", len(out))
	}
}

func TestLegacyRefusesWhatItCannotCarryOver(t *testing.T) {
	good := legacyMessage(1, 3, 0, 1, []byte("k"), []byte("v"))
	damaged := bytes.Clone(good)
	damaged[len(damaged)-1] ^= 1
	v1 := legacyMessage(1, 1, 0, 1, nil, nil)
	for name, set := range map[string][]byte{
		"cut off":               good[:len(good)-1],
		"a v2 batch":            encode(t, simpleRecords(0, 0, 1), Params{}),
		"wrapper in wrapper":    legacyWrapper(t, 1, 1, Gzip, 0, 0, legacyWrapper(t, 1, 1, Gzip, 0, 0, v1)),
		"format 0 in format 1":  legacyWrapper(t, 1, 1, Gzip, 0, 0, legacyMessage(0, 1, 0, 0, nil, nil)),
		"empty wrapper":         legacyWrapper(t, 1, 1, Gzip, 0, 0),
		"null wrapper":          legacyMessage(1, 1, byte(Gzip), 0, nil, nil),
		"wrapper below inner":   legacyWrapper(t, 1, 1, Gzip, 0, 0, legacyMessage(1, 5, 0, 0, nil, nil)),
		"zstd":                  legacyWrapper(t, 1, 1, Zstd, 0, 0, v1),
		"half an inner message": legacyWrapper(t, 1, 1, Gzip, 0, 0, v1, good[:15]),
		"not compressed at all": legacyMessage(1, 1, byte(Gzip), 0, nil, []byte("plain")),
	} {
		if _, err := NewCodecs(0).DecodeLegacy(set); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewCodecs(0).DecodeLegacy(damaged); !errors.Is(err, ErrCRC) {
		t.Errorf("damaged: %v", err)
	}
	bomb := legacyWrapper(t, 1, 1, Gzip, 0, 0, legacyMessage(1, 0, 0, 0, nil, make([]byte, 1<<20)))
	if _, err := NewCodecs(1 << 16).DecodeLegacy(bomb); !errors.Is(err, ErrTooLarge) {
		t.Errorf("bomb: %v", err)
	}
	backwards := append(bytes.Clone(good), v1...)
	if _, err := NewCodecs(0).Upgrade(backwards, 1<<20); err == nil {
		t.Error("offsets that go back: accepted")
	}
}
