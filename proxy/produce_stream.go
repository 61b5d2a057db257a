package proxy

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/wire"
)

// A Produce request with large batches is not held. When all of it has come it lies in the kernel, and all but the records is looked
// at where it lies: the frame with the records cut out, each behind the header of its batch. That is judged and made physical as
// any request; then it is written, and the records go from socket to socket into their places. So no broker and no gate ever waits
// for the client, and nothing is sent before all that is known of the request has been looked at.

// streamFrom is the least size of a request for which that pays: beyond what a Reader buffers there is enough to splice.
const streamFrom = wire.BufferSize + wire.SpliceThreshold

// cut makes the call of a large Produce request whose frame has begun. false: nothing is consumed, and the request has to be held.
func (s *session) cut(c *call, size int) (streamed bool, err error) {
	if size < streamFrom || size > wholeAtOnce || c.key != int16(kmsg.Produce) || c.version < 3 {
		return false, nil
	}
	if here, err := s.in.Await(); !here {
		return false, err
	}
	if c.cut(size) {
		return true, nil
	}
	c.request.B, c.frame, c.streamed = c.request.B[:0], nil, false
	return false, s.in.Err()
}

// cut puts a request of size bytes into frame, without its records. false: it is transactional, it is not what it should be, a field
// is longer than any name, or there are so many batches that to copy them costs less.
func (c *call) cut(size int) bool {
	at, left := 0, 1+size/wire.SpliceThreshold // where in the request we are; how many batches may come
	var seen []byte
	look := func() bool {
		seen = c.s.in.PeekAt(c.s.window[:min(windowBytes, size-at)], at)
		c.reader(seen)
		return seen != nil
	}
	keep := func() bool {
		n := len(seen) - c.body.Remaining()
		c.request.B = append(c.request.B, seen[:n]...)
		at += n
		return c.body.Err() == nil
	}
	if !look() {
		return false
	}
	f := fields{c.body, c.s.p.headers.Flexible(c.key, c.version)}
	f.Skip(c.bodyAt)
	transactional := f.str() != nil
	f.Int16()
	f.Int32()
	for topics := f.array(); topics > 0; topics-- {
		if c.version >= 13 {
			f.UUID()
		} else {
			f.str()
		}
		for parts := f.array(); parts > 0; parts-- {
			f.Int32()
			records := max(f.bytes(), 0)
			held := min(records, batch.HeaderSize)
			f.Skip(held)
			if left--; left < 0 || !keep() || records-held > size-at {
				return false
			}
			at += records - held
			if !look() {
				return false
			}
			f.tags()
		}
		f.tags()
	}
	f.tags()
	c.streamed = keep() && at == size && !transactional
	c.frame = c.request.B
	return c.streamed
}

// windowBytes is more than lies between the records of two batches, or before the first one.
const windowBytes = 512

// stream writes a streamed request to its link. Nothing of it is held afterwards.
func (s *session) stream(l *link, c *call) error {
	if err := l.conn.SetWriteDeadline(time.Now().Add(s.p.cfg.Limits.FrameTimeout)); err != nil {
		return err
	}
	err := s.writeStreamed(l.out, c)
	c.streamed = false
	s.giveBack(&c.room)
	return err
}

// writeStreamed takes the request out of the client's connection and writes it to out, each run of records into its place.
func (s *session) writeStreamed(out *wire.Writer, c *call) error {
	message, parts := c.message(), c.produce.parts
	size := len(message)
	for i := range parts {
		if !parts[i].answered {
			size += parts[i].run
		}
	}
	out.Begin(size)
	taken, written := 0, 0 // of frame; of message
	for i := range parts {
		p := &parts[i]
		s.in.Skip(p.end - taken)
		taken = p.end
		if p.answered {
			s.in.Skip(p.run)
			continue
		}
		_, _ = out.Write(message[written:p.cut]) // an error sticks
		written = p.cut
		_ = s.in.CopyN(out, p.run)
	}
	_, _ = out.Write(message[written:])
	return errors.Join(s.in.Discard(), out.End(), out.Flush())
}

// dropStreamed throws away a request that was answered here.
func (s *session) dropStreamed(c *call) error {
	if !c.streamed {
		return nil
	}
	c.streamed = false
	if err := s.in.Discard(); err != nil {
		return s.readError(err, closedSlowFrame)
	}
	return nil
}
