package batch

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestHeaderAgreesWithKmsgOnEveryField(t *testing.T) {
	k := kmsg.RecordBatch{
		FirstOffset: 1 << 40, Length: 49 + 3, PartitionLeaderEpoch: 7, Magic: 2, CRC: -559038737, Attributes: 0x14 | 0x08 | 0x20 | 0x40,
		LastOffsetDelta: 11, FirstTimestamp: -3, MaxTimestamp: 1 << 41, ProducerID: 1<<62 + 5, ProducerEpoch: 300,
		FirstSequence: 1 << 30, NumRecords: 12, Records: []byte("abc"),
	}
	b := k.AppendTo(nil)
	h := Header(b)
	got := kmsg.RecordBatch{
		FirstOffset: h.BaseOffset(), Length: h.Length(), PartitionLeaderEpoch: h.LeaderEpoch(), Magic: h.Magic(), CRC: int32(h.CRC()),
		Attributes: h.Attributes(), LastOffsetDelta: h.LastOffsetDelta(), FirstTimestamp: h.FirstTimestamp(),
		MaxTimestamp: h.MaxTimestamp(), ProducerID: h.ProducerID(), ProducerEpoch: h.ProducerEpoch(),
		FirstSequence: h.FirstSequence(), NumRecords: h.NumRecords(), Records: b[HeaderSize:],
	}
	mustEqual(t, got, k)
	if h.Size() != len(b) || h.Codec() != Zstd || h.TimestampType() != LogAppendTime || !h.Transactional() || !h.Control() ||
		!h.HasDeleteHorizon() || h.HasHoles() || h.NextOffset() != 1<<40+12 {
		t.Fatal("derived values")
	}

	set := Header(make([]byte, len(b)))
	copy(set[HeaderSize:], "abc")
	set.SetBaseOffset(k.FirstOffset)
	set.SetLength(k.Length)
	set.SetLeaderEpoch(k.PartitionLeaderEpoch)
	set.SetMagic(k.Magic)
	set.SetCRC(uint32(k.CRC))
	set.SetAttributes(k.Attributes)
	set.SetLastOffsetDelta(k.LastOffsetDelta)
	set.SetFirstTimestamp(k.FirstTimestamp)
	set.SetMaxTimestamp(k.MaxTimestamp)
	set.SetProducerID(k.ProducerID)
	set.SetProducerEpoch(k.ProducerEpoch)
	set.SetFirstSequence(k.FirstSequence)
	set.SetNumRecords(k.NumRecords)
	mustEqual(t, []byte(set), b)
}

func TestLastSequenceWrapsToZero(t *testing.T) {
	h := Header(make([]byte, HeaderSize))
	for _, c := range []struct{ first, delta, want int32 }{
		{0, 0, 0}, {5, 4, 9}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32 - 1, 4, 2}, {-1, 3, -1},
	} {
		h.SetFirstSequence(c.first)
		h.SetLastOffsetDelta(c.delta)
		if got := h.LastSequence(); got != c.want {
			t.Errorf("%d + %d: got %d, want %d", c.first, c.delta, got, c.want)
		}
	}
}

func TestPatchChangesOnlyOffsetAndEpochAndKeepsTheChecksum(t *testing.T) {
	for _, codec := range codecNames {
		b := encode(t, oddRecords(0), Params{Codec: codec})
		patched := bytes.Clone(b)
		Patch(patched[:HeaderSize], 1<<50, 42)
		mustBeSound(t, patched)
		if h := Header(patched); h.BaseOffset() != 1<<50 || h.LeaderEpoch() != 42 {
			t.Fatal("not patched")
		}
		if !bytes.Equal(patched[posMagic:], b[posMagic:]) || !bytes.Equal(patched[8:12], b[8:12]) {
			t.Fatal("other bytes changed")
		}
	}
}

