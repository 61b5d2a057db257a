package translate

import (
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"unsafe"
)

// Map is the map of one partition on one cluster: virtual log ↔ physical log, a list of segments and gaps. A Map is an
// immutable snapshot: an operation that adds to it returns a new one, which shares storage with the old. Any number of
// goroutines may read any snapshot. Appending to the newest snapshot is cheap; appending to an older one is allowed and
// starts a branch, at the price of a copy. The zero Map is NewMap(0).
//
// Invariants, checked by valid:
//
//  1. Segments are sorted and disjoint, in virtual and in physical order alike; intervals are half open and not empty.
//  2. Only the last segment is open, and it is native. Every other segment ends at or before the frontier.
//  3. Nothing lies below the start, and the frontier is at or above it. All offsets are in [0, MaxOffset].
//  4. Everything in [start, frontier) is known: it is in a segment or it is a gap.
//  5. Runs that follow one another without a hole on either side are one segment, if both are mirrored.
//  6. The counts of segments, gaps and packed bytes are those of the list; a chunk has chunkRuns runs, the tail fewer.
//
// That a segment claims nothing that another writer wrote, and which cluster and topic ids the two sides have, is the
// business of the journal, which makes maps.
type Map struct {
	start    Virtual
	frontier Virtual // end of what is known about closed segments and gaps; the start of the open segment, if there is one

	// The closed segments, oldest first: chunks, then tail, then last. The arrays behind the slices are shared with other
	// snapshots, which have shorter slices of them.
	chunks []chunk
	tail   []Segment // fewer than chunkRuns
	last   Segment   // the newest closed segment, which may still grow; Records 0: none

	open     bool // there is an open native segment, from frontier on
	openedAt Physical

	closed      int64 // closed segments
	gaps        int64 // gaps that a closed segment follows
	packedBytes int   // in chunks

	newest *atomic.Uint64 // number of the newest snapshot of this storage, which alone may write behind the slices
	number uint64
}

// Identity returns the map of the first active cluster: one open native segment where virtual = physical.
func Identity() *Map { return &Map{open: true} }

// NewMap returns a map of which nothing is known yet. Below start nothing ever existed for us: it is the log start of the
// source. A negative start counts as 0.
func NewMap(start Virtual) *Map {
	start = max(start, 0)
	return &Map{start: start, frontier: start}
}

// next returns a private copy to add to, with the right to write behind the shared slices if m is the newest snapshot.
func (m *Map) next() *Map {
	c := *m
	c.number++
	if m.newest == nil || !m.newest.CompareAndSwap(m.number, c.number) {
		c.newest, c.number = new(atomic.Uint64), 0
		c.clip()
	}
	return &c
}

// AppendMirrored adds n records of ours at virtual v, physical p. v is at or above the frontier and p at or above
// PhysicalEnd; [Frontier, v) becomes a known gap.
func (m *Map) AppendMirrored(v Virtual, p Physical, n int64) (*Map, error) {
	s := Segment{Kind: Mirrored, Virtual: v, Physical: p, Records: n}
	if err := m.fits(s); err != nil {
		return nil, fmt.Errorf("append mirrored records: %w", err)
	}
	c := m.next()
	c.push(s)
	return c, nil
}

// Advance makes [Frontier, v) a known gap: an aborted transaction, a marker, a compacted tail.
func (m *Map) Advance(v Virtual) (*Map, error) {
	switch {
	case m.open:
		return nil, fmt.Errorf("advance the frontier to %d: %w", v, errOpen)
	case v < m.frontier:
		return nil, fmt.Errorf("advance the frontier to %d: it is at %d already", v, m.frontier)
	case v > MaxOffset:
		return nil, fmt.Errorf("advance the frontier to %d: %w", v, errTooLarge)
	case v == m.frontier:
		return m, nil
	}
	c := m.next()
	c.frontier = v
	return c, nil
}

// OpenNative begins the native segment of a new era at virtual v, physical p. v is at or above the frontier and p at or
// above PhysicalEnd; [Frontier, v) becomes a known gap (a forced jump).
func (m *Map) OpenNative(v Virtual, p Physical) (*Map, error) {
	if err := m.fits(Segment{Kind: Native, Virtual: v, Physical: p, Records: Open}); err != nil {
		return nil, fmt.Errorf("open a native segment: %w", err)
	}
	c := m.next()
	c.frontier, c.open, c.openedAt = v, true, p
	return c, nil
}

// CloseNative ends the open native segment at exactly end, which becomes the frontier. An empty segment vanishes.
func (m *Map) CloseNative(end Virtual) (*Map, error) {
	switch {
	case !m.open:
		return nil, fmt.Errorf("close the native segment at %d: none is open", end)
	case end < m.frontier:
		return nil, fmt.Errorf("close the native segment at %d: it starts at %d", end, m.frontier)
	case end > MaxOffset || int64(end-m.frontier) > MaxOffset-int64(m.openedAt):
		return nil, fmt.Errorf("close the native segment at %d: %w", end, errTooLarge)
	}
	c := m.next()
	c.open, c.openedAt = false, 0
	if n := int64(end - m.frontier); n > 0 {
		c.push(Segment{Kind: Native, Virtual: m.frontier, Physical: m.openedAt, Records: n})
	}
	return c, nil
}

