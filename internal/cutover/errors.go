package cutover

import (
	"context"
	"errors"
	"fmt"

	"github.com/switchback-proxy/switchback/internal/control"
)

// Error is what an operator gets: a code for scripts, a message, and what to do about it.
type Error = control.Error

// The codes of errors that this package makes.
const (
	CodeRunning         = "cutover_running"     // another cutover of the virtual cluster runs
	CodeNotFound        = "not_found"           // no cutover of that id is known
	CodeTooLate         = "too_late"            // it is committed, or over
	CodeBadTarget       = "bad_target"          // the target is not the standby
	CodeNotReseeded     = "not_reseeded"        // the topic cannot be copied anew
	CodeNotBuilt        = "not_built"           // the design has it, this version does not
	CodeGenerations     = "generations_used_up" // the id scheme has no room for another move
	CodeClusterDown     = "cluster_down"        // a planned move needs both clusters
	CodeAborted         = "aborted_by_operator" // somebody asked for it
	CodeShutdown        = "process_ended"       // the process was told to end
	CodeDriverLost      = "driver_lost"         // the process that drove it ended without a word
	CodeMaxPause        = "max_pause_exceeded"  // the gate was shut for too long
	CodeLag             = "lag_does_not_shrink" // the standby does not catch up
	CodeLogMoved        = "log_moved"           // a writer that bypasses the proxy
	CodeOpenTransaction = "transaction_open"    // and not ended in the drain time
	CodeNotCopied       = "not_copied"          // a partition ended elsewhere than its source
	CodeFenced          = "another_driver"      // another process took over
	CodeUndecided       = "outcome_unknown"     // Committed was written, its ack is missing and its log cannot be read
)

var errMaxPause = errors.New("the gate was shut for longer than max_pause")

func errOperator() *Error {
	return &Error{Code: CodeAborted, Message: "an operator ended the cutover", Hint: "clients are on the old active; start another cutover when ready"}
}

func errShutdown() *Error {
	return &Error{Code: CodeShutdown, Message: "the process that drove the cutover was told to end", Hint: "clients are on the old active; start another cutover when it is up again"}
}

func errUnread() *Error {
	return &Error{Code: CodeClusterDown, Message: "the control record has not been read yet", Hint: "see /readyz"}
}

// operatorError says in which phase a step failed, unless the error is one for operators already.
func operatorError(phase control.Phase, maxPauseMillis int64, ctx context.Context, err error) *Error {
	if errors.Is(context.Cause(ctx), errMaxPause) {
		return &Error{
			Code:    CodeMaxPause,
			Message: fmt.Sprintf("%s was not over when clients had waited %d ms, the longest pause allowed: %v", phase, maxPauseMillis, err),
			Hint:    "look at the facts of that phase; start again when its cause is gone, or allow a longer --max-pause",
		}
	}
	var own *Error
	if errors.As(context.Cause(ctx), &own) || errors.As(err, &own) {
		return own
	}
	if errors.Is(err, control.ErrFenced) {
		return &Error{Code: CodeFenced, Message: err.Error(), Hint: "end the other process that serves this virtual cluster, or let it drive"}
	}
	return &Error{
		Code:    string(phase) + "_failed",
		Message: fmt.Sprintf("%s failed: %v", phase, err),
		Hint:    "clients are on the old active; mend the cause and start again",
	}
}
