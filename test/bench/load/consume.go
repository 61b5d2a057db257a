package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	partitionMaxBytes = 1 << 20
	fetchMaxBytes     = 50 << 20
	fetchMaxWait      = 500 * time.Millisecond
)

// position is where a consumer is in a partition: from start (inclusive) to end (exclusive) and round again. A Latency run
// reads on past the end.
type position struct {
	start, end, next int64
}

// consumer reads its partitions over one connection, for ever.
type consumer struct {
	of         *run
	conn       *conn
	layout     *layout
	positions  map[int32]*position
	partitions []int32 // in order
	changed    []int32 // since the last request; nil: all
	sessionID  int32
	epoch      int32
	sentAt     int // see template
	micros     []int32
	req        *kmsg.FetchRequest
}

func (r *run) newConsumer(ctx context.Context, l *layout, client int, leader int32, partitions []int32) (*consumer, error) {
	conn, err := r.dial(ctx, l.addresses[leader])
	if err != nil {
		return nil, err
	}
	c := &consumer{
		of: r, conn: conn, layout: l, positions: make(map[int32]*position), partitions: partitions, changed: slices.Clone(partitions),
		sentAt: newTemplate(r.job.BatchRecords, r.job.RecordBytes).sentAt,
	}
	for _, p := range partitions {
		c.positions[p] = new(position)
	}
	if err := c.find(client); err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

func (c *consumer) close() { c.conn.Close() }

// find asks for the ends of the log. Consumers start at different places, so that they do not all read the same pages in step.
func (c *consumer) find(client int) error {
	if err := c.list(-2, func(p *position, offset int64) { p.start = offset }); err != nil {
		return err
	}
	if err := c.list(-1, func(p *position, offset int64) { p.end = offset }); err != nil {
		return err
	}
	for partition, p := range c.positions {
		if c.of.job.Work == Latency {
			p.next = p.end
			continue
		}
		if p.start >= p.end {
			return fmt.Errorf("partition %d of %s is empty", partition, c.layout.topic)
		}
		p.next = p.start + (p.end-p.start)*int64(client%16)/16
	}
	return nil
}

func (c *consumer) list(timestamp int64, set func(*position, int64)) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 6, -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = c.layout.topic
	for _, partition := range c.partitions {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := c.conn.call(req)
	if err != nil {
		return err
	}
	for _, t := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("offsets of %s-%d: %w", t.Topic, p.Partition, err)
			}
			if known := c.positions[p.Partition]; known != nil {
				set(known, p.Offset)
			}
		}
	}
	return nil
}

func (c *consumer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		id, err := c.conn.send(c.request())
		if err != nil {
			return fmt.Errorf("send Fetch: %w", err)
		}
		if err := c.answer(id); err != nil {
			return err
		}
		c.of.observe(c.micros)
		c.micros = c.micros[:0]
	}
	return nil
}

// request lists what has changed since the last one, as fetch sessions want it.
func (c *consumer) request() *kmsg.FetchRequest {
	if c.req == nil {
		c.req = kmsg.NewPtrFetchRequest()
		c.req.Version, c.req.ReplicaID = c.layout.fetch, -1
		c.req.MaxWaitMillis, c.req.MinBytes, c.req.MaxBytes = int32(fetchMaxWait.Milliseconds()), 1, fetchMaxBytes
		c.req.Topics = []kmsg.FetchRequestTopic{kmsg.NewFetchRequestTopic()}
	}
	c.req.SessionID, c.req.SessionEpoch = c.sessionID, c.epoch
	topic := &c.req.Topics[0]
	topic.Topic, topic.TopicID = c.layout.topic, c.layout.id
	topic.Partitions = topic.Partitions[:0]
	for _, partition := range c.changed {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, c.positions[partition].next, partitionMaxBytes
		p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.LogStartOffset = -1, -1, -1
		topic.Partitions = append(topic.Partitions, p)
	}
	if c.changed = c.changed[:0]; len(topic.Partitions) == 0 {
		c.req.Topics = c.req.Topics[:0]
		defer func() { c.req.Topics = c.req.Topics[:1] }()
		bare := *c.req
		return &bare
	}
	return c.req
}

