package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// Producers across a move. A batch that the states of earlier eras know was written and is not written again. And since a
// broker takes any first sequence of a producer id that it does not know, the first batch of each producer on each
// partition is guarded: until the new active has acked one, only one is in flight, and only the expected one is sent.
// After that the broker enforces the order itself.

// seam is the guard of one generation, for all sessions.
type seam struct {
	generation translate.Generation
	inherited  bool      // clients may have written in this generation before: the brokers know who did
	begun      time.Time // when the generation began; zero if inherited

	mu         sync.Mutex // guards all below, also inside; not held across I/O
	partitions map[seamKey]*seamPartition
}

// seamKey names a partition: by the virtual name of its topic, or by its physical id if there is nothing to say about it
// but that.
type seamKey struct {
	topic     string
	id        [16]byte
	partition int32
}

type seamPartition struct {
	producers map[int64]*seamProducer // by the id shown
	asking    chan struct{}           // closed when the brokers have said who wrote here; nil: nobody asks
	asked     bool
	everyone  bool // who wrote here cannot be found out: the guard is off
}

// seamProducer is one producer on one partition.
type seamProducer struct {
	confirmed bool          // the active cluster has acked a batch in this generation
	early     bool          // the last one in flight got no ack, for a reason that passes: what follows it comes too early
	busy      chan struct{} // closed when the answer of the batch in flight is in; nil: none is
	first     bool          // epoch and next are set
	epoch     int16         // of a producer that no state knows, or none that holds: what it began with
	next      int32
}

func newSeam(generation translate.Generation, inherited bool) *seam {
	s := &seam{generation: generation, inherited: inherited, partitions: make(map[seamKey]*seamPartition)}
	if !inherited {
		s.begun = time.Now()
	}
	return s
}

// sequenced is what the guard has to know of a batch.
type sequenced struct {
	key         seamKey
	states      *journal.Producers // nil: nobody is known
	id          int64              // shown
	epoch       int16
	first, last int32 // sequences, inclusive
}

func sequenceOf(h batch.Header) sequenced {
	return sequenced{id: h.ProducerID(), epoch: h.ProducerEpoch(), first: h.FirstSequence(), last: h.LastSequence()}
}

// issuedNow says whether a shown id was issued in this generation: then no other cluster has seen it, and its broker
// knows it from its first sequence on.
func (s *seam) issuedNow(id int64) bool {
	now, err := translate.Show(id&(1<<40-1), s.generation)
	return err == nil && now == id
}

// ruling is what becomes of a batch.
type ruling struct {
	known    bool              // it was written, at base
	base     translate.Virtual // of a known batch
	code     int16             // not 0: it is not sent, and answered with this
	producer *seamProducer     // not nil: it is in flight, the answer has to be told
	wait     chan struct{}     // not nil: look again after that
}

// busy is what a batch has to wait for before it can be judged; nil: nothing. The caller holds mu.
func (s *seam) busy(b *sequenced) chan struct{} {
	if part := s.partitions[b.key]; part != nil && part.producers[b.id] != nil && !part.producers[b.id].confirmed {
		return part.producers[b.id].busy
	}
	return nil
}

// rule judges a batch that may be sent now. The caller holds mu.
func (s *seam) rule(b *sequenced, forced bool) ruling {
	base, verdict := translate.Virtual(0), journal.Unknown
	if b.states != nil {
		base, verdict = b.states.Lookup(b.id, b.epoch, b.first, b.last)
	}
	part := s.partition(b.key)
	p := part.producers[b.id]
	wroteOn := part.everyone || p != nil && p.confirmed
	if verdict == journal.Known && (!wroteOn || s.holds(b)) {
		return ruling{known: true, base: base}
	}
	switch {
	case wroteOn:
		return ruling{}
	case p == nil:
		p = &seamProducer{}
		part.producers[b.id] = p
	case p.busy != nil:
		return ruling{wait: p.busy}
	}
	if s.inherited && passable(verdict) {
		verdict = journal.Unknown
	}
	if code := p.refuses(b, verdict, forced); code != 0 {
		return ruling{code: code}
	}
	p.busy = make(chan struct{})
	return ruling{producer: p}
}

// holds says whether a batch with the bounds of one that the states know can be that one, of a producer that has written since the
// move: sequences come again after 2³¹ records, retries after minutes at most.
func (s *seam) holds(b *sequenced) bool {
	since := time.Now().Add(-keptStates)
	if s.begun.After(since) {
		return true
	}
	young := b.states.Clone()
	young.Prune(since.UnixMilli())
	_, _, ok := young.NextOf(b.id)
	return ok
}

// keptStates is how long the states of a producer hold after its last batch. The replicator keeps them as long.
const keptStates = 20 * time.Minute

// passable says whether a verdict may be out of date because the producer wrote on in this generation, before a restart, and the
// brokers have forgotten it since. They take any sequence then. What comes first is what it has to go on with, since its client
// sends in order.
func passable(verdict journal.Verdict) bool {
	return verdict == journal.Next || verdict == journal.Ahead || verdict == journal.NewEpoch
}

