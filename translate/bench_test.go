package translate

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// gappy makes a map of n segments with a gap before each, as transactions do: 1 to 400 records, a marker, and now and then a
// marker of ours on the target.
func gappy(n int) *Map {
	r := rand.New(rand.NewPCG(3, 4))
	m := NewMap(0)
	v, p := Virtual(0), Physical(0)
	for range n {
		v += Virtual(1 + r.IntN(3))
		if r.IntN(100) == 0 {
			p++
		}
		records := 1 + r.Int64N(400)
		m = must2(m.AppendMirrored(v, p, records))
		v, p = v+Virtual(records), p+Physical(records)
	}
	return m
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func TestTenMillionGapsFitIn64MB(t *testing.T) {
	gaps := 10_000_000
	if testing.Short() || raceEnabled {
		gaps = 500_000
	}
	before := heapBytes()
	m := gappy(gaps)
	heap := heapBytes() - before
	limit := int64(64<<20) * int64(gaps) / 10_000_000
	t.Logf("%d gaps: %.2f bytes each by SizeBytes, %.2f on the heap", m.Gaps(), float64(m.SizeBytes())/float64(gaps), float64(heap)/float64(gaps))
	if m.Gaps() != int64(gaps) {
		t.Errorf("%d gaps, want %d", m.Gaps(), gaps)
	}
	if heap > limit || int64(m.SizeBytes()) > limit || m.SizeBytes() > 6*gaps || heap > int64(6*gaps) {
		t.Errorf("%d bytes on the heap, SizeBytes %d, limit %d", heap, m.SizeBytes(), limit)
	}
	runtime.KeepAlive(m)
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	m := gappy(10_000)
	if n := testing.AllocsPerRun(100, func() {
		m.ToPhysical(m.frontier / 2)
		m.ToVirtual(Physical(m.frontier / 2))
		m.TerminalGap(m.frontier - 1)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkToPhysical(b *testing.B) {
	m := gappy(1_000_000)
	r := rand.New(rand.NewPCG(5, 6))
	b.ReportAllocs()
	for b.Loop() {
		m.ToPhysical(Virtual(r.Int64N(int64(m.frontier))))
	}
}

func BenchmarkToVirtual(b *testing.B) {
	m := gappy(1_000_000)
	r := rand.New(rand.NewPCG(5, 6))
	end := int64(m.PhysicalEnd())
	b.ReportAllocs()
	for b.Loop() {
		m.ToVirtual(Physical(r.Int64N(end)))
	}
}

func BenchmarkAppendAGap(b *testing.B) {
	m := NewMap(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m = must2(m.AppendMirrored(Virtual(i)*3, Physical(i)*2, 2))
	}
}

func BenchmarkGrowARun(b *testing.B) {
	m := NewMap(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m = must2(m.AppendMirrored(Virtual(i)*100, Physical(i)*100, 100))
	}
}
