package replicator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// pump copies one partition. It lives as long as the partition is known; reigns of its slot run it.
type pump struct {
	flow               *Flow
	slot               *slot
	tp                 journal.TP
	source, target     string // physical names
	sourceID, targetID [16]byte
	anew               bool // what the journal has of the partition does not count; until it was settled
	feed               *feed
	recordAge          atomic.Pointer[time.Duration] // of the newest record copied, when it was on the target; nil: none was

	// Owned by whoever runs: the reign while it recovers, then run.
	era         control.Era // of the source, the newest
	queue       []parcel    // checked and rewritten, not claimed yet; in order, without overlap
	known       translate.Virtual
	aged        bool // a batch with old timestamps was sent since the last marker of ours
	unsettled   int  // claims since the last settled record
	unread      int  // markers of the reign in the target's log that were not read yet, at most
	waits       bool // for the source's log start: it begins again with the next metadata
	chunked     bool // the settled record that is being written names a new chunk
	settledAt   time.Time
	sourceEpoch translate.RealEpoch // the source's leader epoch, as last looked at; −1: not yet
	tail        watched
	claims      int                // number of the next claim, in this reign
	confirmed   int32              // sequence of the last acked batch of this reign; −1: none
	confirmedAt translate.Physical // where it is

	mu       sync.Mutex         // guards what follows; what part points to is changed by its owner under it
	part     *journal.Partition // nil: not recovered
	state    State
	trouble  *trouble  // of the partition; nil: none
	topic    *trouble  // of its whole topic; nil: none
	slotLost error     // why the slot is not owned; nil if it is
	unacked  time.Time // since when the target owes an ack, of a claim or of data; zero: it does not
	lost     int64     // records lost at the source, so far
	maxBytes int       // max.message.bytes of the target's topic; 0: not known
}

// trouble is why a partition does not go on, and what to do.
type trouble struct {
	Reason, Hint string
}

func (t *trouble) Error() string { return t.Reason }

const (
	roundBytes    = 1 << 20 // small batches are put together up to this size
	settleClaims  = 1000    // below journal.Ring by far
	settleAfter   = 30 * time.Second
	keepProducers = 20 * time.Minute // at least 15
	idleCheck     = time.Second
	maxTrain      = 64 // batches that one round claims together
	mixFrom       = 4  // with more batches than this in the queue, small ones are joined whatever their codecs
)

// run pumps until ctx ends. Each turn is a round: take → claim → produce → publish.
func (p *pump) run(ctx context.Context, r *reign) {
	p.tail = watched{p.target, p.tp.Partition, p.part.Last.Epoch} // that of our marker, which was read
	p.resume()
	defer p.feed.end()
	for ctx.Err() == nil {
		err := p.round(ctx, r)
		var stop *trouble
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case errors.As(err, &stop):
			p.stop(stop)
			if sleep(ctx, p.flow.cfg.RetryInterval) != nil {
				return
			}
			p.resume() // a stopped partition looks again, now and then, whether what stopped it is gone
		default:
			r.lose(err)
			return
		}
	}
}

// resume begins to read where the map ends.
func (p *pump) resume() {
	p.queue = nil
	p.sourceEpoch = -1
	p.known = p.part.Frontier()
	p.feed.begin(p.onSource(p.known))
}

func (p *pump) onSource(v translate.Virtual) translate.Physical {
	return translate.Physical(v-p.era.Virtual) + p.era.Physical
}

func (p *pump) virtual(s translate.Physical) translate.Virtual {
	return translate.Virtual(s-p.era.Physical) + p.era.Virtual
}

// round copies what is there, or waits for it.
func (p *pump) round(ctx context.Context, r *reign) error {
	if err := p.watchEpochs(ctx); err != nil {
		return err
	}
	if err := p.take(ctx); err != nil {
		return err
	}
	switch {
	case len(p.queue) > 0:
		return p.copy(ctx, r)
	case p.known > p.part.Frontier():
		return p.reach(ctx, r)
	}
	return p.idle(ctx, r)
}

// idle waits for the fetcher. Meanwhile it does what can wait: a marker behind old batches, a settled record.
func (p *pump) idle(ctx context.Context, r *reign) error {
	p.publishState()
	if p.aged {
		if err := r.mark(ctx, p); err != nil {
			return err
		}
		p.aged = false
	}
	if p.unsettled > 0 && time.Since(p.settledAt) >= settleAfter {
		if err := p.settle(ctx, r); err != nil {
			return err
		}
	}
	t := time.NewTimer(idleCheck)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.feed.ready:
	case <-t.C:
	}
	return nil
}

