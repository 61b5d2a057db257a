package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchOverhead is what FirstOffset and Length take before the bytes that Length counts.
const batchOverhead = 12

// RawBatches fetches the whole log of a partition as its leader stores it, control batches and aborted records included, up to the
// high watermark at the time of the call. Records are left as they are, compressed.
func (c *Cluster) RawBatches(t testing.TB, topic string, partition int32) []kmsg.RecordBatch {
	t.Helper()
	return RawBatches(t, c.Bootstrap(), topic, partition)
}

// RawBatches does the same at any bootstrap address; also through a proxy.
func RawBatches(t testing.TB, bootstrap, topic string, partition int32) []kmsg.RecordBatch {
	t.Helper()
	client := Dial(t, bootstrap)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*callTimeout)
	defer cancel()
	admin := kadm.NewClient(client)
	details, err := admin.ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	leader := details[topic].Partitions[partition].Leader
	start, _ := offsets(t, client, topic, partition)
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end := ends[topic][partition].Offset
	var batches []kmsg.RecordBatch
	for at := start; at < end; {
		answer := fetch(ctx, t, client.Broker(int(leader)), topic, partition, at)
		found, err := splitBatches(answer)
		if err != nil {
			t.Fatalf("%s-%d at %d: %v", topic, partition, at, err)
		}
		if len(found) == 0 {
			t.Fatalf("%s-%d: no batch at %d, below the end %d", topic, partition, at, end)
		}
		for _, b := range found {
			at = b.FirstOffset + int64(b.LastOffsetDelta) + 1
			batches = append(batches, b)
		}
	}
	return batches
}

func fetch(ctx context.Context, t testing.TB, broker *kgo.Broker, topic string, partition int32, at int64) []byte {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12 // the last that names topics
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 8<<20
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, at, 8<<20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	answer, err := broker.Request(ctx, &pinned{req})
	if err != nil {
		t.Fatalf("fetch %s-%d at %d: %v", topic, partition, at, err)
	}
	p := answer.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		t.Fatalf("fetch %s-%d at %d: %v", topic, partition, at, err)
	}
	return p.RecordBatches
}

// pinned keeps a fetch at the version that names topics.
type pinned struct{ *kmsg.FetchRequest }

// MaxVersion hides that of the request.
func (p *pinned) MaxVersion() int16 { return 12 }

// splitBatches reads the whole batches in b; the part of one at its end is left out.
func splitBatches(b []byte) ([]kmsg.RecordBatch, error) {
	var batches []kmsg.RecordBatch
	for len(b) >= batchOverhead {
		size := batchOverhead + int(int32(binary.BigEndian.Uint32(b[8:])))
		if size < batchOverhead || size > len(b) {
			break
		}
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(b[:size]); err != nil {
			return nil, fmt.Errorf("batch at %d: %w", int64(binary.BigEndian.Uint64(b)), err)
		}
		batches = append(batches, batch)
		b = b[size:]
	}
	return batches, nil
}
