package proxy

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/translate"
)

// InitProducerId: v0–v5, held at a cutover
//
// Response → virtual:  ProducerID is shown with the generation that issued it, so it is unique over all clusters and moves.
// Transactions:        not carried over yet, so a transactional id is refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which
//                      ends the producer at once and says so; hidden keys would leave it waiting.
// ProducerID, Epoch:   mean something with a transactional id only; brokers ignore them otherwise, we do not send them.

func initProducerIDRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.InitProducerIDRequest)
	r.ProducerID, r.ProducerEpoch = -1, -1
	if r.TransactionalID == nil {
		return nil
	}
	resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = kerr.TransactionalIDAuthorizationFailed.Code, -1, -1
	c.answer(resp)
	return nil
}

func initProducerIDResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.InitProducerIDResponse)
	if r.ErrorCode != 0 {
		return nil
	}
	shown, err := translate.Show(r.ProducerID, c.route.Generation)
	if err != nil {
		return closing(closedBadAnswer, fmt.Errorf("show a producer id: %w", err))
	}
	r.ProducerID = shown
	return nil
}