// wagon is one batch of a round: what is claimed, and what will be sent.
type wagon struct {
	claim *journal.Claim
	raw   []byte
	used  int // parcels of the queue that are in it
}

// copy claims, produces and publishes what is queued. Small batches go together into one; those that cannot (another codec, a
// gap between) follow each other under claims that share one append. The batches are sent one by one.
func (p *pump) copy(ctx context.Context, r *reign) error {
	if p.queued() < smallRound {
		if err := p.flow.pace.wait(ctx, roundPhase); err != nil {
			return err
		}
		if err := p.take(ctx); err != nil { // what came meanwhile goes along
			return err
		}
	}
	train, err := p.load(r)
	if err != nil {
		return err
	}
	p.owed(true)
	defer p.owed(false)
	if err := p.claim(ctx, r, train); err != nil {
		return err
	}
	for _, w := range train {
		c := w.claim
		batch.Rewrite(w.raw, 0, batch.Producer{ID: c.Owner.ID, Epoch: c.Owner.Epoch, FirstSequence: c.Sequence})
		base, epoch, err := p.produce(ctx, w.raw, p.repeating(w.raw))
		if err != nil {
			return err
		}
		if err := p.publish(w, base, epoch); err != nil {
			return err
		}
		p.owed(true)
	}
	return p.passed(ctx, r)
}

// owed notes that the target owes an ack from now on, or none any more.
func (p *pump) owed(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unacked = time.Time{}
	if yes {
		p.unacked = time.Now()
	}
}

// repeating says whether a batch may be sent again while its outcome is not known.
func (p *pump) repeating(raw []byte) repeating {
	if p.old(batch.Header(raw).MaxTimestamp()) {
		p.aged = true
		return neverRepeat
	}
	return mayRepeat
}

// load makes the batches and claims of one round: up to maxTrain, up to roundBytes.
func (p *pump) load(r *reign) (train []wagon, err error) {
	sequence, predicted, highest := p.part.NextSequence, p.part.PhysicalEnd, p.part.History.Last()
	at, size := 0, 0
	for at < len(p.queue) && len(train) < maxTrain && (at == 0 || size < roundBytes) {
		raw, used, err := p.join(p.queue[at:])
		if err != nil {
			return nil, &trouble{"a batch cannot be re-encoded: " + err.Error(), "look at the batch on the source"}
		}
		c := p.claimFor(r, at, used, &highest)
		c.Sequence, c.Predicted = sequence, predicted
		sequence = journal.NextSequence(sequence, int64(c.Records))
		predicted += translate.Physical(c.Records)
		train = append(train, wagon{c, raw, used})
		at += used
		size += len(raw)
	}
	return train, nil
}

// reach claims that there is nothing up to where the source was read.
func (p *pump) reach(ctx context.Context, r *reign) error {
	c := p.newClaim(r, p.part.Frontier(), 0, p.known)
	if err := p.append(ctx, r, c); err != nil {
		return err
	}
	p.mu.Lock()
	err := p.part.Reached(c)
	p.mu.Unlock()
	if err != nil {
		return fenceAnew{err.Error()}
	}
	return p.passed(ctx, r)
}

func (p *pump) newClaim(r *reign, v translate.Virtual, records int32, reach translate.Virtual) *journal.Claim {
	return &journal.Claim{
		Virtual: v, Records: records, Reach: reach,
		Owner: r.owner, Sequence: p.part.NextSequence, Predicted: p.part.PhysicalEnd,
		ConfirmedSequence: p.confirmed, ConfirmedOffset: p.confirmedAt,
		AtMillis: time.Now().UnixMilli(),
	}
}

// claimFor claims the parcels [at, at+used) of the queue. highest is the last epoch that claims told of so far.
func (p *pump) claimFor(r *reign, at, used int, highest *translate.Epoch) *journal.Claim {
	parcels := p.queue[at : at+used]
	first, last := parcels[0], parcels[len(parcels)-1]
	reach := p.known
	if len(p.queue) > at+used {
		reach = p.virtual(p.queue[at+used].base)
	}
	c := p.newClaim(r, p.virtual(first.base), int32(last.next-first.base), max(reach, p.virtual(last.next)))
	for _, one := range parcels {
		if one.epoch > *highest {
			*highest = one.epoch
			c.Epochs = append(c.Epochs, translate.EpochStart{Epoch: one.epoch, Start: p.virtual(one.base)})
		}
		c.Sources = append(c.Sources, one.sources...)
	}
	return c
}

