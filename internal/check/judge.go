package check

import (
	"maps"
	"slices"
	"strings"
)

// verdict is one run of Report: what is judged reader by reader, by reader id, until it goes into the report.
type verdict struct {
	report    *Report
	missed    []int64
	elsewhere []int64 // re-reads at a place where the log has no copy
}

// Report judges what was added so far.
func (c *Checker) Report() Report {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := Report{ReadRecords: c.reads, AppErrors: c.errors, Unstopped: []string{}, Examples: make(map[string][]string)}
	saved := c.examples
	c.examples = make(map[string][]string, len(saved)) // what is found below is found again by the next Report
	for fault, texts := range saved {
		c.examples[fault] = slices.Clone(texts)
	}
	v := &verdict{report: &r, missed: make([]int64, len(c.readerByID)), elsewhere: make([]int64, len(c.readerByID))}
	for _, p := range c.producerByID {
		c.judgeProducer(p, v)
	}
	c.judgeOthers(v)
	for _, rd := range c.readerByID {
		c.judgeReader(rd, v)
	}
	c.judgePauses(&r)
	for _, name := range slices.Sorted(maps.Keys(c.clients)) {
		if !c.clients[name].stopped {
			r.Unstopped = append(r.Unstopped, name)
		}
	}
	r.Examples, c.examples = c.examples, saved
	slices.SortFunc(r.Producers, func(a, b ProducerReport) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Readers, func(a, b ReaderReport) int { return strings.Compare(a.Name, b.Name) })
	return r
}

// judgeProducer finds what can be told record by record.
func (c *Checker) judgeProducer(p *producer, v *verdict) {
	r := v.report
	pr := ProducerReport{
		Name: p.name, SentRecords: p.sent, AckedRecords: p.acked, FailedRecords: p.failed,
		LongestPause: p.ticks.longestPause(c.window), LongestPartitionPause: p.partitionPause, SlowestAck: p.slowest,
	}
	logged := p.sent+p.acked+p.failed > 0 // else it wrote before the run, and has no log
	p.each(func(seq int64, rec *record) {
		if logged && !rec.sent {
			r.UnknownRecords++
			c.example("unknown", "%s/%d was read or acked, but never sent", p.name, seq)
		}
		if rec.sent && !rec.failed && rec.ackedPartition < 0 {
			pr.UnansweredRecords++
			c.example("unanswered", "%s/%d was sent, and its producer was told nothing", p.name, seq)
		}
		c.judgePlaces(p, seq, rec, r)
		if rec.ackedPartition >= 0 || rec.sent && rec.seenPartition >= 0 {
			c.judgeLoss(p, seq, rec, v)
		}
	})
	r.SentRecords += pr.SentRecords
	r.AckedRecords += pr.AckedRecords
	r.UnansweredRecords += pr.UnansweredRecords
	if logged {
		r.Producers = append(r.Producers, pr)
	}
}

func (c *Checker) judgeLoss(p *producer, seq int64, rec *record, v *verdict) {
	at := place{rec.ackedPartition, rec.acked}
	if at.partition < 0 {
		at = place{rec.seenPartition, rec.seen}
	}
	t := c.topicOf[at.partition]
	lost := false
	for _, rd := range c.readerByID {
		if c.partial[rd.name] || !rd.topics[t] || rd.saw(p, seq) {
			continue
		}
		v.missed[rd.id]++
		lost = true
		c.example("lost", "%s did not read %s/%d, %s", rd.name, p.name, seq, c.placeName(at))
	}
	if lost {
		v.report.LostRecords++
	}
}

// judgePlaces compares the place that the producer was told with the first that a reader saw; records with several places
// are left to judgeOthers.
func (c *Checker) judgePlaces(p *producer, seq int64, rec *record, r *Report) {
	if rec.ackedPartition < 0 || rec.seenPartition < 0 || len(c.others[recordKey{p.id, seq}]) > 0 {
		return
	}
	acked, seen := place{rec.ackedPartition, rec.acked}, place{rec.seenPartition, rec.seen}
	if acked != seen {
		r.OffsetMismatchRecords++
		c.example("offset mismatch", "%s/%d was acked at %s, read at %s", p.name, seq, c.placeName(acked), c.placeName(seen))
	}
}

