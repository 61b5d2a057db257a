package translate

import "fmt"

// AnswerKind says what is at an offset.
type AnswerKind uint8

const (
	Unknown AnswerKind = iota // not known yet: a retriable error to clients, never -1, 0 or a guess
	Record                    // inside a segment
	Gap                       // known to hold no record of the virtual log
	End                       // exactly at the end of what is known
)

func (k AnswerKind) String() string {
	switch k {
	case Unknown:
		return "unknown"
	case Record:
		return "record"
	case Gap:
		return "gap"
	case End:
		return "end"
	}
	return fmt.Sprintf("answer(%d)", uint8(k))
}

// Answer is the translation of one offset. Virtual and Physical name one place, from which the asker goes on:
//
//	Record   the offset asked for, on both sides; Segment holds it
//	Gap      the start of the next segment, which is Segment; if none follows, (Frontier, PhysicalEnd) and no Segment
//	End      (Frontier, PhysicalEnd)
//	Unknown  the virtual offset asked for, and -1
//
// GapEnd is set for a gap alone, and equals Virtual.
type Answer struct {
	Kind     AnswerKind
	Physical Physical
	Virtual  Virtual
	Segment  Segment
	GapEnd   Virtual
}

// ToPhysical says where the first record at or after v is. Below the start everything is a gap. Inside the open native
// segment every offset is a Record, written already or not.
func (m *Map) ToPhysical(v Virtual) Answer {
	if m.open && v >= m.frontier {
		return recordAt(m.openSegment(), int64(v-m.frontier))
	}
	s, ok := m.seek(int64(v), virtualSide)
	switch {
	case ok && v >= s.Virtual:
		return recordAt(s, int64(v-s.Virtual))
	case ok:
		return gapBefore(s)
	case m.open:
		return gapBefore(m.openSegment())
	case v < m.frontier:
		return Answer{Kind: Gap, Physical: m.PhysicalEnd(), Virtual: m.frontier, GapEnd: m.frontier}
	case v == m.frontier:
		return Answer{Kind: End, Physical: m.PhysicalEnd(), Virtual: m.frontier}
	}
	return Answer{Kind: Unknown, Physical: -1, Virtual: v}
}

// ToVirtual says which record of the virtual log is the first at or after p. A place between two segments (a marker, a
// stray, an orphan) is a Gap; a place at or above PhysicalEnd is the End, unless a native segment is open there.
func (m *Map) ToVirtual(p Physical) Answer {
	if m.open && p >= m.openedAt {
		return recordAt(m.openSegment(), int64(p-m.openedAt))
	}
	s, ok := m.seek(int64(p), physicalSide)
	switch {
	case ok && p >= s.Physical:
		return recordAt(s, int64(p-s.Physical))
	case ok:
		return gapBefore(s)
	case m.open:
		return gapBefore(m.openSegment())
	}
	return Answer{Kind: End, Physical: m.PhysicalEnd(), Virtual: m.frontier}
}

func recordAt(s Segment, offset int64) Answer {
	return Answer{Kind: Record, Virtual: s.Virtual + Virtual(offset), Physical: s.Physical + Physical(offset), Segment: s}
}

func gapBefore(s Segment) Answer {
	return Answer{Kind: Gap, Virtual: s.Virtual, Physical: s.Physical, Segment: s, GapEnd: s.Virtual}
}

// TerminalGap says whether v lies in a gap that no closed segment follows, and where that gap ends: at the start of the
// open native segment, or at the frontier. Nothing may ever be written there that a reader at v would get, so the proxy
// shows a gap marker over [v, end).
func (m *Map) TerminalGap(v Virtual) (end Virtual, ok bool) {
	if v >= m.frontier || m.last.Records > 0 && v < m.last.End() {
		return 0, false
	}
	return m.frontier, true
}
