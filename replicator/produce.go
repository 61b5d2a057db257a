package replicator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/translate"
)

// fenceAnew says that the slot must be fenced again by its owner, because what is in a log is not what it should be.
type fenceAnew struct{ why string }

func (e fenceAnew) Error() string { return "fence anew: " + e.why }

// lostSlot says that somebody else owns the slot.
type lostSlot struct{ err error }

func (e lostSlot) Error() string { return "the slot is lost: " + e.err.Error() }
func (e lostSlot) Unwrap() error { return e.err }

// refused says that the target does not take a batch, whatever its sequence.
type refused struct{ err error }

func (e refused) Error() string { return e.err.Error() }

// repeating says what may be done with a batch whose outcome is not known.
type repeating bool

const (
	mayRepeat    repeating = true
	neverRepeat  repeating = false // the broker may have forgotten our producer: it would not see the duplicate
	firstBackoff           = 10 * time.Millisecond
	lastBackoff            = time.Second
)

// outcome is an acked batch, or the reason why it never will be in this reign.
type outcome struct {
	base  int64
	epoch translate.RealEpoch // the leader's, as far as known when it was sent
	err   error               // fenceAnew, lostSlot, errAhead, refused, or the end of ctx
}

// produce sends one batch to its leader until the outcome is known. Resent are the same bytes, before anything new of the
// partition, so a batch that landed before is answered as a duplicate. Under a leader that was not looked at, nothing is sent.
func (s *slot) produce(ctx context.Context, d delivery, look look, repeat repeating) outcome {
	target := s.flow.target
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		if ctx.Err() != nil {
			return outcome{err: context.Cause(ctx)}
		}
		node, epoch, ok := target.leader(d.topic, d.partition)
		if ok {
			if err := look(ctx, node, epoch); errors.Is(err, errNotLooked) {
				ok = false
			} else if err != nil {
				return outcome{err: err}
			}
		}
		if ok {
			s.gate.RLock()
			r := s.flow.sender.send(ctx, node, d)
			s.gate.RUnlock()
			done, err := judgeAnswer(r, repeat)
			if !done && s.isAhead() && minds(r.code) {
				err = errAhead
			}
			if done || err != nil {
				return outcome{r.base, epoch, err}
			}
		}
		target.kick()
		if err := sleep(ctx, wait); err != nil {
			return outcome{err: err}
		}
	}
}

// Codes by which a broker says for sure that it wrote nothing, and that it may be asked again.
var notWritten = []*kerr.Error{
	kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable, kerr.NotLeaderForPartition, kerr.NotEnoughReplicas,
	kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicID, kerr.InconsistentTopicID,
	kerr.ThrottlingQuotaExceeded,
	kerr.InvalidTxnState, kerr.ConcurrentTransactions, // the fence of other partitions of the slot is under way
}

// Codes after which a batch may be in the log.
var mayBeWritten = []*kerr.Error{
	kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.NetworkException,
	kerr.UnknownServerError, kerr.ReplicaNotAvailable,
}

// minds says that a broker refuses what a slot writes while the next fence is prepared. Apache Kafka does not before the marker;
// others are free to.
func minds(code int16) bool {
	switch code {
	case kerr.InvalidProducerEpoch.Code, kerr.ProducerFenced.Code, kerr.InvalidTxnState.Code, kerr.ConcurrentTransactions.Code:
		return true
	}
	return false
}

// judgeAnswer says whether a batch is in, or why it will not be; neither: send it again.
func judgeAnswer(r produced, repeat repeating) (done bool, err error) {
	if r.err != nil {
		if repeat == mayRepeat {
			return false, nil
		}
		return false, fenceAnew{fmt.Sprintf("the outcome of a batch with old timestamps is not known: %v", r.err)}
	}
	code := kerr.ErrorForCode(r.code)
	is := func(e *kerr.Error) bool { return errors.Is(code, e) }
	switch {
	case code == nil:
		return true, nil
	case slices.ContainsFunc(notWritten, is):
		return false, nil
	case slices.ContainsFunc(mayBeWritten, is):
		return judgeAnswer(produced{err: code}, repeat)
	}
	switch {
	case is(kerr.InvalidProducerEpoch), is(kerr.ProducerFenced), is(kerr.InvalidProducerIDMapping), is(kerr.UnknownProducerID):
		return false, lostSlot{code}
	case is(kerr.OutOfOrderSequenceNumber), is(kerr.DuplicateSequenceNumber):
		return false, fenceAnew{code.Error()}
	}
	return false, refused{code}
}
