//go:build e2e

package test

import (
	"testing"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/test/product"
)

// TestLiveClientsCrossBetweenOldAndNewKafka: the active cluster is the oldest that we know, with ZooKeeper and without topic ids
// in Fetch; clients speak from the start what both clusters do, so no client notices moves there and back.
func TestLiveClientsCrossBetweenOldAndNewKafka(t *testing.T) {
	both := cluster.StartAll(t, cluster.Options{Name: "blue", Version: "2.8.2"}, cluster.Options{Name: "green", FirstNode: 11})
	w := &world{blue: both[0], green: both[1], partitions: 6}
	w.fill(t)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 300, 1000))
	run.MarkStart()
	m := &mover{world: w, run: run, crowd: c, product: p, at: "blue"}
	for range size(t, "OLD_CUTOVERS", 4, 10) {
		m.move(t)
	}
	run.Require(run.Finish(check.Config{Readers: readersOf(c.topics, c.readers())}))
	requireFirstEpochs(t, w)
}
