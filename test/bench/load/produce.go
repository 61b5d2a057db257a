package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	requestMaxBytes = 1 << 20
	inFlight        = 5
)

// frame is a Produce request that was built once. Only the goroutine that writes touches it.
type frame struct {
	bytes   []byte
	batches []framed
	payload int64 // bytes of record batches
}

// framed is a batch in a frame.
type framed struct {
	at        int
	partition int32
}

// producer writes to its partitions over one connection: run writes, answers reads.
type producer struct {
	of        *run
	conn      *conn
	layout    *layout
	template  template
	frames    []frame
	sequences map[int32]int32
	id        int64
	epoch     int16
	share     float64       // of the partitions of the topic
	flight    chan flight   // sent, not answered; its capacity bounds them
	answered  chan struct{} // closed when answers has ended
	err       error         // of answers; valid once answered is closed
}

type flight struct {
	correlation int32
	batches     int
	payload     int64
}

func (r *run) newProducer(ctx context.Context, l *layout, _ int, leader int32, partitions []int32) (*producer, error) {
	conn, err := r.dial(ctx, l.addresses[leader])
	if err != nil {
		return nil, err
	}
	p := &producer{
		of: r, conn: conn, layout: l, template: newTemplate(r.job.BatchRecords, r.job.RecordBytes), sequences: make(map[int32]int32),
		share: float64(len(partitions)) / float64(len(l.partitions)), flight: make(chan flight, inFlight), answered: make(chan struct{}),
	}
	if err := p.init(); err != nil {
		conn.Close()
		return nil, err
	}
	perFrame := max(1, requestMaxBytes/len(p.template.bytes))
	for len(partitions) > 0 {
		n := min(perFrame, len(partitions))
		p.frames = append(p.frames, p.build(partitions[:n]))
		partitions = partitions[n:]
	}
	return p, nil
}

func (p *producer) close() { p.conn.Close() }

func (p *producer) init() error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.ProducerID, req.ProducerEpoch, req.TransactionTimeoutMillis = 4, -1, -1, 60_000
	resp, err := p.conn.call(req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.InitProducerIDResponse)
	p.id, p.epoch = answer.ProducerID, answer.ProducerEpoch
	return kerr.ErrorForCode(answer.ErrorCode)
}

// build makes the frame for some partitions, one batch each.
func (p *producer) build(partitions []int32) frame {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = p.layout.produce, -1, 30_000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID = p.layout.topic, p.layout.id
	for _, partition := range partitions {
		batch := kmsg.NewProduceRequestTopicPartition()
		batch.Partition, batch.Records = partition, p.template.bytes
		topic.Partitions = append(topic.Partitions, batch)
	}
	req.Topics = append(req.Topics, topic)
	f := frame{bytes: p.conn.format.AppendRequest(nil, req, 0), payload: int64(len(partitions) * len(p.template.bytes))}
	from := 0
	for _, partition := range partitions {
		at := from + bytes.Index(f.bytes[from:], p.template.bytes)
		f.batches = append(f.batches, framed{at: at, partition: partition})
		from = at + len(p.template.bytes)
	}
	return f
}

func (p *producer) run(ctx context.Context) error {
	go p.answers()
	err := p.send(ctx)
	close(p.flight)
	if err != nil {
		p.conn.Close()
	}
	<-p.answered
	if p.err != nil {
		return p.err
	}
	return err
}

func (p *producer) send(ctx context.Context) error {
	pace := newPace(p.of.job.Rate * p.share)
	for i := 0; ctx.Err() == nil; i++ {
		f := &p.frames[i%len(p.frames)]
		due := pace.wait(ctx, len(f.batches))
		p.patch(f, due)
		select {
		case p.flight <- flight{correlation: p.conn.next, batches: len(f.batches), payload: f.payload}:
		case <-p.answered:
			return nil
		}
		if _, err := p.conn.Write(f.bytes); err != nil {
			return fmt.Errorf("send Produce: %w", err)
		}
	}
	return nil
}

// patch puts in what is new: correlation id, sequences, the time, checksums.
func (p *producer) patch(f *frame, due time.Time) {
	p.conn.next++
	binary.BigEndian.PutUint32(f.bytes[8:], uint32(p.conn.next))
	for _, batch := range f.batches {
		b := f.bytes[batch.at : batch.at+len(p.template.bytes)]
		sequence := p.sequences[batch.partition]
		setProducer(b, p.id, p.epoch, sequence)
		p.sequences[batch.partition] = int32(uint32(sequence+int32(p.template.records)) & 0x7fffffff)
		binary.BigEndian.PutUint64(b[p.template.sentAt:], uint64(due.UnixNano()))
		seal(b)
	}
}

func (p *producer) answers() {
	defer close(p.answered)
	var buffer []byte
	for sent := range p.flight {
		body, err := p.conn.answer(buffer, sent.correlation, true)
		if err != nil {
			if !errors.Is(err, io.EOF) || !p.of.stopped.Load() {
				p.err = fmt.Errorf("answer to Produce: %w", err)
			}
			return
		}
		if err := p.check(body, sent.batches); err != nil {
			p.err = err
			return
		}
		if p.of.job.Work == Produce {
			p.of.counts.bytes.Add(sent.payload)
			p.of.counts.batches.Add(int64(sent.batches))
		}
		buffer = body[:0]
	}
}

func (p *producer) check(body []byte, batches int) error {
	resp := kmsg.ProduceResponse{Version: p.layout.produce}
	if err := resp.ReadFrom(body); err != nil {
		return fmt.Errorf("answer to Produce: %w", err)
	}
	for _, t := range resp.Topics {
		for _, got := range t.Partitions {
			if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
				return fmt.Errorf("produce to %s-%d: %w", p.layout.topic, got.Partition, err)
			}
			batches--
		}
	}
	if batches != 0 {
		return fmt.Errorf("%d batches more were sent than answered", batches)
	}
	return nil
}

// pace spreads batches evenly over time. A producer that is late does not skip any, and its batches count as sent when they
// were due, so that a stall is seen in all the batches that it held up.
type pace struct {
	each time.Duration // per batch; 0: no limit
	next time.Time
}

// late is how much later than due a batch may be sent without its being held against the other side: timers are no better.
const late = time.Millisecond

func newPace(perSecond float64) *pace {
	p := &pace{next: time.Now()}
	if perSecond > 0 {
		p.each = time.Duration(float64(time.Second) / perSecond)
	}
	return p
}

// wait returns when the next batches are due, with the time that they count as sent at.
func (p *pace) wait(ctx context.Context, batches int) time.Time {
	now := time.Now()
	if p.each == 0 {
		return now
	}
	p.next = p.next.Add(p.each * time.Duration(batches))
	if d := p.next.Sub(now); d > 0 {
		wait(ctx, d)
	}
	if now = time.Now(); now.Sub(p.next) < late {
		return now
	}
	return p.next
}
