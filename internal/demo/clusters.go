package demo

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

const (
	blue, green    = "blue", "green"
	brokers        = 3
	topic          = "orders"
	partitions     = 6
	group          = "billing"
	historian      = "history" // the producer of what was there before
	historyRecords = 300
)

// pair is the two embedded clusters.
type pair struct {
	blue, green *kfake.Cluster
	history     []check.Event // what writeHistory wrote
}

func startClusters() (*pair, error) {
	b, err := testkit.StartKafka(brokers, "demo-blue", kfake.SeedTopics(partitions, topic))
	if err != nil {
		return nil, err
	}
	g, err := testkit.StartKafka(brokers, "demo-green")
	if err != nil {
		b.Close()
		return nil, err
	}
	return &pair{blue: b, green: g}, nil
}

func (p *pair) close() {
	p.blue.Close()
	p.green.Close()
}

// writeHistory writes transactions to blue, every third of them aborted. Markers and aborted records take offsets there
// and none on green.
func (p *pair) writeHistory(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.blue.ListenAddrs()...), kgo.TransactionalID(historian),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	const perTransaction = 20
	for seq := 0; seq < historyRecords; {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if seq/perTransaction%3 == 1 {
			if err := p.writeTransaction(ctx, client, "aborted", seq, perTransaction); err != nil {
				return err
			}
			if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
				return err
			}
			if err := client.BeginTransaction(); err != nil {
				return err
			}
		}
		if err := p.writeTransaction(ctx, client, historian, seq, perTransaction); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return err
		}
		seq += perTransaction
	}
	p.history = append(p.history, check.Event{Kind: check.Stopped, Millis: check.Now(), Client: historian})
	return nil
}

// writeTransaction writes records [seq, seq+n) of a producer. Those of an aborted transaction must never be seen.
func (p *pair) writeTransaction(ctx context.Context, client *kgo.Client, producer string, seq, n int) error {
	for i := seq; i < seq+n; i++ {
		identity := check.Identity(producer, int64(i))
		r := &kgo.Record{Partition: int32(i % partitions), Key: []byte(identity), Value: []byte(identity)}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("record %s: %w", identity, err)
		}
		if producer != historian {
			continue
		}
		e := check.Event{Kind: check.Sent, Millis: check.Now(), Client: producer, Producer: producer, Seq: int64(i), Topic: topic, Partition: r.Partition}
		p.history = append(p.history, e)
		e.Kind, e.Offset = check.Acked, r.Offset
		p.history = append(p.history, e)
	}
	return nil
}
