package replicator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// recover owns and fences the slot, replays its journal partition and brings each of its partitions up to our marker. It
// returns the pumps to settle: the caller has to, before anything is claimed.
func (r *reign) recover(ctx context.Context, kept remains, ahead *ahead) ([]*pump, error) {
	pumps, err := r.ownAndFence(ctx, ahead)
	if err != nil {
		return nil, err
	}
	r.took.step("fence")
	if err := r.replay(ctx, kept); err != nil {
		return nil, err
	}
	r.took.step("replay")
	r.startAppender(ctx)
	return r.bring(ctx, r.begin(ctx, pumps))
}

// ownAndFence returns the pumps that it fenced. It takes up what was prepared, if that still holds.
func (r *reign) ownAndFence(ctx context.Context, ahead *ahead) ([]*pump, error) {
	var pumps []*pump
	for _, p := range r.slot.members() {
		p.unread = 0
		if r.canFence(p) {
			pumps = append(pumps, p)
		}
	}
	if ahead != nil {
		r.owner = ahead.owner
		unknown, err := r.fence(ctx, pumps, ahead.pumps, true)
		if err == nil || ctx.Err() != nil {
			return without(pumps, unknown), err
		}
		r.slot.log.Debug().Err(err).Msg("what was prepared of the fence does not hold any more")
	}
	if err := r.own(ctx); err != nil {
		return nil, err
	}
	r.took.step("own")
	unknown, err := r.fence(ctx, pumps, nil, true)
	return without(pumps, unknown), err
}

// join does the same for pumps that come later, while the others run.
func (r *reign) join(ctx context.Context, pumps []*pump) error {
	late := r.begin(ctx, pumps)
	pumps = nil
	for _, rec := range late {
		pumps = append(pumps, rec.pump)
	}
	unknown, err := r.fenceAlone(ctx, pumps)
	if err != nil {
		return err
	}
	late = slices.DeleteFunc(late, func(rec *recovery) bool { return unknown[rec.pump] })
	brought, err := r.bring(ctx, late)
	if err != nil {
		return err
	}
	return r.settleAll(ctx, brought)
}

// fenceAlone fences some partitions while the others of the slot are not written: they must not see our transaction. Its
// error is errAhead if the epoch of this reign is not the coordinator's any more.
func (r *reign) fenceAlone(ctx context.Context, pumps []*pump) (map[*pump]bool, error) {
	r.slot.gate.Lock()
	defer r.slot.gate.Unlock()
	if r.slot.isAhead() {
		return nil, errAhead
	}
	return r.fence(ctx, pumps, nil, false)
}

func without(pumps []*pump, unknown map[*pump]bool) []*pump {
	var out []*pump
	for _, p := range pumps {
		if !unknown[p] {
			out = append(out, p)
		}
	}
	return out
}

// canFence: the partition has a leader, so that a transaction with it can end.
func (r *reign) canFence(p *pump) bool {
	_, _, ok := r.flow.target.leader(p.target, p.tp.Partition)
	return ok && p.admitted()
}

// replay reads the journal up to our marker, only its end if nothing came behind what the last reign left.
func (r *reign) replay(ctx context.Context, kept remains) error {
	topic := journal.Topic(r.flow.cfg.From, r.flow.cfg.To)
	leader, _, _ := r.flow.target.leader(topic, r.slot.n)
	if kept.valid {
		r.fold = journal.ResumeFold(kept.fold, kept.owner, kept.next, kept.position, kept.last)
		err := r.fold.Replay(ctx, r.client(), topic, r.flow.journalID, r.slot.n, leader, r.owner)
		if err == nil && !r.fold.Changed() {
			r.parts = kept.parts
			return nil
		}
		if err != nil && !errors.Is(err, journal.ErrTailLost) {
			return err
		}
	}
	r.fold = journal.NewFold()
	if err := r.fold.Replay(ctx, r.client(), topic, r.flow.journalID, r.slot.n, leader, r.owner); err != nil {
		return err
	}
	parts, err := r.fold.Partitions()
	if err != nil {
		return fmt.Errorf("slot %d: %w", r.slot.n, err)
	}
	r.parts = parts
	return nil
}

