package journal

import (
	"fmt"

	"github.com/switchback-proxy/switchback/translate"
)

// A settled record says all about a partition up to a place in the target's log, so that nothing before it in the journal
// matters but the chunks that it names and claims that are still to land.
//
//	byte     1        version: 1
//	uvarint           producer id of the newest marker
//	uvarint           its epoch
//	uvarint           next sequence
//	uvarint           physical end: the target's log is judged below it
//	uvarint           offset of the newest marker + 1 (0: none)
//	uvarint           producer id + 1, epoch + 1, first sequence + 1 and leader epoch + 1 of the last batch judged: four
//	uvarint           start of the map
//	uvarint           number of chunks
//	bytes             tail of the map, behind the chunks (see translate.Map.AppendTail)
//	bytes             epoch history (see translate.History.AppendBinary)
//	bytes    16       topic id on the source
//	bytes    16       topic id on the target
//	…                 producer states (see Producers.encode)
//	uvarint           strays beyond those listed
//	uvarint           number of strays; for each: base, records, producer id, epoch (uvarints)
//
// bytes without a size: a uvarint with the length, then as many. Version rule as for claims. The value of a chunk is one
// tail.
const settledVersion = 1

// settled is a decoded settled record. The tail stays encoded until the map is put together.
type settled struct {
	p    *Partition // without Map
	from translate.Virtual
	tail []byte
}

// sealRuns is the number of new segments after which a chunk is sealed: the head stays small, a chunk is worth a record.
const sealRuns = 2048

// Settle returns a settled record of p, and the chunk, if one is due, that the record names already: they must be written in
// one batch. number is the chunk's; chunk is nil if none is due. p does not change; once a chunk is written, Sealed must be
// called, and before nothing may count on it.
func (p *Partition) Settle() (chunk []byte, number int, record []byte) {
	if p.Map.Len()-p.chunkRuns < sealRuns {
		return nil, 0, p.EncodeSettled(nil)
	}
	written := *p
	written.Sealed()
	return p.Map.AppendTail(nil, p.chunkedTo), p.chunks, written.EncodeSettled(nil)
}

// Sealed notes that the chunk which Settle returned, of the same map, is written.
func (p *Partition) Sealed() {
	p.chunks++
	p.chunkedTo, p.chunkRuns = p.Map.Frontier(), p.Map.Len()
}

// EncodeSettled appends the settled record of p to b, with no new chunk.
func (p *Partition) EncodeSettled(b []byte) []byte {
	b = append(b, settledVersion)
	b = putUint(b, p.Owner.ID)
	b = putUint(b, p.Owner.Epoch)
	b = putUint(b, p.NextSequence)
	b = putUint(b, p.PhysicalEnd)
	b = putOptional(b, p.Marker)
	b = putOptional(b, p.Last.Owner.ID)
	b = putOptional(b, int32(p.Last.Owner.Epoch))
	b = putOptional(b, p.Last.Sequence)
	b = putOptional(b, p.Last.Epoch)
	b = putUint(b, p.Map.Start())
	b = putUint(b, p.chunks)
	b = putBytes(b, p.Map.AppendTail(nil, p.chunkedTo))
	b = putBytes(b, p.History.AppendBinary(nil))
	b = append(b, p.SourceTopicID[:]...)
	b = append(b, p.TargetTopicID[:]...)
	b = p.Producers.encode(b)
	b = putUint(b, p.MoreStray)
	b = putUint(b, len(p.Strays))
	for _, s := range p.Strays {
		b = putUint(b, s.Base)
		b = putUint(b, s.Next-s.Base)
		b = putUint(b, s.Owner.ID)
		b = putUint(b, s.Owner.Epoch)
	}
	return b
}

func decodeSettled(tp TP, b []byte) (*settled, error) {
	r := open(b, settledVersion)
	p := &Partition{TP: tp, Owner: Owner{r.int64(), r.int16()}, NextSequence: r.int32()}
	p.PhysicalEnd = translate.Physical(r.int64())
	p.Marker = translate.Physical(r.optional())
	p.Last.Owner = Owner{r.optional(), int16(r.in(1<<15) - 1)}
	p.Last.Sequence = int32(r.in(1<<31) - 1)
	p.Last.Epoch = translate.RealEpoch(r.in(1<<31) - 1)
	s := &settled{p: p, from: r.virtual()}
	p.chunks = int(r.int32())
	s.tail = append([]byte(nil), r.bytes()...)
	if h := r.bytes(); r.err == nil {
		var err error
		if p.History, err = translate.DecodeHistory(h); err != nil {
			r.fail(err)
		}
	}
	p.SourceTopicID, p.TargetTopicID = r.id(), r.id()
	p.Producers = r.producers()
	p.MoreStray = r.int64()
	for range r.count(4) {
		base := r.int64()
		next := base + r.in(1<<32)
		p.Strays = append(p.Strays, Stray{tp, translate.Physical(base), translate.Physical(next), Owner{r.int64(), r.int16()}})
	}
	if err := r.finish(); err != nil {
		return nil, fmt.Errorf("decode settled record of %v: %w", tp, err)
	}
	return s, nil
}

// assemble puts the map together from the chunks and the tail.
func (s *settled) assemble(chunks map[int][]byte) (*Partition, error) {
	m := translate.NewMap(s.from)
	var err error
	p := s.p
	for n := range p.chunks {
		raw, ok := chunks[n]
		if !ok {
			return nil, fmt.Errorf("%v: chunk %d of %d is not in the journal", p.TP, n, p.chunks)
		}
		if m, err = m.ApplyTail(raw); err != nil {
			return nil, fmt.Errorf("%v: chunk %d: %w", p.TP, n, err)
		}
	}
	p.chunkedTo, p.chunkRuns = m.Frontier(), m.Len()
	if m, err = m.ApplyTail(s.tail); err != nil {
		return nil, fmt.Errorf("%v: %w", p.TP, err)
	}
	p.Map = m
	return p, nil
}
