package replicator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// parcel is a batch of the source as it will be written: format 2, CreateTime, without holes, data that a read_committed
// reader gets. Its base offset still is the source's.
type parcel struct {
	raw        []byte // ours to write in
	base, next translate.Physical
	epoch      translate.Epoch // as clients see it
	sources    []journal.Source
}

// take moves what the fetcher has brought into the queue.
func (p *pump) take(ctx context.Context) error {
	if len(p.queue) > 0 && p.queued() >= roundBytes {
		return nil
	}
	chunks, err := p.feed.take()
	if err != nil && len(p.queue) == 0 {
		return p.feedTrouble(ctx, err)
	}
	for i := range chunks {
		if err := p.open(&chunks[i]); err != nil {
			return &trouble{
				fmt.Sprintf("source batch at or after %d cannot be read: %v", p.known, err),
				"look at this place in the source's log; a corrupt batch must be removed there",
			}
		}
	}
	return nil
}

func (p *pump) queued() (bytes int) {
	for _, one := range p.queue {
		bytes += len(one.raw)
	}
	return bytes
}

// open checks a chunk and puts its data into the queue.
func (p *pump) open(c *chunk) error {
	a := abortions{left: c.aborted, active: map[int64]bool{}}
	it := batch.Iter(c.records)
	legacyFrom := -1
	for it.Next() {
		if it.Legacy() {
			if legacyFrom < 0 {
				legacyFrom = it.Pos()
			}
			continue
		}
		if legacyFrom >= 0 {
			if err := p.openLegacy(c.records[legacyFrom:it.Pos()]); err != nil {
				return err
			}
			legacyFrom = -1
		}
		if err := p.openBatch(it.Batch(), &a); err != nil {
			return err
		}
	}
	if legacyFrom >= 0 {
		if err := p.openLegacy(c.records[legacyFrom:it.Consumed()]); err != nil {
			return err
		}
	}
	p.known = max(p.known, p.virtual(c.next))
	return it.Err()
}

func (p *pump) openLegacy(set []byte) error {
	list, err := p.flow.codecs.Upgrade(set, roundBytes)
	if err != nil {
		return err
	}
	for _, raw := range list {
		if err := p.enqueue(raw, translate.UnknownEpoch, nil); err != nil {
			return err
		}
	}
	return nil
}

func (p *pump) openBatch(raw []byte, a *abortions) error {
	if err := batch.Valid(raw); err != nil {
		return err
	}
	if err := batch.CheckCRC(raw); err != nil {
		return err
	}
	h := batch.Header(raw)
	if a.skips(raw) || h.Control() || h.NumRecords() == 0 {
		return nil
	}
	epoch := p.era.Shift.Show(translate.RealEpoch(h.LeaderEpoch()))
	sources := p.sourceOf(h)
	list, err := p.presentable(raw)
	if err != nil {
		return err
	}
	for i, one := range list {
		var s []journal.Source
		if i == len(list)-1 {
			s = sources
		}
		if err := p.enqueue(one, epoch, s); err != nil {
			return err
		}
	}
	return nil
}

// presentable re-encodes what a target does not take from a producer: holes, and timestamps that the broker set.
func (p *pump) presentable(raw []byte) ([][]byte, error) {
	switch h := batch.Header(raw); {
	case h.HasHoles():
		return p.flow.codecs.SplitHoles(raw)
	case h.TimestampType() == batch.LogAppendTime:
		one, err := p.flow.codecs.ToCreateTime(raw)
		return [][]byte{one}, err
	}
	return [][]byte{raw}, nil
}

// enqueue adds a batch, or the part of it that is not copied yet.
func (p *pump) enqueue(raw []byte, epoch translate.Epoch, sources []journal.Source) error {
	h := batch.Header(raw)
	from := p.onSource(p.part.Frontier())
	if n := len(p.queue); n > 0 {
		from = p.queue[n-1].next
	}
	base, next := translate.Physical(h.BaseOffset()), translate.Physical(h.NextOffset())
	switch {
	case next <= from:
		return nil
	case base < from:
		var err error
		if raw, err = p.trim(raw, from); err != nil {
			return err
		}
		base = from
	}
	p.queue = append(p.queue, parcel{raw, base, next, epoch, sources})
	return nil
}

// trim cuts off the records below from.
func (p *pump) trim(raw []byte, from translate.Physical) ([]byte, error) {
	records, err := p.flow.codecs.Decode(raw)
	if err != nil {
		return nil, err
	}
	for len(records) > 0 && records[0].Offset < int64(from) {
		records = records[1:]
	}
	return p.flow.codecs.Encode(records, batch.Params{
		Codec: batch.Header(raw).Codec(), BaseOffset: int64(from), LeaderEpoch: -1,
	})
}

// sourceOf is what a retry of the batch would be recognised by. Ids that clients do not see through us have no retries there;
// transactions are judged by their end, not by their batches.
func (p *pump) sourceOf(h batch.Header) []journal.Source {
	shown := translate.StripTag(h.ProducerID())
	if shown < 0 || h.Transactional() || h.ProducerEpoch() < 0 || h.FirstSequence() < 0 || !isShown(shown) {
		return nil
	}
	return []journal.Source{{
		Virtual: p.virtual(translate.Physical(h.BaseOffset())), Records: h.LastOffsetDelta() + 1,
		ID: shown, Epoch: h.ProducerEpoch(), Sequence: h.FirstSequence(),
	}}
}