func TestRewriteFromTheHeaderAloneGivesAGoodChecksum(t *testing.T) {
	for _, size := range []int{0, 1, 2, 3, 7, 8, 100, 4096, 100_001, 1 << 21} {
		b := make([]byte, HeaderSize+size)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		h := Header(b)
		h.SetLength(int32(len(b) - prefixSize))
		h.SetMagic(2)
		h.SetAttributes(attrTransactional | attrDeleteHorizon | int16(Zstd))
		h.SetCRC(computeCRC(b))
		records := bytes.Clone(b[HeaderSize:])

		Rewrite(b[:HeaderSize:HeaderSize], 0, Producer{ID: 77, Epoch: 3, FirstSequence: 12})
		if err := CheckCRC(b); err != nil {
			t.Fatalf("%d bytes of records: %v", size, err)
		}
		if h.BaseOffset() != 0 || h.LeaderEpoch() != -1 || h.ProducerID() != 77 || h.ProducerEpoch() != 3 || h.FirstSequence() != 12 ||
			h.Transactional() || h.HasDeleteHorizon() || h.Codec() != Zstd {
			t.Fatalf("header not rewritten: %x", b[:HeaderSize])
		}
		SetProducer(b[:HeaderSize], Producer{ID: -1, Epoch: -1, FirstSequence: -1})
		if err := CheckCRC(b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(records, b[HeaderSize:]) {
			t.Fatal("records changed")
		}
	}
}

func TestRewriteDoesNotHideDamage(t *testing.T) {
	b := encode(t, oddRecords(0), Params{})
	b[HeaderSize+20] ^= 1
	Rewrite(b, 0, Producer{ID: 1})
	if err := CheckCRC(b); !errors.Is(err, ErrCRC) {
		t.Fatalf("got %v", err)
	}
}

func TestSetProducerKeepsTransactionalAndOffsets(t *testing.T) {
	b := encode(t, oddRecords(9), Params{BaseOffset: 9, LeaderEpoch: 4, Transactional: true, Producer: &Producer{1, 2, 3}})
	SetProducer(b, Producer{ID: 10, Epoch: 20, FirstSequence: 30})
	mustBeSound(t, b)
	if h := Header(b); !h.Transactional() || h.BaseOffset() != 9 || h.LeaderEpoch() != 4 || h.ProducerID() != 10 {
		t.Fatal("changed too much or too little")
	}
}

func TestValidNamesWhatIsBroken(t *testing.T) {
	good := encode(t, oddRecords(0), Params{})
	breakages := map[string]func(Header) Header{
		"short":            func(h Header) Header { return h[:HeaderSize-1] },
		"empty":            func(h Header) Header { return nil },
		"cut off":          func(h Header) Header { return h[:len(h)-1] },
		"longer":           func(h Header) Header { return append(h, 0) },
		"negative length":  func(h Header) Header { h.SetLength(-1); return h },
		"magic 1":          func(h Header) Header { h.SetMagic(1); return h },
		"magic 3":          func(h Header) Header { h.SetMagic(3); return h },
		"negative count":   func(h Header) Header { h.SetNumRecords(-1); return h },
		"negative delta":   func(h Header) Header { h.SetLastOffsetDelta(-1); return h },
		"too many records": func(h Header) Header { h.SetNumRecords(100); return h },
		"negative offset":  func(h Header) Header { h.SetBaseOffset(-1); return h },
		"offset overflow":  func(h Header) Header { h.SetBaseOffset(math.MaxInt64 - 2); return h },
		"codec 5":          func(h Header) Header { h.SetAttributes(5); return h },
		"producer id":      func(h Header) Header { h.SetProducerID(-2); return h },
		"producer epoch":   func(h Header) Header { h.SetProducerEpoch(-2); return h },
		"sequence":         func(h Header) Header { h.SetFirstSequence(-2); return h },
	}
	for name, breakIt := range breakages {
		if err := Valid(breakIt(bytes.Clone(good))); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestABatchEmptiedByTheCleanerIsValid(t *testing.T) {
	b := holed(t, nil, 100, 9, None)
	mustBeSound(t, b)
	if Header(b).NextOffset() != 110 || !Header(b).HasHoles() {
		t.Fatal("span of an empty batch")
	}
}

func BenchmarkPatch(bench *testing.B) {
	b := encode(bench, oddRecords(0), Params{})
	for bench.Loop() {
		Patch(b, 1, 2)
	}
}

func BenchmarkRewrite(bench *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		b := encode(bench, []Record{{Value: make([]byte, size)}}, Params{})
		bench.Run(byteName(size), func(bench *testing.B) {
			bench.SetBytes(int64(len(b)))
			for bench.Loop() {
				Rewrite(b, 0, Producer{ID: 1, Epoch: 2, FirstSequence: 3})
			}
		})
	}
}

func byteName(n int) string {
	if n >= 1<<20 {
		return "1MiB"
	}
	if n == 16<<10 {
		return "16KiB"
	}
	return "1KiB"
}

func BenchmarkCheckCRC(bench *testing.B) {
	b := encode(bench, []Record{{Value: make([]byte, 1<<20)}}, Params{})
	bench.SetBytes(int64(len(b)))
	for bench.Loop() {
		if err := CheckCRC(b); err != nil {
			bench.Fatal(err)
		}
	}
}
