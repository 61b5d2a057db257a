package batch

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// pick keeps the records at the given positions.
func pick(records []Record, at ...int) []Record {
	var out []Record
	for _, i := range at {
		out = append(out, records[i])
	}
	return out
}

func TestSplitHolesGivesOneBatchPerRun(t *testing.T) {
	for _, codec := range codecNames {
		all := simpleRecords(1000, 50, 20)
		kept := pick(all, 1, 2, 3, 7, 9, 10, 18)
		b := holed(t, kept, 1000, 19, codec)
		before := bytes.Clone(b)
		parts := must[[][]byte](t)(NewCodecs(0).SplitHoles(b))
		var got []Record
		var bases []int64
		for _, part := range parts {
			mustBeSound(t, part)
			h := Header(part)
			if h.HasHoles() || h.Codec() != codec || h.ProducerID() != -1 || h.LeaderEpoch() != -1 {
				t.Fatalf("%s: header of a part", codec)
			}
			bases = append(bases, h.BaseOffset())
			got = append(got, mustDecode(t, part)...)
		}
		mustEqual(t, bases, []int64{1001, 1007, 1009, 1018})
		mustEqual(t, got, kept)
		mustEqual(t, b, before)
	}
}

func TestSplitHolesKeepsDenseBatchesAndDropsEmptyOnes(t *testing.T) {
	c := NewCodecs(0)
	dense := encode(t, oddRecords(0), Params{})
	if parts := must[[][]byte](t)(c.SplitHoles(dense)); len(parts) != 1 || &parts[0][0] != &dense[0] {
		t.Fatal("a batch without holes was copied")
	}
	if parts := must[[][]byte](t)(c.SplitHoles(holed(t, nil, 7, 5, Gzip))); parts != nil {
		t.Fatal("an empty batch gave something")
	}
	if _, err := c.SplitHoles(GapMarker(nil, 0, 10, 0)); err == nil {
		t.Fatal("a control batch was re-encoded")
	}
}

func TestSplitHolesOfLogAppendTimeKeepsTheTimeReadersSaw(t *testing.T) {
	b := logAppend(holed(t, pick(simpleRecords(0, 5, 9), 0, 4), 0, 8, None), 77)
	for _, part := range must[[][]byte](t)(NewCodecs(0).SplitHoles(b)) {
		if Header(part).TimestampType() != CreateTime || mustDecode(t, part)[0].Timestamp != 77 {
			t.Fatal("time lost")
		}
	}
}

func TestSplitHolesRefusesOffsetsOutOfOrder(t *testing.T) {
	records := simpleRecords(0, 5, 3)
	records[1].Offset, records[2].Offset = 5, 4
	if _, err := NewCodecs(0).SplitHoles(holed(t, records, 0, 9, None)); err == nil {
		t.Fatal("accepted")
	}
}

func TestSplitSizeCutsBelowTheLimit(t *testing.T) {
	for _, codec := range codecNames {
		records := simpleRecords(30, 1, 100)
		records[50].Value = make([]byte, 5000) // alone above the limit
		b := encode(t, records, Params{Codec: codec, BaseOffset: 30})
		parts := must[[][]byte](t)(NewCodecs(0).SplitSize(b, 1000))
		var got []Record
		for _, part := range parts {
			mustBeSound(t, part)
			if len(part) > 1000 && Header(part).NumRecords() > 1 {
				t.Fatalf("%s: %d bytes", codec, len(part))
			}
			got = append(got, mustDecode(t, part)...)
		}
		if len(parts) < 3 || len(parts) > 15 {
			t.Fatalf("%s: %d parts", codec, len(parts))
		}
		mustEqual(t, got, records)
	}
}

