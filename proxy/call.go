package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/wire"
)

// call is one request of a client and its answer. readLoop owns it until it is in the queue, writeLoop afterwards.
type call struct {
	s     *session
	route *Route // of the moment when it passed the gate; a newer one if it is sent anew
	row   *row

	key, version int16
	correlation  int32        // the client's own; it goes to the broker unchanged
	room         loan         // for frame
	entries      loan         // for what comes of it here, see decode
	request      *wire.Buffer // holds frame; released when the call is answered
	frame        []byte       // the client's request, header and body without the size
	streamed     bool         // the whole request is still in the client's connection; frame is it without its records, see cut
	bodyAt       int          // where the body begins in frame
	physical     *wire.Buffer // the request as it goes to the broker; nil: frame, unchanged

	group string // for toCoordinator; set by the request function
	state any    // what the request function keeps for the response function

	produce *produceCall
	fetch   *fetchCall

	asked fetchCall    // what fetch points to
	body  *wire.Reader // kept for the next use of the struct

	link    *link                                            // where the answer comes from; nil: it is made here
	local   kmsg.Response                                    // the answer, if it is made here
	later   func(ctx context.Context) (kmsg.Response, error) // makes local when it is this call's turn
	offline func(guess bool) kmsg.Response                   // makes local if no broker can be reached; nil: not without a guess
	silent  bool                                             // acks=0: nothing is answered
	inGate  bool                                             // to be counted out of the gate
	ours    bool                                             // asked by ourselves: the answer is for nobody
	again   int                                              // how often it was sent anew
}

// answer answers the call here; nothing is sent to a broker. resp is virtual; its version is set to the call's.
func (c *call) answer(resp kmsg.Response) { c.local = resp }

// answerLater answers the call here when all before it are answered. f runs on the writing side of the session, so it may
// block on other requests; it returns the virtual answer, or an error that ends the session.
func (c *call) answerLater(f func(ctx context.Context) (kmsg.Response, error)) { c.later = f }

// topic returns how a topic is shown, by virtual name; nil: default era.
func (c *call) topic(name string) *Topic { return c.route.topic(name) }

// badAnswer ends the session because of what a broker sent.
func (c *call) badAnswer(what string) error {
	return closing(closedBadAnswer, fmt.Errorf("answer to %s v%d: %s", c.row.name, c.version, what))
}

// isHere says whether the answer is made here.
func (c *call) isHere() bool { return c.local != nil || c.later != nil }

// leaveGate counts the call out of the gate, once.
func (c *call) leaveGate() {
	if c.inGate {
		c.inGate = false
		c.s.p.gate.leave()
	}
}

// reader reads b, which stays where it is. The reader before it ends.
func (c *call) reader(b []byte) *wire.Reader {
	if c.body == nil {
		c.body = wire.NewBytesReader(b)
	} else {
		c.body.Reset(b)
	}
	return c.body
}

// newCall lends an empty call; release takes it back.
func (s *session) newCall() *call {
	c, ok := s.p.calls.Get().(*call)
	if !ok {
		c = &call{}
	}
	c.s = s
	return c
}

// release gives the buffers back, and the call itself: it must not be looked at after it.
func (c *call) release() {
	c.leaveGate()
	if c.produce != nil {
		c.produce.giveUp()
		c.produce.putBack(c)
	}
	if c.request != nil {
		c.request.Release()
	}
	if c.physical != nil {
		c.physical.Release()
	}
	c.s.giveBack(&c.room)
	c.s.giveBack(&c.entries)
	p, body := c.s.p, c.reader(nil)
	*c = call{body: body}
	p.calls.Put(c)
}

// prepare makes the request physical by the call's route, or answers it here. It may be called anew with another route.
func (c *call) prepare(ctx context.Context) error {
	c.link, c.local, c.later, c.offline, c.state, c.group = nil, nil, nil, nil, nil, ""
	if c.physical != nil {
		c.physical.Release()
		c.physical = nil
	}
	switch c.key {
	case int16(kmsg.Produce):
		return c.prepareProduce(ctx)
	case int16(kmsg.Fetch):
		return c.prepareFetch()
	case int16(kmsg.ApiVersions): // answered without a look at the request, which may be of a version we do not know
		c.answer(c.s.p.apiVersions(c.route, c.version))
		return nil
	}
	if c.row.request == nil {
		return nil
	}
	return c.rewriteRequest()
}