var (
	errOpen     = errors.New("a native segment is open")
	errTooLarge = errors.New("offset above the maximum")
)

// fits says why s cannot be added behind what the map has; nil if it can.
func (m *Map) fits(s Segment) error {
	end := m.PhysicalEnd()
	switch {
	case m.open:
		return fmt.Errorf("%v: %w", s, errOpen)
	case s.Records <= 0 && (s.Records != Open || s.Kind != Native):
		return fmt.Errorf("%d records at virtual %d", s.Records, s.Virtual)
	case s.Virtual < m.frontier:
		return fmt.Errorf("virtual %d lies below the frontier %d", s.Virtual, m.frontier)
	case s.Physical < end:
		return fmt.Errorf("physical %d lies below the physical end %d", s.Physical, end)
	}
	n := max(s.Records, 0)
	if n > MaxOffset || int64(s.Virtual) > MaxOffset-n || int64(s.Physical) > MaxOffset-n {
		return fmt.Errorf("%d records at virtual %d, physical %d: %w", n, s.Virtual, s.Physical, errTooLarge)
	}
	return nil
}

// Start is the lowest virtual offset that ever existed for us.
func (m *Map) Start() Virtual { return m.start }

// Frontier is the first virtual offset of which nothing is known; math.MaxInt64 while a native segment is open.
func (m *Map) Frontier() Virtual {
	if m.open {
		return endless
	}
	return m.frontier
}

// PhysicalEnd is the physical end of the last closed segment, 0 if there is none; the start of the open segment, if there
// is one. What lies between it and the log end is no record of the virtual log: markers, strays, orphans.
func (m *Map) PhysicalEnd() Physical {
	if m.open {
		return m.openedAt
	}
	return m.lastPhysicalEnd()
}

// lastEnd is the virtual end of the last closed segment, or the start.
func (m *Map) lastEnd() Virtual {
	if m.last.Records == 0 {
		return m.start
	}
	return m.last.End()
}

func (m *Map) lastPhysicalEnd() Physical {
	if m.last.Records == 0 {
		return 0
	}
	return m.last.PhysicalEnd()
}

// openSegment is meaningful only while a native segment is open.
func (m *Map) openSegment() Segment {
	return Segment{Kind: Native, Virtual: m.frontier, Physical: m.openedAt, Records: Open}
}

// Segments yields all segments, oldest first.
func (m *Map) Segments() iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		if m.eachClosed(-1, yield) && m.open {
			yield(m.openSegment())
		}
	}
}

// Len is the number of segments.
func (m *Map) Len() int {
	if m.open {
		return int(m.closed) + 1
	}
	return int(m.closed)
}

// Gaps is the number of known gaps: maximal virtual ranges within [Start, Frontier) that no segment covers.
func (m *Map) Gaps() int64 {
	if m.frontier > m.lastEnd() {
		return m.gaps + 1
	}
	return m.gaps
}

// SizeBytes is the memory that the map holds, shared or not.
func (m *Map) SizeBytes() int {
	return int(unsafe.Sizeof(*m)) + cap(m.chunks)*int(unsafe.Sizeof(chunk{})) + m.packedBytes +
		cap(m.tail)*int(unsafe.Sizeof(Segment{}))
}

// valid returns the first broken invariant.
func (m *Map) valid() error {
	if m.start < 0 || m.frontier < m.start || m.frontier > MaxOffset {
		return fmt.Errorf("invariant 3: start %d, frontier %d", m.start, m.frontier)
	}
	before := Segment{Virtual: m.start} // ends at (start, 0)
	var closed, gaps int64
	for s := range m.Segments() {
		if s.IsOpen() {
			if s.Kind != Native || s.Virtual != m.frontier || s.Virtual < before.End() || s.Physical < before.PhysicalEnd() {
				return fmt.Errorf("invariant 2: %v behind %v, frontier %d", s, before, m.frontier)
			}
			break
		}
		if s.Records <= 0 || s.Kind > Native || s.Virtual < before.End() || s.Physical < before.PhysicalEnd() {
			return fmt.Errorf("invariant 1: %v behind %v", s, before)
		}
		if s.End() > m.frontier || int64(s.PhysicalEnd()) > MaxOffset {
			return fmt.Errorf("invariants 2 and 3: %v, frontier %d", s, m.frontier)
		}
		if before.Records > 0 && before.follows(s) {
			return fmt.Errorf("invariant 5: %v behind %v", s, before)
		}
		if s.Virtual > before.End() {
			gaps++
		}
		closed++
		before = s
	}
	return m.validCounts(closed, gaps)
}

func (m *Map) validCounts(closed, gaps int64) error {
	bytes := 0
	for i := range m.chunks {
		bytes += len(m.chunks[i].data)
	}
	kept := int64(len(m.chunks)*chunkRuns + len(m.tail))
	if m.last.Records > 0 {
		kept++
	}
	if closed != m.closed || kept != closed || gaps != m.gaps || bytes != m.packedBytes || len(m.tail) >= chunkRuns {
		return fmt.Errorf("invariant 6: segments %d, counted %d, kept %d; gaps %d, counted %d; packed bytes %d, counted %d; tail %d",
			m.closed, closed, kept, m.gaps, gaps, m.packedBytes, bytes, len(m.tail))
	}
	return nil
}
