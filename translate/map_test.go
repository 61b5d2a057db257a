package translate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// oracle is the dumb map: one entry per record.
type oracle struct {
	start, frontier Virtual
	pairs           []pair
	open            bool
	openV           Virtual
	openP           Physical
	segments        []Segment // unmerged runs are merged by hand, for Segments and Len
}

type pair struct {
	v   Virtual
	p   Physical
	seg int // index in segments
}

func (o *oracle) add(k Kind, v Virtual, p Physical, n int64) {
	if l := len(o.segments); k == Mirrored && l > 0 && o.segments[l-1].Kind == Mirrored &&
		o.segments[l-1].Virtual+Virtual(o.segments[l-1].Records) == v && o.segments[l-1].Physical+Physical(o.segments[l-1].Records) == p {
		o.segments[l-1].Records += n
	} else {
		o.segments = append(o.segments, Segment{k, v, p, n})
	}
	for i := range n {
		o.pairs = append(o.pairs, pair{v + Virtual(i), p + Physical(i), len(o.segments) - 1})
	}
	o.frontier = v + Virtual(n)
}

func (o *oracle) physicalEnd() Physical {
	switch {
	case o.open:
		return o.openP
	case len(o.pairs) == 0:
		return 0
	}
	return o.pairs[len(o.pairs)-1].p + 1
}

func (o *oracle) openSegment() Segment { return Segment{Native, o.openV, o.openP, Open} }

func (o *oracle) toPhysical(v Virtual) Answer {
	if o.open && v >= o.openV {
		return Answer{Record, o.openP + Physical(v-o.openV), v, o.openSegment(), 0}
	}
	for _, r := range o.pairs {
		if r.v == v {
			return Answer{Record, r.p, v, o.segments[r.seg], 0}
		}
		if r.v > v {
			return Answer{Gap, r.p, r.v, o.segments[r.seg], r.v}
		}
	}
	switch {
	case o.open:
		return Answer{Gap, o.openP, o.openV, o.openSegment(), o.openV}
	case v < o.frontier:
		return Answer{Gap, o.physicalEnd(), o.frontier, Segment{}, o.frontier}
	case v == o.frontier:
		return Answer{End, o.physicalEnd(), o.frontier, Segment{}, 0}
	}
	return Answer{Unknown, -1, v, Segment{}, 0}
}

func (o *oracle) toVirtual(p Physical) Answer {
	if o.open && p >= o.openP {
		return Answer{Record, p, o.openV + Virtual(p-o.openP), o.openSegment(), 0}
	}
	for _, r := range o.pairs {
		if r.p == p {
			return Answer{Record, p, r.v, o.segments[r.seg], 0}
		}
		if r.p > p {
			return Answer{Gap, r.p, r.v, o.segments[r.seg], r.v}
		}
	}
	if o.open {
		return Answer{Gap, o.openP, o.openV, o.openSegment(), o.openV}
	}
	return Answer{End, o.physicalEnd(), o.frontier, Segment{}, 0}
}

func (o *oracle) gaps() (n int64) {
	at := o.start
	for _, r := range o.pairs {
		if r.v > at {
			n++
		}
		at = r.v + 1
	}
	if o.frontier > at {
		n++
	}
	return n
}

// history drives a map and its oracle with the same random operations, and keeps every snapshot's encoding.
type history struct {
	o oracle
	m *Map
}

func newHistory(pick func(n int) int) *history {
	if pick(2) == 0 {
		return &history{oracle{open: true}, Identity()}
	}
	start := Virtual(pick(20))
	return &history{oracle{start: start, frontier: start}, NewMap(start)}
}

// step does one operation; the oracle knows whether it must fail.
func (h *history) step(pick func(n int) int) error {
	var next *Map
	var err error
	o := h.o
	o.pairs, o.segments = slices.Clone(o.pairs), slices.Clone(o.segments)
	legal := true
	op := pick(10)
	switch {
	case op < 5:
		v, p, n := o.frontier+Virtual(pick(6)-1), o.physicalEnd()+Physical(pick(4)-1), int64(pick(7))
		if pick(2) == 0 {
			v, p = o.frontier, o.physicalEnd()
		}
		legal = !o.open && v >= o.frontier && p >= o.physicalEnd() && n > 0
		next, err = h.m.AppendMirrored(v, p, n)
		if legal {
			o.add(Mirrored, v, p, n)
		}
	case op < 7:
		v := o.frontier + Virtual(pick(6)-1)
		legal = !o.open && v >= o.frontier
		next, err = h.m.Advance(v)
		if legal {
			o.frontier = v
		}
	case op < 8:
		v, p := o.frontier+Virtual(pick(30)-1), o.physicalEnd()+Physical(pick(9)-1)
		legal = !o.open && v >= o.frontier && p >= o.physicalEnd()
		next, err = h.m.OpenNative(v, p)
		if legal {
			o.open, o.openV, o.openP, o.frontier = true, v, p, v
		}
	default:
		end := o.openV + Virtual(pick(12)-1)
		legal = o.open && end >= o.openV
		next, err = h.m.CloseNative(end)
		if legal {
			o.open = false
			o.frontier = o.openV
			if n := int64(end - o.openV); n > 0 {
				o.add(Native, o.openV, o.openP, n)
			}
		}
	}
	if legal != (err == nil) {
		return fmt.Errorf("operation %d: legal %v, error %v", op, legal, err)
	}
	if legal {
		h.o, h.m = o, next
	}
	return nil
}