func TestToCreateTimeKeepsEffectiveTimes(t *testing.T) {
	c := NewCodecs(0)
	for _, codec := range codecNames {
		b := logAppend(encode(t, oddRecords(8), Params{Codec: codec, BaseOffset: 8}), 1_800_000_000_000)
		out := must[[]byte](t)(c.ToCreateTime(b))
		mustBeSound(t, out)
		h := Header(out)
		if h.TimestampType() != CreateTime || h.Codec() != codec || h.MaxTimestamp() != 1_800_000_000_000 || h.FirstTimestamp() != h.MaxTimestamp() {
			t.Fatalf("%s: header", codec)
		}
		mustEqual(t, mustDecode(t, out), mustDecode(t, b))
		again := must[[]byte](t)(c.ToCreateTime(out))
		if &again[0] != &out[0] {
			t.Fatal("a batch with CreateTime was copied")
		}
	}
	if _, err := c.ToCreateTime(logAppend(holed(t, oddRecords(0)[:2], 0, 5, None), 1)); err == nil {
		t.Fatal("holes accepted")
	}
}

func TestCoalesceJoinsAsManyAsFit(t *testing.T) {
	c := NewCodecs(0)
	for _, codec := range codecNames {
		want := append(append(simpleRecords(0, 900, 3), oddRecords(3)...), simpleRecords(8, -100, 200)...)
		list := [][]byte{
			encode(t, want[:3], Params{Codec: codec, Producer: &Producer{4, 0, 0}, Transactional: true}),
			encode(t, want[3:8], Params{Codec: codec, BaseOffset: 3}),
			encode(t, want[8:], Params{Codec: codec, BaseOffset: 8}),
		}
		out, used, err := c.Coalesce([]byte("before"), list, 1<<20)
		if err != nil || used != 3 || string(out[:6]) != "before" {
			t.Fatalf("%s: used %d, %v", codec, used, err)
		}
		out = out[6:]
		mustBeSound(t, out)
		h := Header(out)
		if h.Codec() != codec || h.HasHoles() || h.BaseOffset() != 0 || h.Transactional() || h.ProducerID() != -1 {
			t.Fatalf("%s: header", codec)
		}
		mustEqual(t, mustDecode(t, out), want)
		mustEqual(t, kgoDecode(t, out, 0), want)

		raw, wire := len(encode(t, want[:8], Params{})), len(list[0])+len(list[1])-HeaderSize
		out, used, err = c.Coalesce(nil, list, max(raw, wire))
		if err != nil || used != 2 {
			t.Fatalf("%s: at the limit used %d, %v", codec, used, err)
		}
		mustEqual(t, mustDecode(t, out), want[:8])
		out, used, err = c.Coalesce(nil, list, min(raw, wire)-1)
		if err != nil || used != 1 || !bytes.Equal(out, list[0]) {
			t.Fatalf("%s: below the limit used %d, %v", codec, used, err)
		}
	}
}

func TestCoalesceStopsWhereBatchesDoNotBelongTogether(t *testing.T) {
	at := func(base int64, codec Codec) []byte {
		return encode(t, simpleRecords(base, 5, 2), Params{BaseOffset: base, Codec: codec})
	}
	first := at(10, None)
	for name, second := range map[string][]byte{
		"gap":             at(13, None),
		"overlap":         at(11, None),
		"codec":           at(12, LZ4),
		"timestamp type":  logAppend(at(12, None), 8),
		"control":         GapMarker(nil, 12, 14, 0),
		"holes":           holed(t, pick(simpleRecords(12, 5, 3), 0, 2), 12, 2, None),
		"holes at an end": holed(t, simpleRecords(12, 5, 2), 12, 5, None),
	} {
		if CanCoalesce(first, second) {
			t.Errorf("%s: may be joined", name)
		}
		out, used, err := NewCodecs(0).Coalesce(nil, [][]byte{first, second}, 1<<20)
		if err != nil || used != 1 || !bytes.Equal(out, first) {
			t.Errorf("%s: used %d, %v", name, used, err)
		}
	}
	if !CanCoalesce(first, at(12, None)) {
		t.Error("neighbours may not be joined")
	}
	control := GapMarker(nil, 8, 10, 0)
	if _, used, err := NewCodecs(0).Coalesce(nil, [][]byte{control, first}, 1<<20); used != 1 || err != nil {
		t.Error("joined to a control batch")
	}
}