// refuses says why a batch cannot be the next one of an unconfirmed producer; 0 if it can. What comes behind a batch that failed
// for a passing reason is answered as a broker would, which would have failed it for the same reason. A sequence error there has
// librdkafka begin a new epoch, under which it writes again what other partitions have got already, and were not told of.
func (p *seamProducer) refuses(b *sequenced, verdict journal.Verdict, forced bool) int16 {
	outOfOrder := kerr.OutOfOrderSequenceNumber.Code
	ahead := outOfOrder
	if p.early {
		ahead = notKnownYet()
	}
	switch verdict {
	case journal.Next:
		return 0
	case journal.Ahead:
		if forced { // acked and lost: a hole that is legal
			return 0
		}
		return ahead
	case journal.NewEpoch:
		if b.first == 0 {
			return 0
		}
		return ahead
	case journal.OldEpoch:
		return kerr.InvalidProducerEpoch.Code
	case journal.Known, journal.Overlap, journal.Older:
		return outOfOrder
	case journal.Unknown:
	}
	switch {
	case !p.first:
		p.first, p.epoch, p.next = true, b.epoch, b.first
		return 0
	case b.epoch < p.epoch:
		return kerr.InvalidProducerEpoch.Code
	case b.epoch == p.epoch && b.first == p.next, b.epoch > p.epoch && b.first == 0:
		return 0
	case b.epoch == p.epoch && (b.first-p.next)&math.MaxInt32 > 1<<30: // behind it; sequences wrap at 2³¹
		return outOfOrder
	}
	return ahead
}

// putOff notes that a batch cannot be judged now, and comes again. What its client has sent behind it comes too early, unless it is
// known to have been written before the move.
func (s *seam) putOff(b *sequenced) {
	verdict := journal.Unknown
	if b.states != nil {
		_, verdict = b.states.Lookup(b.id, b.epoch, b.first, b.last)
	}
	if verdict != journal.Unknown && !passable(verdict) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	part := s.partition(b.key)
	p := part.producers[b.id]
	if p == nil {
		p = &seamProducer{}
		part.producers[b.id] = p
	}
	if !p.first {
		p.first, p.epoch, p.next, p.early = true, b.epoch, b.first, true
	}
}

// partition returns the state of a partition, making one. The caller holds mu.
func (s *seam) partition(key seamKey) *seamPartition {
	part := s.partitions[key]
	if part == nil {
		part = &seamPartition{producers: make(map[int64]*seamProducer)}
		s.partitions[key] = part
	}
	return part
}

// outcome of a batch in flight.
type outcome uint8

const (
	acked   outcome = iota
	passing         // not acked: no answer, or a code after which it comes again
	failed
)

// told takes the outcome of a batch in flight.
func (s *seam) told(p *seamProducer, o outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.confirmed = p.confirmed || o == acked
	p.early = o == passing
	if p.busy != nil {
		close(p.busy)
		p.busy = nil
	}
}

// learnWriters asks the brokers once who has written to a partition in this generation. Until that is known nothing of a
// producer of an earlier generation is sent there.
func (s *seam) learnWriters(ctx context.Context, key seamKey, ask func(context.Context) (writers, error)) error {
	s.mu.Lock()
	part := s.partition(key)
	if !s.inherited || part.asked {
		s.mu.Unlock()
		return nil
	}
	if running := part.asking; running != nil {
		s.mu.Unlock()
		select {
		case <-running:
			return s.learnWriters(ctx, key, ask)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	part.asking = done
	s.mu.Unlock()

	known, err := ask(ctx)

	s.mu.Lock()
	defer s.mu.Unlock()
	part.asking, part.asked, part.everyone = nil, err == nil, known.everyone
	close(done)
	for _, id := range known.ids {
		if shown := translate.StripTag(id); translate.OnCluster(shown, s.generation) == id {
			part.producers[shown] = &seamProducer{confirmed: true}
		}
	}
	return err
}

// writers are those that a cluster knows on a partition.
type writers struct {
	ids      []int64 // as on the cluster
	everyone bool    // it cannot tell. A producer in mid-stream would be refused for ever if it were taken for a new one
}

// writersOf asks the active cluster who wrote to a partition.
func (p *Proxy) writersOf(ctx context.Context, cluster, topic string, partition int32) (writers, error) {
	if topic == "" {
		return writers{everyone: true}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp, err := req.RequestWith(ctx, p.cfg.Clusters[cluster].Client)
	var out writers
	for i := 0; err == nil && i < len(resp.Topics); i++ {
		for _, one := range resp.Topics[i].Partitions {
			err = kerr.ErrorForCode(one.ErrorCode)
			for _, producer := range one.ActiveProducers {
				out.ids = append(out.ids, producer.ProducerID)
			}
		}
	}
	if tooOld(err) {
		return writers{everyone: true}, nil
	}
	if err != nil {
		return writers{}, fmt.Errorf("ask who wrote to %s-%d: %w", topic, partition, err)
	}
	return out, nil
}

// tooOld says whether a cluster does not know the request (Kafka before 3.0). The client library has no other name for it.
func tooOld(err error) bool {
	return err != nil && (errors.Is(err, kerr.UnsupportedVersion) || strings.Contains(err.Error(), "too old"))
}
