package proxy

import (
	"errors"
	"fmt"
)

var (
	errGateOpen = errors.New("the gate is open")
	// errReissue, from a response function: the answer is not for the client, the call is sent once more (toCoordinator
	// calls: after the coordinator was looked up anew).
	errReissue = errors.New("send the call once more")
)

// closeReason is why a session ended; it is a metric label.
type closeReason string

const (
	closedByClient    closeReason = "client"              // the client closed, or broke off
	closedByProxy     closeReason = "shutdown"            // Close
	closedIdle        closeReason = "idle"                // no request for the idle time
	closedSlowFrame   closeReason = "slow_frame"          // a frame that began was not finished in time
	closedSlowReader  closeReason = "slow_reader"         // the client did not take its answers
	closedMalformed   closeReason = "malformed_request"   // bytes that are no request
	closedTLSHello    closeReason = "tls_on_plain_port"   // a TLS hello where none is expected
	closedFrameSize   closeReason = "frame_too_large"     //
	closedUnsupported closeReason = "unsupported_api"     // a key or version that is not offered
	closedUpstream    closeReason = "upstream"            // the broker closed, or cannot be reached
	closedBadAnswer   closeReason = "malformed_answer"    // a broker's answer that we cannot read
	closedHandshake   closeReason = "handshake"           // TLS failed or took too long
	closedLimit       closeReason = "connection_limit"    //
	closedAcksNone    closeReason = "failed_without_acks" // acks=0 has no other way to tell
)

// closeError ends a session with a reason.
type closeError struct {
	reason closeReason
	err    error
}

func (e *closeError) Error() string { return fmt.Sprintf("%s: %v", e.reason, e.err) }
func (e *closeError) Unwrap() error { return e.err }

// closing wraps err with the reason that ends the session.
func closing(reason closeReason, err error) error { return &closeError{reason: reason, err: err} }

// reasonOf finds the reason in err.
func reasonOf(err error, otherwise closeReason) closeReason {
	var c *closeError
	if errors.As(err, &c) {
		return c.reason
	}
	return otherwise
}
