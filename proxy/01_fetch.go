package proxy

import (
	"fmt"

	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// Fetch: v4–v18
//
// Request → physical:  topic name or id; FetchOffset; CurrentLeaderEpoch (of an earlier era: −1), LastFetchedEpoch (−1 where
//                      eras differ); ForgottenTopics. A client is no replica: ReplicaID −1, no replica fields.
// Response → virtual:  topic name or id; LogStartOffset (inclusive), HighWatermark, LastStableOffset (exclusive);
//                      AbortedTransactions; PreferredReadReplica; DivergingEpoch; CurrentLeader, NodeEndpoints; in each batch
//                      base offset and leader epoch, which lie outside the CRC: no decompression, no checksum (fetch_records.go).
// Length:              an answer is passed on as it comes, so it keeps its length; only addresses of nodes may have another
//                      one, and are made to fit. Where topic names have another length (up to v12), the answer is held.
// Gap:                 a position in a terminal gap gets a gap marker. The whole call is answered here then, the other
//                      partitions empty: it happens once per client and gap.
// Generation change:   a Fetch that is pending is answered here, empty. A fetch session of another generation is not found
//                      (FETCH_SESSION_ID_NOT_FOUND): the client begins a new one at once.
// Outside the map:     below the log start: OFFSET_OUT_OF_RANGE, as from a broker. Not known yet: NOT_LEADER_OR_FOLLOWER,
//                      because OFFSET_OUT_OF_RANGE would let auto.offset.reset skip records.
// Not handled:         v0–3; message format v0 compressed, where offsets differ (brokers of that age were never moved to).

// fetchCall is what is known of a Fetch call.
type fetchCall struct {
	incremental bool // the request names only what changed since the last one of its session
	strange     bool // the broker does not know that session
	here        bool // a position cannot be asked of the broker: the call is answered here
	longer      bool // names have other lengths: the answer is held
}

// prepareFetch makes the request physical, or answers it here.
func (c *call) prepareFetch() error {
	c.asked = fetchCall{longer: c.version <= 12 && !c.route.names.IsIdentity()}
	c.fetch = &c.asked
	c.physical = c.s.p.pool.Get()
	r := c.reader(c.frame[c.bodyAt:])
	w := fetchRequest{c: c, fields: fields{r, c.s.p.headers.Flexible(c.key, c.version)}}
	w.m = maker{b: append(c.physical.B, c.frame[:c.bodyAt]...), flexible: w.flexible}
	w.request()
	c.physical.B = w.m.b
	if err := r.Err(); err != nil {
		return closing(closedMalformed, fmt.Errorf("read Fetch v%d: %w", c.version, err))
	}
	if r.Remaining() > 0 {
		return closing(closedMalformed, fmt.Errorf("read Fetch v%d: %d bytes too many", c.version, r.Remaining()))
	}
	if c.fetch.here || c.fetch.strange {
		return c.answerFetch()
	}
	return nil
}

// fetchRequest rewrites a request to physical:
//
//	replica int32 (to v14) | wait, min bytes, max bytes int32 | isolation int8 | session id, epoch int32 (from v7) |
//	topics (name or id, partitions, tags) | forgotten (name or id, partitions int32, tags) (from v7) | rack (from v11) |
//	tags {0: cluster id, 1: replica}
type fetchRequest struct {
	c *call
	fields
	m maker
}

func (w *fetchRequest) request() {
	v := w.c.version
	if v <= 14 {
		w.Int32()
		w.m.int32(-1)
	}
	for range 3 {
		w.m.int32(w.Int32())
	}
	w.m.int8(w.Int8())
	if v >= 7 {
		w.session(w.Int32(), w.Int32())
	}
	topics := w.array()
	for w.m.array(topics); topics > 0 && w.Err() == nil; topics-- {
		w.topic()
	}
	if v >= 7 {
		forgotten := w.array()
		for w.m.array(forgotten); forgotten > 0 && w.Err() == nil; forgotten-- {
			w.forgotten()
		}
	}
	if v >= 11 {
		w.m.str(w.str())
	}
	w.m.copyTags(w.fields, 2) // cluster id and replica are a broker's
}

// session passes the fetch session on. A number of an earlier generation may be another client's on this cluster: it is
// neither gone on with (epoch above 0) nor closed (the others, which begin a new session or none).
func (w *fetchRequest) session(id, epoch int32) {
	f := w.c.fetch
	f.incremental = id != 0 && epoch > 0
	if id != 0 && w.c.route.Generation > 1 && !w.c.s.fetching.is(id, w.c.route.Generation) {
		f.strange = f.incremental
		id = 0
	}
	w.m.int32(id)
	w.m.int32(epoch)
}

// name passes a topic's name or id on and finds the topic.
func (w *fetchRequest) name() *Topic {
	c := w.c
	if c.version >= 13 {
		id := w.UUID()
		w.m.uuid(c.route.physicalID(id))
		return c.route.byVirtual[id]
	}
	name := w.str()
	physical := c.s.sent.physical(c, name)
	if physical == nil {
		c.fetch.here = true
	}
	w.m.str(physical)
	return c.route.Topics[string(name)]
}

// topic rewrites one topic. A partition is:
//
//	index int32 | current epoch int32 (from v9) | offset int64 | last epoch int32 (from v12) | log start int64 (from v5) |
//	max bytes int32 | tags
func (w *fetchRequest) topic() {
	v := w.c.version
	topic := w.name()
	n := w.array()
	for w.m.array(n); n > 0 && w.Err() == nil; n-- {
		index := w.Int32()
		part := topic.partition(index)
		w.m.int32(index)
		if v >= 9 {
			w.m.int32(part.currentEpoch(w.Int32()))
		}
		w.m.int64(w.offset(part, w.Int64()))
		if v >= 12 {
			last := w.Int32()
			if part != nil && w.c.route.Generation > 1 {
				last = -1
			}
			w.m.int32(last)
		}
		if v >= 5 {
			w.Int64()
			w.m.int64(-1) // a replica's
		}
		w.m.int32(w.Int32())
		w.m.copyTags(w.fields, 2) // directory and high watermark are a replica's
	}
	w.m.copyTags(w.fields, 0)
}

// offset is where the broker has to read. If it cannot be asked for v the call is answered here.
func (w *fetchRequest) offset(part *Partition, v int64) int64 {
	m := part.mapping()
	if m == nil || v < 0 {
		return v
	}
	a := m.ToPhysical(translate.Virtual(v))
	if a.Kind == translate.Unknown {
		w.c.fetch.here = true
	}
	if a.Kind == translate.Gap {
		if _, terminal := m.TerminalGap(translate.Virtual(v)); terminal {
			w.c.fetch.here = true
		}
	}
	return int64(a.Physical)
}

func (w *fetchRequest) forgotten() {
	w.name()
	n := w.array()
	for w.m.array(n); n > 0 && w.Err() == nil; n-- {
		w.m.int32(w.Int32())
	}
	w.m.copyTags(w.fields, 0)
}

// receiveFetch passes the answer on to out, as it comes.
func (c *call) receiveFetch(size, bodyAt int, out *wire.Writer) error {
	w := fetchAnswer{c: c, in: fields{c.link.in, c.s.p.headers.Flexible(c.key, c.version)}, out: out, scratch: c.s.scratch[:0]}
	defer func() { c.s.scratch = w.scratch[:0] }()
	if c.fetch.longer {
		return w.hold(bodyAt)
	}
	out.Begin(size)
	w.answer(bodyAt)
	return w.end(out.End())
}

// memory is a writer's destination that is held.
type memory struct{ b *wire.Buffer }

func (m memory) Write(p []byte) (int, error) {
	m.b.B = append(m.b.B, p...)
	return len(p), nil
}

// hold rewrites the whole answer before any of it is passed on.
func (w *fetchAnswer) hold(bodyAt int) error {
	room := w.c.s.roomForAnswer(w.c, w.in.Remaining())
	defer w.c.s.giveBack(&room)
	b := w.c.s.p.pool.Get()
	defer b.Release()
	client := w.out
	w.out = wire.NewWriter(memory{b}, &w.c.s.p.pool)
	w.held = true
	w.answer(bodyAt)
	if err := w.end(w.out.Flush()); err != nil {
		w.out.Close()
		return err
	}
	return client.WriteFrame(b.B)
}

// fetchAnswer rewrites an answer to virtual:
//
//	throttle int32 | code int16, session int32 (from v7) | topics (name or id, partitions, tags) | tags {0: nodes}
type fetchAnswer struct {
	c       *call
	in      fields
	out     *wire.Writer
	held    bool   // the length may change
	scratch []byte // for what is made anew; used again
	failed  error  // the answer cannot be passed on
}

// end finds the error that counts.
func (w *fetchAnswer) end(outErr error) error {
	switch {
	case w.failed != nil:
		return w.failed
	case w.in.Err() != nil:
		return closing(closedBadAnswer, fmt.Errorf("answer to Fetch v%d: %w", w.c.version, w.in.Err()))
	}
	return outErr
}

func (w *fetchAnswer) ok() bool { return w.failed == nil && w.in.Err() == nil && w.out.Err() == nil }

func (w *fetchAnswer) answer(bodyAt int) {
	tee := wire.Tee{In: w.in.Reader, Out: w.out}
	tee.Bytes(bodyAt)
	tee.Int32()
	if w.c.version >= 7 {
		tee.Int16()
		w.c.s.fetching.set(tee.Int32(), w.c.route.Generation)
	}
	topics := w.in.array()
	for w.putArray(topics); topics > 0 && w.ok(); topics-- {
		w.topic(tee)
	}
	if w.in.flexible {
		w.nodes()
	}
}

func (w *fetchAnswer) putArray(n int) {
	if w.in.flexible {
		w.out.PutCompactArrayLen(n)
	} else {
		w.out.PutArrayLen(n)
	}
}

// nodes shows the addresses in the tagged fields at the end.
func (w *fetchAnswer) nodes() {
	size := w.in.Remaining()
	if first := w.in.PeekUpTo(1); size == 1 && len(first) == 1 && first[0] == 0 {
		w.in.Skip(1)
		w.out.PutNoTags()
		return
	}
	m := maker{b: w.scratch[:0], flexible: true}
	w.c.showNodes(w.in, &m)
	w.scratch = m.b
	shown := m.b
	if !w.held && w.in.Err() == nil {
		shown = fitTags(m.b, int(m.b[0]), size)
	}
	_, _ = w.out.Write(shown) // sticks
}

// topic passes one topic on.
func (w *fetchAnswer) topic(tee wire.Tee) {
	c := w.c
	var topic *Topic
	var seen seenTopic
	if c.version >= 13 {
		real := w.in.UUID()
		topic = c.route.byPhysical[real]
		seen.id = c.route.virtualID(real)
		w.out.PutUUID(seen.id)
	} else {
		name := c.s.shown.virtual(c, w.in.str())
		if name == nil {
			w.failed = c.badAnswer("a topic that was not asked for")
			return
		}
		topic = c.route.Topics[string(name)]
		if w.in.flexible {
			w.out.PutCompactString(name)
		} else {
			w.out.PutString(name)
		}
		seen.name = name
	}
	seen.marks = c.s.p.seen.find(seen.name, seen.id)
	n := w.in.array()
	for w.putArray(n); n > 0 && w.ok(); n-- {
		w.partition(tee, topic, &seen)
	}
	if w.in.flexible {
		tee.Tags()
	}
}

// partition passes one partition on:
//
//	index int32 | code int16 | high watermark int64 | last stable int64 | log start int64 (from v5) |
//	aborted (producer int64, first offset int64, tags) | preferred replica int32 (from v11) | records | tags
func (w *fetchAnswer) partition(tee wire.Tee, topic *Topic, seen *seenTopic) {
	v := w.c.version
	index := tee.Int32()
	part := topic.partition(index)
	tee.Int16()
	hw := part.shownOffset(w.in.Int64())
	w.out.PutInt64(hw)
	w.c.s.p.seen.note(seen, index, hw)
	w.out.PutInt64(part.shownOffset(w.in.Int64()))
	if v >= 5 {
		w.out.PutInt64(part.shownOffset(w.in.Int64()))
	}
	aborted := w.in.array()
	for w.putArray(aborted); aborted > 0 && w.ok(); aborted-- {
		tee.Int64()
		w.out.PutInt64(part.shownOffset(w.in.Int64()))
		if w.in.flexible {
			tee.Tags()
		}
	}
	if v >= 11 {
		w.out.PutInt32(w.c.route.nodeOf(w.in.Int32()))
	}
	w.records(tee, part)
	if w.in.flexible {
		w.partitionTags(part)
	}
}

// partitionTags shows the hint in a partition's tagged fields.
func (w *fetchAnswer) partitionTags(part *Partition) {
	if first := w.in.Peek(1); len(first) == 1 && first[0] == 0 {
		w.in.Skip(1)
		w.out.PutNoTags()
		return
	}
	m := maker{b: w.scratch[:0], flexible: true}
	w.c.showFetchTags(w.in, &m, part)
	w.scratch = m.b
	_, _ = w.out.Write(m.b) // sticks
}