// check compares every answer of m with the oracle's.
func (h *history) check(m *Map) error {
	o := &h.o
	if err := m.valid(); err != nil {
		return err
	}
	top := o.frontier + 15
	lastP := Physical(-1)
	for v := Virtual(-2); v < top; v++ {
		got, want := m.ToPhysical(v), o.toPhysical(v)
		if got != want {
			return fmt.Errorf("ToPhysical(%d) = %+v, want %+v", v, got, want)
		}
		if got.Kind != Unknown {
			if got.Physical < lastP {
				return fmt.Errorf("ToPhysical(%d) goes back to %d", v, got.Physical)
			}
			lastP = got.Physical
		}
		if end, ok := m.TerminalGap(v); ok != (want.Kind == Gap && (want.Segment.Records <= 0)) || ok && end != want.GapEnd {
			return fmt.Errorf("TerminalGap(%d) = %d, %v, want %+v", v, end, ok, want)
		}
	}
	lastV := Virtual(-1)
	for p := Physical(-2); p < o.physicalEnd()+15; p++ {
		got, want := m.ToVirtual(p), o.toVirtual(p)
		if got != want {
			return fmt.Errorf("ToVirtual(%d) = %+v, want %+v", p, got, want)
		}
		if got.Virtual < lastV {
			return fmt.Errorf("ToVirtual(%d) goes back to %d", p, got.Virtual)
		}
		lastV = got.Virtual
		if back := m.ToPhysical(got.Virtual); got.Kind == Record && back.Physical != p {
			return fmt.Errorf("ToVirtual(%d) = %d, which is at %d", p, got.Virtual, back.Physical)
		}
	}
	want := o.segments
	frontier := o.frontier
	if o.open {
		want, frontier = append(slices.Clone(want), o.openSegment()), endless
	}
	if got := slices.Collect(m.Segments()); !slices.Equal(got, want) || m.Len() != len(want) {
		return fmt.Errorf("segments %v (Len %d), want %v", got, m.Len(), want)
	}
	if m.Frontier() != frontier || m.Start() != o.start || m.PhysicalEnd() != o.physicalEnd() || m.Gaps() != o.gaps() {
		return fmt.Errorf("frontier %d, start %d, physical end %d, gaps %d; want %d, %d, %d, %d", m.Frontier(), m.Start(),
			m.PhysicalEnd(), m.Gaps(), frontier, o.start, o.physicalEnd(), o.gaps())
	}
	return nil
}

// checkEncoding decodes what m encodes to, whole and as tails of an older state.
func (h *history) checkEncoding(older *history, from Virtual) error {
	encoded := h.m.AppendBinary([]byte("prefix"))[len("prefix"):]
	decoded, err := DecodeMap(encoded)
	if err != nil {
		return err
	}
	if err := h.check(decoded); err != nil {
		return fmt.Errorf("decoded: %w", err)
	}
	if !bytes.Equal(decoded.AppendBinary(nil), encoded) {
		return fmt.Errorf("encoding is not stable")
	}
	tail := h.m.AppendTail([]byte("prefix"), from)[len("prefix"):]
	replayed, err := older.m.ApplyTail(tail)
	if err != nil {
		return fmt.Errorf("tail from %d: %w", from, err)
	}
	if err := h.check(replayed); err != nil {
		return fmt.Errorf("tail from %d: %w", from, err)
	}
	again, err := replayed.ApplyTail(tail)
	if err != nil {
		return fmt.Errorf("tail from %d, again: %w", from, err)
	}
	if err := older.check(older.m); err != nil {
		return fmt.Errorf("older snapshot changed: %w", err)
	}
	return h.check(again)
}

func seeded(seed uint64) func(int) int { return rand.New(rand.NewPCG(seed, 7)).IntN }