// claim is durable before it returns; from then on the data may be sent.
func (p *pump) claim(ctx context.Context, r *reign, train []wagon) error {
	claims := make([]*journal.Claim, len(train))
	for i, w := range train {
		claims[i] = w.claim
	}
	if err := p.append(ctx, r, claims...); err != nil {
		return err
	}
	p.mu.Lock()
	for _, c := range claims {
		p.part.Claim(c)
	}
	p.mu.Unlock()
	return nil
}

func (p *pump) append(ctx context.Context, r *reign, claims ...*journal.Claim) error {
	records := make([]journal.Record, len(claims))
	for i, c := range claims {
		key := journal.Key{Kind: journal.KindClaim, TP: p.tp, Number: (p.claims + i) % journal.Ring}
		records[i] = journal.Record{Key: key.Encode(), Value: c.Encode(nil)}
	}
	if err := r.appender.append(ctx, records...); err != nil {
		return err
	}
	p.claims += len(claims)
	p.unsettled += len(claims)
	return nil
}

// produce sends until the batch is in. A refused batch stops the partition and is sent again, the same bytes, now and then:
// its sequence must not mean another batch, and a config may have changed.
func (p *pump) produce(ctx context.Context, raw []byte, repeat repeating) (translate.Physical, translate.RealEpoch, error) {
	d := delivery{topic: p.target, id: p.targetID, partition: p.tp.Partition, bytes: raw}
	look := func(ctx context.Context, node int32, epoch translate.RealEpoch) error {
		return p.tail.look(ctx, p.flow.target, node, epoch, p.part.PhysicalEnd)
	}
	for wait := p.flow.cfg.RetryInterval; ; wait = min(2*wait, 30*time.Second) {
		out := p.slot.produce(ctx, d, look, repeat)
		var no refused
		switch {
		case out.err == nil:
			p.stop(nil)
			return translate.Physical(out.base), out.epoch, nil
		case !errors.As(out.err, &no):
			return 0, 0, out.err
		}
		p.stop(refusal(no.err, p.part.Frontier(), raw))
		if err := sleep(ctx, wait); err != nil {
			return 0, 0, err
		}
	}
}

// publish puts what was acked into the map.
func (p *pump) publish(w wagon, base translate.Physical, epoch translate.RealEpoch) error {
	p.mu.Lock()
	err := p.part.Acked(w.claim, base, epoch)
	p.mu.Unlock()
	if err != nil {
		return fenceAnew{err.Error()}
	}
	p.queue = p.queue[w.used:]
	p.confirmed, p.confirmedAt = w.claim.Sequence, base
	p.flow.metrics().Copied(int(w.claim.Records), len(w.raw))
	age := time.Since(time.UnixMilli(batch.Header(w.raw).MaxTimestamp()))
	p.recordAge.Store(&age)
	p.publishState()
	p.flow.progress.signal()
	return nil
}

// passed tells who waits, and settles when it is time.
func (p *pump) passed(ctx context.Context, r *reign) error {
	p.publishState()
	p.flow.progress.signal()
	if p.unsettled >= settleClaims || time.Since(p.settledAt) >= settleAfter {
		return p.settle(ctx, r)
	}
	return nil
}

func (p *pump) settle(ctx context.Context, r *reign) error {
	if err := r.appender.append(ctx, p.settleRecords()...); err != nil {
		return err
	}
	p.settled()
	return nil
}

// settleRecords returns what must be written together, in one batch: a chunk, if one is due, and the settled record.
func (p *pump) settleRecords() (out []journal.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.part.Producers.Prune(time.Now().Add(-keepProducers).UnixMilli())
	chunk, number, record := p.part.Settle()
	if p.chunked = chunk != nil; p.chunked {
		out = append(out, journal.Record{Key: journal.Key{Kind: journal.KindChunk, TP: p.tp, Number: number}.Encode(), Value: chunk})
	}
	return append(out, journal.Record{Key: journal.Key{Kind: journal.KindSettled, TP: p.tp}.Encode(), Value: record})
}

// settled: what settleRecords returned is in the journal. Not before: a reign that ends meanwhile leaves the partition to the
// next one, and a chunk that was never written may not be named.
func (p *pump) settled() {
	p.mu.Lock()
	if p.chunked {
		p.part.Sealed()
	}
	p.mu.Unlock()
	p.unsettled, p.settledAt, p.anew, p.chunked = 0, time.Now(), false, false
}

// old says that the target may forget our producer while it has a batch with this timestamp as its last one: then neither
// the fence nor the duplicate check holds.
func (p *pump) old(maxTimestampMillis int64) bool {
	limit := time.Now().Add(cautionMargin - time.Duration(p.flow.target.expiration.Load()))
	return maxTimestampMillis < limit.UnixMilli()
}

// cautionMargin: a broker looks for producers to forget every ten minutes.
const cautionMargin = 15 * time.Minute
