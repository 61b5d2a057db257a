//go:build e2e

package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/product"
)

const (
	crowdedPartitions = 3 // of each of the many topics
	crowdedRecords    = 6 // in each of them
)

// TestManyTopicsCross: a cluster with many topics, most of them quiet, moves there and back under the load of a few. C24
func TestManyTopicsCross(t *testing.T) {
	w := newWorld(t, 6, nil)
	w.fill(t)
	many := make(map[string]int32)
	var names []string
	for i := range size(t, "TOPICS", 60, 3000) {
		name := fmt.Sprintf("quiet-%04d", i)
		many[name] = crowdedPartitions
		names = append(names, name)
	}
	fillMany(t, w, names)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	began := time.Now()
	p.Admin.WaitCaughtUp(t, many, 0, 5*time.Minute)
	t.Logf("%d topics are copied after %v", len(many), time.Since(began).Round(time.Millisecond))
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 300, 600))
	run.MarkStart()
	m := &mover{world: w, run: run, crowd: c, product: p, at: "blue"}
	for range 2 {
		m.move(t)
		p.Admin.WaitCaughtUp(t, many, 0, 5*time.Minute)
	}
	report := run.Finish(check.Config{Readers: readersOf(c.topics, c.readers())})
	run.Require(report)
	requireMany(t, p.Bootstrap(), names)
	t.Logf("pauses by the product's own account: %v; longest without an ack: %s", m.pauses, report.LongestAckPause)
}

// fillMany creates the topics in few requests and writes the same few records to each.
func fillMany(t *testing.T, w *world, names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	admin := w.blue.Admin(t)
	for from := 0; from < len(names); from += 200 {
		batch := names[from:min(from+200, len(names))]
		made, err := admin.CreateTopics(ctx, crowdedPartitions, 1, nil, batch...)
		if err == nil {
			err = made.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	client := w.blue.Client(t, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.UnknownTopicRetries(-1))
	defer client.Close()
	for seq := range crowdedRecords {
		for _, name := range names {
			client.Produce(ctx, &kgo.Record{Topic: name, Value: fmt.Appendf(nil, "%s/%d", name, seq)}, func(r *kgo.Record, err error) {
				if err != nil {
					t.Errorf("write to %s: %v", r.Topic, err)
				}
			})
		}
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// requireMany reads all of them through the product: each record is there, once.
func requireMany(t *testing.T, bootstrap string, names []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(names...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, names...)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	ends.Each(func(o kadm.ListedOffset) { left += o.Offset })
	if want := int64(len(names) * crowdedRecords); left != want {
		t.Errorf("the virtual logs end after %d records, want %d", left, want)
	}
	seen := make(map[string]bool)
	for len(seen) < len(names)*crowdedRecords {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("after %d records: %v", len(seen), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if seen[string(r.Value)] {
				t.Errorf("%s came twice", r.Value)
			}
			seen[string(r.Value)] = true
		})
	}
}
