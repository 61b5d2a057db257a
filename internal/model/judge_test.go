package model

import (
	"fmt"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// slotID is the producer id of the slot.
const slotID = 4000

// found is what a replay of one data partition finds.
type found struct {
	at       places
	frontier uint8
	end      uint8
	strays   uint8
	strayed  bool // a stray is in the map
	settled  uint16
}

// logsKey names a replay: the batches of the logs that are read.
type logsKey [capLogs]struct {
	n       uint8
	batches [capLog]batch
}

// replay judges the first n[i] batches of each log with the product's code.
func (m *model) replay(s *state, n [capLogs]uint8) [capData]found {
	var key logsKey
	for i := range key {
		key[i].n = n[i]
		copy(key[i].batches[:n[i]], s.logs[i].batches[:n[i]])
	}
	if f, ok := m.replayed[key]; ok {
		return f
	}
	f := m.judge(key)
	m.replayed[key] = f
	return f
}

func (m *model) judge(key logsKey) [capData]found {
	fold := journal.NewFold()
	claimed := map[batch]bool{}
	for i, b := range key[0].batches[:key[0].n] {
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
		var base uint8
		for _, b := range key[part+1].batches[:key[part+1].n] {
			p.Judge(inLog(b, base), fold.Ours)
			base += b.width()
		}
		p.Finish()
		out[part] = m.summary(p)
		if m.rules.trustClaims {
			out[part] = m.trust(key, part, out[part])
		}
	}
	return out
}

// trust is a recovery that takes every claim for landed, where it was predicted.
func (m *model) trust(key logsKey, part uint8, f found) found {
	for _, b := range key[0].batches[:key[0].n] {
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
	f := found{frontier: uint8(p.Frontier()), end: uint8(p.PhysicalEnd), strays: uint8(len(p.Strays))}
	for v := range m.bounds.records {
		if a := p.Map.ToPhysical(translate.Virtual(v)); a.Kind == translate.Record {
			f.at[v] = place(a.Physical) + 1
		}
	}
	for _, stray := range p.Strays {
		for offset := stray.Base; offset < stray.Next; offset++ {
			if p.Map.ToVirtual(offset).Kind == translate.Record {
				f.strayed = true
			}
		}
	}
	if m.rules.settled {
		f.settled = m.number(string(p.EncodeSettled(nil)))
	}
	return f
}

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
	return journal.Batch{
		Base: translate.Physical(base), Next: translate.Physical(base + b.width()),
		Owner:    journal.Owner{ID: slotID, Epoch: int16(b.epoch)},
		Sequence: int32(b.seq),
		Marker:   b.kind == marker,
	}
}

func (m *model) journalRecords(b batch) []journal.Record {
	switch b.kind {
	case claim:
		c := journal.Claim{
			Virtual: translate.Virtual(b.first), Records: int32(b.count), Reach: translate.Virtual(b.first + b.count),
			Owner: journal.Owner{ID: slotID, Epoch: int16(b.epoch)}, Sequence: int32(b.dataSeq),
			Predicted: translate.Physical(b.predicted), ConfirmedSequence: -1, ConfirmedOffset: -1,
		}
		key := journal.Key{Kind: journal.KindClaim, TP: partition(b.part), Number: int(b.seq)}
		return []journal.Record{{Key: key.Encode(), Value: c.Encode(nil)}}
	case settled:
		key := journal.Key{Kind: journal.KindSettled, TP: partition(0)}
		content := m.contents[uint16(b.first)<<8|uint16(b.dataSeq)]
		return []journal.Record{{Key: key.Encode(), Value: []byte(content)}}
	}
	return nil
}
