package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/proc"
)

const callTimeout = 60 * time.Second

// Topic describes a topic to be created.
type Topic struct {
	Name       string
	Partitions int32             // ignored if Assignment is given
	Replicas   int16             // default 3; ignored if Assignment is given
	Configs    map[string]string // topic configs
	Assignment map[int32][]int32 // partition → node ids, the first leads
}

// CreateTopic creates a topic and waits until each partition has a leader.
func (c *Cluster) CreateTopic(t testing.TB, topic Topic) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	client := c.Client(t)
	defer client.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	create := kmsg.NewCreateTopicsRequestTopic()
	create.Topic, create.NumPartitions, create.ReplicationFactor = topic.Name, topic.Partitions, topic.Replicas
	if topic.Replicas == 0 {
		create.ReplicationFactor = int16(min(3, c.options.Brokers))
	}
	if topic.Assignment != nil {
		create.NumPartitions, create.ReplicationFactor = -1, -1
	}
	for partition, nodes := range topic.Assignment {
		create.ReplicaAssignment = append(create.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: partition, Replicas: nodes})
	}
	for name, value := range topic.Configs {
		create.Configs = append(create.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	req.Topics = append(req.Topics, create)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("create topic %s on %s: %v", topic.Name, c.Name, err)
	}
	waitLeaders(t, client, topic.Name)
}

func waitLeaders(t testing.TB, client *kgo.Client, topic string) {
	t.Helper()
	proc.Until(t, callTimeout, "leaders of "+topic, func() error {
		meta, err := metadata(client, []kmsg.MetadataRequestTopic{{Topic: &topic}})
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(meta.Topics[0].ErrorCode); err != nil {
			return err
		}
		for _, p := range meta.Topics[0].Partitions {
			if p.Leader < 0 || p.ErrorCode != 0 {
				return fmt.Errorf("partition %d: leader %d, %v", p.Partition, p.Leader, kerr.ErrorForCode(p.ErrorCode))
			}
		}
		return nil
	})
}

// StartsAt gives the partitions of an empty topic other first offsets: junk is written up to them and deleted again.
func (c *Cluster) StartsAt(t testing.TB, topic string, starts map[int32]int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	var offsets kadm.Offsets
	for partition, start := range starts {
		for range start {
			client.Produce(ctx, &kgo.Record{Topic: topic, Partition: partition, Key: []byte("junk"), Value: []byte("junk")}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("write junk to %s: %v", topic, err)
				}
			})
		}
		offsets.AddOffset(topic, partition, start, -1)
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatalf("write junk to %s: %v", topic, err)
	}
	deleted, err := kadm.NewClient(client).DeleteRecords(ctx, offsets)
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatalf("delete junk of %s: %v", topic, err)
	}
	for partition, start := range starts {
		if got := deleted[topic][partition].LowWatermark; got != start {
			t.Fatalf("%s-%d starts at %d, want %d", topic, partition, got, start)
		}
	}
}

// Fill writes records with identities of a producer without log: count of them, in turn over the partitions, beginning with
// sequence first. Key, if given, makes the key; else it is the identity.
type Fill struct {
	Producer   string
	First      int64
	Count      int64
	Topic      string
	Partitions int32
	Key        func(seq int64) string
	Time       time.Time // of the records; zero means now
	Size       int       // of the values in bytes
}

func (f Fill) record(i int64) *kgo.Record {
	seq := f.First + i
	identity := check.Identity(f.Producer, seq)
	r := &kgo.Record{Topic: f.Topic, Partition: int32(i % int64(f.Partitions)), Key: []byte(identity), Value: []byte(identity), Timestamp: f.Time}
	if f.Key != nil {
		r.Key = []byte(f.Key(seq))
	}
	if padding := f.Size - len(identity) - 1; padding > 0 {
		r.Value = append(append(r.Value, ' '), strings.Repeat("x", padding)...)
	}
	return r
}

// Write sends what fill describes, and waits for the acks.
func (c *Cluster) Write(t testing.TB, fill Fill) {
	t.Helper()
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(50_000))
	defer client.Close()
	write(t, client, fill)
}