func TestCoalesceOfLogAppendTimeKeepsTheTimeOfEachBatch(t *testing.T) {
	list := [][]byte{
		logAppend(encode(t, simpleRecords(0, 5, 2), Params{}), 100),
		logAppend(encode(t, simpleRecords(2, 5, 2), Params{BaseOffset: 2}), 90),
	}
	out, used, err := NewCodecs(0).Coalesce(nil, list, 1<<20)
	if used != 2 || err != nil || Header(out).TimestampType() != CreateTime || Header(out).MaxTimestamp() != 100 {
		t.Fatal(used, err)
	}
	var times []int64
	for _, r := range mustDecode(t, out) {
		times = append(times, r.Timestamp)
	}
	mustEqual(t, times, []int64{100, 100, 90, 90})
}

func TestCoalesceLeavesLargeCompressedBatchesAlone(t *testing.T) {
	noise := make([]byte, maxJoinBytes)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	large := encode(t, []Record{{Value: noise}}, Params{Codec: LZ4})
	small := encode(t, simpleRecords(1, 5, 1), Params{Codec: LZ4, BaseOffset: 1})
	out, used, err := NewCodecs(0).Coalesce(nil, [][]byte{large, small}, 1<<20)
	if used != 1 || err != nil || !bytes.Equal(out, large) {
		t.Fatal(used, err)
	}
}

func TestCoalesceOfDamagedRecordsFails(t *testing.T) {
	a, b := encode(t, simpleRecords(0, 5, 2), Params{}), encode(t, simpleRecords(2, 5, 2), Params{BaseOffset: 2})
	b[HeaderSize] = 0xff
	if out, used, err := NewCodecs(0).Coalesce([]byte("x"), [][]byte{a, b}, 1<<20); err == nil || used != 0 || string(out) != "x" {
		t.Fatal(used, err)
	}
}

func TestCoalesceOfRandomSplitsGivesTheSameRecords(t *testing.T) {
	c := NewCodecs(0)
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		want := simpleRecords(5, rng.Int64N(1<<41)-1<<40, 1+rng.IntN(300))
		codec := codecNames[rng.IntN(len(codecNames))]
		var list [][]byte
		for at := 0; at < len(want); {
			n := min(1+rng.IntN(20), len(want)-at)
			list = append(list, encode(t, want[at:at+n], Params{Codec: codec, BaseOffset: want[at].Offset}))
			at += n
		}
		limit := 100 + rng.IntN(4000)
		var got []Record
		for len(list) > 0 {
			out, used, err := c.Coalesce(nil, list, limit)
			if err != nil {
				t.Fatal(err)
			}
			if used > 1 && len(out) > limit && codec == None {
				t.Fatalf("%d bytes, limit %d", len(out), limit)
			}
			mustBeSound(t, out)
			got, list = append(got, mustDecode(t, out)...), list[used:]
		}
		mustEqual(t, got, want)
	}
}

func BenchmarkCoalesceOneRecordBatches(bench *testing.B) {
	c := NewCodecs(0)
	for _, codec := range []Codec{None, LZ4, Zstd} {
		var list [][]byte
		size := 0
		for i := range 500 {
			b := encode(bench, simpleRecords(int64(i), 0, 1), Params{Codec: codec, BaseOffset: int64(i)})
			list, size = append(list, b), size+len(b)
		}
		bench.Run(codec.String(), func(bench *testing.B) {
			bench.SetBytes(int64(size))
			bench.ReportAllocs()
			var dst []byte
			for bench.Loop() {
				var err error
				if dst, _, err = c.Coalesce(dst[:0], list, 1<<20); err != nil {
					bench.Fatal(err)
				}
			}
		})
	}
}