func TestRandomHistoriesAgreeWithTheOracle(t *testing.T) {
	seeds := 300
	if testing.Short() || raceEnabled {
		seeds = 60
	}
	for seed := range uint64(seeds) {
		pick := seeded(seed)
		h := newHistory(pick)
		older := *h
		for i := range 20 + pick(60) {
			if err := h.step(pick); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
			if i%5 == 0 {
				if err := h.check(h.m); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
			if pick(8) == 0 {
				from := older.o.frontier - Virtual(pick(3)*pick(40))
				if err := h.checkEncoding(&older, from); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
				older = *h
			}
		}
	}
}

// Long enough for several chunks.
func TestLongMirroredHistoriesAgreeWithTheOracle(t *testing.T) {
	for seed := range uint64(4) {
		pick := seeded(seed)
		h := &history{oracle{start: 5, frontier: 5}, NewMap(5)}
		older := *h
		for range 3*chunkRuns + 20 {
			v, p, n := h.o.frontier+Virtual(pick(4)), h.o.physicalEnd()+Physical(pick(3)), int64(1+pick(3))
			m, err := h.m.AppendMirrored(v, p, n)
			if err != nil {
				t.Fatal(err)
			}
			h.m = m
			h.o.add(Mirrored, v, p, n)
			if pick(60) == 0 {
				older = history{h.o, h.m}
				older.o.pairs, older.o.segments = slices.Clone(h.o.pairs), slices.Clone(h.o.segments)
			}
		}
		if err := h.check(h.m); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, from := range []Virtual{0, older.o.frontier / 2, older.o.frontier} {
			if err := h.checkEncoding(&older, from); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func TestCutoversBackAndForth(t *testing.T) {
	must := func(m *Map, err error) *Map {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	// Blue: native [0, 100), then a copy of green's era with a hole, then native again. Orphans lie at physical [100, 120).
	blue := must(Identity().CloseNative(100))
	blue = must(blue.AppendMirrored(150, 120, 10)) // a forced jump to 150 on the way out
	blue = must(blue.AppendMirrored(161, 130, 9))
	blue = must(blue.OpenNative(170, 141))
	// Green: a copy of [0, 100), native [150, 170), then a copy of blue's new era.
	green := must(NewMap(0).AppendMirrored(0, 1, 100))
	green = must(green.OpenNative(150, 101))
	green = must(green.CloseNative(170))
	green = must(green.AppendMirrored(170, 125, 5))

	for _, c := range []struct {
		name string
		got  Answer
		want Answer
	}{
		{"orphan", blue.ToVirtual(110), Answer{Gap, 120, 150, Segment{Mirrored, 150, 120, 10}, 150}},
		{"lost tail on blue", blue.ToPhysical(120), Answer{Gap, 120, 150, Segment{Mirrored, 150, 120, 10}, 150}},
		{"lost tail on green", green.ToPhysical(120), Answer{Gap, 101, 150, Segment{Native, 150, 101, 20}, 150}},
		{"marker of green's era", blue.ToPhysical(160), Answer{Gap, 130, 161, Segment{Mirrored, 161, 130, 9}, 161}},
		{"new era on blue", blue.ToPhysical(1000), Answer{Record, 971, 1000, Segment{Native, 170, 141, Open}, 0}},
		{"new era on green", green.ToPhysical(174), Answer{Record, 129, 174, Segment{Mirrored, 170, 125, 5}, 0}},
		{"not copied yet", green.ToPhysical(176), Answer{Unknown, -1, 176, Segment{}, 0}},
		{"end", green.ToPhysical(175), Answer{End, 130, 175, Segment{}, 0}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, c.got, c.want)
		}
	}
	if end, ok := blue.TerminalGap(120); ok {
		t.Errorf("a gap that records follow is terminal, end %d", end)
	}
}

func TestASegmentTranslatesWhatItHolds(t *testing.T) {
	for s := range sample().Segments() {
		for v := s.Virtual - 2; v < s.End()+2; v++ {
			p, ok := s.PhysicalOf(v)
			a := sample().ToPhysical(v)
			if want := a.Kind == Record && a.Segment == s; ok != want || ok && p != a.Physical {
				t.Errorf("%v: %d is at %d, %v; the map has %+v", s, v, p, ok, a)
			}
			if back, in := s.VirtualOf(p); in != ok || back != v {
				t.Errorf("%v: %d is at %d, which is %d, %v", s, v, p, back, in)
			}
		}
	}
	if p, ok := Identity().openSegment().PhysicalOf(1 << 40); p != 1<<40 || !ok {
		t.Errorf("open: %d, %v", p, ok)
	}
}

func TestAnEmptyNativeSegmentVanishes(t *testing.T) {
	m, _ := NewMap(0).AppendMirrored(0, 0, 10)
	m, _ = m.OpenNative(10, 12)
	m, err := m.CloseNative(10)
	if err != nil || m.Len() != 1 || m.PhysicalEnd() != 10 || m.Frontier() != 10 {
		t.Fatalf("%d segments, physical end %d, frontier %d, %v", m.Len(), m.PhysicalEnd(), m.Frontier(), err)
	}
	m, err = m.AppendMirrored(10, 10, 5)
	if err != nil || m.Len() != 1 {
		t.Fatalf("the run does not go on: %d segments, %v", m.Len(), err)
	}
}

func TestNativeSegmentsNeverMerge(t *testing.T) {
	m, _ := Identity().CloseNative(10)
	m, _ = m.OpenNative(10, 10)
	m, _ = m.CloseNative(20)
	m, _ = m.AppendMirrored(20, 20, 5)
	if m.Len() != 3 {
		t.Fatalf("%d segments, want 3: each era has its own epoch shift", m.Len())
	}
}

func TestAForcedJumpIsATerminalGapUntilSomethingFollows(t *testing.T) {
	const jump = 5_000_000_000
	m, _ := NewMap(0).AppendMirrored(0, 0, 900)
	m, _ = m.OpenNative(jump, 905)
	if end, ok := m.TerminalGap(900); !ok || end != jump {
		t.Fatalf("terminal gap [900, %d), %v", end, ok)
	}
	if _, ok := m.TerminalGap(jump); ok {
		t.Fatal("the new era is a gap")
	}
	if a := m.ToPhysical(1000); a.Kind != Gap || a.Physical != 905 || a.GapEnd != jump {
		t.Fatalf("%+v", a)
	}
}

func TestOffsetsAboveTheMaximumAreRefused(t *testing.T) {
	for name, err := range map[string]error{
		"append":     second(NewMap(0).AppendMirrored(MaxOffset, 0, 1)),
		"physical":   second(NewMap(0).AppendMirrored(0, MaxOffset, 1)),
		"records":    second(NewMap(0).AppendMirrored(0, 0, endless)),
		"negative":   second(NewMap(0).AppendMirrored(0, 0, Open)),
		"advance":    second(NewMap(0).Advance(MaxOffset + 1)),
		"open":       second(NewMap(0).OpenNative(MaxOffset+1, 0)),
		"close":      second(Identity().CloseNative(endless)),
		"close at p": second(must2(NewMap(0).OpenNative(0, MaxOffset)).CloseNative(1)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if m := NewMap(-5); m.Start() != 0 {
		t.Errorf("start %d", m.Start())
	}
}

func second(_ *Map, err error) error { return err }

func must2(m *Map, err error) *Map {
	if err != nil {
		panic(err)
	}
	return m
}

func TestBranchesDoNotDisturbEachOther(t *testing.T) {
	base := NewMap(0)
	const shared = 5*chunkRuns + 6 // the slices have room behind them
	for i := range Virtual(shared) {
		base = must2(base.AppendMirrored(i*4, Physical(i)*2, 1))
	}
	branches := []*Map{base, base, base}
	for i := Virtual(shared); i < 3*shared; i++ {
		for b := range branches {
			branches[b] = must2(branches[b].AppendMirrored(i*4+Virtual(b), Physical(i)*2, 1))
		}
	}
	for b, m := range branches {
		if err := m.valid(); err != nil {
			t.Errorf("branch %d: %v", b, err)
		}
		for i := Virtual(shared); i < 3*shared; i++ {
			if a := m.ToPhysical(i*4 + Virtual(b)); a.Kind != Record || a.Physical != Physical(i)*2 {
				t.Fatalf("branch %d, record %d: %+v", b, i, a)
			}
		}
	}
	if err := base.valid(); err != nil || base.Len() != shared || base.ToPhysical(shared*4).Kind != Unknown {
		t.Errorf("the base has changed: %d segments, %v", base.Len(), err)
	}
}

func TestReadersOfOldSnapshotsNeedNoLock(t *testing.T) {
	m := NewMap(0)
	snapshots := make(chan *Map, 16)
	done := make(chan error, 1)
	go func() {
		for s := range snapshots {
			if err := s.valid(); err != nil {
				done <- err
				for range snapshots {
				}
				return
			}
		}
		done <- nil
	}()
	for i := range Virtual(500) {
		m = must2(m.AppendMirrored(i*3, Physical(i)*2, 1))
		snapshots <- m
	}
	close(snapshots)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func FuzzMapOperations(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{1, 3, 0, 2, 2, 3, 1, 7, 9, 9, 8, 1, 0, 4, 4, 4, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 300 {
			return
		}
		at := 0
		pick := func(n int) int {
			if at >= len(script) {
				return 0
			}
			at++
			return int(script[at-1]) % n
		}
		h := newHistory(pick)
		older := *h
		for at < len(script) {
			if err := h.step(pick); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.check(h.m); err != nil {
			t.Fatal(err)
		}
		if err := h.checkEncoding(&older, older.o.frontier); err != nil {
			t.Fatal(err)
		}
	})
}
