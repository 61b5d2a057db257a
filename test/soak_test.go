//go:build e2e

package test

import (
	"os"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/clients"
	"github.com/switchback-proxy/switchback/test/product"
)

// TestSoak: the live clients cross back and forth, at full size, for as long as SWITCHBACK_SOAK says (30m). Every fifth move is
// preceded by a kill -9 of the product.
func TestSoak(t *testing.T) {
	text := os.Getenv("SWITCHBACK_SOAK")
	if text == "" {
		t.Skip("runs under make soak; SWITCHBACK_SOAK says how long")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SWITCHBACK_SOAK: %v", err)
	}
	w := newWorld(t, int32(size(t, "PARTITIONS", 12, 30)), forgetfulProps())
	w.javaProps = keepMetadata()
	w.fill(t)
	p := product.Start(t, product.Config{Blue: w.blue.Addrs(), Green: w.green.Addrs()})
	run := clients.NewRun(t)
	c := w.start(t, run, p.Bootstrap(), size(t, "RATE", 600, 2000))
	run.MarkStart()
	m := &mover{world: w, run: run, crowd: c, product: p, at: "blue"}
	for end := time.Now().Add(length); time.Now().Before(end); {
		if m.moves%5 == 4 {
			p.Kill()
			p.Restart(t)
		}
		m.move(t)
	}
	report := run.Finish(check.Config{Readers: readersOf(c.topics, c.readers())})
	run.Require(report)
	t.Logf("%d moves; pauses %v", m.moves, m.pauses)
}
