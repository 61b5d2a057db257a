package replicator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
)

// txnTimeoutMillis bounds how long the fence's own transaction may stay open if we die in it.
const txnTimeoutMillis = 60_000

// client is what the reign owns, fences and recovers through.
func (r *reign) client() *kgo.Client {
	spare := r.flow.target.spare
	return spare[int(r.slot.n)%len(spare)]
}

func (r *reign) txnID() string {
	return journal.TransactionalID(r.flow.cfg.From, r.flow.cfg.To, r.slot.n)
}

// retryTxn asks again while the coordinator says that it is busy: it loads, or an earlier transaction is still ending. When ctx ends,
// the error has what it said last.
func retryTxn(ctx context.Context, what string, ask func() (int16, error)) error {
	var said error
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		code, err := ask()
		if err == nil {
			err = kerr.ErrorForCode(code)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s: %w; last %w", what, context.Cause(ctx), cmp.Or(said, err))
		case errors.Is(err, kerr.ConcurrentTransactions), errors.Is(err, kerr.CoordinatorLoadInProgress),
			errors.Is(err, kerr.CoordinatorNotAvailable), errors.Is(err, kerr.NotCoordinator):
			said = err
		case isFence(err):
			return lostSlot{fmt.Errorf("%s: %w", what, err)}
		default:
			return fmt.Errorf("%s: %w", what, err)
		}
		if stopped := sleep(ctx, wait); stopped != nil {
			return fmt.Errorf("%s: %w; last %w", what, stopped, said)
		}
	}
}

func isFence(err error) bool {
	return errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) ||
		errors.Is(err, kerr.InvalidProducerIDMapping)
}

// own asks for the slot's producer id with a new epoch. From the markers on, the one before is refused.
func (r *reign) own(ctx context.Context) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr(r.txnID())
	req.TransactionTimeoutMillis = txnTimeoutMillis
	req.ProducerID, req.ProducerEpoch = -1, -1
	err := retryTxn(ctx, "own slot", func() (int16, error) {
		resp, err := req.RequestWith(ctx, r.client())
		if err != nil {
			return 0, err
		}
		r.owner = journal.Owner{ID: resp.ProducerID, Epoch: resp.ProducerEpoch}
		return resp.ErrorCode, nil
	})
	if err != nil {
		return err
	}
	r.slot.mu.Lock()
	before := r.slot.owner
	r.slot.owner = r.owner
	r.slot.mu.Unlock()
	if before.ID != r.owner.ID && before != (journal.Owner{}) {
		r.slot.log.Warn().Int64("before", before.ID).Int64("now", r.owner.ID).Msg("slot has another producer id")
	}
	return nil
}

// prepareSeal does the first half of the next reign's fence while this one goes on. What keeps it from that would keep the seal
// from its fence, with clients waiting.
func (s *slot) prepareSeal(ctx context.Context) error {
	s.mu.Lock()
	owned := s.done
	s.mu.Unlock()
	select {
	case <-owned:
	case <-ctx.Done():
		return fmt.Errorf("slot %d is not owned: %w", s.n, errors.Join(context.Cause(ctx), s.why()))
	}
	s.gate.RLock() // no other fence of the slot is under way
	defer s.gate.RUnlock()
	r := &reign{slot: s, flow: s.flow}
	var pumps []*pump
	for _, p := range s.members() {
		if r.canFence(p) {
			pumps = append(pumps, p)
		}
	}
	pending := &ahead{} // from here on the epoch of this reign may not be the coordinator's
	s.mu.Lock()
	s.ahead = pending
	s.mu.Unlock()
	err := r.own(ctx)
	a := &ahead{owner: r.owner}
	if err == nil {
		var unknown map[*pump]bool
		if unknown, err = r.include(ctx, pumps, nil, true); err == nil {
			a.pumps = map[*pump]bool{}
			for _, p := range without(pumps, unknown) {
				a.pumps[p] = true
			}
		}
	}
	s.mu.Lock()
	if s.ahead == pending { // else there is a new reign, with an epoch of its own
		s.ahead = a
	}
	s.mu.Unlock()
	var lost lostSlot
	switch {
	case errors.As(err, &lost): // perhaps to our own next reign; the code is not passed on, so that it is tried again
		return fmt.Errorf("slot %d cannot be fenced: %v", s.n, err)
	case err != nil:
		return fmt.Errorf("slot %d cannot be fenced: %w", s.n, err)
	}
	return nil
}