// judgeOthers judges the records that were seen at more than one place: copies in the log, re-reads under another number, or
// readers that disagree.
func (c *Checker) judgeOthers(v *verdict) {
	for key := range c.others {
		p := c.producerByID[key.producer]
		rec := p.at(key.seq)
		views := make(map[*reader][]place)
		inLog := make(map[place]bool) // places that one self-assigning reader saw beside each other
		for _, rd := range c.readerByID {
			if !rd.saw(p, key.seq) {
				continue
			}
			if places := c.placesOf(rd, key, rec); len(places) > 0 {
				views[rd] = places
				if !rd.group && len(places) > 1 {
					for _, at := range places {
						inLog[at] = true
					}
				}
			}
		}
		if len(inLog) > 1 {
			v.report.DuplicateRecords += int64(len(inLog) - 1)
			c.example("duplicate", "%s/%d is in the log %d times, once at %s", p.name, key.seq, len(inLog), c.placeName(lowest(inLog)))
		}
		c.judgeViews(p, key, rec, views, inLog, v)
	}
}

func (c *Checker) judgeViews(p *producer, key recordKey, rec *record, views map[*reader][]place, inLog map[place]bool, v *verdict) {
	var all []place
	agree := true
	for _, rd := range c.readerByID {
		places := views[rd]
		if len(places) == 0 {
			continue
		}
		extra := -1
		for _, at := range places {
			if !inLog[at] {
				extra++
			}
		}
		if len(inLog) > 0 {
			extra++ // each place that the log does not have is one too many
		}
		if rd.group && extra > 0 {
			v.elsewhere[rd.id] += int64(extra)
			c.example("re-read", "%s read %s/%d at %d places", rd.name, p.name, key.seq, len(places))
		}
		shared := len(all) == 0 || slices.ContainsFunc(places, func(at place) bool { return slices.Contains(all, at) || inLog[at] })
		agree = agree && shared
		all = append(all, places...)
	}
	acked := place{rec.ackedPartition, rec.acked}
	if rec.ackedPartition >= 0 && !slices.Contains(all, acked) {
		agree = false
	}
	if !agree {
		v.report.OffsetMismatchRecords++
		c.example("offset mismatch", "%s/%d has different places for different clients, one is %s", p.name, key.seq, c.placeName(all[0]))
	}
}

func lowest(places map[place]bool) place {
	var first place
	first.offset = -1
	for at := range places {
		if first.offset < 0 || at.offset < first.offset {
			first = at
		}
	}
	return first
}

func (c *Checker) judgeReader(rd *reader, v *verdict) {
	r := v.report
	rr := ReaderReport{
		Name: rd.name, Group: rd.group, Members: len(rd.members), ReadRecords: rd.read, MissedRecords: v.missed[rd.id],
		RereadRecords: rd.reread + v.elsewhere[rd.id], OutOfOrderRecords: rd.outOfOrder,
	}
	for _, b := range rd.rebalances {
		if !c.window.holds(b.millis) {
			continue
		}
		switch b.kind {
		case Assigned:
			rr.Assigned++
		case Revoked:
			rr.Revoked++
		case Lost:
			rr.Lost++
		}
		c.example("rebalance", "%s (%s): %s %d partitions at %d", rd.name, b.client, b.kind, b.count, b.millis)
	}
	rr.Rebalances = max(rr.Assigned, rr.Revoked+rr.Lost)
	for _, m := range rd.members {
		pause := m.ticks.longestPause(c.window)
		rr.LongestPause.raise(pause.Millis, pause.At)
	}
	r.RereadRecords += rr.RereadRecords
	r.OutOfOrderRecords += rr.OutOfOrderRecords
	r.CommitsBack += rd.commitsBack
	r.Rebalances += rr.Rebalances
	r.Readers = append(r.Readers, rr)
}

func (c *Checker) judgePauses(r *Report) {
	var acks, reads ticks
	for _, p := range c.producerByID {
		acks.addAll(&p.ticks)
	}
	for _, rd := range c.readerByID {
		for _, m := range rd.members {
			reads.addAll(&m.ticks)
		}
	}
	r.LongestAckPause = acks.longestPause(c.window)
	r.LongestReadPause = reads.longestPause(c.window)
}
