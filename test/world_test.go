//go:build e2e

package test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/cluster"
)

// size is a count that is full in a soak and smaller else; the environment may set it by name.
func size(t *testing.T, name string, small, full int) int {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			t.Fatalf("%s=%q is not a count", name, text)
		}
		return n
	}
	if os.Getenv("SOAK") == "1" || os.Getenv("SWITCHBACK_SOAK") != "" {
		return full
	}
	return small
}

// The topics of the scenarios: orders has transaction markers and aborted records and takes the load; ledger is compacted, with
// holes.
const (
	orders           = "orders"
	ledger           = "ledger"
	ledgerPartitions = 3
)

// world is the common set-up: blue is active, green standby, both hold the topics, green's begin at other offsets.
type world struct {
	blue, green *cluster.Cluster
	partitions  int32 // of orders
	before      []*kgo.Record
	javaProps   map[string]string // of the Java group's members
}

// keepMetadata makes a Java consumer keep what it knows of the cluster while no broker can be reached. By default (KIP-899) it
// forgets all topics then, and the leader of a group that finds the coordinator again before the topics takes that for a change
// and rejoins, on any Kafka. A test that kills the one process of the product and counts rebalances wants those of the product.
func keepMetadata() map[string]string {
	return map[string]string{"metadata.recovery.strategy": "none"}
}

// forgetfulProps make brokers forget producers fast, which opens every door that an expired producer id opens.
func forgetfulProps() map[string]string {
	return map[string]string{"producer.id.expiration.check.interval.ms": "2000"}
}

func newWorld(t *testing.T, partitions int32, greenProps map[string]string) *world {
	t.Helper()
	both := cluster.StartAll(t,
		cluster.Options{Name: "blue"},
		cluster.Options{Name: "green", FirstNode: 11, Props: greenProps})
	return &world{blue: both[0], green: both[1], partitions: partitions}
}

// fill makes the topics and what lies in them before the first client comes.
func (w *world) fill(t *testing.T) {
	t.Helper()
	compacted := cluster.CompactedConfigs()
	w.blue.CreateTopic(t, cluster.Topic{Name: orders, Partitions: w.partitions})
	w.blue.CreateTopic(t, cluster.Topic{Name: ledger, Partitions: ledgerPartitions, Configs: compacted})
	w.green.CreateTopic(t, cluster.Topic{Name: orders, Partitions: w.partitions})
	starts := make(map[int32]int64)
	for partition := range w.partitions {
		starts[partition] = 137 + 11*int64(partition)
	}
	w.green.StartsAt(t, orders, starts)
	w.blue.WriteTransactions(t, cluster.Fill{Producer: "transactional-fill", Count: 30 * int64(w.partitions), Topic: orders, Partitions: w.partitions}, 17)
	w.blue.Write(t, cluster.Fill{
		Producer: "ledger-fill", Count: 900, Topic: ledger, Partitions: ledgerPartitions,
		Key: ledgerKey,
	})
	w.blue.Compact(t, ledger, "ledger-compact", ledgerPartitions)
	w.blue.FreezeCompaction(t, ledger)
	for partition := range w.partitions {
		w.before = append(w.before, w.blue.ReadPartition(t, orders, partition)...)
	}
	for partition := range int32(ledgerPartitions) {
		w.before = append(w.before, w.blue.ReadPartition(t, ledger, partition)...)
	}
}

// ledgerKey leaves every fourth record for good, so that compaction makes holes of three or so between what stays.
func ledgerKey(seq int64) string {
	if seq%4 == 3 {
		return "kept-" + strconv.FormatInt(seq, 10)
	}
	return "account-" + strconv.FormatInt(seq%30, 10)
}

func (w *world) topics() map[string]int32 {
	return map[string]int32{orders: w.partitions, ledger: ledgerPartitions}
}

// crowd is the load of the scenarios: three producers, two groups, a reader without group.
type crowd struct {
	producers, groups []*clients.Client
	assign            *clients.Client
	topics            []string
}

// start brings up the readers, waits until they have read what lay there before, then the producers at rate records a second in
// all, and waits until acks flow.
func (w *world) start(t *testing.T, run *clients.Run, bootstrap string, rate int) *crowd {
	t.Helper()
	c := &crowd{topics: []string{orders, ledger}}
	run.Known(w.before)
	c.groups = []*clients.Client{
		run.Group(clients.Java, clients.Group{Bootstrap: bootstrap, Group: "java-group", Topics: c.topics, Members: 3, Props: w.javaProps}),
		run.Group(clients.Rdkafka, clients.Group{Bootstrap: bootstrap, Group: "rdkafka-group", Topics: c.topics, Members: 2}),
	}
	c.assign = run.Assign(clients.Franz, clients.Assign{Bootstrap: bootstrap, Name: "franz-assign", Topics: c.topics})
	for _, group := range c.groups {
		group.WaitAssembled(t, int(w.partitions+ledgerPartitions), 2*time.Minute)
	}
	for _, reader := range c.readers() {
		reader.WaitRead(t, len(w.before), 2*time.Minute)
	}
	for _, library := range []clients.Library{clients.Java, clients.Rdkafka, clients.Franz} {
		c.producers = append(c.producers, run.Producer(library, clients.Producer{
			Bootstrap: bootstrap, Topics: []string{orders}, Partitions: int(w.partitions), Rate: max(1, rate/3),
			Size: size(t, "VALUE_BYTES", 100, 100), // from 80 KiB on requests are streamed
		}))
	}
	c.waitAcks(t, 200)
	return c
}

func (c *crowd) readers() []*clients.Client { return append(slices.Clone(c.groups), c.assign) }

// waitAcks returns when every producer has got n acks more than at the time of the call.
func (c *crowd) waitAcks(t *testing.T, n int) {
	t.Helper()
	for _, p := range c.producers {
		p.WaitAcked(t, p.Acked(t)+n, 2*time.Minute)
	}
}

// other is the cluster that a move goes to when it leaves name.
func other(name string) string {
	if name == "blue" {
		return "green"
	}
	return "blue"
}