func (s *slot) isAhead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead != nil
}

// fence writes our marker, an abort, to the partitions, and to the journal's if so asked: they are in a transaction that has
// no records. included are in it already, the journal's then as well. Partitions that the coordinator does not know are left
// out and returned.
func (r *reign) fence(ctx context.Context, pumps []*pump, included map[*pump]bool, withJournal bool) (unknown map[*pump]bool, err error) {
	if len(pumps) == 0 && !withJournal {
		return nil, nil
	}
	unknown, err = r.include(ctx, pumps, included, withJournal && included == nil)
	if err != nil || (len(unknown) == len(pumps) && !withJournal) {
		return unknown, err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = r.txnID(), r.owner.ID, r.owner.Epoch
	err = retryTxn(ctx, "fence slot", func() (int16, error) {
		resp, err := req.RequestWith(ctx, r.client())
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
	if err == nil {
		for _, p := range without(pumps, unknown) {
			p.unread++
		}
	}
	return unknown, err
}

// include puts the partitions into the transaction that are not in it yet. unknown are those that the coordinator does not know.
func (r *reign) include(ctx context.Context, pumps []*pump, included map[*pump]bool, withJournal bool) (unknown map[*pump]bool, err error) {
	unknown = map[*pump]bool{}
	for {
		var missing []*pump
		for _, p := range pumps {
			if !included[p] && !unknown[p] {
				missing = append(missing, p)
			}
		}
		if len(missing) == 0 && !withJournal {
			return unknown, nil
		}
		bad, err := r.addPartitions(ctx, missing, withJournal)
		if err != nil || len(bad) == 0 {
			return unknown, err
		}
		maps.Copy(unknown, bad)
	}
}

// addPartitions puts partitions into the transaction. bad are those that the coordinator does not know; then none was added.
func (r *reign) addPartitions(ctx context.Context, pumps []*pump, withJournal bool) (bad map[*pump]bool, err error) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = r.txnID(), r.owner.ID, r.owner.Epoch
	at := map[string]int{}
	add := func(topic string, partition int32) {
		i, ok := at[topic]
		if !ok {
			i = len(req.Topics)
			at[topic] = i
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, partition)
	}
	byName := map[sentPartition]*pump{}
	for _, p := range pumps {
		add(p.target, p.tp.Partition)
		byName[sentPartition{p.target, p.tp.Partition}] = p
	}
	if withJournal {
		add(journal.Topic(r.flow.cfg.From, r.flow.cfg.To), r.slot.n)
	}
	bad = map[*pump]bool{}
	err = retryTxn(ctx, "fence slot", func() (int16, error) {
		clear(bad)
		resp, err := req.RequestWith(ctx, r.client())
		if err != nil {
			return 0, err
		}
		if resp.ErrorCode != 0 {
			return resp.ErrorCode, nil
		}
		var first int16
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				pump := byName[sentPartition{t.Topic, p.Partition}]
				switch {
				case p.ErrorCode == 0 || p.ErrorCode == kerr.OperationNotAttempted.Code:
				case pump != nil && !isTxnCode(p.ErrorCode):
					bad[pump] = true
				case first == 0:
					first = p.ErrorCode
				}
			}
		}
		return first, nil
	})
	return bad, err
}

// isTxnCode: the error is about the transaction, not about the partition.
func isTxnCode(code int16) bool {
	switch code {
	case kerr.ConcurrentTransactions.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code,
		kerr.NotCoordinator.Code, kerr.InvalidProducerEpoch.Code, kerr.ProducerFenced.Code,
		kerr.InvalidProducerIDMapping.Code, kerr.InvalidTxnState.Code, kerr.TransactionalIDAuthorizationFailed.Code:
		return true
	}
	return false
}
