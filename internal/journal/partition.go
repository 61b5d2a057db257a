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
}

// count is the number of records that the batch was written with, also if the cleaner removed some.
func (b Batch) count() int64 { return int64(b.Next - b.Base) }

// Stray is a copy of ours that no map has: listed, never served.
type Stray struct {
	TP         TP
	Base, Next translate.Physical
	Owner      Owner
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
	return &Partition{TP: tp, Map: translate.NewMap(start), Producers: NewProducers(), Marker: -1, chunkedTo: start}
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
