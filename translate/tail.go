package translate

import (
	"encoding/binary"
	"fmt"
)

// AppendTail appends to dst what m knows from virtual offset from on: the segments that end after it, whole, the frontier
// and the open segment. With from = the frontier at the last record of the journal, the tail is what that record lacks; a
// run that has only grown is one segment, stated from its start. The layout is at AppendBinary.
func (m *Map) AppendTail(dst []byte, from Virtual) []byte {
	from = min(max(from, m.start), m.frontier)
	base, count := from, int64(0)
	m.eachClosed(from, func(s Segment) bool {
		base = min(base, s.Virtual)
		count++
		return true
	})
	start := len(dst)
	dst = append(dst, formatTail, m.flags())
	dst = binary.AppendUvarint(dst, uint64(from))
	dst = binary.AppendUvarint(dst, uint64(from-base))
	dst = binary.AppendUvarint(dst, uint64(m.frontier))
	dst = m.appendRuns(dst, from, base, count)
	return seal(dst, start)
}

// ApplyTail returns the map that a tail of it was made from, given an earlier state of it that reaches up to the tail's
// from. Tails are applied in the order in which they were made; one that is applied again, or that says less than m knows,
// changes nothing. A tail that contradicts m is an error, and so is one that leaves a hole.
func (m *Map) ApplyTail(b []byte) (*Map, error) {
	t, err := decodeTail(b)
	if err == nil {
		err = m.agrees(t)
	}
	if err != nil {
		return nil, fmt.Errorf("apply the tail of a map: %w", err)
	}
	if t.frontier < m.frontier || t.frontier == m.frontier && t.open == m.open {
		return m, nil // agrees has compared what it says
	}
	c := m.next()
	known := m.frontier
	c.open, c.openedAt = t.open, t.openedAt
	t.each(func(s Segment) {
		if s.End() > known {
			c.push(s.from(known))
		}
	})
	c.frontier = t.frontier
	return c, nil
}

// from returns the part of s at or after v; v lies before its end.
func (s Segment) from(v Virtual) Segment {
	if cut := int64(v - s.Virtual); cut > 0 {
		s.Virtual += Virtual(cut)
		s.Physical += Physical(cut)
		s.Records -= cut
	}
	return s
}

// tail is a decoded tail. Its segments stay encoded, so that a large one costs no memory.
type tail struct {
	base     Virtual // from here on the tail says all that its map knew
	frontier Virtual
	open     bool
	openedAt Physical // 0 unless open
	count    int
	runs     decoder // at the first segment; checked by decodeTail
}

func decodeTail(b []byte) (tail, error) {
	d := openDecoder(b, formatTail)
	t := tail{open: d.flags()&flagOpen != 0}
	from := d.offset(0)
	back := d.offset(0)
	t.frontier = Virtual(d.offset(0))
	if back > from || from > int64(t.frontier) {
		d.fail(errNumber)
	}
	t.base = Virtual(from - back)
	if t.open {
		t.openedAt = Physical(d.offset(0))
	}
	t.count = d.count(2)
	t.runs = d
	v, p := t.base, Physical(0)
	for range t.count {
		s := d.run(v, p)
		if d.err != nil {
			return tail{}, d.err
		}
		v, p = s.End(), s.PhysicalEnd()
	}
	if v > t.frontier || t.open && p > t.openedAt {
		d.fail(errNumber)
	}
	return t, d.finish()
}

// each calls f for every segment, oldest first.
func (t tail) each(f func(Segment)) {
	v, p := t.base, Physical(0)
	for range t.count {
		s := t.runs.run(v, p)
		f(s)
		v, p = s.End(), s.PhysicalEnd()
	}
}

// agrees says why t cannot be a tail of a later, or earlier, state of m; nil if it can.
func (m *Map) agrees(t tail) error {
	switch {
	case t.base > m.frontier:
		return fmt.Errorf("it starts at %d, known is up to %d", t.base, m.frontier)
	case t.base < m.start:
		return fmt.Errorf("it starts at %d, the map at %d", t.base, m.start)
	}
	limit := min(m.frontier, t.frontier) // both know all of [t.base, limit)
	missing := 0
	m.eachClosed(t.base, func(s Segment) bool {
		if s.Virtual < limit {
			missing++
		}
		return s.Virtual < limit
	})
	var err error
	t.each(func(s Segment) {
		switch {
		case err != nil:
		case s.Virtual < limit:
			missing--
			err = m.agreesOn(s, limit)
		default:
			err = m.takes(s)
		}
	})
	switch {
	case err != nil:
		return err
	case missing != 0:
		return fmt.Errorf("between %d and %d the map has %+d segments more", t.base, limit, missing)
	case t.open && t.frontier >= m.frontier:
		return m.takes(Segment{Kind: Native, Virtual: t.frontier, Physical: t.openedAt, Records: Open})
	}
	return nil
}

// takes says why a segment of a tail cannot come behind the closed part of m, or be the end of its open segment.
func (m *Map) takes(s Segment) error {
	if s.Physical < m.lastPhysicalEnd() {
		return fmt.Errorf("it has %v, below the physical end %d", s, m.lastPhysicalEnd())
	}
	if m.open && s.Kind == Native && s.Virtual == m.frontier && s.Physical != m.openedAt {
		return fmt.Errorf("it has %v, the map has %v", s, m.openSegment())
	}
	return nil
}

// agreesOn compares a segment of a tail that starts below limit with ours. As segments only grow at their end, and only
// mirrored ones do once they are closed, it is the same or one of the two is longer.
func (m *Map) agreesOn(s Segment, limit Virtual) error {
	ours, ok := m.seek(int64(s.Virtual), virtualSide)
	grown := s.End() > limit || ours.End() > limit
	if !ok || ours.Virtual != s.Virtual || ours.Physical != s.Physical || ours.Kind != s.Kind ||
		min(ours.End(), limit) != min(s.End(), limit) || grown && s.Kind == Native {
		return fmt.Errorf("it has %v, the map has %v", s, ours)
	}
	return nil
}
