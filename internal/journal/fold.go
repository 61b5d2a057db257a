package journal

import (
	"errors"
	"fmt"
	"maps"

	"github.com/switchback-proxy/switchback/translate"
)

// Record is one record of the journal.
type Record struct {
	Key, Value []byte
}

// Fold reads the journal partition of one slot. It takes batches in log order and keeps what the fence rule accepts: a batch
// counts if its owner is the newest marker's so far and its sequence is the next one. The journal is compacted, so over a
// hole in its offsets both may have moved on, by no more sequences than the hole has offsets. Values are not kept, but for
// chunks.
type Fold struct {
	// Refused counts batches that the fence rule did not accept: writes of zombies.
	Refused int

	owner    Owner
	fenced   bool // a marker was seen, or a hole that may have held it
	next     int32
	position translate.Physical
	last     Mark
	ids      map[int64]bool // producer ids that this slot has, or had
	parts    map[TP]*folded
}

// folded is what the journal says of one partition.
type folded struct {
	settled *settled
	chunks  map[int][]byte
	claims  []*Claim // accepted, not known to be settled; in order
}

func NewFold() *Fold {
	return &Fold{last: Mark{Sequence: -1, Epoch: -1}, ids: map[int64]bool{}, parts: map[TP]*folded{}}
}

// ResumeFold goes on in the middle, where before has read: everything below position is known, the batch before it is last,
// owner wrote last, next is its next sequence.
func ResumeFold(before *Fold, owner Owner, next int32, position translate.Physical, last Mark) *Fold {
	f := NewFold()
	maps.Copy(f.ids, before.ids)
	f.owner, f.next, f.position, f.last, f.fenced = owner, next, position, last, true
	f.ids[owner.ID] = true
	return f
}

// Changed says whether a record counted, of those that were read.
func (f *Fold) Changed() bool { return len(f.parts) > 0 }

// Ours says whether a producer id is, or was, this slot's. Nobody else writes to the journal.
func (f *Fold) Ours(id int64) bool { return f.ids[id] }

// Position is the next offset of the journal partition to be read.
func (f *Fold) Position() translate.Physical { return f.position }

// Last is the last batch that was read, whether it counted or not.
func (f *Fold) Last() Mark { return f.last }

// Journal takes the next batch of the journal partition. records are those of the batch that are still there; a marker has
// none. An error means that a record which counts cannot be understood; the slot must not be used then.
func (f *Fold) Journal(b Batch, records []Record) error {
	if b.Next <= f.position {
		return nil
	}
	hole := int64(b.Base - f.position)
	f.position, f.last = b.Next, Mark{b.Owner, b.Sequence, b.Epoch}
	switch {
	case b.Marker:
		f.marked(b.Owner)
		return nil
	case !f.follows(b, hole):
		f.Refused++
		return nil
	}
	f.owner, f.fenced, f.next = b.Owner, true, NextSequence(b.Sequence, b.count())
	f.ids[b.Owner.ID] = true
	for _, r := range records {
		if err := f.apply(r); err != nil {
			return fmt.Errorf("journal record in [%d, %d): %w", b.Base, b.Next, err)
		}
	}
	return nil
}

func (f *Fold) marked(o Owner) {
	f.ids[o.ID] = true
	if !f.fenced || o.ID != f.owner.ID || o.Newer(f.owner) {
		f.owner, f.next, f.fenced = o, 0, true
	}
}

func (f *Fold) follows(b Batch, hole int64) bool {
	if f.fenced && b.Owner == f.owner {
		skipped := ahead(b.Sequence, f.next)
		return skipped == 0 || skipped > 0 && skipped <= hole
	}
	return hole > 0 && (!f.fenced || b.Owner.ID != f.owner.ID || b.Owner.Newer(f.owner)) && int64(b.Sequence) < hole
}

func (f *Fold) apply(r Record) error {
	key, err := DecodeKey(r.Key)
	if err != nil {
		return err
	}
	part := f.parts[key.TP]
	if part == nil {
		part = &folded{chunks: map[int][]byte{}}
		f.parts[key.TP] = part
	}
	switch key.Kind {
	case KindChunk:
		part.chunks[key.Number] = append([]byte(nil), r.Value...)
		return nil
	case KindSettled:
		if r.Value == nil { // the partition is gone
			delete(f.parts, key.TP)
			return nil
		}
		s, err := decodeSettled(key.TP, r.Value)
		if err != nil {
			return err
		}
		part.settle(s)
		f.ids[s.p.Owner.ID] = true
		return nil
	}
	if r.Value == nil {
		return nil
	}
	c, err := DecodeClaim(r.Value)
	if err != nil {
		return err
	}
	part.claims = append(part.claims, c)
	return nil
}

// settle keeps of the claims only those that may land behind what s has judged.
func (p *folded) settle(s *settled) {
	p.settled = s
	kept := p.claims[:0]
	for _, c := range p.claims {
		if c.Owner == s.p.Owner && ahead(c.Sequence, s.p.NextSequence) >= 0 {
			kept = append(kept, c)
		}
	}
	p.claims = kept
}

// Partitions puts together what the journal says of each partition, ready to be judged against the target's logs. A
// partition whose map cannot be put together is left out and reported. One that has claims but was never settled starts at
// the virtual offset of its first claim.
func (f *Fold) Partitions() (map[TP]*Partition, error) {
	out := make(map[TP]*Partition, len(f.parts))
	var errs []error
	for tp, part := range f.parts {
		p, err := part.assemble(tp)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p != nil {
			out[tp] = p
		}
	}
	return out, errors.Join(errs...)
}

func (p *folded) assemble(tp TP) (*Partition, error) {
	var out *Partition
	switch {
	case p.settled != nil:
		var err error
		if out, err = p.settled.assemble(p.chunks); err != nil {
			return nil, err
		}
	case len(p.claims) > 0:
		out = NewPartition(tp, p.claims[0].Virtual)
	default:
		return nil, nil
	}
	for _, c := range p.claims {
		out.claim(c)
	}
	return out, nil
}
