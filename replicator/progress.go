package replicator

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/translate"
)

// State of a pump:
//
//	Probing   not recovered: the slot is not owned, or the partition has no leader
//	Copying   behind the source
//	CaughtUp  all that a read_committed reader of the source can see is copied, or is being written: it was fetched, is no more
//	          than a round, and is not older than caughtUpWithin
//	Sealed    fenced; nothing is written
//	Stopped   something must be done; Reason and Hint say what
type State string

const (
	StateProbing  State = "Probing"
	StateCopying  State = "Copying"
	StateCaughtUp State = "CaughtUp"
	StateSealed   State = "Sealed"
	StateStopped  State = "Stopped"
)

// PartitionStatus is what an operator sees of one pump.
type PartitionStatus struct {
	Topic      string
	Partition  int32
	State      State
	LagRecords int64 // up to the high watermark; holes count
	LagMillis  int64 // how long the oldest record that is visible at the source, and not copied, has been seen there
	Reason     string
	Hint       string
	Frontier   translate.Virtual // −1: not known
	Lost       int64             // records that the source removed before they were copied
}

// Status lists all partitions, in order.
func (f *Flow) Status() []PartitionStatus {
	pumps := f.allPumps()
	out := make([]PartitionStatus, 0, len(pumps))
	for _, p := range pumps {
		out = append(out, p.status())
	}
	return out
}

// Err is why nothing of the flow runs; nil if that is not so.
func (f *Flow) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fatal
}

// Recovered says why what is known of the partitions is not all yet; nil if it is. One that is stopped may never be recovered, and
// is left out.
func (f *Flow) Recovered() error {
	if !closed(f.ready) {
		return errors.Join(errors.New("the flow has not started"), f.Err())
	}
	for _, p := range f.allPumps() {
		p.mu.Lock()
		waits := p.part == nil && p.anyTrouble() == nil
		p.mu.Unlock()
		if waits {
			return fmt.Errorf("partition %d of topic %s is not recovered", p.tp.Partition, p.tp.Topic)
		}
	}
	return nil
}

func (p *pump) status() PartitionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PartitionStatus{Topic: p.tp.Topic, Partition: p.tp.Partition, State: p.state, Frontier: -1, Lost: p.lost}
	var e ends
	if p.part != nil {
		s.Frontier = p.part.Frontier()
		e = p.feed.ends(p.onSource(s.Frontier))
		s.LagRecords, s.LagMillis = p.lag(e).records, p.lag(e).time.Milliseconds()
		if s.State == StateCopying || s.State == StateCaughtUp {
			s.State = p.copyState(e)
		}
	}
	switch t := p.anyTrouble(); {
	case t != nil:
		s.State, s.Reason, s.Hint = StateStopped, t.Reason, t.Hint
	case p.slotLost != nil:
		s.State, s.Reason, s.Hint = StateProbing, p.slotLost.Error(), "it is tried again"
		if lost := (lostSlot{}); errors.As(p.slotLost, &lost) {
			s.Hint = hintLost
		}
	case s.State == StateCopying && !p.unacked.IsZero() && time.Since(p.unacked) >= silentAfter:
		s.Reason = fmt.Sprintf("the target has not taken what was sent to it for %v", time.Since(p.unacked).Round(time.Second))
		s.Hint = "look at the target's brokers, its leaders and its in-sync replicas, those of the journal as well; it goes on by itself"
	case s.State == StateCopying && e.silent >= silentAfter:
		s.Reason = fmt.Sprintf("the source has not answered for %v", e.silent.Round(time.Second))
		s.Hint = "look at the source's brokers; it goes on by itself"
	case s.State == StateCaughtUp && e.stable < e.high:
		s.Reason = fmt.Sprintf("waits for a transaction that is open at the source, at %d", p.virtual(e.stable))
	}
	return s
}

const (
	caughtUpWithin = time.Second
	silentAfter    = 5 * time.Second // without an answer nothing is known of the source
)

