package check

// reader is a group, or a client that assigns itself.
type reader struct {
	name    string
	id      int32
	group   bool
	topics  map[*topic]bool
	seen    []map[int64]*[pageRecords / 64]uint64 // by producer id, then page: which records it has read
	members map[string]*member
	read    int64

	reread, outOfOrder, commitsBack int64
	rebalances                      []rebalance
}

// member is one client of a reader.
type member struct {
	direct     bool
	ticks      ticks // of reads
	lastOffset map[int32]int64
	lastSeq    map[stream]int64
	lastCommit map[int32]int64
}

// stream is what one producer wrote to one partition.
type stream struct{ producer, partition int32 }

type rebalance struct {
	kind   Kind
	millis int64
	client string
	count  int
}

func (c *Checker) readerNamed(name string) *reader {
	if c.lastReader != nil && c.lastReader.name == name {
		return c.lastReader
	}
	r := c.readers[name]
	if r == nil {
		r = &reader{name: name, id: int32(len(c.readerByID)), topics: make(map[*topic]bool), members: make(map[string]*member)}
		c.readers[name] = r
		c.readerByID = append(c.readerByID, r)
	}
	c.lastReader = r
	return r
}

// memberOf finds the reader and the member that an event is about.
func (c *Checker) memberOf(e *Event) (*reader, *member) {
	name := e.Group
	if e.Group == NoGroup {
		name = e.Client
	}
	r := c.readerNamed(name)
	r.group = e.Group != NoGroup
	m := r.members[e.Client]
	if m == nil {
		m = &member{
			direct:     c.direct[e.Client],
			lastOffset: make(map[int32]int64), lastSeq: make(map[stream]int64), lastCommit: make(map[int32]int64),
		}
		r.members[e.Client] = m
	}
	return r, m
}

func (c *Checker) read(e *Event) {
	r, m := c.memberOf(e)
	t, at := c.place(e)
	p := c.producerNamed(e.Producer)
	rec := p.at(e.Seq)
	r.topics[t] = true
	r.read++
	c.reads++
	m.ticks.add(e.Millis)
	again := r.see(p, e.Seq)
	switch {
	case m.direct && again:
		c.rereadBy(r, e)
	case m.direct:
		c.inOrder(r, m, p, at, e)
	case again && c.sawAt(r, p, e.Seq, rec, at):
		c.rereadBy(r, e)
	case again:
		key := recordKey{p.id, e.Seq}
		c.others[key] = append(c.others[key], sighting{reader: r.id, at: at})
		m.lastOffset[at.partition] = max(m.lastOffset[at.partition], at.offset)
	default:
		c.firstSight(r, p, rec, at, e.Seq)
		c.inOrder(r, m, p, at, e)
	}
}

// rereadBy counts a fault, except before the window: there the members of a group come one after the other, and each makes the
// others read again what they had not committed.
func (c *Checker) rereadBy(r *reader, e *Event) {
	if c.window.hasStart && e.Millis < c.window.start {
		return
	}
	r.reread++
	c.example("re-read", "%s (%s) read %s/%d at %s-%d offset %d again", r.name, e.Client, e.Producer, e.Seq, e.Topic, e.Partition, e.Offset)
}

// see notes that r has read a record and tells if it had before.
func (r *reader) see(p *producer, seq int64) (again bool) {
	for int(p.id) >= len(r.seen) {
		r.seen = append(r.seen, nil)
	}
	pages := r.seen[p.id]
	if pages == nil {
		pages = make(map[int64]*[pageRecords / 64]uint64)
		r.seen[p.id] = pages
	}
	page, at := seq/pageRecords, seq%pageRecords
	words := pages[page]
	if words == nil {
		words = new([pageRecords / 64]uint64)
		pages[page] = words
	}
	bit := uint64(1) << (at % 64)
	again = words[at/64]&bit != 0
	words[at/64] |= bit
	return again
}

func (r *reader) saw(p *producer, seq int64) bool {
	if int(p.id) >= len(r.seen) {
		return false
	}
	words := r.seen[p.id][seq/pageRecords]
	return words != nil && words[seq%pageRecords/64]&(1<<(seq%64)) != 0
}

func (c *Checker) firstSight(r *reader, p *producer, rec *record, at place, seq int64) {
	if rec.seenPartition < 0 {
		rec.seenPartition, rec.seen = at.partition, at.offset
		return
	}
	if rec.seenPartition == at.partition && rec.seen == at.offset {
		return
	}
	key := recordKey{p.id, seq}
	c.others[key] = append(c.others[key], sighting{reader: r.id, first: true, at: at})
}

// sawAt tells whether r, which has read the record before, read it at this very place.
func (c *Checker) sawAt(r *reader, p *producer, seq int64, rec *record, at place) bool {
	for _, place := range c.placesOf(r, recordKey{p.id, seq}, rec) {
		if place == at {
			return true
		}
	}
	return false
}

// placesOf lists where r, which has read the record, saw it.
func (c *Checker) placesOf(r *reader, key recordKey, rec *record) []place {
	var places []place
	sawFirst := rec.seenPartition >= 0
	for _, s := range c.others[key] {
		if s.reader == r.id {
			places = append(places, s.at)
			sawFirst = sawFirst && !s.first
		}
	}
	if sawFirst {
		places = append(places, place{rec.seenPartition, rec.seen})
	}
	return places
}

// inOrder judges a record that r reads for the first time against the one that the member read before it.
func (c *Checker) inOrder(r *reader, m *member, p *producer, at place, e *Event) {
	from := stream{p.id, at.partition}
	lastOffset, hasOffset := m.lastOffset[at.partition]
	lastSeq, hasSeq := m.lastSeq[from]
	if hasOffset && at.offset < lastOffset || hasSeq && e.Seq < lastSeq {
		r.outOfOrder++
		c.example("out of order", "%s (%s) read %s/%d at %s-%d offset %d after offset %d and sequence %d",
			r.name, e.Client, e.Producer, e.Seq, e.Topic, e.Partition, e.Offset, lastOffset, lastSeq)
	}
	m.lastOffset[at.partition], m.lastSeq[from] = at.offset, e.Seq
}

func (c *Checker) committed(e *Event) {
	r, m := c.memberOf(e)
	_, at := c.place(e)
	if last, ok := m.lastCommit[at.partition]; ok && at.offset < last {
		r.commitsBack++
		c.example("commit went back", "%s (%s) committed %s-%d offset %d after %d", r.name, e.Client, e.Topic, e.Partition, at.offset, last)
	}
	m.lastCommit[at.partition] = at.offset
}

func (c *Checker) rebalanced(e *Event) {
	r, m := c.memberOf(e)
	if e.Kind != Assigned {
		// What it commits after it gets the partition again may be behind what another member committed meanwhile.
		clear(m.lastCommit)
	}
	if c.client(e.Client).stopping {
		return
	}
	r.rebalances = append(r.rebalances, rebalance{kind: e.Kind, millis: e.Millis, client: e.Client, count: e.Count})
}
