//go:build e2e

package test

import (
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/test/product"
)

// TestTranslateEqualsBruteForce: the map's answer for any offset names the same next record as a comparison of both logs, record by
// record.
func TestTranslateEqualsBruteForce(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.fill(t)
	for turn := range int64(5) { // more markers and aborted records, between plain ones
		w.blue.WriteTransactions(t, cluster.Fill{Producer: "more", First: turn * 300, Count: 300, Topic: orders, Partitions: w.partitions}, 7)
		w.blue.Write(t, cluster.Fill{Producer: "plain", First: turn * 500, Count: 500, Topic: orders, Partitions: w.partitions})
	}
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	p.Admin.WaitCaughtUp(t, w.topics(), 0, 2*time.Minute)
	var pairs []*pair
	for topic, partitions := range w.topics() {
		for partition := range partitions {
			pairs = append(pairs, readPair(t, w, topic, partition))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range size(t, "OFFSETS", 10_000, 10_000) {
		of := pairs[random.IntN(len(pairs))]
		virtual := of.start + random.Int64N(of.end-of.start+1)
		of.require(t, p, virtual)
		if t.Failed() {
			return
		}
	}
}

// pair is one partition as both clusters hold it.
type pair struct {
	topic       string
	partition   int32
	start, end  int64         // on blue: where virtual offsets may lie; the end is exclusive, and may be asked for
	blue, green []*kgo.Record // what a reader sees, in order
	greenEnd    int64
}

func readPair(t *testing.T, w *world, topic string, partition int32) *pair {
	t.Helper()
	p := &pair{topic: topic, partition: partition}
	p.start, p.end = w.blue.Offsets(t, topic, partition)
	p.blue = w.blue.ReadPartition(t, topic, partition)
	p.green = w.green.ReadPartition(t, topic, partition)
	_, p.greenEnd = w.green.Offsets(t, topic, partition)
	if len(p.blue) != len(p.green) || len(p.blue) == 0 {
		t.Fatalf("%s-%d: %d records on blue, %d on green", topic, partition, len(p.blue), len(p.green))
	}
	for i := range p.blue {
		if string(p.blue[i].Value) != string(p.green[i].Value) {
			t.Fatalf("%s-%d: record %d is %.40q on blue, %.40q on green", topic, partition, i, p.blue[i].Value, p.green[i].Value)
		}
	}
	return p
}

// next is the index of the first record at or after offset; len(records) if there is none.
func next(records []*kgo.Record, offset int64) int {
	return sort.Search(len(records), func(i int) bool { return records[i].Offset >= offset })
}

func (p *pair) require(t *testing.T, product *product.Product, virtual int64) {
	t.Helper()
	got, err := product.Admin.Translate(p.topic, p.partition, virtual, "green")
	if err != nil {
		t.Errorf("translate %s-%d offset %d: %v", p.topic, p.partition, virtual, err)
		return
	}
	want := next(p.blue, virtual)
	if have := next(p.green, got.Physical); have != want {
		t.Errorf("%s-%d offset %d: got %d (%s), which leads to record %d of %d; blue's next is record %d", p.topic, p.partition, virtual,
			got.Physical, got.Kind, have, len(p.green), want)
	}
	isRecord := want < len(p.blue) && p.blue[want].Offset == virtual
	if isRecord != (got.Kind == "record") || isRecord && got.Physical != p.green[want].Offset {
		t.Errorf("%s-%d offset %d is %q at %d, want a record: %v", p.topic, p.partition, virtual, got.Kind, got.Physical, isRecord)
	}
	if virtual == p.end && got.Kind != "end" {
		t.Errorf("%s-%d: the end %d is %q", p.topic, p.partition, virtual, got.Kind)
	}
	if got.Physical > p.greenEnd {
		t.Errorf("%s-%d offset %d: %d is beyond green's end %d", p.topic, p.partition, virtual, got.Physical, p.greenEnd)
	}
}
