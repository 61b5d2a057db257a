package proxy

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/wire"
)

// A large Produce request with one batch is not held. When all of it has come it lies in the kernel; what is before the records is
// read, judged and made physical, and the records go from socket to socket. So no broker and no gate ever waits for the client,
// and nothing is sent before all that is known of the request has been looked at. Requests with several batches are held: the
// headers of the later ones lie behind records.

// streamFrom is the least size of a request for which that pays: beyond what a Reader buffers there is enough to splice.
const streamFrom = wire.BufferSize + wire.SpliceThreshold

// headBytes is more than lies before the records in a request with one batch: the transactional id is null and a name has 249
// bytes at most.
const headBytes = 512

// readHead reads what is before the records of a request that is streamed; c.rest counts what is left in the connection. false:
// nothing is consumed, and the request has to be held. Large frames have come as a whole all the same, if the kernel holds them.
func (s *session) readHead(c *call, size int) (streamed bool, err error) {
	if size < streamFrom || size > wholeAtOnce {
		return false, nil
	}
	if here, err := s.in.Await(); !here || c.key != int16(kmsg.Produce) || c.version < 3 {
		return false, err
	}
	head := s.in.PeekUpTo(c.bodyAt + headBytes)
	if s.in.Err() != nil {
		return false, s.in.Err()
	}
	c.request.B = append(c.request.B, head...)
	c.frame, c.rest = c.request.B, size-len(head)
	if end := c.onlyBatch(size); end > 0 {
		s.in.Skip(end)
		c.frame, c.rest = c.frame[:end], size-end
		return true, nil
	}
	c.request.B, c.frame, c.rest = c.request.B[:0], nil, 0
	return false, nil
}

// onlyBatch finds where the header of the batch ends in a request of size bytes that holds one batch and nothing else; 0: it does not.
func (c *call) onlyBatch(size int) (end int) {
	p := c.s.p.produceCall()
	c.produce = p
	defer p.putBack(c)
	transactional, err := p.walk(c)
	if err != nil || transactional || p.topics != 1 || len(p.parts) != 1 || p.parts[0].count != 1 {
		return 0
	}
	part := &p.parts[0]
	tail := 0
	if c.s.p.headers.Flexible(c.key, c.version) {
		tail = 3 // no tags of the partition, of the topic, and of the request
	}
	if part.header(c) == nil || part.end+tail != size {
		return 0
	}
	return part.start + batch.HeaderSize
}

// dropRest throws away what a request that is answered here has left in the connection.
func (s *session) dropRest(c *call) error {
	if c.rest == 0 {
		return nil
	}
	c.rest = 0
	if err := s.in.Discard(); err != nil {
		return s.readError(err, closedSlowFrame)
	}
	return nil
}
