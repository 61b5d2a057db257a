//go:build e2e

// Package test holds the end-to-end tests: real brokers, unmodified clients, the product's own binary. Run test/setup.sh once,
// then go test -tags e2e ./test/...
package test

import (
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/cluster"
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

func readersOf(topics []string, clients []*clients.Client) []check.Reader {
	var readers []check.Reader
	for _, c := range clients {
		readers = append(readers, check.Reader{Name: c.Name, Topics: topics})
	}
	return readers
}
