package translate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func histories(entries ...EpochStart) (h History) {
	for _, e := range entries {
		h = h.Append(e.Epoch, e.Start)
	}
	return h
}

func TestAHistoryNeverGoesDown(t *testing.T) {
	h := histories(EpochStart{3, 0}, EpochStart{5, 100})
	for _, c := range []struct {
		name string
		got  History
		want []EpochStart
	}{
		{"same epoch", h.Append(5, 200), []EpochStart{{3, 0}, {5, 100}}},
		{"lower epoch", h.Append(4, 200), []EpochStart{{3, 0}, {5, 100}}},
		{"unknown epoch", h.Append(UnknownEpoch, 200), []EpochStart{{3, 0}, {5, 100}}},
		{"negative start", h.Append(6, -1), []EpochStart{{3, 0}, {5, 100}}},
		{"same start replaces", h.Append(6, 100), []EpochStart{{3, 0}, {6, 100}}},
		{"lower start drops what has no records", h.Append(6, 50), []EpochStart{{3, 0}, {6, 50}}},
		{"next", h.Append(6, 101), []EpochStart{{3, 0}, {5, 100}, {6, 101}}},
	} {
		if got := slices.Collect(c.got.All()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := slices.Collect(h.All()); !slices.Equal(got, []EpochStart{{3, 0}, {5, 100}}) {
		t.Errorf("the older history has changed: %v", got)
	}
}

func TestHistoryLookUps(t *testing.T) {
	h := histories(EpochStart{3, 10}, EpochStart{5, 100}, EpochStart{22, 5_000_000_000})
	for v, want := range map[Virtual]Epoch{0: -1, 9: -1, 10: 3, 99: 3, 100: 5, 4_999_999_999: 5, 5_000_000_000: 22, endless: 22} {
		if got := h.At(v); got != want {
			t.Errorf("At(%d) = %d, want %d", v, got, want)
		}
	}
	for _, c := range []struct {
		name  string
		asked Epoch
		epoch Epoch
		end   Virtual
		ok    bool
	}{
		{"first", 3, 3, 100, true},
		{"between", 4, 3, 100, true},
		{"last before a forced move ends where the new era starts", 5, 5, 5_000_000_000, true},
		{"never issued, below the margin", 21, 5, 5_000_000_000, true},
		{"last ends at the log end", 22, 22, 6_000_000_000, true},
		{"above the last is not known yet", 23, -1, -1, false},
		{"below the first, as a broker says", 1, 1, 10, true},
		{"unknown", UnknownEpoch, -1, -1, false},
	} {
		if e, end, ok := h.EndOf(c.asked, 6_000_000_000); e != c.epoch || end != c.end || ok != c.ok {
			t.Errorf("%s: EndOf(%d) = %d, %d, %v", c.name, c.asked, e, end, ok)
		}
	}
	var none History
	if _, _, ok := none.EndOf(0, 10); ok || none.At(5) != UnknownEpoch || none.Last() != UnknownEpoch {
		t.Error("an empty history knows something")
	}
}

func TestHistoriesSurviveEncoding(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var h History
		for range r.IntN(20) {
			h = h.Append(h.Last()+Epoch(r.IntN(5)), Virtual(r.IntN(1000)))
		}
		got, err := DecodeHistory(h.AppendBinary(nil))
		if err != nil || !slices.Equal(got.entries, h.entries) {
			t.Fatalf("seed %d: %v, %v, want %v", seed, got, err, h)
		}
	}
}

func TestANewEraIsShownAboveEverythingBefore(t *testing.T) {
	for _, highest := range []Epoch{-1, 0, 5, 1000} {
		for _, real := range []RealEpoch{-1, 0, 3, 500, 100_000} {
			s := ShiftFor(highest, real)
			first := s.Show(max(real, 0))
			if first <= highest+EpochMargin || s < 0 {
				t.Errorf("highest shown %d, real %d: shift %d, first shown %d", highest, real, s, first)
			}
			if back := s.Real(first); back != max(real, 0) {
				t.Errorf("highest shown %d, real %d: shown %d is real %d", highest, real, first, back)
			}
		}
	}
}

func TestUnknownEpochsStayUnknown(t *testing.T) {
	s := Shift(20)
	if s.Show(-1) != UnknownEpoch || s.Real(UnknownEpoch) != -1 {
		t.Error("an unknown epoch became known")
	}
	if s.Real(19) != -1 {
		t.Error("an epoch of an earlier era was given to this cluster")
	}
	if got := Shift(math.MaxInt32).Show(math.MaxInt32); got != math.MaxInt32 {
		t.Errorf("overflow: %d", got)
	}
}
