package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions that the walkers know. Offered is less: less is taken; below the lowest the run fails.
const (
	minFetch, maxFetch     = 12, 17
	minProduce, maxProduce = 9, 13
)

const layoutTimeout = 10 * time.Second

// layout is where the partitions of a topic are, as the bootstrap server says. It does not change during a run.
type layout struct {
	topic      string
	id         [16]byte
	partitions []int32 // leader by partition
	addresses  map[int32]string
	fetch      int16
	produce    int16
}

// share is what a client reads or writes: leader → partitions.
func (l *layout) share(client, clients int) map[int32][]int32 {
	mine := make(map[int32][]int32)
	for p, leader := range l.partitions {
		if p%clients == client || client >= len(l.partitions) && client%len(l.partitions) == p {
			mine[leader] = append(mine[leader], int32(p))
		}
	}
	return mine
}

// layout asks until every partition has a leader: after a start or a move that takes a moment.
func (r *run) layout(ctx context.Context) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, layoutTimeout)
	defer cancel()
	for {
		l, err := r.askLayout(ctx)
		if err == nil {
			return l, nil
		}
		wait(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("layout of %s at %s: %w", r.job.Topic, r.job.Bootstrap, err)
		}
	}
}

func (r *run) askLayout(ctx context.Context) (*layout, error) {
	c, err := r.dial(ctx, r.job.Bootstrap)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	offered, err := c.versions()
	if err != nil {
		return nil, err
	}
	l := &layout{
		topic: r.job.Topic, addresses: make(map[int32]string),
		fetch: min(maxFetch, offered[int16(kmsg.Fetch)]), produce: min(maxProduce, offered[int16(kmsg.Produce)]),
	}
	if l.fetch < minFetch || l.produce < minProduce {
		return nil, fmt.Errorf("offered are Fetch up to v%d and Produce up to v%d, v%d and v%d needed", l.fetch, l.produce, minFetch, minProduce)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = min(12, offered[int16(kmsg.Metadata)])
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &r.job.Topic
	req.Topics = append(req.Topics, topic)
	resp, err := c.call(req)
	if err != nil {
		return nil, err
	}
	return l, l.fill(resp.(*kmsg.MetadataResponse))
}

func (l *layout) fill(meta *kmsg.MetadataResponse) error {
	for _, b := range meta.Brokers {
		l.addresses[b.NodeID] = fmt.Sprintf("%s:%d", b.Host, b.Port)
	}
	if len(meta.Topics) != 1 {
		return fmt.Errorf("%d topics in the metadata", len(meta.Topics))
	}
	topic := meta.Topics[0]
	if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
		return err
	}
	l.id = topic.TopicID
	l.partitions = make([]int32, len(topic.Partitions))
	for _, p := range topic.Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
		if p.Partition < 0 || int(p.Partition) >= len(l.partitions) || l.addresses[p.Leader] == "" {
			return fmt.Errorf("partition %d, leader %d: not in the metadata", p.Partition, p.Leader)
		}
		l.partitions[p.Partition] = p.Leader
	}
	if len(l.partitions) == 0 {
		return errors.New("no partitions")
	}
	return nil
}
