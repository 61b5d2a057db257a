//go:build e2e

// Package test holds the end-to-end tests: real brokers, unmodified clients, the product's own binary. Run test/setup.sh once,
// then go test -tags e2e ./test/...
package test

import (
	"errors"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/test/faultlink"
	"github.com/switchback-proxy/switchback/test/proc"
)

// TestHarnessSelf: the harness finds no fault where no product is: clients at a cluster, directly.
func TestHarnessSelf(t *testing.T) {
	blue := cluster.Start(t, cluster.Options{Name: "blue"})
	const topic, partitions = "orders", 6
	blue.CreateTopic(t, cluster.Topic{Name: topic, Partitions: partitions})
	blue.StartsAt(t, topic, map[int32]int64{0: 137, 1: 148, 2: 159})
	blue.WriteTransactions(t, cluster.Fill{Producer: "before", Count: 120, Topic: topic, Partitions: partitions}, 10)

	run := clients.NewRun(t)
	at := blue.Bootstrap()
	readers := []*clients.Client{
		run.Group(clients.Java, clients.Group{Bootstrap: at, Group: "java-group", Topics: []string{topic}, Members: 3}),
		run.Group(clients.Rdkafka, clients.Group{Bootstrap: at, Group: "rdkafka-group", Topics: []string{topic}, Members: 2}),
		run.Group(clients.Franz, clients.Group{Bootstrap: at, Group: "franz-group", Topics: []string{topic}, Members: 1}),
		run.Assign(clients.Franz, clients.Assign{Bootstrap: at, Name: "franz-assign", Topics: []string{topic}}),
		run.Assign(clients.Java, clients.Assign{Bootstrap: at, Name: "java-assign", Topics: []string{topic}}),
	}
	for _, group := range readers[:3] {
		group.WaitAssembled(t, partitions, time.Minute)
	}
	for _, r := range readers {
		r.WaitRead(t, 70, time.Minute)
	}
	var producers []*clients.Client
	for _, library := range []clients.Library{clients.Java, clients.Rdkafka, clients.Franz} {
		producers = append(producers, run.Producer(library, clients.Producer{Bootstrap: at, Topics: []string{topic}, Partitions: partitions, Rate: 300}))
	}
	for _, p := range producers {
		p.WaitAcked(t, 300, time.Minute)
	}
	run.MarkStart()
	for _, p := range producers {
		p.WaitAcked(t, 1500, time.Minute)
	}
	report := run.Finish(check.Config{Readers: readersOf([]string{topic}, readers)})
	run.Require(report)
}

// TestHarnessSelfWithLostAnswers: answers lost and connections cut do no harm where no product is, so what they do behind the
// product is the product's fault. And the checker does see a real rebalance and what it makes a group read again.
func TestHarnessSelfWithLostAnswers(t *testing.T) {
	const topic, partitions = "orders", 6
	blue := cluster.Prepare(t, cluster.Options{Name: "blue", AdvertisedHost: "127.0.0.2"})
	first, ports := blue.Ports()
	relay := faultlink.Start(t, faultlink.Config{From: "127.0.0.2", To: "127.0.0.1", First: first, Ports: ports})
	blue.Launch(t)
	blue.CreateTopic(t, cluster.Topic{Name: topic, Partitions: partitions})
	at := blue.Bootstrap()

	run := clients.NewRun(t)
	readers := []*clients.Client{
		run.Group(clients.Java, clients.Group{Bootstrap: at, Group: "java-group", Topics: []string{topic}, Members: 3}),
		run.Group(clients.Rdkafka, clients.Group{Bootstrap: at, Group: "rdkafka-group", Topics: []string{topic}, Members: 2}),
		run.Assign(clients.Franz, clients.Assign{Bootstrap: at, Name: "franz-assign", Topics: []string{topic}}),
	}
	c := &crowd{topics: []string{topic}, groups: readers[:2], assign: readers[2]}
	for _, group := range c.groups {
		group.WaitAssembled(t, partitions, time.Minute)
	}
	for _, library := range []clients.Library{clients.Java, clients.Rdkafka, clients.Franz} {
		c.producers = append(c.producers, run.Producer(library, clients.Producer{Bootstrap: at, Topics: []string{topic}, Partitions: partitions, Rate: 200}))
	}
	c.waitAcks(t, 200)
	for _, r := range readers {
		r.WaitRead(t, 300, time.Minute)
	}
	run.MarkStart()
	for range 5 {
		c.waitAcks(t, 100)
		before := relay.DroppedBytes()
		relay.DropAnswers(true)
		proc.Until(t, 10*time.Second, "answers lost", func() error {
			if relay.DroppedBytes() < before+2000 {
				return errors.New("too few so far")
			}
			return nil
		})
		relay.Cut()
		relay.DropAnswers(false)
	}
	c.waitAcks(t, 100)
	run.Require(run.Finish(check.Config{Readers: readersOf(c.topics, readers)}))
	if len(relay.Counts()) < 8 {
		t.Errorf("the relay counted only %v", relay.Counts())
	}
	requireRebalanceIsSeen(t, at, topic)
}

