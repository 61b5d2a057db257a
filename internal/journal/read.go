package journal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

// Cursor is a place in one partition's log, read raw: markers and what zombies wrote are seen, in log order.
type Cursor struct {
	Topic     string // physical name
	ID        [16]byte
	Partition int32
	Next      translate.Physical // the next offset to read; moves on with what was visited
	End       translate.Physical // the log's end as of the last fetch; −1 before the first one
	Start     translate.Physical // the log's start as of the last fetch
	Done      bool               // set by the visitor, or by the caller: no more is read
	Beyond    bool               // the log ends below Next, or is not what it was there: it lost its tail, or is another log. Done is set too

	leader  int32
	led     bool // leader was told, not asked for
	outside bool // the last fetch said that Next is out of range
}

// LedBy tells the leader, as far as it is known: Read need not ask for it first.
func (c *Cursor) LedBy(node int32) { c.leader, c.led = node, true }

// Visit gets each whole batch of a cursor's log, or nil when a fetch has shown that there is nothing at Next (End is set
// then). raw is valid until it returns.
type Visit func(c *Cursor, b Batch, raw []byte) error

const (
	readWait          = 50 * time.Millisecond // long poll: someone else's marker may be on its way
	readBytes         = 16 << 20
	readPartBytes     = 4 << 20
	readRetry         = 50 * time.Millisecond
	maxReadPerRequest = 2000 // partitions
)

// Read reads all cursors, each until it is Done, with one fetch at a time per leader. Errors that pass (elections, closed
// connections) are retried until ctx ends. A log that begins above a cursor moves it up: what was below is a hole.
func Read(ctx context.Context, client *kgo.Client, cursors []*Cursor, visit Visit) error {
	for _, c := range cursors {
		c.End = -1
		if !c.led {
			c.leader = -1
		}
		c.led = false
	}
	for {
		todo := undone(cursors)
		if len(todo) == 0 {
			return nil
		}
		if err := findLeaders(ctx, client, todo); err != nil {
			return err
		}
		if err := readOnce(ctx, client, todo, visit); err != nil {
			return err
		}
		lost := false
		for _, c := range todo {
			lost = lost || c.leader < 0
			if c.outside {
				if err := c.place(ctx, client); err != nil {
					return err
				}
			}
		}
		if lost { // else the brokers waited
			if err := pause(ctx, readRetry); err != nil {
				return err
			}
		}
	}
}

// place says why Next is out of range, and moves it up to the log start if it lies below.
func (c *Cursor) place(ctx context.Context, client *kgo.Client) error {
	start, err := Offset(ctx, client, c.Topic, c.Partition, Earliest)
	if err != nil {
		return err
	}
	c.outside = false
	if start > c.Next {
		c.Next = start
		return nil
	}
	end, err := Offset(ctx, client, c.Topic, c.Partition, Latest)
	if err != nil {
		return err
	}
	if end < c.Next {
		c.Done, c.Beyond = true, true
	}
	return nil
}

// What Offset asks for.
const (
	Latest   int64 = -1
	Earliest int64 = -2
)

// Offset asks the leader of one partition for its log start or its high watermark.
func Offset(ctx context.Context, client *kgo.Client, topic string, partition int32, which int64) (translate.Physical, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, which
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, Cause(ctx, fmt.Errorf("list offsets of %s-%d: %w", topic, partition, err))
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("list offsets of %s-%d: the answer is not about one partition", topic, partition)
	}
	one := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
		return 0, fmt.Errorf("list offsets of %s-%d: %w", topic, partition, err)
	}
	return translate.Physical(one.Offset), nil
}

func undone(cursors []*Cursor) []*Cursor {
	var out []*Cursor
	for _, c := range cursors {
		if !c.Done {
			out = append(out, c)
		}
	}
	return out
}

// findLeaders asks for the leaders of those cursors that have none.
func findLeaders(ctx context.Context, client *kgo.Client, cursors []*Cursor) error {
	topics := map[string]bool{}
	req := kmsg.NewPtrMetadataRequest()
	for _, c := range cursors {
		if c.leader < 0 && !topics[c.Topic] {
			topics[c.Topic] = true
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(c.Topic)
			req.Topics = append(req.Topics, t)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return Cause(ctx, fmt.Errorf("find the leaders of %d topics: %w", len(topics), err))
	}
	type part struct {
		topic string
		n     int32
	}
	leaders := map[part]int32{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && t.Topic != nil {
				leaders[part{*t.Topic, p.Partition}] = p.Leader
			}
		}
		if t.ErrorCode != 0 && !kerr.IsRetriable(kerr.ErrorForCode(t.ErrorCode)) && t.Topic != nil {
			return fmt.Errorf("metadata of topic %s: %w", *t.Topic, kerr.ErrorForCode(t.ErrorCode))
		}
	}
	for _, c := range cursors {
		if n, ok := leaders[part{c.Topic, c.Partition}]; ok && c.leader < 0 {
			c.leader = n
		}
	}
	return nil
}

