package journal

import (
	"fmt"
	"maps"
	"slices"

	"github.com/switchback-proxy/switchback/translate"
)

// Producers are the producer states of one partition, as a broker keeps them: per producer id, as clients see it, the epoch
// and the last five batches. By them a batch that is sent again is recognised.
type Producers struct {
	states map[int64]*producerState
}

const keptBatches = 5

type producerState struct {
	epoch    int16
	atMillis int64 // of the newest batch
	batches  []producedBatch
}

type producedBatch struct {
	first, last int32 // sequences, inclusive
	virtual     translate.Virtual
}

func NewProducers() *Producers { return &Producers{states: map[int64]*producerState{}} }

// Add notes a batch: sequences [first, last] at virtual base. A batch of an older epoch changes nothing; one of a newer
// epoch drops what is known of the older one.
func (p *Producers) Add(id int64, epoch int16, first, last int32, base translate.Virtual, atMillis int64) {
	s := p.states[id]
	switch {
	case s == nil:
		s = &producerState{epoch: epoch}
		p.states[id] = s
	case epoch < s.epoch:
		return
	case epoch > s.epoch:
		s.epoch, s.batches = epoch, nil
	}
	s.atMillis = max(s.atMillis, atMillis)
	if len(s.batches) == keptBatches {
		s.batches = slices.Delete(s.batches, 0, 1)
	}
	s.batches = append(s.batches, producedBatch{first, last, base})
}

// Verdict says what a batch is, judged by the states.
type Verdict uint8

const (
	Unknown  Verdict = iota // no state for this id
	Known                   // it was written, at the virtual offset returned
	Next                    // its first sequence is the next one
	Ahead                   // there is a hole before it
	Overlap                 // it covers sequences that were written with other bounds
	Older                   // it lies before the batches that are kept
	OldEpoch                // its epoch is below the one known
	NewEpoch                // its epoch is above the one known
)

func (v Verdict) String() string {
	names := [...]string{"unknown", "known", "next", "ahead", "overlap", "older", "old epoch", "new epoch"}
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Lookup judges the batch with sequences [first, last]. The offset is meaningful for Known only.
func (p *Producers) Lookup(id int64, epoch int16, first, last int32) (translate.Virtual, Verdict) {
	s := p.states[id]
	switch {
	case s == nil:
		return -1, Unknown
	case epoch < s.epoch:
		return -1, OldEpoch
	case epoch > s.epoch:
		return -1, NewEpoch
	}
	for _, b := range s.batches {
		if b.first == first && b.last == last {
			return b.virtual, Known
		}
	}
	next := NextSequence(s.batches[len(s.batches)-1].last, 1)
	switch d := ahead(first, next); {
	case d == 0:
		return -1, Next
	case d > 0:
		return -1, Ahead
	}
	if ahead(last, s.batches[0].first) < 0 {
		return -1, Older
	}
	return -1, Overlap
}

// NextOf is the sequence expected next of a producer, and its epoch.
func (p *Producers) NextOf(id int64) (next int32, epoch int16, ok bool) {
	s := p.states[id]
	if s == nil {
		return 0, 0, false
	}
	return NextSequence(s.batches[len(s.batches)-1].last, 1), s.epoch, true
}

// Len is the number of producers known.
func (p *Producers) Len() int { return len(p.states) }

// Prune forgets producers whose newest batch was claimed before the given time.
func (p *Producers) Prune(beforeMillis int64) {
	maps.DeleteFunc(p.states, func(_ int64, s *producerState) bool { return s.atMillis < beforeMillis })
}

// Clone copies p, so that one may change while the other is read.
func (p *Producers) Clone() *Producers {
	c := &Producers{states: make(map[int64]*producerState, len(p.states))}
	for id, s := range p.states {
		n := *s
		n.batches = slices.Clone(s.batches)
		c.states[id] = &n
	}
	return c
}

// encode appends
//
//	uvarint   number of producers; for each, in order of their ids:
//	  uvarint   id
//	  uvarint   epoch
//	  uvarint   time of the newest batch, ms since 1970
//	  uvarint   number of batches, 1 to 5; for each, oldest first: first sequence, last sequence, virtual base (uvarints)
func (p *Producers) encode(b []byte) []byte {
	b = putUint(b, len(p.states))
	for _, id := range slices.Sorted(maps.Keys(p.states)) {
		s := p.states[id]
		b = putUint(b, id)
		b = putUint(b, s.epoch)
		b = putUint(b, s.atMillis)
		b = putUint(b, len(s.batches))
		for _, e := range s.batches {
			b = putUint(b, e.first)
			b = putUint(b, e.last)
			b = putUint(b, e.virtual)
		}
	}
	return b
}

func (r *reader) producers() *Producers {
	p := NewProducers()
	for range r.count(7) {
		id := r.int64()
		s := &producerState{epoch: r.int16(), atMillis: r.int64()}
		n := r.count(3)
		if n < 1 || n > keptBatches {
			r.fail(errNumber)
			return p
		}
		for range n {
			s.batches = append(s.batches, producedBatch{r.int32(), r.int32(), r.virtual()})
		}
		p.states[id] = s
	}
	return p
}
