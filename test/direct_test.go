//go:build e2e

package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/proc"
	"github.com/switchback-proxy/switchback/test/product"
)

// TestDirectConsumerContinuesExactly: a group that leaves the proxy and reads on at green itself gets the very next record; once
// before the cutover, by the offsets that we keep on the standby, and once after it, by its own commits through the proxy.
func TestDirectConsumerContinuesExactly(t *testing.T) {
	w := newWorld(t, 6, nil)
	w.fill(t)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 300, 1500))
	run.MarkStart()
	run.MarkEnd() // members come and go in this test: rebalances are no fault
	p.Admin.WaitCaughtUp(t, w.topics(), 5000, 2*time.Minute)

	early, late := c.groups[0], c.groups[1]
	run.StopReader(early)
	waitForCheckpoint(t, p, early.Name)
	direct := w.direct(t, run, clients.Java, early.Name, c.topics)

	p.Admin.Move(t, "green", cutoverTimeout)
	c.waitAcks(t, 200)
	run.StopReader(late)
	direct = append(direct, w.direct(t, run, clients.Rdkafka, late.Name, c.topics)...)
	c.waitAcks(t, 200)

	report := run.Finish(check.Config{Readers: readersOf(c.topics, c.readers()), Direct: direct})
	run.Require(report)
}

// direct starts the group at green itself and returns the names of its members.
func (w *world) direct(t *testing.T, run *clients.Run, library clients.Library, group string, topics []string) []string {
	t.Helper()
	c := run.Group(library, clients.Group{Bootstrap: w.green.Bootstrap(), Group: group, Topics: topics, Process: "-direct"})
	c.WaitAssigned(t, 1, time.Minute)
	return c.IDs
}

// waitForCheckpoint returns when what the stopped group committed is on green as well.
func waitForCheckpoint(t *testing.T, p *product.Product, group string) {
	t.Helper()
	proc.Until(t, time.Minute, "offsets of "+group+" on green", func() error {
		g, err := p.Admin.Group(group)
		if err != nil {
			return err
		}
		if len(g.Partitions) == 0 {
			return fmt.Errorf("no partitions")
		}
		for _, part := range g.Partitions {
			if part.Committed["blue"] == nil || part.Virtual == nil || part.Committed["green"] == nil || part.State != "ok" {
				return fmt.Errorf("%s-%d: %s %s", part.Topic, part.Partition, part.State, part.Reason)
			}
			on, err := p.Admin.Translate(part.Topic, part.Partition, *part.Virtual, "green")
			if err != nil {
				return err
			}
			if on.Kind == "unknown" || on.Physical != *part.Committed["green"] {
				return fmt.Errorf("%s-%d: green has %d, want %d (%s)", part.Topic, part.Partition, *part.Committed["green"], on.Physical, on.Kind)
			}
		}
		return nil
	})
}
