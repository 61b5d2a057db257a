package proxy

import (
	"fmt"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// records passes the records of a partition on. Where nothing is shown otherwise than the cluster has it, they are not
// looked at.
func (w *fetchAnswer) records(tee wire.Tee, part *Partition) {
	var size int
	if w.in.flexible {
		size = int(tee.Uvarint()) - 1
	} else {
		size = int(tee.Int32())
	}
	switch {
	case size > w.in.Remaining():
		w.in.Skip(size) // fails
	case size <= 0:
	case part == nil || part.Map == nil && part.shift() == 0:
		w.copy(size)
	default:
		w.batches(part, size)
	}
}

// copyStep is how much may be passed on before the client has to have made headway.
const copyStep = 1 << 20

// copy passes n bytes on unseen.
func (w *fetchAnswer) copy(n int) {
	for n > 0 && w.ok() {
		step := min(n, copyStep)
		if n > copyStep {
			w.c.s.headway()
		}
		_ = w.in.CopyN(w.out, step) // sticks
		n -= step
	}
}

// magicEnd is how many bytes of a batch, or of a message of an older format, tell what it is.
const magicEnd = 17

// batches passes size bytes of records on, with the header of each batch changed, but for batches that lie in holes of the
// map. The last batch may be cut off, as brokers do; clients throw it away.
func (w *fetchAnswer) batches(part *Partition, size int) {
	at := cursor{part: part}
	var out leftOut
	for size > 0 && w.ok() {
		if size < magicEnd {
			w.copyOrLeave(&out, size)
			break
		}
		head := w.in.PeekUpTo(min(size, batch.HeaderSize))
		if len(head) < magicEnd {
			return
		}
		h := batch.Header(head)
		whole := h.Size()
		if magic := h.Magic(); magic > 2 || magic == 2 && whole < batch.HeaderSize || magic < 2 && !at.same(h) || whole < magicEnd {
			w.failed = w.c.badAnswer(fmt.Sprintf("a batch of format %d and %d bytes at offset %d", magic, whole, h.BaseOffset()))
			return
		}
		n := min(whole, size)
		switch {
		case n < whole && (out.bytes > 0 || len(head) < batch.HeaderSize):
			w.copyOrLeave(&out, n)
		case h.Magic() < 2:
			w.copy(n)
			out.passed = true
		default:
			w.batch(&at, &out, h, n)
		}
		size -= n
	}
	w.makeUp(&out)
}

// leftOut is what was not passed on of a partition's records. Their length has been told by then, so as many bytes have to
// follow.
type leftOut struct {
	bytes  int
	v      int64 // where the last batch would be shown
	epoch  int32
	passed bool // another batch was passed on
}

// batch passes one batch on, of which n bytes are there, or leaves it out. One that lies in a hole (a marker of a fence, a
// stray, an orphan) belongs to no virtual log, and between two records that follow each other no offset is free for it. sarama
// takes a batch that ends before its position for one whose end was compacted, and goes on by one offset: past a record.
func (w *fetchAnswer) batch(at *cursor, out *leftOut, h batch.Header, n int) {
	v, epoch, ok := at.show(h)
	if !ok && n == h.Size() {
		w.in.Skip(n)
		out.bytes, out.v, out.epoch = out.bytes+n, v, epoch
		return
	}
	out.passed = out.passed || n == h.Size()
	head := append(w.scratch[:0], h...) // the view ends with the next read
	w.scratch = head
	batch.Patch(head, v, epoch)
	_, _ = w.out.Write(head) // sticks
	w.in.Skip(batch.HeaderSize)
	w.copy(n - batch.HeaderSize)
}

// copyOrLeave passes on the beginning of a batch that was cut off, if nothing has to follow it.
func (w *fetchAnswer) copyOrLeave(out *leftOut, n int) {
	if out.bytes == 0 {
		w.copy(n)
		return
	}
	w.in.Skip(n)
	out.bytes += n
}

// makeUp writes as many bytes as were left out: a batch cut off, as by the answer's limit. A client that got nothing else would
// take it for a batch that is too large, and gets a mask; its position lies in a gap then, before the next record.
func (w *fetchAnswer) makeUp(out *leftOut) {
	switch {
	case out.bytes == 0 || !w.ok():
	case out.passed:
		w.scratch = writeCutOff(w.out, w.scratch, out.bytes, out.v, out.epoch)
	default:
		w.scratch = writeMask(w.out, w.scratch, out.bytes, out.v, out.epoch)
	}
}

// cursor finds the place of one batch after the other in a partition's map.
type cursor struct {
	part    *Partition
	segment translate.Segment // of the last batch; Records 0: none yet
}

// show is where clients see a batch, and its epoch. ok is false for one that lies in no segment: it is no data of the
// virtual log, and v the offset before the next record.
func (c *cursor) show(h batch.Header) (v int64, epoch int32, ok bool) {
	base := translate.Physical(h.BaseOffset())
	m := c.part.mapping()
	if m == nil {
		return h.BaseOffset(), c.part.shownEpoch(h.LeaderEpoch()), true
	}
	if s := c.segment; s.Records == 0 || base < s.Physical || base >= s.PhysicalEnd() {
		a := m.ToVirtual(base)
		if a.Kind != translate.Record {
			return max(int64(a.Virtual)-1, 0), c.next(a), false
		}
		c.segment = a.Segment
	}
	virtual := c.segment.Virtual + translate.Virtual(base-c.segment.Physical)
	return int64(virtual), c.part.recordEpoch(c.segment.Kind, virtual, h.LeaderEpoch()), true
}

// next is the epoch of the record after a hole.
func (c *cursor) next(a translate.Answer) int32 {
	if a.Segment.Records != 0 && a.Segment.Kind == translate.Mirrored {
		return int32(c.part.History.At(a.Virtual))
	}
	return int32(c.part.era().FirstEpoch)
}

// same says whether the offset of a message of an older format is shown as it is. Its epoch has no place, and offsets
// inside of it cannot be changed without the checksum.
func (c *cursor) same(h batch.Header) bool {
	m := c.part.mapping()
	if m == nil {
		return true
	}
	a := m.ToVirtual(translate.Physical(h.BaseOffset()))
	return a.Kind == translate.Record && int64(a.Virtual) == h.BaseOffset()
}
