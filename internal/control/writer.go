package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
)

// ErrFenced says that somebody else has become the writer of the log.
var ErrFenced = errors.New("another process drives this virtual cluster")

// ErrMustFence says that a writer lost its place in the log, by a refusal or because it was idle for too long, and that
// it writes again only after a new Fence.
var ErrMustFence = errors.New("the writer of the control log must fence it anew")

const (
	// maxIdle bounds how long a writer trusts that the broker remembers it; brokers forget after a day.
	maxIdle = 12 * time.Hour
	// batchBytes is where Put begins a new batch; one record may be larger.
	batchBytes = 512 << 10
	// fenceTimeout is the transaction timeout: an abort that never comes is made by the coordinator then.
	fenceTimeout = 10 * time.Second
	// produceTimeout is how long a broker may wait for its followers.
	produceTimeout = 5 * time.Second
)

// Writer writes to one log, as long as nobody else fences it. Methods may be called from any goroutine; one batch is in
// flight at a time.
type Writer struct {
	log        *Log
	producerID int64
	epoch      int16
	asked      int // requests for them that were sent; Fence's

	turn     chan struct{} // holds one token; who has it owns the fields below
	sequence int32         // of the next new record
	pending  []byte        // a batch that was sent and of which nothing is known; sent again before anything else
	broken   error         // why nothing can be written any more: ErrFenced or ErrMustFence
	acked    time.Time     // last time the broker answered for us; by the wall clock, which counts stand-still too
}

// Fence makes the caller the writer of the log: what an older writer sends from here on is refused, or does not count.
func (l *Log) Fence(ctx context.Context) (*Writer, error) {
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	w := &Writer{log: l, turn: make(chan struct{}, 1)}
	l.halfway.Store(true)
	for _, step := range []func(context.Context) error{w.initProducerID, w.addPartition, w.abort, w.readMarker} {
		if err := retry(ctx, func() error { return step(ctx) }); err != nil {
			// The marker of an ErrFenced is another's, or of a request of our own that was given up and came late.
			l.halfway.Store(!errors.Is(err, ErrFenced) || w.asked > 1)
			return nil, l.failed("fence the control log", err)
		}
	}
	l.halfway.Store(false)
	w.acked = time.Now().Round(0)
	w.turn <- struct{}{}
	return w, nil
}

func (w *Writer) initProducerID(ctx context.Context) error {
	coordinator, err := w.log.coordinator(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr(w.log.transactionalID())
	req.TransactionTimeoutMillis = int32(fenceTimeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	w.asked++
	resp, err := request[*kmsg.InitProducerIDResponse](ctx, coordinator, req, maxInitProducerID)
	if err != nil {
		return err
	}
	w.producerID, w.epoch = resp.ProducerID, resp.ProducerEpoch
	return checkCode(resp.ErrorCode)
}

func (w *Writer) addPartition(ctx context.Context) error {
	coordinator, err := w.log.coordinator(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = w.log.transactionalID(), w.producerID, w.epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = topicName, []int32{w.log.partition}
	req.Topics = append(req.Topics, t)
	resp, err := request[*kmsg.AddPartitionsToTxnResponse](ctx, coordinator, req, maxAddPartitionsToTxn)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("an answer to AddPartitionsToTxn without the partition asked for")
	}
	return checkCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (w *Writer) abort(ctx context.Context) error {
	coordinator, err := w.log.coordinator(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = w.log.transactionalID(), w.producerID, w.epoch, false
	resp, err := request[*kmsg.EndTxnResponse](ctx, coordinator, req, maxEndTxn)
	if err != nil {
		return err
	}
	return checkCode(resp.ErrorCode)
}

// readMarker waits until our own marker can be read: a log end is no substitute.
func (w *Writer) readMarker(ctx context.Context) error {
	return w.log.readTo(ctx, newFold(), until{producerID: w.producerID, epoch: w.epoch, marker: true})
}

// Put writes records, in order. On success all are acked. After another error than ErrFenced or ErrMustFence it is not
// known whether they are written; what was sent is sent again, with the same bytes, by the next Put.
func (w *Writer) Put(ctx context.Context, records ...Record) error {
	select {
	case <-w.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { w.turn <- struct{}{} }()
	if w.broken == nil && time.Since(w.acked) > maxIdle {
		w.broken = ErrMustFence
	}
	err := w.sendPending(ctx)
	for len(records) > 0 && err == nil {
		n := batchRecords(records)
		if err = w.encode(records[:n]); err == nil {
			err = w.sendPending(ctx)
		}
		records = records[n:]
	}
	if err != nil {
		return w.log.failed("write the control log", err)
	}
	return nil
}

// batchRecords says how many of the records go into the next batch.
func batchRecords(records []Record) int {
	size := 0
	for i, r := range records {
		size += len(r.Key) + len(r.Value)
		if i > 0 && size > batchBytes {
			return i
		}
	}
	return len(records)
}

// encode makes the pending batch of records.
func (w *Writer) encode(records []Record) error {
	now := time.Now().UnixMilli()
	list := make([]batch.Record, len(records))
	for i, r := range records {
		list[i] = batch.Record{Timestamp: now, Key: []byte(r.Key), Value: r.Value}
	}
	b, err := batch.NewCodecs(maxRecordBytes).Encode(list, batch.Params{
		LeaderEpoch: -1,
		Producer:    &batch.Producer{ID: w.producerID, Epoch: w.epoch, FirstSequence: w.sequence},
	})
	if err != nil {
		return err
	}
	if len(b) > maxRecordBytes {
		return fmt.Errorf("record %q takes %d bytes, only %d are possible", records[0].Key, len(b), maxRecordBytes)
	}
	w.pending = b
	w.sequence = nextSequence(w.sequence, int32(len(records)-1))
	return nil
}

// sendPending sends the pending batch until it is acked, refused, or ctx ends.
func (w *Writer) sendPending(ctx context.Context) error {
	if w.broken != nil {
		return w.broken
	}
	if w.pending == nil {
		return nil
	}
	err := retry(ctx, func() error { return w.produce(ctx) })
	var code *kerr.Error
	switch {
	case err == nil:
		w.pending, w.acked = nil, time.Now().Round(0)
	case errors.Is(err, ErrFenced):
		w.broken = ErrFenced
	case errors.As(err, &code) && ctx.Err() == nil: // refused: the sequence may not be used for other content
		w.broken = fmt.Errorf("%w: %w", ErrMustFence, err)
		return w.broken
	}
	return err
}

func (w *Writer) produce(ctx context.Context) error {
	leader, err := w.log.leader(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, int32(produceTimeout.Milliseconds())
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topicName
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = w.log.partition, w.pending
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := request[*kmsg.ProduceResponse](ctx, leader, req, maxProduce)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return errors.New("a produce answer without the partition asked for")
	}
	code := resp.Topics[0].Partitions[0].ErrorCode
	if code == kerr.DuplicateSequenceNumber.Code {
		return nil
	}
	return checkCode(code)
}
