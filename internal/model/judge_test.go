package model

import (
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// slotID is the producer id of the slot.
const slotID = 4000

// found is what a replay of one data partition finds.
type found struct {
	at       places
	frontier uint8
	strays   uint8
	strayed  bool   // a stray is in the map
	live     uint16 // the whole, as a number of m.contents
}

// logsKey names a replay: the logs that are read. What their leaders know of producers is nothing to a reader.
type logsKey [capLogs]log

// replayAll judges the whole logs.
func (m *model) replayAll(s *state) [capData]found {
	h := maphash.Comparable(m.seed, s.logs)
	f, ok := m.whole[h]
	if !ok {
		f = m.replay(s, [capLogs]uint8{s.logs[0].n, s.logs[1].n, s.logs[2].n})
		m.whole[h] = f
	}
	return f
}

// replay judges the first n[i] batches of each log with the product's code.
func (m *model) replay(s *state, n [capLogs]uint8) [capData]found {
	key := logsKey(s.logs)
	for i := range key {
		l := &key[i]
		clear(l.batches[n[i]:])
		l.n, l.forgot = n[i], 0
	}
	if f, ok := m.replayed[key]; ok {
		return f
	}
	f := m.judge(&key)
	m.replayed[key] = f
	return f
}

func (m *model) judge(key *logsKey) [capData]found {
	fold := journal.NewFold()
	claimed := map[batch]bool{}
	for i, b := range key[0].all() {
		records := m.journalRecords(b)
		if m.rules.firstClaimWins && b.kind == claim {
			what := batch{epoch: b.epoch, dataSeq: b.dataSeq, count: b.count, part: b.part}
			if claimed[what] {
				records = nil
			}
			claimed[what] = true
		}
		if err := fold.Journal(inLog(b, uint8(i)), records); err != nil {
			panic(fmt.Sprintf("the fold refuses %v: %v", b, err))
		}
	}
	parts, err := fold.Partitions()
	if err != nil {
		panic(err)
	}
	var out [capData]found
	for part := range m.bounds.parts {
		p := parts[partition(part)]
		if p == nil {
			p = journal.NewPartition(partition(part), 0)
		}
		m.readBack(p, &key[part+1], fold)
		out[part] = m.summary(p)
		if m.rules.trustClaims {
			out[part] = m.trust(key, part, out[part])
		}
	}
	return out
}

// readBack judges what lies behind what is settled. If the last batch that is settled is not where it was, the log has lost
// its tail: what was settled above the end of that batch's leader epoch is forgotten first.
func (m *model) readBack(p *journal.Partition, l *log, fold *journal.Fold) {
	if !m.rules.settledNotChecked && p.PhysicalEnd > 0 && p.Marker >= 0 && !m.has(l, p.Last, uint8(p.PhysicalEnd)) {
		end := min(translate.Physical(l.epochEnd(int(p.Last.Epoch))), p.PhysicalEnd-1)
		if err := p.CutAt(end); err != nil {
			panic(err)
		}
	}
	var base uint8
	for _, b := range l.all() {
		p.Judge(inLog(b, base), fold.Ours)
		base += b.width()
	}
	p.Finish()
}

// has says whether the batch that ends at end is the one that last names. Owner and sequence do not tell one marker from its
// second copy; the leader epoch does.
func (m *model) has(l *log, last journal.Mark, end uint8) bool {
	var base uint8
	for _, b := range l.all() {
		if base+b.width() == end {
			x := inLog(b, base)
			if m.rules.leaderNotCompared {
				return x.Owner == last.Owner && x.Sequence == last.Sequence
			}
			return x.Is(last)
		}
		base += b.width()
	}
	return false
}

// trust is a recovery that takes every claim for landed, where it was predicted.
func (m *model) trust(key *logsKey, part uint8, f found) found {
	for _, b := range key[0].all() {
		if b.kind == claim && b.part == part && b.first >= f.frontier {
			for i := range b.count {
				f.at[b.first+i] = place(b.predicted+i) + 1
			}
			f.frontier = b.first + b.count
		}
	}
	return f
}

func (m *model) summary(p *journal.Partition) found {
	f := found{
		at: m.places(p), frontier: uint8(p.Frontier()), strays: uint8(len(p.Strays)), live: m.number(string(p.EncodeSettled(nil))),
	}
	for _, stray := range p.Strays {
		for offset := stray.Base; offset < stray.Next; offset++ {
			if p.Map.ToVirtual(offset).Kind == translate.Record {
				f.strayed = true
			}
		}
	}
	return f
}

func (m *model) places(p *journal.Partition) places {
	var at places
	for v := range m.bounds.records {
		if a := p.Map.ToPhysical(translate.Virtual(v)); a.Kind == translate.Record {
			at[v] = place(a.Physical) + 1
		}
	}
	return at
}

// ack is an ack that changes a live partition.
type ack struct {
	live  uint16
	claim batch
	base  uint8
	epoch uint8 // of the leader
}

type acknowledged struct {
	ok   bool
	live uint16
	at   places
}

// acked lets the product's live partition take an ack; not ok: it must be fenced anew.
func (m *model) acked(a ack) acknowledged {
	if out, ok := m.acks[a]; ok {
		return out
	}
	owner := journal.Owner{ID: slotID, Epoch: 1}
	fold := journal.NewFold() // the way to a partition from its settled record
	records := []journal.Record{{Key: settledKey(), Value: []byte(m.contents[a.live])}}
	err := fold.Journal(journal.Batch{Next: 1, Owner: owner, Marker: true}, nil)
	if err == nil {
		err = fold.Journal(journal.Batch{Base: 1, Next: 2, Owner: owner}, records)
	}
	parts, again := fold.Partitions()
	if err = errors.Join(err, again); err != nil {
		panic(err)
	}
	p, c := parts[partition(0)], claimOf(a.claim)
	p.Claim(c)
	if m.rules.anyBase {
		p.PhysicalEnd = max(p.PhysicalEnd, translate.Physical(a.base))
	}
	out := acknowledged{ok: p.Acked(c, translate.Physical(a.base), translate.RealEpoch(a.epoch)) == nil}
	out.live, out.at = m.number(string(p.EncodeSettled(nil))), m.places(p)
	m.acks[a] = out
	return out
}

func settledKey() []byte { return journal.Key{Kind: journal.KindSettled, TP: partition(0)}.Encode() }

// number numbers the contents of settled records.
func (m *model) number(content string) uint16 {
	n, ok := m.numbers[content]
	if !ok {
		n = uint16(len(m.contents))
		m.numbers[content] = n
		m.contents = append(m.contents, content)
	}
	return n
}

func partition(part uint8) journal.TP { return journal.TP{Topic: "t", Partition: int32(part)} }

func inLog(b batch, base uint8) journal.Batch {
	sequence := int32(b.seq)
	if b.kind == marker {
		sequence = -1
	}
	return journal.Batch{
		Base: translate.Physical(base), Next: translate.Physical(base + b.width()),
		Owner:    journal.Owner{ID: slotID, Epoch: int16(b.epoch)},
		Sequence: sequence,
		Marker:   b.kind == marker,
		Epoch:    translate.RealEpoch(b.leader),
	}
}

func (m *model) journalRecords(b batch) []journal.Record {
	switch b.kind {
	case claim:
		key := journal.Key{Kind: journal.KindClaim, TP: partition(b.part), Number: int(b.seq)}
		return []journal.Record{{Key: key.Encode(), Value: claimOf(b).Encode(nil)}}
	case settled:
		return []journal.Record{{Key: settledKey(), Value: []byte(m.contents[b.content()])}}
	}
	return nil
}

func claimOf(b batch) *journal.Claim {
	return &journal.Claim{
		Virtual: translate.Virtual(b.first), Records: int32(b.count), Reach: translate.Virtual(b.first + b.count),
		Owner: journal.Owner{ID: slotID, Epoch: int16(b.epoch)}, Sequence: int32(b.dataSeq),
		Predicted: translate.Physical(b.predicted), ConfirmedSequence: -1, ConfirmedOffset: -1,
	}
}

// settledAs is a settled record with a content of m.contents.
func settledAs(content uint16, epoch, seq uint8) batch {
	return batch{kind: settled, epoch: epoch, seq: seq, first: uint8(content >> 8), dataSeq: uint8(content)}
}

func (b batch) content() uint16 { return uint16(b.first)<<8 | uint16(b.dataSeq) }
