package proxy

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// call is one request of a client and its answer. readLoop owns it until it is in the queue, writeLoop afterwards.
type call struct {
	s     *session
	route *Route // of the moment when it passed the gate; a new one if it is sent once more
	row   *row

	key, version int16
	correlation  int32  // the client's own; it goes to the broker unchanged
	frame        []byte // the client's request, header and body without the size; valid until the call is answered
	bodyAt       int    // where the body begins in frame

	group string // for toCoordinator; set by the request function
	state any    // what the request function keeps for the response function

	link   *link                                            // where the answer comes from; nil: answered here
	local  kmsg.Response                                    // the answer, if it is made here
	later  func(ctx context.Context) (kmsg.Response, error) // makes local when it is this call's turn
	silent bool                                             // acks=0: nothing is answered
	inGate bool                                             // to be counted out of the gate
	again  int                                              // how often it was sent anew
}

// answer answers the call here; nothing is sent to a broker. resp is virtual; its version is set to the call's.
func (c *call) answer(resp kmsg.Response) { c.local = resp }

// answerLater answers the call here when all before it are answered. f runs on the writing side of the session, so it may
// block on other requests; it returns the virtual answer, or an error that ends the session.
func (c *call) answerLater(f func(ctx context.Context) (kmsg.Response, error)) { c.later = f }

// topic returns how a topic is shown, by virtual name; nil: default era.
func (c *call) topic(name string) *Topic { return c.route.topic(name) }

// unsupported refuses the call where there is no answer that says so.
func (c *call) unsupported() error {
	return closing(closedByDefinition, fmt.Errorf("%s is not supported", c.row.name))
}
