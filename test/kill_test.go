//go:build e2e

package test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/test/product"
)

// backlog is a topic whose records are three days old, older than brokers remember producers.
const (
	backlog           = "backlog"
	backlogPartitions = 3
)

// TestKillNineUnderLoad: the product is killed again and again while it copies, old backlog among it, to a cluster that forgets
// producers every two seconds. The virtual log has every record once; what lies on the standby beyond that is listed as strays.
func TestKillNineUnderLoad(t *testing.T) {
	w := newWorld(t, 6, forgetfulProps())
	w.fill(t)
	w.blue.CreateTopic(t, cluster.Topic{Name: backlog, Partitions: backlogPartitions, Configs: map[string]string{"retention.ms": "-1"}})
	w.blue.Write(t, cluster.Fill{
		Producer: "backlog-fill", Count: int64(size(t, "BACKLOG", 60_000, 600_000)), Topic: backlog, Partitions: backlogPartitions,
		Size: 200, Time: time.Now().Add(-72 * time.Hour),
	})
	for partition := range int32(backlogPartitions) {
		w.before = append(w.before, w.blue.ReadPartition(t, backlog, partition)...)
	}
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	run := clients.NewRun(t)
	run.Known(w.before)
	c := &crowd{topics: []string{orders, ledger, backlog}}
	for _, library := range []clients.Library{clients.Java, clients.Rdkafka, clients.Franz} {
		c.producers = append(c.producers, run.Producer(library, clients.Producer{
			Bootstrap: p.Bootstrap(), Topics: []string{orders}, Partitions: int(w.partitions), Rate: size(t, "RATE", 300, 1500) / 3,
		}))
	}
	c.assign = run.Assign(clients.Franz, clients.Assign{Bootstrap: p.Bootstrap(), Name: "franz-assign", Topics: c.topics})
	run.MarkStart()
	for kill := range size(t, "KILLS", 8, 20) {
		c.waitAcks(t, 30+17*(kill%5)) // at another point of its work each time
		p.Kill()
		p.Restart(t)
	}
	run.StopProducers()
	topics := w.topics()
	topics[backlog] = backlogPartitions
	p.Admin.WaitCaughtUp(t, topics, 0, 4*time.Minute)
	p.Admin.Move(t, "green", cutoverTimeout)
	// From here on the virtual log is green's copy: dump reads it from its beginning.
	dump := run.Assign(clients.Franz, clients.Assign{Bootstrap: p.Bootstrap(), Name: "dump", Topics: c.topics})
	report := run.Finish(check.Config{Readers: readersOf(c.topics, []*clients.Client{c.assign, dump})})
	run.Require(report)

	var listed product.Orphans
	p.CLI(t, &listed, "orphans", "list")
	if len(listed.Orphans) > 0 {
		t.Errorf("orphans after a planned move: %+v", listed.Orphans)
	}
	for topic, partitions := range topics {
		for partition := range partitions {
			requireExtrasAreStrays(t, w, topic, partition, listed.Strays)
		}
	}
}

// requireExtrasAreStrays compares what lies on green, raw, with the list: outside the listed ranges every record lies once.
func requireExtrasAreStrays(t *testing.T, w *world, topic string, partition int32, strays []product.Range) {
	t.Helper()
	listed, listedRecords := 0, int64(0)
	once := make(map[string]int64) // by identity: where the copy lies that is no stray
	for _, r := range w.green.ReadPartition(t, topic, partition) {
		if inRanges(r, strays) {
			listed++
			continue
		}
		if at, twice := once[string(r.Value)]; twice {
			t.Errorf("%s-%d: %.40q lies at %d and %d, neither is a stray", topic, partition, r.Value, at, r.Offset)
			return
		}
		once[string(r.Value)] = r.Offset
	}
	for _, s := range strays {
		if s.Cluster == "green" && s.Topic == topic && s.Partition == partition {
			listedRecords += s.Records
		}
	}
	if int64(listed) != listedRecords {
		t.Errorf("%s-%d: %d records in the ranges of strays, the list says %d", topic, partition, listed, listedRecords)
	}
	if want := w.blue.ReadPartition(t, topic, partition); len(want) != len(once) {
		t.Errorf("%s-%d: %d records on green without strays, %d on blue", topic, partition, len(once), len(want))
	}
}

func inRanges(r *kgo.Record, strays []product.Range) bool {
	for _, s := range strays {
		if s.Cluster == "green" && s.Topic == r.Topic && s.Partition == r.Partition && r.Offset >= s.From && r.Offset < s.To {
			return true
		}
	}
	return false
}
