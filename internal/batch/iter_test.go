package batch

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestIterYieldsBatchesAndLegacyMessagesInOrder(t *testing.T) {
	parts := [][]byte{
		legacyMessage(0, 0, 0, 0, nil, []byte("zero")),
		legacyMessage(1, 1, 0, 5, []byte("k"), nil),
		encode(t, oddRecords(2), Params{BaseOffset: 2}),
		GapMarker(nil, 7, 100, 1),
		holed(t, nil, 100, 4, None),
		encode(t, simpleRecords(105, 0, 3), Params{BaseOffset: 105, Codec: Zstd}),
	}
	all := bytes.Join(parts, nil)
	it, pos := Iter(all), 0
	for i, want := range parts {
		if !it.Next() {
			t.Fatalf("ended before %d: %v", i, it.Err())
		}
		if !bytes.Equal(it.Batch(), want) || it.Legacy() != (i < 2) || it.Pos() != pos || it.Consumed() != pos+len(want) {
			t.Fatalf("entry %d differs", i)
		}
		pos += len(want)
	}
	if it.Next() || it.Err() != nil || it.Truncated() {
		t.Fatal("end")
	}
}

func TestIterIgnoresALastBatchCutOffAnywhere(t *testing.T) {
	first := encode(t, simpleRecords(0, 0, 2), Params{})
	for _, last := range [][]byte{encode(t, simpleRecords(2, 0, 2), Params{BaseOffset: 2}), legacyMessage(1, 2, 0, 5, nil, []byte("v"))} {
		for cut := 1; cut < len(last); cut++ {
			it := Iter(append(bytes.Clone(first), last[:cut]...))
			if !it.Next() || it.Next() || it.Err() != nil || !it.Truncated() || it.Consumed() != len(first) {
				t.Fatalf("cut at %d: err %v, truncated %v", cut, it.Err(), it.Truncated())
			}
		}
	}
}

func TestIterRefusesGarbage(t *testing.T) {
	cases := map[string]func([]byte){
		"magic":           func(b []byte) { b[posMagic] = 3 },
		"negative magic":  func(b []byte) { b[posMagic] = 0xff },
		"negative length": func(b []byte) { binary.BigEndian.PutUint32(b[posLength:], 0xffffff00) },
		"zero length":     func(b []byte) { binary.BigEndian.PutUint32(b[posLength:], 0) },
		"v2 too short":    func(b []byte) { binary.BigEndian.PutUint32(b[posLength:], 48) },
		"v1 too short":    func(b []byte) { b[posMagic] = 1; binary.BigEndian.PutUint32(b[posLength:], 21) },
		"v0 too short":    func(b []byte) { b[posMagic] = 0; binary.BigEndian.PutUint32(b[posLength:], 13) },
	}
	for name, spoil := range cases {
		first := encode(t, simpleRecords(0, 0, 2), Params{})
		second := bytes.Clone(first)
		spoil(second)
		it := Iter(append(first, second...))
		if !it.Next() || it.Next() || it.Err() == nil || it.Truncated() {
			t.Errorf("%s: err %v, truncated %v", name, it.Err(), it.Truncated())
		}
		if it.Next() {
			t.Errorf("%s: goes on after an error", name)
		}
	}
}

func TestIterAllocatesNothing(t *testing.T) {
	b := bytes.Repeat(encode(t, simpleRecords(0, 0, 2), Params{}), 10)
	if n := testing.AllocsPerRun(100, func() {
		it := Iter(b)
		for it.Next() {
			Patch(it.Batch(), 1, 1)
		}
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkIter(bench *testing.B) {
	b := bytes.Repeat(encode(bench, []Record{{Value: make([]byte, 1<<10)}}, Params{}), 1000)
	bench.SetBytes(int64(len(b)))
	bench.ReportAllocs()
	for bench.Loop() {
		it := Iter(b)
		for it.Next() {
			Patch(it.Batch(), 1, 1)
		}
	}
}