// copyState is called with mu held, and the ends at the frontier.
func (p *pump) copyState(e ends) State {
	writing := e.fetched && e.waiting <= roundBytes && e.behind < caughtUpWithin
	if e.stable >= 0 && e.silent < silentAfter && (e.copied || writing) {
		return StateCaughtUp
	}
	return StateCopying
}

type lag struct {
	records int64
	time    time.Duration
}

// lag is called with mu held, and the ends at the frontier.
func (p *pump) lag(e ends) lag {
	l := lag{time: e.behind}
	if e.high >= 0 {
		l.records = max(0, int64(p.virtual(e.high)-p.part.Frontier()))
	}
	if e.silent >= silentAfter {
		l.time = max(l.time, e.silent)
	}
	return l
}

func (p *pump) anyTrouble() *trouble {
	if p.topic != nil {
		return p.topic
	}
	return p.trouble
}

// publishState notes whether the pump has caught up.
func (p *pump) publishState() {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.feed.ends(p.onSource(p.part.Frontier()))
	p.state = p.copyState(e)
	if p.state == StateCaughtUp && e.copied {
		p.trouble = nil
	}
}

// stop notes why the partition does not go on; nil: it does again.
func (p *pump) stop(t *trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t != nil && (p.trouble == nil || *p.trouble != *t) {
		p.flow.log.Error().Str("topic", p.tp.Topic).Int32("partition", p.tp.Partition).Str("reason", t.Reason).
			Str("hint", t.Hint).Msg("partition stopped")
	}
	changed := (t == nil) != (p.trouble == nil)
	p.trouble = t
	if changed {
		p.flow.progress.signal()
	}
}

func (p *pump) setSlotTrouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slotLost = err
	if err != nil {
		p.state = StateProbing
	}
}

// probe: the slot is to be owned anew, and what the pump knows is not certain until it is.
func (p *pump) probe() {
	p.mu.Lock()
	p.state = StateProbing
	p.mu.Unlock()
}

// runnable: recovered, and nothing stops it for good.
func (p *pump) runnable() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.part != nil && p.anyTrouble() == nil
}

func (p *pump) recovered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.part != nil
}

// judged: recovered, and nothing of its own stops it. Its topic may not be there any more by now.
func (p *pump) judged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.part != nil && p.trouble == nil
}

// admitted: its topic may be copied.
func (p *pump) admitted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.topic == nil
}

// refusal explains a batch that the target does not take.
func refusal(err error, at translate.Virtual, raw []byte) *trouble {
	h := batch.Header(raw)
	what := fmt.Sprintf("the target refuses the batch at %d (%d bytes, newest timestamp %s): %v", at, len(raw),
		time.UnixMilli(h.MaxTimestamp()).UTC().Format(time.RFC3339), err)
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return &trouble{what, fmt.Sprintf("raise max.message.bytes of the target's topic to at least %d; it goes on by itself", len(raw))}
	case errors.Is(err, kerr.InvalidTimestamp):
		return &trouble{what, "raise message.timestamp.before.max.ms (message.timestamp.difference.max.ms before Kafka 3.6) of the target's topic; it goes on by itself"}
	case errors.Is(err, kerr.InvalidRecord):
		return &trouble{what, "compare cleanup.policy of the topic on both clusters: a compacted topic takes no records without a key"}
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return &trouble{what, "our user needs WRITE on the topic"}
	case errors.Is(err, kerr.PolicyViolation):
		return &trouble{what, "see the policies of the target"}
	}
	return &trouble{what, "see the configs of the topic on the target; it is tried again now and then"}
}

func (f *Flow) metrics() *obs.FlowMetrics { return f.cfg.Metrics.Flow(f.cfg.From + "." + f.cfg.To) }

// adopt takes what recovery found.
func (p *pump) adopt(part *journal.Partition, t *trouble) {
	p.mu.Lock()
	p.part, p.trouble = part, nil
	p.state = StateCopying
	if p.slot.isSealed() {
		p.state = StateSealed
	}
	p.mu.Unlock()
	p.claims, p.confirmed, p.confirmedAt, p.aged = 0, -1, -1, false
	p.settledAt = time.Now()
	if t != nil {
		p.stop(t)
	}
}
