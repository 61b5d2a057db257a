package replicator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// sender produces to the target: per broker one request at a time, with all that pumps and appenders have ready. A partition
// has at most one batch in it, so order is the business of whoever sends it.
type sender struct {
	target *cluster

	mu    sync.Mutex // guards nodes and start
	nodes map[int32]*nodeSender
	start func(*nodeSender) // nil before run and after it
}

type delivery struct {
	topic     string
	id        [16]byte
	partition int32
	bytes     []byte
	done      chan produced // capacity 1
}

// produced is what became of a batch. With an error the outcome is unknown: it may be in the log, or get there later.
type produced struct {
	code int16
	base int64
	err  error
}

var errNotAnswered = errors.New("the broker did not answer for this partition")

const (
	maxSendBytes   = 16 << 20
	produceTimeout = 10 * time.Second
	answerTimeout  = 25 * time.Second // from sending on; the broker answers within produceTimeout, if it can
)

func newSender(target *cluster) *sender {
	return &sender{target: target, nodes: map[int32]*nodeSender{}}
}

// run ends when ctx does and all its brokers' goroutines have ended.
func (s *sender) run(ctx context.Context) {
	var wg sync.WaitGroup
	s.mu.Lock()
	s.start = func(n *nodeSender) { wg.Go(func() { n.run(ctx) }) }
	for _, n := range s.nodes {
		s.start(n)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.start = func(*nodeSender) {}
	s.mu.Unlock()
	wg.Wait()
}

func (s *sender) node(id int32) *nodeSender {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[id]
	if n == nil {
		n = &nodeSender{id: id, target: s.target, ready: make(chan struct{}, 1)}
		s.nodes[id] = n
		if s.start != nil {
			s.start(n)
		}
	}
	return n
}

// send hands a batch to a broker and waits for what becomes of it. If ctx ends first, that is not known.
func (s *sender) send(ctx context.Context, node int32, d delivery) produced {
	d.done = make(chan produced, 1)
	s.node(node).push(d)
	select {
	case r := <-d.done:
		return r
	case <-ctx.Done():
		return produced{err: context.Cause(ctx)}
	}
}

type nodeSender struct {
	id     int32
	target *cluster
	ready  chan struct{}

	mu    sync.Mutex // guards queue
	queue []delivery
}

func (n *nodeSender) push(d delivery) {
	n.mu.Lock()
	n.queue = append(n.queue, d)
	n.mu.Unlock()
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

// take removes from the queue what fits in one request.
func (n *nodeSender) take() []delivery {
	n.mu.Lock()
	defer n.mu.Unlock()
	size, i := 0, 0
	for i < len(n.queue) && (i == 0 || size+len(n.queue[i].bytes) <= maxSendBytes) {
		size += len(n.queue[i].bytes)
		i++
	}
	out := n.queue[:i:i]
	n.queue = n.queue[i:]
	return out
}

func (n *nodeSender) run(ctx context.Context) {
	for {
		batch := n.take()
		if len(batch) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-n.ready:
			}
			continue
		}
		n.produce(ctx, batch)
	}
}

type sentPartition struct {
	topic     string
	partition int32
}

func (n *nodeSender) produce(ctx context.Context, batch []delivery) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	req.TimeoutMillis = int32(produceTimeout.Milliseconds())
	waiting := make(map[sentPartition]*delivery, len(batch))
	var again []delivery
	topics := map[string]int{}
	for i := range batch {
		d := &batch[i]
		key := sentPartition{topic: d.topic, partition: d.partition}
		if waiting[key] != nil { // an abandoned batch of an earlier owner is still queued
			again = append(again, *d)
			continue
		}
		waiting[key] = d
		at, ok := topics[d.topic]
		if !ok {
			at = len(req.Topics)
			topics[d.topic] = at
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = d.topic, d.id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = d.partition, d.bytes
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	reqCtx, cancel := context.WithTimeout(ctx, answerTimeout)
	kresp, err := n.target.client.Broker(int(n.id)).Request(reqCtx, req)
	cancel()
	resp, _ := kresp.(*kmsg.ProduceResponse)
	if err == nil && resp != nil {
		n.answer(req, resp, waiting)
		err = errNotAnswered
	}
	for _, d := range waiting {
		d.done <- produced{err: err}
	}
	for _, d := range again {
		n.push(d)
	}
}

// answer tells each sender what the broker said, and removes it from waiting.
func (n *nodeSender) answer(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse, waiting map[sentPartition]*delivery) {
	names := make(map[[16]byte]string, len(req.Topics))
	for i := range req.Topics {
		names[req.Topics[i].TopicID] = req.Topics[i].Topic
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			key := sentPartition{topic: name, partition: p.Partition}
			if d := waiting[key]; d != nil {
				delete(waiting, key)
				d.done <- produced{code: p.ErrorCode, base: p.BaseOffset}
			}
		}
	}
}