// recovery is one partition on its way up to our marker.
type recovery struct {
	pump    *pump
	part    *journal.Partition
	cursor  *journal.Cursor
	checked bool // the last batch known was found where it should be, or cannot be looked for
	lost    bool // the log lost its tail
	marked  bool // a marker of the reign was read
}

// begin looks at what is known of partitions, and stops those of which something does not fit. What the journal knows of
// them stays in r.parts.
func (r *reign) begin(ctx context.Context, pumps []*pump) (all []*recovery) {
	for _, p := range pumps {
		part, trouble := p.begin(ctx, r.parts[p.tp])
		if trouble != nil {
			p.adopt(nil, trouble)
			if !p.waits { // what stops it for good is looked at again in the next reign
				r.running[p] = true
			}
			continue
		}
		all = append(all, &recovery{pump: p, part: part})
	}
	return all
}

// bring brings partitions up to our marker, which was just written to them, and returns those that have to be settled. One
// whose marker does not come, because it has no leader any more, joins later: from where it was read to.
func (r *reign) bring(ctx context.Context, all []*recovery) (brought []*pump, err error) {
	for _, rec := range all {
		rec.aim(rec.part.PhysicalEnd)
	}
	if err := r.read(ctx, all); err != nil {
		return nil, err
	}
	r.took.step("read")
	for _, rec := range all {
		p := rec.pump
		if !rec.cursor.Done {
			if rec.marked { // another one is not there: it was lost with the log's tail
				p.unread = 0
			}
			continue
		}
		rec.part.Finish()
		p.adopt(rec.part, p.checkTarget(rec.part))
		r.parts[p.tp], r.running[p] = rec.part, true
		brought = append(brought, p)
	}
	return brought, nil
}

// mark writes a marker of ours behind what a pump wrote, and reads it back. The pump's own goroutine calls it.
func (r *reign) mark(ctx context.Context, p *pump) error {
	unknown, err := r.fenceAlone(ctx, []*pump{p})
	if err != nil || unknown[p] {
		return err
	}
	rec := &recovery{pump: p, part: p.part}
	rec.aim(p.part.PhysicalEnd)
	if err := r.read(ctx, []*recovery{rec}); err != nil {
		return err
	}
	if !rec.cursor.Done {
		return fenceAnew{errNoMarker.Error()}
	}
	return nil
}

// aim begins to read one offset before what is judged, to see that it still is what was judged.
func (rec *recovery) aim(at translate.Physical) {
	rec.checked = at == 0 || rec.part.Marker < 0
	if !rec.checked {
		at--
	}
	p := rec.pump
	rec.cursor = &journal.Cursor{Topic: p.target, ID: p.targetID, Partition: p.tp.Partition, Next: at}
	if node, _, ok := p.flow.target.leader(p.target, p.tp.Partition); ok {
		rec.cursor.LedBy(node)
	}
}

