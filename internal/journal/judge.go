package journal

import (
	"slices"

	"github.com/switchback-proxy/switchback/translate"
)

// Outcome is what Judge finds of a batch in the target's log.
type Outcome uint8

const (
	Ignored  Outcome = iota // below PhysicalEnd: judged before
	Marked                  // a marker of ours
	Landed                  // a claim's data: now in the map
	Strayed                 // ours, but no map has it
	NotOurs                 // someone else's
	OtherEnd                // someone else's control batch
)

// Judge takes the next batch of the target's log. Batches come in log order, from PhysicalEnd on; a hole between two is the
// cleaner's work, or below the log start. ours says whether a producer id is, or was, this slot's.
//
// A batch counts if its owner is the newest marker's and its sequence is the next one. Over a hole in the log both may have
// moved on, by no more sequences than the hole has offsets. A batch that counts has landed if an accepted claim has the same
// owner, sequence and count; of several, the newest.
func (p *Partition) Judge(b Batch, ours func(id int64) bool) Outcome {
	if b.Next <= p.PhysicalEnd {
		return Ignored
	}
	hole := int64(b.Base - p.PhysicalEnd)
	if hole > 0 {
		p.confirmedIn(p.PhysicalEnd, b.Base)
	}
	p.PhysicalEnd = b.Next
	p.Last = Mark{b.Owner, b.Sequence, b.Epoch}
	switch {
	case !ours(b.Owner.ID):
		return p.notOurs(b)
	case b.Marker:
		p.marked(b)
		return Marked
	case !p.follows(b, hole):
		p.stray(b)
		return Strayed
	}
	p.Owner, p.NextSequence = b.Owner, NextSequence(b.Sequence, b.count())
	i := p.claimOf(b)
	if i < 0 || p.pending[i].Virtual < p.Frontier() || p.Land(p.pending[i], b.Base) != nil {
		p.stray(b)
		return Strayed
	}
	p.forget()
	return Landed
}

// marked notes a marker. Only a newer owner starts its sequences anew: a broker may write one marker twice, and the second
// one changes nothing. An older one cannot come, brokers refuse it; if it does (after an unclean loss) it changes nothing.
func (p *Partition) marked(b Batch) {
	if b.Owner.ID != p.Owner.ID || b.Owner.Newer(p.Owner) || p.Marker < 0 {
		p.Owner, p.NextSequence = b.Owner, 0
	}
	p.Marker = b.Base
}

// follows says whether b is by the newest owner and next in sequence.
func (p *Partition) follows(b Batch, hole int64) bool {
	if b.Owner == p.Owner && p.Marker >= 0 {
		skipped := ahead(b.Sequence, p.NextSequence)
		return skipped == 0 || skipped > 0 && skipped <= hole
	}
	// The hole may have held the marker that began this owner, and batches after it.
	return hole > 0 && (b.Owner.Newer(p.Owner) || b.Owner.ID != p.Owner.ID || p.Marker < 0) && int64(b.Sequence) < hole
}

func (p *Partition) notOurs(b Batch) Outcome {
	if b.Marker {
		return OtherEnd
	}
	if p.Marker < 0 {
		p.Before += b.count()
		return NotOurs
	}
	if p.Foreign == 0 {
		p.ForeignAt, p.FirstForeign = b.Base, b.Owner
	}
	p.Foreign += b.count()
	return NotOurs
}

// claimOf finds the newest claim of exactly this batch; −1: none.
func (p *Partition) claimOf(b Batch) int {
	for i, c := range slices.Backward(p.pending) {
		if c.Owner == b.Owner && c.Sequence == b.Sequence && int64(c.Records) == b.count() {
			return i
		}
	}
	return -1
}

// claim takes an accepted claim of the journal.
func (p *Partition) claim(c *Claim) {
	if c.ConfirmedSequence >= 0 {
		for _, before := range slices.Backward(p.pending) {
			if before.Owner == c.Owner && before.Sequence == c.ConfirmedSequence && before.Records > 0 {
				before.landedAt, before.confirmed = c.ConfirmedOffset, true
				break
			}
		}
	}
	p.pending = append(p.pending, c)
}

// confirmedIn lands claims whose batch was confirmed at an offset in [from, to), where the log has a hole now: retention or
// the cleaner removed the batch after it was acked, so its absence says nothing.
func (p *Partition) confirmedIn(from, to translate.Physical) {
	for _, c := range p.pending {
		if !c.confirmed || c.landedAt < from || c.landedAt >= to || c.Virtual < p.Frontier() {
			continue
		}
		if p.Land(c, c.landedAt) == nil {
			p.Owner, p.NextSequence = c.Owner, NextSequence(c.Sequence, int64(c.Records))
		}
	}
	p.forget()
}

// forget drops claims whose records are all below the frontier: they are in the map, or will never be.
func (p *Partition) forget() {
	p.pending = slices.DeleteFunc(p.pending, func(c *Claim) bool { return c.Reach <= p.Frontier() })
}

// Finish ends the judging, when the log has been read up to the own marker. Claims without records count if all before
// them has landed. What is left of the claims never landed and is copied again.
func (p *Partition) Finish() {
	for _, c := range p.pending {
		if c.Records == 0 && c.Virtual <= p.Frontier() && c.Reach > p.Frontier() {
			if p.Advance(c) != nil {
				break
			}
		}
	}
	p.pending = nil
}