// requireRebalanceIsSeen lets a second member come to a group that commits seldom.
func requireRebalanceIsSeen(t *testing.T, at, topic string) {
	t.Helper()
	run := clients.NewRun(t)
	group := clients.Group{Bootstrap: at, Group: "disturbed", Topics: []string{topic}, CommitEvery: time.Hour}
	one := run.Group(clients.Java, group)
	one.WaitRead(t, 500, time.Minute)
	run.MarkStart()
	two := run.Group(clients.Java, group)
	two.WaitRead(t, 100, time.Minute)
	report := run.Finish(check.Config{})
	if report.Rebalances == 0 || report.RereadRecords < 100 || report.OK() {
		t.Errorf("the checker did not see the rebalance:\n%s", report.String())
	}
}

// TestWorldIsAsDescribed: the common set-up of the scenarios has what they rely on: markers, holes, other offsets on green; and a
// broker that is killed comes back with its data.
func TestWorldIsAsDescribed(t *testing.T) {
	w := newWorld(t, 3, forgetfulProps())
	w.fill(t)
	for partition := range w.partitions {
		start, end := w.green.Offsets(t, orders, partition)
		if want := 137 + 11*int64(partition); start != want || end != want {
			t.Errorf("green's %s-%d is [%d, %d), want an empty log at %d", orders, partition, start, end, want)
		}
		if got := countBatches(t, w, orders, partition); got.commits == 0 || got.aborts == 0 || got.visible == 0 {
			t.Errorf("blue's %s-%d has %+v", orders, partition, got)
		}
	}
	for partition := range int32(ledgerPartitions) {
		if got := countBatches(t, w, ledger, partition); got.holes == 0 {
			t.Errorf("blue's %s-%d has no holes: %+v", ledger, partition, got)
		}
	}
	frozen := w.blue.ReadPartition(t, ledger, 0)
	w.blue.Kill(0)
	w.blue.RestartAsync(t, 0)
	w.blue.WaitReady(t)
	w.blue.Stop(t, 1)
	w.blue.Restart(t, 1)
	after := w.blue.ReadPartition(t, ledger, 0)
	if len(frozen) != len(after) || len(frozen) == 0 {
		t.Errorf("%d records before the restarts, %d after", len(frozen), len(after))
	}
}

// content is what one partition on blue is made of.
type content struct{ commits, aborts, visible, holes int }

func countBatches(t *testing.T, w *world, topic string, partition int32) content {
	t.Helper()
	var c content
	for _, b := range w.blue.RawBatches(t, topic, partition) {
		const control = 1 << 5
		switch {
		case b.Attributes&control == 0:
		case b.Records[8] == 1: // length, attributes, timestamp, offset, key length, version (2), type (2): the type's last byte
			c.commits++
		default:
			c.aborts++
		}
	}
	last := int64(-1)
	for _, r := range w.blue.ReadPartition(t, topic, partition) {
		if last >= 0 && r.Offset != last+1 {
			c.holes++
		}
		last = r.Offset
		c.visible++
	}
	return c
}

func readersOf(topics []string, clients []*clients.Client) []check.Reader {
	var readers []check.Reader
	for _, c := range clients {
		readers = append(readers, check.Reader{Name: c.Name, Topics: topics})
	}
	return readers
}
