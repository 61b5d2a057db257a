package translate

import (
	"fmt"
	"math"
)

// Virtual is an offset as clients see it: a place in the one logical log of a topic partition.
type Virtual int64

// Physical is an offset in one cluster's log of a topic partition.
type Physical int64

// Epoch is a virtual leader epoch, as clients see it; UnknownEpoch if not known.
type Epoch int32

// RealEpoch is a leader epoch as one cluster has it; -1 if not known.
type RealEpoch int32

// Generation grows by one at each cutover. The first is 1.
type Generation int64

// UnknownEpoch is the epoch of what has none, or none that is known.
const UnknownEpoch Epoch = -1

// Open is the record count of the open native segment: it has no end yet.
const Open int64 = -1

// MaxOffset bounds every offset of a map, so that sums and packed lengths cannot overflow. At a billion records a second
// a log reaches it after 73 years; an operation that would pass it fails.
const MaxOffset = 1 << 61

const endless = math.MaxInt64

// Kind says who wrote the records of a segment.
type Kind uint8

const (
	Mirrored Kind = iota // written by us, copied from the other cluster
	Native               // written by clients
)

func (k Kind) String() string {
	switch k {
	case Mirrored:
		return "mirrored"
	case Native:
		return "native"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Segment is a run where virtual − physical is constant. It covers [Virtual, End()) and [Physical, PhysicalEnd()).
type Segment struct {
	Kind     Kind
	Virtual  Virtual
	Physical Physical
	Records  int64 // length in offsets; Open for the open native segment. 0: no segment
}

// End is the virtual end (exclusive); math.MaxInt64 if the segment is open.
func (s Segment) End() Virtual { return Virtual(s.end(virtualSide)) }

// PhysicalEnd is the physical end (exclusive); math.MaxInt64 if the segment is open.
func (s Segment) PhysicalEnd() Physical { return Physical(s.end(physicalSide)) }

// PhysicalOf translates v without a look-up; false if the segment does not hold it. Segments only ever grow at their end, so
// what was true in one snapshot is true in all later ones: a reader that goes through a log in order asks the map once per
// segment.
func (s Segment) PhysicalOf(v Virtual) (Physical, bool) {
	return s.Physical + Physical(v-s.Virtual), v >= s.Virtual && v < s.End()
}

// VirtualOf is the inverse of PhysicalOf.
func (s Segment) VirtualOf(p Physical) (Virtual, bool) {
	return s.Virtual + Virtual(p-s.Physical), p >= s.Physical && p < s.PhysicalEnd()
}

// IsOpen says whether the segment still grows with what clients write.
func (s Segment) IsOpen() bool { return s.Records == Open }

func (s Segment) String() string {
	if s.IsOpen() {
		return fmt.Sprintf("%s [%d, …) at %d", s.Kind, s.Virtual, s.Physical)
	}
	return fmt.Sprintf("%s [%d, %d) at %d", s.Kind, s.Virtual, s.End(), s.Physical)
}

// side names the axis along which a segment is looked up, so that both directions share one search.
type side uint8

const (
	virtualSide side = iota
	physicalSide
)

func (s *Segment) start(by side) int64 {
	if by == virtualSide {
		return int64(s.Virtual)
	}
	return int64(s.Physical)
}

func (s *Segment) end(by side) int64 {
	if s.Records == Open {
		return endless
	}
	return s.start(by) + s.Records
}

// follows says whether next only lengthens s: it begins where s ends on both sides. Native segments never merge, because
// each is an era with its own epoch shift.
func (s *Segment) follows(next Segment) bool {
	return s.Kind == Mirrored && next.Kind == Mirrored &&
		s.end(virtualSide) == int64(next.Virtual) && s.end(physicalSide) == int64(next.Physical)
}