func write(t testing.TB, client *kgo.Client, fill Fill) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*callTimeout)
	defer cancel()
	for i := range fill.Count {
		client.Produce(ctx, fill.record(i), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("write %s/%d: %v", fill.Producer, fill.First+i, err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatalf("write to %s: %v", fill.Topic, err)
	}
}

// WriteTransactions writes fill in transactions of perTransaction records, every third of them aborted, so that markers and
// aborted records lie between what a reader at read_committed sees. The last one is aborted: a gap at the end of the log.
func (c *Cluster) WriteTransactions(t testing.TB, fill Fill, perTransaction int64) {
	t.Helper()
	client := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(fill.Producer))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*callTimeout)
	defer cancel()
	end := fill.First + fill.Count
	for turn := 1; fill.First < end; turn++ {
		part := fill
		part.Count = min(perTransaction, end-fill.First)
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		write(t, client, part)
		fill.First += part.Count
		commit := kgo.TryCommit
		if turn%3 == 0 || fill.First >= end {
			commit = kgo.TryAbort
		}
		if err := client.EndTransaction(ctx, commit); err != nil {
			t.Fatalf("end transaction of %s: %v", fill.Producer, err)
		}
	}
}

// CompactedConfigs make a topic's cleaner work within seconds: use them with Compact.
func CompactedConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01",
		"min.compaction.lag.ms": "0", "max.compaction.lag.ms": "500", "delete.retention.ms": "100",
	}
}

// Compact waits until the cleaner has made holes in every partition of a topic that was filled with repeated keys. It goes on
// writing one record with a key of its own per partition, because a segment rolls only when something is written. The records
// carry the identity of producer, from sequence 0 on; it returns how many there are.
func (c *Cluster) Compact(t testing.TB, topic, producer string, partitions int32) int64 {
	t.Helper()
	written := int64(0)
	deadline := time.Now().Add(callTimeout)
	for {
		c.Write(t, Fill{Producer: producer, First: written, Count: int64(partitions), Topic: topic, Partitions: partitions})
		written += int64(partitions)
		holes := make(map[int32]bool)
		for partition := range partitions {
			holes[partition] = hasHoles(c.ReadPartition(t, topic, partition))
		}
		missing := 0
		for _, has := range holes {
			if !has {
				missing++
			}
		}
		if missing == 0 {
			return written
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cleaner made no holes in %d partitions of %s", missing, topic)
		}
	}
}

// FreezeCompaction keeps the cleaner off a topic from now on, so that what lies there stays as it is.
func (c *Cluster) FreezeCompaction(t testing.TB, topic string) {
	t.Helper()
	never := "9223372036854775807"
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	altered, err := c.Admin(t).AlterTopicConfigs(ctx, []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "min.compaction.lag.ms", Value: &never},
		{Op: kadm.SetConfig, Name: "max.compaction.lag.ms", Value: &never},
	}, topic)
	if err == nil {
		_, err = altered.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatalf("freeze compaction of %s: %v", topic, err)
	}
}

func hasHoles(records []*kgo.Record) bool {
	for i := 1; i < len(records); i++ {
		if records[i].Offset != records[i-1].Offset+1 {
			return true
		}
	}
	return false
}

// Offsets are the log start (inclusive) and the end (exclusive: the last stable offset) of a partition.
func (c *Cluster) Offsets(t testing.TB, topic string, partition int32) (start, end int64) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	return offsets(t, client, topic, partition)
}

func offsets(t testing.TB, client *kgo.Client, topic string, partition int32) (start, end int64) {
	t.Helper()
	admin := kadm.NewClient(client)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		t.Fatalf("start of %s: %v", topic, err)
	}
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("end of %s: %v", topic, err)
	}
	return starts[topic][partition].Offset, ends[topic][partition].Offset
}

// ReadPartition reads all that a reader at read_committed sees of a partition, up to the end at the time of the call.
func (c *Cluster) ReadPartition(t testing.TB, topic string, partition int32) []*kgo.Record {
	t.Helper()
	return ReadPartition(t, c.Bootstrap(), topic, partition)
}

// ReadPartition does the same at any bootstrap address; also through a proxy.
func ReadPartition(t testing.TB, bootstrap, topic string, partition int32) []*kgo.Record {
	t.Helper()
	client := Dial(t, bootstrap, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer client.Close()
	start, end := offsets(t, client, topic, partition)
	if start >= end {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*callTimeout)
	defer cancel()
	return readTo(ctx, t, client, end)
}

// readTo polls until the record before end was seen. If the log ends in a hole of a kind that a client does not show (aborted
// records), the marker behind it is what ends the read.
func readTo(ctx context.Context, t testing.TB, client *kgo.Client, end int64) []*kgo.Record {
	t.Helper()
	var records []*kgo.Record
	for at := int64(0); at < end; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read to %d: at %d: %v", end, at, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if r.Offset < end && !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	return records
}