// answer walks a Fetch answer as it arrives.
func (c *consumer) answer(id int32) error {
	size, err := c.conn.frame(id)
	if err != nil {
		return fmt.Errorf("answer to Fetch: %w", err)
	}
	w := walker{in: c.conn.in, left: size}
	w.tags()
	w.skip(4) // throttle time
	code, session := w.int16(), w.int32()
	if w.err == nil && code != 0 {
		return c.reset(&w, code)
	}
	for range w.length() {
		if c.layout.fetch < 13 {
			w.string()
		} else {
			w.skip(16)
		}
		for range w.length() {
			c.partition(&w)
		}
		w.tags()
	}
	w.tags()
	if w.err == nil && w.left != 0 {
		w.err = fmt.Errorf("%d bytes are left over", w.left)
	}
	if w.err != nil {
		return fmt.Errorf("answer to Fetch: %w", w.err)
	}
	c.sessionID = session
	if session == 0 { // no room for a session: each request is full
		c.epoch, c.changed = 0, append(c.changed[:0], c.partitions...)
		return nil
	}
	c.epoch++
	return nil
}

// reset starts a new session where the old one is gone; any other error of a whole answer ends the run.
func (c *consumer) reset(w *walker, code int16) error {
	w.skip(w.left)
	err := kerr.ErrorForCode(code)
	if w.err != nil {
		return w.err
	}
	if !errors.Is(err, kerr.FetchSessionIDNotFound) && !errors.Is(err, kerr.InvalidFetchSessionEpoch) {
		return fmt.Errorf("fetch: %w", err)
	}
	c.sessionID, c.epoch, c.changed = 0, 0, append(c.changed[:0], c.partitions...)
	return nil
}

func (c *consumer) partition(w *walker) {
	partition, code := w.int32(), w.int16()
	w.skip(24) // high watermark, last stable offset, log start
	for range w.length() {
		w.skip(16)
		w.tags()
	}
	w.skip(4) // preferred replica
	records := w.length()
	if err := kerr.ErrorForCode(code); err != nil && w.err == nil {
		w.err = fmt.Errorf("%s-%d: %w", c.layout.topic, partition, err)
	}
	if w.err != nil {
		return
	}
	p := c.positions[partition]
	if p == nil {
		w.err = fmt.Errorf("partition %d was not asked for", partition)
		return
	}
	before := p.next
	c.batches(w, p, records)
	w.tags()
	if c.of.job.Work != Latency && p.next >= p.end {
		p.next = p.start
	}
	if p.next != before {
		c.changed = append(c.changed, partition)
	}
}

// batches reads the headers of batches in the next n bytes and throws the rest away. The last may be cut off.
func (c *consumer) batches(w *walker, p *position, n int) {
	for end := w.left - n; w.left > end && w.err == nil; {
		rest := w.left - end
		if rest < batchHeader {
			w.skip(rest)
			return
		}
		head := w.peek(batchHeader)
		if head == nil {
			return
		}
		size := int(int32(binary.BigEndian.Uint32(head[batchLength:]))) + batchLength + 4
		if size < batchHeader || head[16] != 2 {
			w.err = fmt.Errorf("a batch of %d bytes, magic %d", size, head[16])
			return
		}
		if size > rest {
			w.skip(rest)
			return
		}
		base, last := int64(binary.BigEndian.Uint64(head)), int64(int32(binary.BigEndian.Uint32(head[batchLastDelta:])))
		if next := base + last + 1; next > p.next {
			p.next = next
		}
		control := head[batchAttributes+1]&0x20 != 0
		if c.of.job.Work == Latency && !control && size >= c.sentAt+8 {
			c.time(w.peek(c.sentAt + 8))
		}
		w.skip(size)
		c.of.counts.bytes.Add(int64(size))
		c.of.counts.batches.Add(1)
	}
}

func (c *consumer) time(batch []byte) {
	if batch != nil {
		sent := int64(binary.BigEndian.Uint64(batch[c.sentAt:]))
		c.micros = append(c.micros, int32(min(time.Now().UnixNano()-sent, 1e15)/1000))
	}
}