// rewriteRequest decodes the request, lets its row rewrite it, and encodes it again.
func (c *call) rewriteRequest() error {
	req := kmsg.RequestForKey(c.key)
	if err := c.decode(req); err != nil {
		return err
	}
	if err := c.row.request(c, req); err != nil || c.isHere() {
		return err
	}
	c.physical = c.s.p.pool.Get()
	c.physical.B = append(c.physical.B, c.frame[:c.bodyAt]...)
	c.physical.B = req.AppendTo(c.physical.B)
	return nil
}

// message is the request as it goes to the broker.
func (c *call) message() []byte {
	if c.physical != nil {
		return c.physical.B
	}
	return c.frame
}

// answerLimit bounds an answer, in bytes. One that is passed on as it comes costs no memory.
func (c *call) answerLimit() int {
	if c.fetch != nil && !c.fetch.longer {
		return math.MaxInt32
	}
	return c.s.p.cfg.Limits.FrameBytes
}

// receive reads the answer from the call's link and writes it to out, rewritten to virtual. size is that of its frame,
// which has begun. The call leaves the gate as soon as the answer is in.
func (c *call) receive(size int, out *wire.Writer) error {
	in := c.link.in
	header, err := in.ResponseHeader(c.s.p.headers, c.key, c.version)
	if err != nil {
		return closing(closedBadAnswer, fmt.Errorf("read the header of an answer to %s: %w", c.row.name, err))
	}
	if header.CorrelationID != c.correlation {
		return c.badAnswer(fmt.Sprintf("correlation id %d, not %d", header.CorrelationID, c.correlation))
	}
	switch {
	case c.ours:
		return in.Discard()
	case c.key == int16(kmsg.Produce):
		return c.receiveProduce(header.BodyOffset, out)
	case c.key == int16(kmsg.Fetch):
		return c.receiveFetch(size, header.BodyOffset, out)
	case c.row.response == nil:
		out.Begin(size)
		err := in.CopyN(out, size)
		c.leaveGate()
		return errors.Join(err, out.End())
	}
	return c.rewriteResponse(header.BodyOffset, out)
}

// rewriteResponse decodes the answer, lets its row rewrite it, and encodes it again. The header is passed on as it is.
func (c *call) rewriteResponse(bodyAt int, out *wire.Writer) error {
	room := c.s.roomForAnswer(c, rewrittenTakes*c.link.in.Remaining())
	defer c.s.giveBack(&room)
	b := c.s.p.pool.Get()
	defer b.Release()
	var err error
	if b.B, err = c.link.in.ReadAll(b.B); err != nil {
		return err
	}
	resp := kmsg.ResponseForKey(c.key)
	resp.SetVersion(c.version)
	if err := resp.ReadFrom(b.B[bodyAt:]); err != nil {
		return closing(closedBadAnswer, fmt.Errorf("read an answer to %s v%d: %w", c.row.name, c.version, err))
	}
	if err := c.row.response(c, resp); err != nil {
		return err // errReissue: the call stays inside the gate
	}
	c.leaveGate()
	shown := c.s.p.pool.Get()
	defer shown.Release()
	shown.B = append(shown.B, b.B[:bodyAt]...)
	shown.B = resp.AppendTo(shown.B)
	return out.WriteFrame(shown.B)
}

// rewrittenTakes is how many times a message is held while it is made anew: as it came, and as it is passed on.
const rewrittenTakes = 2

// writeLocal writes the answer that was made here.
func (c *call) writeLocal(out *wire.Writer) error {
	if r, ok := c.local.(*kmsg.ApiVersionsResponse); !ok || r.Version != 0 { // one that cannot be read is answered in v0
		c.local.SetVersion(c.version)
	}
	b := c.s.p.pool.Get()
	defer b.Release()
	b.B = c.s.p.headers.AppendResponseHeader(b.B, c.key, c.version, c.correlation)
	b.B = c.local.AppendTo(b.B)
	return out.WriteFrame(b.B)
}
