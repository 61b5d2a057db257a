package translate

import (
	"encoding/binary"
	"slices"
)

// chunkRuns is the number of runs in one chunk: a look-up decodes half of them on average, and the 32 bytes of a chunk's
// header are shared by all.
const chunkRuns = 64

// chunk holds chunkRuns closed segments. The runs follow one another in data, each as
//
//	uvarint  records<<2 | kind<<1 | moved
//	uvarint  virtual offsets between the end of the run before (the chunk's base, for the first) and this run
//	uvarint  the same in physical offsets; present only if moved is 1, otherwise there are none
//
// A typical gap (a transaction marker or a few compacted records) takes 2 to 4 bytes.
type chunk struct {
	v    Virtual  // start of the first run
	p    Physical // start of the first run
	data string   // immutable, exactly sized
}

func (c *chunk) start(by side) int64 {
	if by == virtualSide {
		return int64(c.v)
	}
	return int64(c.p)
}

// packRuns makes a chunk; runs is not kept.
func packRuns(runs []Segment) chunk {
	c := chunk{v: runs[0].Virtual, p: runs[0].Physical}
	buf := make([]byte, 0, 8*chunkRuns)
	v, p := c.v, c.p
	for _, s := range runs {
		buf = appendRun(buf, v, p, s)
		v, p = s.End(), s.PhysicalEnd()
	}
	c.data = string(buf)
	return c
}

// appendRun encodes s behind a run that ended at (v, p).
func appendRun(dst []byte, v Virtual, p Physical, s Segment) []byte {
	head := uint64(s.Records)<<2 | uint64(s.Kind)<<1
	moved := uint64(s.Physical - p)
	if moved != 0 {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	dst = binary.AppendUvarint(dst, uint64(s.Virtual-v))
	if moved != 0 {
		dst = binary.AppendUvarint(dst, moved)
	}
	return dst
}

// runs is a cursor over a chunk. It trusts the data, which packRuns made.
type runs struct {
	data string
	v    Virtual
	p    Physical
}

func (c *chunk) runs() runs { return runs{data: c.data, v: c.v, p: c.p} }

func (r *runs) next() (s Segment, ok bool) {
	if len(r.data) == 0 {
		return Segment{}, false
	}
	head := r.uvarint()
	s.Kind = Kind(head >> 1 & 1)
	s.Records = int64(head >> 2)
	s.Virtual = r.v + Virtual(r.uvarint())
	s.Physical = r.p
	if head&1 != 0 {
		s.Physical += Physical(r.uvarint())
	}
	r.v = s.Virtual + Virtual(s.Records)
	r.p = s.Physical + Physical(s.Records)
	return s, true
}

func (r *runs) uvarint() uint64 {
	data := r.data
	x := uint64(data[0])
	i := 1
	if x >= 0x80 {
		x &= 0x7f
		for shift := 7; ; shift += 7 {
			b := data[i]
			i++
			x |= uint64(b&0x7f) << shift
			if b < 0x80 {
				break
			}
		}
	}
	r.data = data[i:]
	return x
}

// seek returns the first closed segment that ends after x, false if there is none.
func (m *Map) seek(x int64, by side) (Segment, bool) {
	if m.last.Records == 0 || x >= m.last.end(by) {
		return Segment{}, false
	}
	if x >= m.last.start(by) {
		return m.last, true
	}
	if len(m.tail) > 0 && x >= m.tail[0].start(by) {
		return m.seekTail(x, by), true
	}
	i := m.chunkOf(x, by)
	if i < 0 {
		return m.firstOf(0), true
	}
	for r := m.chunks[i].runs(); ; {
		s, ok := r.next()
		if !ok {
			return m.firstOf(i + 1), true
		}
		if x < s.end(by) {
			return s, true
		}
	}
}

// seekTail does the work of seek for x at or after the first run of the tail and before the last run.
func (m *Map) seekTail(x int64, by side) Segment {
	lo, hi := 0, len(m.tail) // every run before lo ends at or before x, every run from hi on ends after x
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.tail[mid].end(by) <= x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(m.tail) {
		return m.tail[lo]
	}
	return m.last
}

// chunkOf returns the last chunk that starts at or before x, -1 if there is none.
func (m *Map) chunkOf(x int64, by side) int {
	lo, hi := 0, len(m.chunks) // chunks before lo start at or before x, chunks from hi on start after x
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.chunks[mid].start(by) <= x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// firstOf returns the first closed segment from chunk i on. There is one: the last run is not in a chunk.
func (m *Map) firstOf(i int) Segment {
	if i < len(m.chunks) {
		r := m.chunks[i].runs()
		s, _ := r.next()
		return s
	}
	if len(m.tail) > 0 {
		return m.tail[0]
	}
	return m.last
}

// eachClosed calls yield for every closed segment that ends after v, in order, until it returns false.
func (m *Map) eachClosed(v Virtual, yield func(Segment) bool) bool {
	for i := max(m.chunkOf(int64(v), virtualSide), 0); i < len(m.chunks); i++ {
		for r := m.chunks[i].runs(); ; {
			s, ok := r.next()
			if !ok {
				break
			}
			if s.End() > v && !yield(s) {
				return false
			}
		}
	}
	for _, s := range m.tail {
		if s.End() > v && !yield(s) {
			return false
		}
	}
	if m.last.Records > 0 && m.last.End() > v {
		return yield(m.last)
	}
	return true
}

// push adds a closed segment at or after the frontier and moves the frontier to its end. m is a private copy that nobody
// else has seen, with the right to write behind the shared slices (see next).
func (m *Map) push(s Segment) {
	known := m.lastEnd()
	m.frontier = s.End()
	if m.last.Records > 0 {
		if m.last.follows(s) {
			m.last.Records += s.Records
			return
		}
		m.retire(m.last)
	}
	if s.Virtual > known {
		m.gaps++
	}
	m.closed++
	m.last = s
}

// retire moves a run that cannot grow any more to the tail, and a full tail into a chunk. The array of a packed tail is
// left to the older snapshots that use it.
func (m *Map) retire(s Segment) {
	m.tail = append(m.tail, s)
	if len(m.tail) < chunkRuns {
		return
	}
	c := packRuns(m.tail)
	m.chunks = append(m.chunks, c)
	m.packedBytes += len(c.data)
	m.tail = nil
}

// clip takes from m the right to write behind its slices: the next append copies them.
func (m *Map) clip() {
	m.chunks = slices.Clip(m.chunks)
	m.tail = slices.Clip(m.tail)
}
