package replicator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// series are the lines that metrics show of flows, without their help.
func series(t *testing.T, m *obs.Metrics) map[string]float64 {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "switchback_") {
			continue
		}
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.TrimPrefix(f.GetName(), "switchback_")+" "+strings.Join(labels, " ")] = one.GetGauge().GetValue()
		}
	}
	return out
}

func TestMetricsShowTheFlowThatRunsAndNoOther(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	p.blue.produce(t, "orders", 0, 0, 5, time.Now())
	m := obs.NewMetrics(obs.Build{})
	cfg := p.config(p.blue, p.green)
	cfg.Metrics = m
	r := p.start(cfg)
	p.copied(r)
	testkit.Eventually(t, patience, "both have caught up", func() bool {
		got := series(t, m)
		return got["pumps blue.green CaughtUp"] == 2 && got["pump_state blue.green 0 orders"] == 2
	})
	got := series(t, m)
	if lag, ok := got["replication_lag_records blue.green 0 orders"]; !ok || lag != 0 || got["slots_owned blue.green"] != float64(len(r.slots)) {
		t.Errorf("shown are %v", got)
	}
	age, ok := got["replication_record_age_seconds blue.green 0 orders"]
	if _, other := got["replication_record_age_seconds blue.green 1 orders"]; !ok || age <= 0 || age > patience.Seconds() || other {
		t.Errorf("record age %v (%v); of a partition without records: %v", age, ok, other)
	}
	if size, err := r.journalSize(p.ctx); err != nil || size <= 0 {
		t.Errorf("the journal has %d bytes (%v)", size, err)
	}
	testkit.Eventually(t, patience, "the size of the journal is shown", func() bool {
		_, ok := series(t, m)["journal_bytes blue.green"]
		return ok
	})
	r.stop()
	for line := range series(t, m) {
		if strings.Contains(line, "orders") || strings.HasPrefix(line, "pumps") || strings.HasPrefix(line, "slots_owned") {
			t.Errorf("the flow has ended, and is shown: %s", line)
		}
	}
}

func TestTheAgeOfGroupOffsetsGrowsUntilTheyAreStored(t *testing.T) {
	g := newGroupSync(nil)
	g.mu.Lock()
	for i, s := range []groupState{{found: time.Now().Add(-time.Hour)}, {found: time.Now().Add(-time.Hour), at: time.Now().Add(-time.Minute)}} {
		g.states[fmt.Sprint(i)] = &s
	}
	g.mu.Unlock()
	for _, s := range g.ages() {
		want := map[string]time.Duration{"0": time.Hour, "1": time.Minute}[s.Group]
		if s.Age < want || s.Age > want+time.Minute {
			t.Errorf("group %s: %v, want %v", s.Group, s.Age, want)
		}
	}
}
