package replicator

import (
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/journal"
)

func TestEverythingIsCopiedOnceAndTheMapIsExact(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 3, map[string]string{"cleanup.policy": "delete", "retention.ms": "86400000"})
	now := time.Now()
	n := 0
	for partition := range int32(3) {
		for i := range 20 {
			p.blue.produce(t, "orders", partition, n, 1+i%4, now)
			n += 10
		}
	}
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	for partition := range int32(3) {
		p.exact(r, p.blue, p.green, "orders", partition)
	}
	for i := range 10 { // live
		p.blue.produce(t, "orders", 1, 10_000+10*i, 2, now)
	}
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 1)
	if got := r.Status(); len(got) != 3 || got[0].State != StateCaughtUp || got[0].LagRecords != 0 {
		t.Fatalf("status %+v", got)
	}
	if got := p.green.kafka.TopicInfo("orders").Configs["retention.ms"]; got != nil && *got != "86400000" {
		t.Fatalf("retention %v", *got)
	}
	r.stop()
	parts, err := journal.Load(p.ctx, p.green.client, "blue", "green")
	if err != nil {
		t.Fatal(err)
	}
	part := parts[journal.TP{Topic: "orders", Partition: 1}]
	if part == nil {
		t.Fatal("nothing settled")
	}
	p.exactMap(part.Map, p.blue.read(t, "orders", 1), p.green.read(t, "orders", 1), nil)
}