// read reads the logs up to our markers, which the coordinator writes as soon as each leader takes them. It gives up on
// partitions whose marker does not come.
func (r *reign) read(ctx context.Context, all []*recovery) error {
	readCtx, cancel := context.WithTimeoutCause(ctx, r.flow.cfg.LeaderTimeout, errNoMarker)
	defer cancel()
	byCursor := make(map[*journal.Cursor]*recovery, len(all))
	cursors := make([]*journal.Cursor, len(all))
	for i, rec := range all {
		cursors[i], byCursor[rec.cursor] = rec.cursor, rec
	}
	err := journal.Read(readCtx, r.client(), cursors, func(c *journal.Cursor, b journal.Batch, raw []byte) error {
		if raw != nil {
			r.visit(byCursor[c], b)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errNoMarker) {
		return err
	}
	var again []*recovery
	for _, rec := range all {
		if rec.cursor.Beyond || rec.lost {
			if err := r.cut(ctx, rec); err != nil {
				return err
			}
			again = append(again, rec)
		}
	}
	if len(again) > 0 {
		return r.read(ctx, again)
	}
	return nil
}

var errNoMarker = errors.New("a marker did not come in time")

// visit judges a batch. The last marker of this reign ends the log: a partition that joins late has one of each attempt.
func (r *reign) visit(rec *recovery, b journal.Batch) {
	p := rec.part
	if !rec.checked {
		rec.checked = true
		if b.Base < p.PhysicalEnd && !(b.Next == p.PhysicalEnd && b.Is(p.Last)) {
			rec.lost, rec.cursor.Done = true, true
			return
		}
	}
	rec.pump.mu.Lock()
	p.Judge(b, r.fold.Ours)
	rec.pump.mu.Unlock()
	if b.Marker && b.Owner == r.owner {
		rec.marked = true
		rec.pump.unread = max(0, rec.pump.unread-1)
		rec.cursor.Done = rec.pump.unread == 0
	}
}

// cut forgets the tail that the target's log lost: what lies above the end of the epoch that was written last. If that is not
// known, all is forgotten, so that nothing that may be gone is kept.
func (r *reign) cut(ctx context.Context, rec *recovery) error {
	p := rec.part
	end, _, err := epochEnd(ctx, r.flow.target, rec.pump.target, p.TP.Partition, p.Last.Epoch)
	if err != nil {
		return err
	}
	end = min(end, p.PhysicalEnd-1)
	r.slot.log.Error().Str("topic", p.TP.Topic).Int32("partition", p.TP.Partition).Int64("offset", int64(end)).
		Int64("known", int64(p.PhysicalEnd)).Msg("target lost the tail of its log; it is copied again")
	rec.pump.mu.Lock()
	err = p.CutAt(max(end, 0))
	rec.pump.mu.Unlock()
	if err != nil {
		return err
	}
	rec.lost = false
	rec.pump.unread = 0 // which of them were lost is not known
	rec.aim(p.PhysicalEnd)
	return nil
}

// epochEnd asks where the log of a leader epoch ends. known is false if the cluster cannot say, because it has nothing of the
// epoch any more.
func epochEnd(ctx context.Context, c *cluster, topic string, partition int32, epoch translate.RealEpoch) (end translate.Physical, known bool, err error) {
	if epoch < 0 {
		return 0, false, nil
	}
	node, _, ok := c.leader(topic, partition)
	if !ok {
		return 0, false, fmt.Errorf("%s-%d has no leader on %s", topic, partition, c.name)
	}
	return epochEndAt(ctx, c, topic, partition, epoch, node, -1)
}

// epochEndAt asks node, which must lead with the epoch current (−1: with any).
func epochEndAt(ctx context.Context, c *cluster, topic string, partition int32, epoch translate.RealEpoch, node int32, current translate.RealEpoch) (end translate.Physical, known bool, err error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.CurrentLeaderEpoch = partition, int32(epoch), int32(current)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	kresp, err := c.client.Broker(int(node)).RetriableRequest(ctx, req)
	if err != nil {
		return 0, false, fmt.Errorf("end of epoch %d of %s-%d: %w", epoch, topic, partition, err)
	}
	topics := kresp.(*kmsg.OffsetForLeaderEpochResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return 0, false, fmt.Errorf("end of epoch %d of %s-%d: the answer is not about one partition", epoch, topic, partition)
	}
	one := topics[0].Partitions[0]
	if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
		return 0, false, fmt.Errorf("end of epoch %d of %s-%d: %w", epoch, topic, partition, err)
	}
	return translate.Physical(one.EndOffset), one.EndOffset >= 0, nil
}

// settleAll writes settled records of partitions that nobody else works on.
func (r *reign) settleAll(ctx context.Context, pumps []*pump) error {
	var records []journal.Record
	var parts []*pump
	size := 0
	flush := func() error {
		if len(records) == 0 {
			return nil
		}
		if err := r.appender.append(ctx, records...); err != nil {
			return err
		}
		for _, p := range parts {
			p.settled()
		}
		records, parts, size = nil, nil, 0
		return nil
	}
	for _, p := range pumps {
		if !p.judged() {
			continue
		}
		mine, bytes := p.settleRecords(), 0
		for _, one := range mine {
			bytes += len(one.Key) + len(one.Value)
		}
		if size+bytes >= maxAppendBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		records, parts, size = append(records, mine...), append(parts, p), size+bytes
	}
	return flush()
}
