//go:build e2e

package replicator

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	kafka "github.com/switchback-proxy/switchback/test/cluster"
)

// The whole of a flow on real brokers: transactions, old timestamps under a producer expiration of seconds, crashes, a seal and
// the way back.
func TestAFlowOnRealBrokers(t *testing.T) {
	props := map[string]string{"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"}
	both := kafka.StartAll(t, kafka.Options{Name: "blue", Brokers: 1}, kafka.Options{Name: "green", Brokers: 1, FirstNode: 11, Props: props})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	blue, green := client(t, both[0]), client(t, both[1])
	both[0].CreateTopic(t, kafka.Topic{Name: "orders", Partitions: 3})
	cfg := Config{
		From: "blue", To: "green", Source: blue, Target: green, Slots: 4, MetadataInterval: 200 * time.Millisecond,
		RetryInterval: 100 * time.Millisecond, Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	}
	p := &pair{t: t, ctx: ctx}
	n := 0
	for i := range 6 {
		r := p.start(cfg)
		for range 20 {
			load(t, ctx, both[0], &n, i%2 == 1)
		}
		if i%3 != 2 { // else stopped in the middle
			p.copied(r)
		}
		for _, s := range r.Status() {
			t.Logf("%+v", s)
		}
		r.stop()
	}
	r := p.start(cfg)
	p.copied(r)
	begun := time.Now()
	sealed, err := r.Seal(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("sealed in %v: %+v", time.Since(begun), sealed)
	eras := make([][]control.Era, 3)
	for i := range int32(3) {
		tp := journal.TP{Topic: "orders", Partition: i}
		m, _ := r.Map(tp)
		p.exactMap(m, raw(t, ctx, blue, "orders", i), raw(t, ctx, green, "orders", i), r.Strays())
		s := sealed[tp]
		eras[i] = []control.Era{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: s.Frontier, Physical: s.Physical, Shift: 100}}
	}
	r.stop()
	for range 20 {
		load(t, ctx, both[1], &n, false)
	}
	cfg.From, cfg.To, cfg.Source, cfg.Target, cfg.Generation = "green", "blue", green, blue, 2
	cfg.Eras = func(string, int) [][]control.Era { return eras }
	r = p.start(cfg)
	p.copied(r)
	for i := range int32(3) {
		m, _ := r.Map(journal.TP{Topic: "orders", Partition: i})
		if a, b := values(raw(t, ctx, green, "orders", i)), values(raw(t, ctx, blue, "orders", i)); a != b {
			t.Fatalf("partition %d: %d and %d bytes of values", i, len(a), len(b))
		}
		t.Logf("%d segments, %d gaps", m.Len(), m.Gaps())
	}
}

func values(list []written) (out string) {
	for _, w := range list {
		out += w.key + w.value
	}
	return out
}

func client(t *testing.T, c *kafka.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Addrs()...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// load writes one committed, one aborted transaction and plain records.
func load(t *testing.T, ctx context.Context, c *kafka.Cluster, n *int, old bool) {
	t.Helper()
	at := time.Now()
	if old {
		at = at.Add(-72 * time.Hour)
	}
	write := func(client *kgo.Client, count int) {
		for range count {
			*n++
			client.Produce(ctx, &kgo.Record{Topic: "orders", Key: fmt.Appendf(nil, "k%d", *n), Value: fmt.Appendf(nil, "v%d", *n), Timestamp: at}, nil)
		}
		if err := client.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	plain := client(t, c, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	write(plain, 17)
	plain.Close()
	txn := client(t, c, kgo.TransactionalID("loader"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := txn.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		write(txn, 10)
		if err := txn.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}
	txn.Close()
}

func raw(t *testing.T, ctx context.Context, client *kgo.Client, topic string, partition int32) []written {
	t.Helper()
	end, err := journal.Offset(ctx, client, topic, partition, journal.Latest)
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := journal.Describe(ctx, client, topic)
	if err != nil {
		t.Fatal(err)
	}
	return readLog(t, client, &journal.Cursor{Topic: topic, ID: id, Partition: partition}, end)
}
