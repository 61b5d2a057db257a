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

// batches passes size bytes of records on, with the header of each batch changed. The last batch may be cut off, as brokers
// do; clients throw it away.
func (w *fetchAnswer) batches(part *Partition, size int) {
	at := cursor{part: part}
	for size > 0 && w.ok() {
		if size < magicEnd {
			w.copy(size)
			return
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
		if h.Magic() < 2 || len(head) < batch.HeaderSize {
			w.copy(n)
		} else {
			w.batch(&at, h, n, whole)
		}
		size -= n
	}
}

// batch passes one batch on, of which n of whole bytes are there; the header is.
func (w *fetchAnswer) batch(at *cursor, h batch.Header, n, whole int) {
	head := append(w.scratch[:0], h...) // the view ends with the next read
	w.scratch = head
	h = batch.Header(head)
	v, epoch, ok := at.show(h)
	switch {
	case ok:
	case h.Control() && h.LastOffsetDelta() == 0 || n < whole: // a marker of a fence; or what the client throws away
	default:
		w.in.Skip(n)
		if w.in.Err() == nil {
			w.scratch = writeMask(w.out, head, whole, v, epoch)
		}
		return
	}
	batch.Patch(head, v, epoch)
	_, _ = w.out.Write(head) // sticks
	w.in.Skip(batch.HeaderSize)
	w.copy(n - batch.HeaderSize)
}

// cursor finds the place of one batch after the other in a partition's map.
type cursor struct {
	part    *Partition
	segment translate.Segment // of the last batch; Records 0: none yet
}

// show is where clients see a batch, and its epoch. ok is false for one that lies in no segment: it is no data of the
// virtual log, and v the offset before the next record, where a control batch does no harm.
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
