package journal

import (
	"fmt"

	"github.com/switchback-proxy/switchback/translate"
)

// Batch is the header of a batch in a log that the owner of a slot writes: the slot's journal partition or a data partition.
type Batch struct {
	Base, Next translate.Physical // [Base, Next)
	Owner      Owner
	Sequence   int32 // of the first record
	Marker     bool  // a control batch: the end of a transaction of Owner
	Epoch      translate.RealEpoch
}

// Is says whether b is the batch that m names. One marker may be written twice: by owner and sequence both copies look alike,
// so only the leader epoch tells whether it is the one that was read. Of a data batch that was acked the epoch may be too
// low, because nobody says under which one it was written; but nobody writes it twice with something else before it.
func (b Batch) Is(m Mark) bool {
	if b.Owner != m.Owner || b.Sequence != m.Sequence {
		return false
	}
	return m.Epoch < 0 || b.Epoch == m.Epoch || m.Sequence >= 0 && b.Epoch > m.Epoch
}

// count is the number of records that the batch was written with, also if the cleaner removed some.
func (b Batch) count() int64 { return int64(b.Next - b.Base) }

// Stray is a copy of ours that no map has: listed, never served.
type Stray struct {
	TP         TP
	Base, Next translate.Physical
	Owner      Owner
}

// Mark names a batch of the target's log: two logs that have the same one at the same place are the same up to there.
type Mark struct {
	Owner    Owner
	Sequence int32
	Epoch    translate.RealEpoch // leader epoch under which it was written; −1: not known. Acked, not read: or a later one
}

// maxStrays bounds how many strays of one partition are listed one by one; more are only counted.
const maxStrays = 1000

// Partition is the state of one partition of a flow: the map of the target and what belongs to it. It is changed by its
// owner alone: Judge and Finish while it recovers, Land and Advance while it runs.
//
// Invariants:
//
//  1. Below Frontier of the map all is known. Below PhysicalEnd all of the target's log is judged.
//  2. Everything claimed by accepted claims and not yet judged is in pending, in the order of the journal.
type Partition struct {
	TP        TP
	Map       *translate.Map // immutable snapshots; the whole map of the target below the frontier, with no open segment
	History   translate.History
	Producers *Producers
	Strays    []Stray
	MoreStray int64 // strays beyond those listed

	SourceTopicID, TargetTopicID [16]byte // zero: not known

	Owner        Owner              // of the newest marker seen in the target's log
	NextSequence int32              // of the next batch under Owner
	PhysicalEnd  translate.Physical // the next offset of the target's log to be judged
	Marker       translate.Physical // offset of the newest marker; −1: none yet
	Last         Mark               // the last batch judged, by which a lost tail is noticed

	Before       int64              // records in the target's log, before our first marker, that we did not write
	Foreign      int64              // records in the target's log, behind our first marker, that we did not write
	ForeignAt    translate.Physical // the first of them
	FirstForeign Owner              // who wrote it

	chunks    int               // sealed runs of the map, in records of their own
	chunkedTo translate.Virtual // the chunks say all below it
	chunkRuns int               // segments at the last sealing

	pending []*Claim
}

// NewPartition is a partition of which nothing is known but where it starts.
func NewPartition(tp TP, start translate.Virtual) *Partition {
	return &Partition{TP: tp, Map: translate.NewMap(start), Producers: NewProducers(), Marker: -1,
		Last: Mark{Sequence: -1, Epoch: -1}, chunkedTo: start}
}

// Frontier is the first virtual offset of which nothing is known.
func (p *Partition) Frontier() translate.Virtual { return p.Map.Frontier() }

// Land notes that the records of c are in the target's log from base on.
func (p *Partition) Land(c *Claim, base translate.Physical) error {
	m, err := p.Map.AppendMirrored(c.Virtual, base, int64(c.Records))
	if err != nil {
		return fmt.Errorf("%v: %w", p.TP, err)
	}
	if m, err = m.Advance(c.Reach); err != nil {
		return fmt.Errorf("%v: %w", p.TP, err)
	}
	p.Map = m
	p.learn(c)
	return nil
}

