package batch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// fuzzLimit keeps what one input may allocate small, so a fuzz run notices who does not keep to it.
const fuzzLimit = 1 << 20

func seeds(f *testing.F) {
	for _, codec := range codecNames {
		f.Add(encode(f, oddRecords(7), Params{Codec: codec, BaseOffset: 7}))
		f.Add(holed(f, pick(simpleRecords(0, 1, 9), 1, 5, 6), 0, 8, codec))
	}
	f.Add(GapMarker(nil, 0, 5<<31, 1))
	f.Add(holed(f, nil, 3, 4, None))
	for _, codec := range legacyCodecs[1:] {
		f.Add(legacyWrapper(f, 1, 9, codec, 0, 0, legacyMessage(1, 0, 0, 1, nil, []byte("x")), legacyMessage(1, 1, 0, 1, nil, []byte("y"))))
		f.Add(legacyWrapper(f, 0, 9, codec, 0, 0, legacyMessage(0, 9, 0, 0, []byte("k"), nil)))
	}
	f.Add([]byte{})
}

// Each entry lies inside the input, entries follow each other, and what is valid can be read and re-encoded or is refused.
func FuzzIter(f *testing.F) {
	seeds(f)
	c := NewCodecs(fuzzLimit)
	f.Fuzz(func(t *testing.T, in []byte) {
		it, pos := Iter(in), 0
		for it.Next() {
			b := it.Batch()
			if it.Pos() != pos || cap(b) != len(b) || !bytes.Equal(b, in[pos:pos+len(b)]) {
				t.Fatal("entry is not where it should be")
			}
			pos += len(b)
			if it.Legacy() {
				checkLegacy(t, c, b)
			} else if Valid(b) == nil {
				checkBatch(t, c, b)
			}
		}
		if it.Consumed() != pos || !it.Truncated() && it.Err() == nil && pos != len(in) {
			t.Fatal("bytes are unaccounted for")
		}
	})
}

func checkBatch(t *testing.T, c *Codecs, b []byte) {
	before := bytes.Clone(b)
	records, err := c.Decode(b)
	if Header(b).Control() {
		_, _, _ = ControlType(b)
	}
	parts, splitErr := c.SplitHoles(b)
	if err == nil && splitErr == nil {
		var again []Record
		for _, part := range parts {
			if Valid(part) != nil || Header(part).HasHoles() {
				t.Fatal("bad part")
			}
			again = append(again, must[[]Record](t)(c.Decode(part))...)
		}
		if len(again) != len(records) {
			t.Fatalf("%d records became %d", len(records), len(again))
		}
	}
	_, _ = c.ToCreateTime(b)
	_, _, _ = c.Coalesce(nil, [][]byte{b, b}, fuzzLimit)
	if !bytes.Equal(before, b) {
		t.Fatal("the input was changed")
	}
	good := CheckCRC(b) == nil
	Rewrite(b, 0, Producer{1, 2, 3})
	if (CheckCRC(b) == nil) != good {
		t.Fatal("Rewrite made a bad checksum good, or a good one bad")
	}
	copy(b, before)
}

func checkLegacy(t *testing.T, c *Codecs, b []byte) {
	records, err := c.DecodeLegacy(b)
	out, upErr := c.Upgrade(b, fuzzLimit)
	if err != nil && upErr == nil {
		t.Fatal("Upgrade took what DecodeLegacy refused")
	}
	n := 0
	for _, part := range out {
		mustBeSoundOrOutOfRange(t, part)
		n += int(Header(part).NumRecords())
	}
	if upErr == nil && n != len(records) {
		t.Fatalf("%d records became %d", len(records), n)
	}
}

// mustBeSoundOrOutOfRange: legacy offsets may be nonsense, which Valid then says.
func mustBeSoundOrOutOfRange(t *testing.T, b []byte) {
	if Header(b).BaseOffset() >= 0 {
		mustBeSound(t, b)
	}
}

func FuzzDecode(f *testing.F) {
	seeds(f)
	c := NewCodecs(fuzzLimit)
	f.Fuzz(func(t *testing.T, in []byte) {
		if Valid(in) != nil {
			return
		}
		records, err := c.Decode(in)
		if err != nil || len(records) == 0 {
			return
		}
		again := must[[]byte](t)(c.Encode(records, Params{Codec: Header(in).Codec(), BaseOffset: Header(in).BaseOffset()}))
		if n := len(must[[]Record](t)(NewCodecs(4 * fuzzLimit).Decode(again))); n != len(records) {
			t.Fatalf("%d records became %d", len(records), n)
		}
	})
}

// The checksums are mended, so that the fuzzer gets behind them; once as they are, once inside a wrapper.
func FuzzLegacy(f *testing.F) {
	for _, magic := range []int8{0, 1} {
		f.Add(legacyMessage(magic, 0, 0, 1, []byte("k"), []byte("v")), int64(9), byte(Gzip)|attrLogAppendTime)
		f.Add(append(legacyMessage(magic, 3, 0, 1, nil, nil), legacyMessage(magic, 5, 0, 1, nil, []byte{})...), int64(0), byte(LZ4))
		f.Add(legacyWrapper(f, magic, 9, Snappy, 0, 0, legacyMessage(magic, 0, 0, 1, nil, []byte("x"))), int64(4), byte(Snappy))
	}
	c := NewCodecs(fuzzLimit)
	f.Fuzz(func(t *testing.T, in []byte, offset int64, attributes byte) {
		set := bytes.Clone(in)
		for it := Iter(set); it.Next() && it.Legacy(); {
			m := it.Batch()
			binary.BigEndian.PutUint32(m[12:], crc32.ChecksumIEEE(m[16:]))
		}
		checkLegacy(t, c, set)
		if codec := Codec(attributes & attrCodecMask); codec <= Zstd && len(set) > posMagic {
			checkLegacy(t, c, legacyWrapper(t, int8(set[posMagic]&1), offset, codec, attributes&attrLogAppendTime, 77, set))
		}
	})
}

func FuzzValid(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if Valid(in) == nil && (len(in) != Header(in).Size() || Header(in).NextOffset() <= Header(in).BaseOffset()) {
			t.Fatal("invariants 1 or 4")
		}
	})
}
