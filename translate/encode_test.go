package translate

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// sample is a map with something of everything.
func sample() *Map {
	m := must2(NewMap(100).AppendMirrored(100, 1, 50))
	m = must2(m.AppendMirrored(152, 51, 8))
	m = must2(m.OpenNative(170, 70))
	m = must2(m.CloseNative(190))
	m = must2(m.AppendMirrored(190, 95, 300))
	return must2(m.Advance(500))
}

func TestDecodingWhatIsDamagedFails(t *testing.T) {
	whole := sample().AppendBinary(nil)
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 0x10
		if _, err := DecodeMap(damaged); err == nil {
			t.Errorf("a map with byte %d changed is accepted", i)
		}
		if _, err := DecodeMap(whole[:i]); err == nil {
			t.Errorf("a map of %d of %d bytes is accepted", i, len(whole))
		}
	}
}

func TestDecodingRefusesWhatTheChecksumDoesNotCatch(t *testing.T) {
	uv := func(b []byte, xs ...uint64) []byte {
		for _, x := range xs {
			b = binary.AppendUvarint(b, x)
		}
		return b
	}
	run := func(records, kind, v uint64) []uint64 { return []uint64{records<<2 | kind<<1, v} }
	cases := []struct {
		name string
		body []byte
		want string
	}{
		{"another version", []byte{2, 0}, "format"},
		{"unknown flag", uv([]byte{formatMap, 2}, 0, 0, 0), "flags"},
		{"start too large", uv([]byte{formatMap, 0}, MaxOffset+1, 0, 0), "range"},
		{"frontier too large", uv([]byte{formatMap, 0}, MaxOffset, 1, 0), "range"},
		{"count without runs", uv([]byte{formatMap, 0}, 0, 10, 1<<40), "range"},
		{"empty run", uv([]byte{formatMap, 0}, append([]uint64{0, 10, 1}, run(0, 0, 0)...)...), "range"},
		{"run beyond the frontier", uv([]byte{formatMap, 0}, append([]uint64{0, 10, 1}, run(11, 0, 0)...)...), "invariant"},
		{"run too long", uv([]byte{formatMap, 0}, append([]uint64{0, 10, 1}, run(1<<62-1, 0, 1)...)...), "range"},
		{"open segment below the end", uv([]byte{formatMap, 1}, append([]uint64{0, 10, 9, 1}, run(10, 0, 0)...)...), "invariant"},
		{"trailing bytes", uv([]byte{formatMap, 0}, 0, 10, 0, 0), "after the end"},
		{"endless varint", append([]byte{formatMap, 0}, bytes.Repeat([]byte{0xff}, 11)...), "early"},
	}
	for _, c := range cases {
		if _, err := DecodeMap(seal(c.body, 0)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestTheEncodingStaysAsItIs(t *testing.T) {
	m := must2(must2(NewMap(5).AppendMirrored(6, 2, 3)).OpenNative(12, 9))
	want := []byte{1, 1, 5, 7, 9, 1, 3<<2 | 1, 1, 2}
	if got := m.AppendBinary(nil); !bytes.Equal(got[:len(got)-crcBytes], want) {
		t.Errorf("map: %v, want %v", got[:len(got)-crcBytes], want)
	}
	want = []byte{65, 1, 7, 1, 12, 9, 1, 3<<2 | 1, 0, 2}
	if got := m.AppendTail(nil, 7); !bytes.Equal(got[:len(got)-crcBytes], want) {
		t.Errorf("tail: %v, want %v", got[:len(got)-crcBytes], want)
	}
	want = []byte{129, 2, 3, 0, 1, 9}
	if got := (History{}).Append(3, 0).Append(5, 10).AppendBinary(nil); !bytes.Equal(got[:len(got)-crcBytes], want) {
		t.Errorf("history: %v, want %v", got[:len(got)-crcBytes], want)
	}
}

func TestATailOfARunThatOnlyGrewIsSmall(t *testing.T) {
	m := must2(NewMap(0).AppendMirrored(0, 0, 1_000_000))
	grown := must2(m.AppendMirrored(1_000_000, 1_000_000, 500))
	b := grown.AppendTail(nil, m.Frontier())
	if len(b) > 24 {
		t.Errorf("%d bytes", len(b))
	}
	if back := must2(m.ApplyTail(b)); back.Len() != 1 || back.Frontier() != 1_000_500 {
		t.Errorf("%d segments up to %d", back.Len(), back.Frontier())
	}
}

func TestATailThatDoesNotFitIsRefused(t *testing.T) {
	base := sample()
	open := must2(base.OpenNative(600, 400))
	cases := []struct {
		name string
		to   *Map
		tail []byte
		want string
	}{
		{"hole", base, must2(NewMap(0).AppendMirrored(600, 500, 1)).AppendTail(nil, 550), "known is up to"},
		{"below the start", base, NewMap(50).AppendTail(nil, 50), "starts at"},
		{"other physical place", base, must2(NewMap(100).AppendMirrored(100, 2, 50)).AppendTail(nil, 100), "the map has"},
		{"segment that we lack", base, must2(must2(NewMap(490).AppendMirrored(492, 900, 1)).Advance(600)).AppendTail(nil, 490), "the map has"},
		{"gap where we have records", base, must2(NewMap(100).Advance(600)).AppendTail(nil, 100), "segments more"},
		{"shorter run", base, must2(must2(must2(NewMap(100).AppendMirrored(100, 1, 40)).AppendMirrored(152, 51, 8)).Advance(170)).AppendTail(nil, 100), "the map has"},
		{"below the physical end", base, must2(NewMap(500).AppendMirrored(500, 10, 1)).AppendTail(nil, 500), "physical end"},
		{"open below the physical end", base, must2(NewMap(500).OpenNative(500, 10)).AppendTail(nil, 500), "physical end"},
		{"native that grows after its end", must2(must2(base.OpenNative(500, 400)).CloseNative(510)),
			must2(must2(base.OpenNative(500, 400)).CloseNative(520)).AppendTail(nil, 510), "the map has"},
		{"open elsewhere", open, must2(base.OpenNative(600, 401)).AppendTail(nil, 600), "the map has"},
		{"closed elsewhere", open, must2(must2(base.OpenNative(600, 401)).CloseNative(700)).AppendTail(nil, 600), "the map has"},
		{"a whole map", base, base.AppendBinary(nil), "format"},
	}
	for _, c := range cases {
		if _, err := c.to.ApplyTail(c.tail); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestAnOlderTailChangesNothing(t *testing.T) {
	older := must2(NewMap(0).AppendMirrored(0, 0, 10))
	newer := must2(must2(older.AppendMirrored(12, 10, 10)).Advance(40))
	got, err := newer.ApplyTail(older.AppendTail(nil, 0))
	if err != nil || got != newer {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestATailOpensAndClosesNativeSegments(t *testing.T) {
	base := must2(NewMap(0).AppendMirrored(0, 0, 10))
	open := must2(base.OpenNative(10, 12))
	closed := must2(open.CloseNative(30))
	empty := must2(open.CloseNative(10))
	for name, c := range map[string]struct {
		from Virtual
		a, b *Map
	}{
		"opened": {10, base, open}, "closed": {10, open, closed}, "opened and closed": {10, base, closed},
		"closed, told from within": {20, open, closed}, "closed empty": {10, open, empty},
	} {
		got, err := c.a.ApplyTail(c.b.AppendTail(nil, c.from))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !bytes.Equal(got.AppendBinary(nil), c.b.AppendBinary(nil)) {
			t.Errorf("%s: %v, want %v", name, slices.Collect(got.Segments()), slices.Collect(c.b.Segments()))
		}
	}
}

func FuzzDecodeMap(f *testing.F) {
	for _, m := range []*Map{sample(), Identity(), NewMap(7)} {
		f.Add(m.AppendBinary(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = resealed(b)
		m, err := DecodeMap(b)
		if err != nil {
			return
		}
		if m.SizeBytes() > 1<<10+64*len(b) {
			t.Fatalf("%d bytes of memory for %d bytes", m.SizeBytes(), len(b))
		}
		again, err := DecodeMap(m.AppendBinary(nil))
		if err != nil || !slices.Equal(slices.Collect(m.Segments()), slices.Collect(again.Segments())) {
			t.Fatalf("not stable: %v", err)
		}
		m.ToPhysical(m.start + 3)
		m.ToVirtual(3)
	})
}

func FuzzApplyTail(f *testing.F) {
	grown := must2(must2(sample().AppendMirrored(510, 400, 7)).OpenNative(600, 410))
	f.Add(grown.AppendTail(nil, 100))
	f.Add(grown.AppendTail(nil, 500))
	f.Add(sample().AppendTail(nil, 180))
	f.Fuzz(func(t *testing.T, b []byte) {
		base := sample()
		m, err := base.ApplyTail(resealed(b))
		if err != nil {
			return
		}
		if err := m.valid(); err != nil {
			t.Fatal(err)
		}
		for v := base.start; v < base.frontier; v++ {
			was, is := base.ToPhysical(v), m.ToPhysical(v)
			if was.Kind != is.Kind || was.Kind == Record && was.Physical != is.Physical {
				t.Fatalf("what was known at %d has changed: %+v, %+v", v, was, is)
			}
		}
	})
}

func FuzzDecodeHistory(f *testing.F) {
	f.Add(History{}.Append(3, 0).Append(5, 10).Append(22, 1<<40).AppendBinary(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = resealed(b)
		h, err := DecodeHistory(b)
		if err != nil {
			return
		}
		before := EpochStart{-1, -1}
		for e := range h.All() {
			if e.Epoch <= before.Epoch || e.Start <= before.Start {
				t.Fatalf("%v behind %v", e, before)
			}
			before = e
		}
		if again, err := DecodeHistory(h.AppendBinary(nil)); err != nil || !slices.Equal(h.entries, again.entries) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

// resealed gives b a right checksum, so that fuzzing gets behind it.
func resealed(b []byte) []byte {
	if len(b) < crcBytes {
		return b
	}
	return seal(slices.Clone(b[:len(b)-crcBytes]), 0)
}
