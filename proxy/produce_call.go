package proxy

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

// produceCall is what is known of a Produce call. Its slices are used again.
type produceCall struct {
	acks  int16
	parts []producePart
	local int   // of parts, how many are answered here
	seam  *seam // that the producers of parts belong to
}

// producePart is one partition of the request. Names are views of the call's frame.
type producePart struct {
	name       []byte   // virtual; nil in versions with ids
	id         [16]byte // virtual
	idAt       int      // where the id lies in the frame
	physical   []byte
	topic      *Topic
	partition  int32
	start, end int // of the records in the frame
	run        int // bytes of records behind end that are not in the frame, in a streamed call
	cut        int // where in the message they go
	newTopic   bool
	count      int // partitions of the topic, with newTopic
	producer   *seamProducer
	answered   bool // here, with the two below
	code       int16
	base       int64
	sequenced  sequenced
	guarded    bool // sequenced is set
}

// header is the part's batch, or its header alone; nil if it is none of the format that there is since Kafka 0.11.
func (p *producePart) header(c *call) batch.Header {
	b := c.frame[p.start:p.end]
	if len(b) < batch.HeaderSize || batch.Header(b).Magic() != 2 {
		return nil
	}
	return batch.Header(b)
}

func (p *produceCall) firstCode() int16 {
	for i := range p.parts {
		if p.parts[i].code != 0 {
			return p.parts[i].code
		}
	}
	return 0
}

// produceCall lends an empty one; putBack takes it back.
func (p *Proxy) produceCall() *produceCall {
	if known, ok := p.produceCalls.Get().(*produceCall); ok {
		return known
	}
	return &produceCall{}
}

func (p *produceCall) putBack(c *call) {
	clear(p.parts)
	*p = produceCall{parts: p.parts[:0]}
	c.s.p.produceCalls.Put(p)
	c.produce = nil
}

// undo makes virtual again what was changed where it lies, so that the call can be made physical by another route.
func (p *produceCall) undo(c *call) {
	for i := range p.parts {
		part := &p.parts[i]
		if c.version >= 13 && part.newTopic {
			copy(c.frame[part.idAt:], part.id[:])
		}
		if h := part.header(c); h != nil {
			setProducerID(h, translate.StripTag(h.ProducerID()))
		}
	}
	clear(p.parts)
	*p = produceCall{parts: p.parts[:0]}
}

// told lets the guard know how a batch fared.
func (p *produceCall) told(called producedName, partition int32, code int16) {
	for i := range p.parts {
		part := &p.parts[i]
		if part.producer == nil || part.partition != partition || part.id != called.id || !bytes.Equal(part.name, called.name) {
			continue
		}
		p.seam.told(part.producer, outcomeOf(code))
		part.producer = nil
	}
}

func outcomeOf(code int16) outcome {
	switch {
	case code == 0, code == kerr.DuplicateSequenceNumber.Code:
		return acked
	case kerr.IsRetriable(kerr.ErrorForCode(code)):
		return passing
	}
	return failed
}

// giveUp lets the guard know that no answer came.
func (p *produceCall) giveUp() {
	for i := range p.parts {
		if producer := p.parts[i].producer; producer != nil {
			p.seam.told(producer, passing)
			p.parts[i].producer = nil
		}
	}
}