// isShown says whether an id was issued through us: in a later generation it would get a tag.
func isShown(id int64) bool { return translate.OnCluster(id, translate.GenerationLimit-1) != id }

// join returns one batch with the records of the first parcels, and how many those are. It may be written in.
//
// Batches of different codecs stay apart, so each keeps its own, unless many small ones wait: a request for each would be
// slower than they are written.
func (p *pump) join(parcels []parcel) (raw []byte, used int, err error) {
	may, coalesce := batch.CanCoalesce, p.flow.codecs.Coalesce
	if len(parcels) > mixFrom {
		may, coalesce = batch.CanCoalesceSmall, p.flow.codecs.CoalesceSmall
	}
	if len(parcels) == 1 || !may(parcels[0].raw, parcels[1].raw) {
		return parcels[0].raw, 1, nil
	}
	list := make([][]byte, 0, min(len(parcels), 1024))
	for _, one := range parcels {
		if len(list) == cap(list) {
			break
		}
		list = append(list, one.raw)
	}
	return coalesce(nil, list, p.maxJoin())
}

// abortions says which batches belong to aborted transactions, by the list that a read_committed answer has.
type abortions struct {
	left   []kmsg.FetchResponseTopicPartitionAbortedTransaction
	active map[int64]bool
	sorted bool
}

// skips says whether raw is in an aborted transaction. It is called for each batch, in log order.
func (a *abortions) skips(raw []byte) bool {
	h := batch.Header(raw)
	if !a.sorted {
		slices.SortFunc(a.left, func(x, y kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
			return cmp.Compare(x.FirstOffset, y.FirstOffset)
		})
		a.sorted = true
	}
	for len(a.left) > 0 && a.left[0].FirstOffset < h.NextOffset() {
		a.active[a.left[0].ProducerID] = true
		a.left = a.left[1:]
	}
	if h.Control() {
		if kind, _, err := batch.ControlType(raw); err != nil || kind == batch.Abort {
			delete(a.active, h.ProducerID())
		}
		return true
	}
	return h.Transactional() && a.active[h.ProducerID()]
}

// feedTrouble says why the source gives nothing more, and moves on where that is allowed.
func (p *pump) feedTrouble(ctx context.Context, err error) error {
	f := p.flow
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return p.outOfRange(ctx)
	case errors.Is(err, errDiverged):
		return &trouble{
			fmt.Sprintf("the source's log diverged below %d (unclean leader election): records that were copied are gone there", p.known),
			"compare both clusters; " + hintAnew,
		}
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		f.source.kick()
		if t := f.source.topic(p.source); t != nil && t.id == p.sourceID {
			p.resume()
			return sleep(ctx, kickInterval)
		}
		return &trouble{"the source topic was deleted or re-created", hintAnew}
	}
	return &trouble{"the source refuses to be read: " + err.Error(), "see the rights of our user on the source"}
}

// outOfRange tells a lost range from a log that ends below what was copied.
func (p *pump) outOfRange(ctx context.Context) error {
	client := p.flow.source.client
	at := p.onSource(p.known)
	start, err := journal.Offset(ctx, client, p.source, p.tp.Partition, journal.Earliest)
	if err != nil {
		return p.later(ctx)
	}
	if start > at {
		return p.lostRange(start)
	}
	end, err := journal.Offset(ctx, client, p.source, p.tp.Partition, journal.Latest)
	if err != nil {
		return p.later(ctx)
	}
	if end < at {
		return &trouble{
			fmt.Sprintf("the source's log ends at %d, below %d that was copied", p.virtual(end), p.known),
			"the source lost its tail (unclean leader election); compare both clusters",
		}
	}
	return p.later(ctx)
}

func (p *pump) later(ctx context.Context) error {
	p.flow.source.kick()
	if err := sleep(ctx, kickInterval); err != nil {
		return err
	}
	p.resume()
	return nil
}

// lostRange deals with records that the source removed before they were copied. Up to known all is copied or queued.
func (p *pump) lostRange(start translate.Physical) error {
	from, to := p.known, p.virtual(start)
	if p.flow.cfg.OnLostRange != OnLostSkip {
		return &trouble{
			fmt.Sprintf("%d to %d lost at the source", from, to-1),
			"the source's retention removed them before they were copied; replication.on_lost_range: skip records them as a gap and goes on",
		}
	}
	p.mu.Lock()
	p.lost += int64(to - from)
	p.mu.Unlock()
	p.flow.metrics().Lost(int64(to - from))
	p.flow.log.Error().Str("topic", p.tp.Topic).Int32("partition", p.tp.Partition).Int64("from", int64(from)).
		Int64("to", int64(to)).Msg("records lost at the source; the range is a gap")
	p.known = to
	p.feed.begin(start)
	return nil
}