// Claim takes a claim of the running owner that the journal has acked, before its data is sent.
func (p *Partition) Claim(c *Claim) { p.claim(c) }

// Acked notes that the target acked the data of c at base, which is PhysicalEnd: nobody else wrote in between. epoch is the
// leader's, as far as known.
func (p *Partition) Acked(c *Claim, base translate.Physical, epoch translate.RealEpoch) error {
	if base != p.PhysicalEnd {
		return fmt.Errorf("%v: acked at %d, expected was %d", p.TP, base, p.PhysicalEnd)
	}
	if err := p.Land(c, base); err != nil {
		return err
	}
	p.Owner, p.NextSequence = c.Owner, NextSequence(c.Sequence, int64(c.Records))
	p.PhysicalEnd += translate.Physical(c.Records)
	p.Last = Mark{c.Owner, c.Sequence, epoch}
	p.forget()
	return nil
}

// Reached notes that the journal acked a claim without records.
func (p *Partition) Reached(c *Claim) error {
	if err := p.Advance(c); err != nil {
		return err
	}
	p.forget()
	return nil
}

// Advance notes a claim without records: all before c.Reach is known.
func (p *Partition) Advance(c *Claim) error {
	m, err := p.Map.Advance(c.Reach)
	if err != nil {
		return fmt.Errorf("%v: %w", p.TP, err)
	}
	p.Map = m
	p.learn(c)
	return nil
}

func (p *Partition) learn(c *Claim) {
	for _, e := range c.Epochs {
		p.History = p.History.Append(e.Epoch, e.Start)
	}
	for _, s := range c.Sources {
		last := NextSequence(s.Sequence, int64(s.Records)-1)
		p.Producers.Add(s.ID, s.Epoch, s.Sequence, last, s.Virtual, c.AtMillis)
	}
}

// stray notes a batch of ours that is in no map.
func (p *Partition) stray(b Batch) {
	if len(p.Strays) >= maxStrays {
		p.MoreStray++
		return
	}
	p.Strays = append(p.Strays, Stray{p.TP, b.Base, b.Next, b.Owner})
}

// Clone copies what a reader may look at while the owner goes on. Claims are left out.
func (p *Partition) Clone() *Partition {
	c := *p
	c.Producers = p.Producers.Clone()
	c.Strays = append([]Stray(nil), p.Strays...)
	c.pending = nil
	return &c
}

// CutAt forgets everything at and above a physical offset, because the target's log lost its tail there. What was copied
// above it is copied again.
func (p *Partition) CutAt(end translate.Physical) error {
	m, frontier := translate.NewMap(p.Map.Start()), p.Map.Frontier()
	var err error
	for s := range p.Map.Segments() {
		if s.PhysicalEnd() > end {
			frontier = min(frontier, s.Virtual+translate.Virtual(max(0, end-s.Physical)))
			s.Records = max(0, int64(end-s.Physical))
		}
		if s.Records > 0 {
			m, err = appendSegment(m, s)
		}
		if err != nil {
			return fmt.Errorf("%v: cut at %d: %w", p.TP, end, err)
		}
	}
	if m, err = m.Advance(max(frontier, m.Frontier())); err != nil {
		return fmt.Errorf("%v: cut at %d: %w", p.TP, end, err)
	}
	p.Map, p.PhysicalEnd = m, min(p.PhysicalEnd, end)
	p.Marker = -1
	p.Last = Mark{Sequence: -1, Epoch: -1}
	p.chunks, p.chunkedTo, p.chunkRuns = 0, m.Start(), 0
	return nil
}

func appendSegment(m *translate.Map, s translate.Segment) (*translate.Map, error) {
	if s.Kind == translate.Mirrored {
		return m.AppendMirrored(s.Virtual, s.Physical, s.Records)
	}
	m, err := m.OpenNative(s.Virtual, s.Physical)
	if err != nil {
		return nil, err
	}
	return m.CloseNative(s.End())
}
