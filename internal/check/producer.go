package check

import (
	"maps"
	"slices"
)

const pageRecords = 1024

// record is what is known of one (producer, sequence). A partition of -1 means not known.
//
//  1. acked and seen are offsets, valid if the partition beside them is.
//  2. sentAfter is in milliseconds since the first event of the producer.
type record struct {
	acked, seen                   int64
	ackedPartition, seenPartition int32
	sentAfter                     int32
	sent, failed                  bool
}

type producer struct {
	name  string
	id    int32
	pages map[int64]*[pageRecords]record
	page  int64 // of the last look-up
	last  *[pageRecords]record

	base                    int64 // time of its first event, for record.sentAfter
	sent, acked, failed     int64
	ticks                   ticks           // of acks
	partitionAck            map[int32]int64 // time of the last ack per partition
	partitionPause, slowest Pause           // longest without ack on one partition; longest from sent to acked
}

func (c *Checker) producerNamed(name string) *producer {
	if c.lastProducer != nil && c.lastProducer.name == name {
		return c.lastProducer
	}
	p := c.producers[name]
	if p == nil {
		p = &producer{
			name: name, id: int32(len(c.producerByID)), pages: make(map[int64]*[pageRecords]record), page: -1,
			partitionAck: make(map[int32]int64),
		}
		c.producers[name] = p
		c.producerByID = append(c.producerByID, p)
	}
	c.lastProducer = p
	return p
}

// at returns the record of seq. The pointer is valid for the life of the checker.
func (p *producer) at(seq int64) *record {
	page := seq / pageRecords
	if page != p.page {
		records := p.pages[page]
		if records == nil {
			records = new([pageRecords]record)
			for i := range records {
				records[i].ackedPartition, records[i].seenPartition = -1, -1
			}
			p.pages[page] = records
		}
		p.page, p.last = page, records
	}
	return &p.last[seq%pageRecords]
}

// each calls f for every record that any event named, in order of sequence.
func (p *producer) each(f func(seq int64, r *record)) {
	for _, page := range slices.Sorted(maps.Keys(p.pages)) {
		records := p.pages[page]
		for i := range records {
			r := &records[i]
			if r.sent || r.failed || r.ackedPartition >= 0 || r.seenPartition >= 0 {
				f(page*pageRecords+int64(i), r)
			}
		}
	}
}

func (c *Checker) produced(e *Event) {
	p := c.producerNamed(e.Producer)
	_, at := c.place(e)
	r := p.at(e.Seq)
	if p.base == 0 {
		p.base = e.Millis
	}
	switch e.Kind {
	case Sent:
		if !r.sent {
			p.sent++
		}
		r.sent = true
		r.sentAfter = int32(e.Millis - p.base)
	case Acked:
		c.acked(p, r, e, at)
	case Failed:
		p.failed++
		r.failed = true
		c.errors++
		c.example("error", "%s was told that record %d failed: %s", p.name, e.Seq, e.Text)
	}
}

func (c *Checker) acked(p *producer, r *record, e *Event, at place) {
	if r.ackedPartition >= 0 {
		c.errors++
		c.example("error", "%s was told twice that record %d is written", p.name, e.Seq)
		return
	}
	p.acked++
	r.ackedPartition, r.acked = at.partition, at.offset
	p.ticks.add(e.Millis)
	if sentAt := p.base + int64(r.sentAfter); r.sent && c.window.holds(sentAt) {
		p.slowest.raise(e.Millis-sentAt, sentAt)
	}
	if last, ok := p.partitionAck[at.partition]; ok && c.window.holds(last) {
		p.partitionPause.raise(e.Millis-last, last)
	}
	p.partitionAck[at.partition] = e.Millis
}