// readOnce sends one fetch to each leader. A cursor whose leader did not answer for it has none afterwards.
func readOnce(ctx context.Context, client *kgo.Client, cursors []*Cursor, visit Visit) (err error) {
	byLeader := map[int32][]*Cursor{}
	for _, c := range cursors {
		if c.leader >= 0 && len(byLeader[c.leader]) < maxReadPerRequest {
			byLeader[c.leader] = append(byLeader[c.leader], c)
		}
	}
	type answer struct {
		leader int32
		resp   *kmsg.FetchResponse
		err    error
	}
	answers := make(chan answer, len(byLeader))
	for leader, list := range byLeader {
		req := fetchRequest(list)
		go func() {
			resp, err := client.Broker(int(leader)).Request(ctx, req)
			r, _ := resp.(*kmsg.FetchResponse)
			answers <- answer{leader, r, err}
		}()
	}
	for range byLeader {
		a := <-answers
		list := byLeader[a.leader]
		if a.err != nil || a.resp.ErrorCode != 0 {
			for _, c := range list {
				c.leader = -1
			}
			continue
		}
		err = errors.Join(err, take(list, a.resp, visit))
	}
	return Cause(ctx, err)
}

func fetchRequest(cursors []*Cursor) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(readWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = readBytes
	req.SessionEpoch = -1
	topics := map[string]int{}
	for _, c := range cursors {
		i, ok := topics[c.Topic]
		if !ok {
			i = len(req.Topics)
			topics[c.Topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = c.Topic, c.ID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = c.Partition
		p.FetchOffset = int64(c.Next)
		p.PartitionMaxBytes = readPartBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req
}

// take hands what an answer has to the visitor.
func take(cursors []*Cursor, resp *kmsg.FetchResponse, visit Visit) error {
	find := func(topic string, id [16]byte, partition int32) *Cursor {
		for _, c := range cursors {
			if c.Partition == partition && (c.Topic == topic || topic == "" && c.ID == id) {
				return c
			}
		}
		return nil
	}
	if len(cursors) > 16 {
		find = indexed(cursors)
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			c := find(t.Topic, t.TopicID, p.Partition)
			if c == nil || c.Done {
				continue
			}
			if err := takePartition(c, p, visit); err != nil {
				return fmt.Errorf("read %s-%d at %d: %w", c.Topic, c.Partition, c.Next, err)
			}
		}
	}
	return nil
}

func indexed(cursors []*Cursor) func(string, [16]byte, int32) *Cursor {
	type key struct {
		topic     string
		id        [16]byte
		partition int32
	}
	index := make(map[key]*Cursor, 2*len(cursors))
	for _, c := range cursors {
		index[key{topic: c.Topic, partition: c.Partition}] = c
		index[key{id: c.ID, partition: c.Partition}] = c
	}
	return func(topic string, id [16]byte, partition int32) *Cursor {
		if topic != "" {
			id = [16]byte{}
		}
		return index[key{topic, id, partition}]
	}
}

func takePartition(c *Cursor, p *kmsg.FetchResponseTopicPartition, visit Visit) (err error) {
	switch err := kerr.ErrorForCode(p.ErrorCode); {
	case err == nil:
	case errors.Is(err, kerr.OffsetOutOfRange):
		c.outside = true
		return nil
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return err
	case kerr.IsRetriable(err):
		c.leader = -1
		return nil
	default:
		return err
	}
	c.End, c.Start = translate.Physical(p.HighWatermark), translate.Physical(p.LogStartOffset)
	before := c.Next
	it := batch.Iter(p.RecordBatches)
	for it.Next() && !c.Done {
		raw := it.Batch()
		if it.Legacy() {
			err = takeLegacy(c, raw, visit)
		} else {
			err = takeBatch(c, raw, visit)
		}
		if err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if c.Next == before && !c.Done && len(p.RecordBatches) == 0 {
		return visit(c, Batch{}, nil)
	}
	return nil
}

func takeBatch(c *Cursor, raw []byte, visit Visit) error {
	if err := batch.Valid(raw); err != nil {
		return err
	}
	h := batch.Header(raw)
	next := translate.Physical(h.NextOffset())
	if next <= c.Next {
		return nil
	}
	b := Batch{
		Base: translate.Physical(h.BaseOffset()), Next: next,
		Owner:    Owner{h.ProducerID(), h.ProducerEpoch()},
		Sequence: h.FirstSequence(),
		Marker:   h.Control(),
		Epoch:    translate.RealEpoch(h.LeaderEpoch()),
	}
	c.Next = next
	return visit(c, b, raw)
}

// takeLegacy shows a message of an old format as a batch of no producer. Of a compressed set the last offset is known only.
func takeLegacy(c *Cursor, raw []byte, visit Visit) error {
	last := translate.Physical(batch.Header(raw).BaseOffset())
	if last < c.Next {
		return nil
	}
	b := Batch{Base: last, Next: last + 1, Owner: Owner{-1, -1}, Sequence: -1, Epoch: -1}
	c.Next = b.Next
	return visit(c, b, raw)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Cause is why ctx ended, if it did: err is a consequence then. Otherwise err.
func Cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
