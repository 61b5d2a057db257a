package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/switchback-proxy/switchback/test/bench/load"
	"github.com/switchback-proxy/switchback/test/cluster"
)

// Report is what a run found; its JSON is what -o writes.
type Report struct {
	Plan      string // default, full or smoke
	Command   string
	Machine   Machine
	Commit    string
	StartedAt time.Time
	Seconds   float64
	Rounds    int
	Window    string
	// LatencyWindow is that of latency.
	LatencyWindow      string
	IdleMB             float64
	CutoverPauseMillis int64
	Rows               []*Row
	Skipped            []string `json:",omitempty"` // for want of time
	Micro              *Micro   `json:",omitempty"`
}

// Machine is where the run took place.
type Machine struct {
	CPU      string
	Cores    int
	MemoryGB float64
	Kernel   string
	Go       string
	Kafka    string
}

// Row is one variant in one scenario.
type Row struct {
	Phase    Phase
	Scenario Scenario
	Variant  Variant
	Samples  []Sample
	// What follows is worked out of the samples.
	MBps        *Spread
	VsRelay     *Spread `json:",omitempty"` // throughput, to the relay that is the limit (Phase.limit), in the same round
	VsDirect    *Spread `json:",omitempty"`
	CPUPerGB    *Spread `json:",omitempty"`
	CPUVsRelay  *Spread `json:",omitempty"`
	Cores       *Spread `json:",omitempty"` // CPU-seconds a second
	PeakMB      float64 `json:",omitempty"` // the highest
	Mean        *Spread `json:",omitempty"` // of latency, ms
	P50         *Spread `json:",omitempty"`
	P99         *Spread `json:",omitempty"`
	P999        *Spread `json:",omitempty"`
	AddedMean   *Spread `json:",omitempty"` // to direct in the same round, or to the relay where direct is not measured
	AddedP99    *Spread `json:",omitempty"`
	BeyondMean  *Spread `json:",omitempty"` // added to the relay's, in the same round
	BeyondP99   *Spread `json:",omitempty"`
	FailedCount int     `json:",omitempty"`
}

// Sample is one measurement.
type Sample struct {
	Round      int
	MBps       float64
	CPUSeconds float64  `json:",omitempty"` // of what stands between
	Cores      float64  `json:",omitempty"` // CPU-seconds a second
	CPUPerGB   float64  `json:",omitempty"`
	PeakMB     float64  `json:",omitempty"`
	Latency    *Latency `json:",omitempty"`
	Error      string   `json:",omitempty"`
}

func newReport(ctx context.Context, plan *Plan) *Report {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--tags").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	command := "go run ./test/bench"
	if plan.Name != "default" {
		command = "BENCH=" + plan.Name + " " + command
	}
	return &Report{
		Plan: plan.Name, Command: strings.Join(append([]string{command}, os.Args[1:]...), " "), Machine: thisMachine(),
		Commit: strings.TrimSpace(string(commit)), StartedAt: time.Now().UTC(), Rounds: plan.Rounds, Window: plan.Window.String(), LatencyWindow: plan.LatencyWindow.String(),
	}
}

func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Kafka: cluster.DefaultVersion}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		info := string(b) // virtual machines give the same name to several generations
		m.CPU = fmt.Sprintf("%s, family %s model %s", colonField(info, "model name"), colonField(info, "cpu family"), colonField(info, "model"))
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.MemoryGB = float64(statusField(string(b), "MemTotal:")) / 1e9
	}
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = string(bytes.TrimSpace(b))
	}
	return m
}

func colonField(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func (r *Report) elapsed() time.Duration { return time.Since(r.StartedAt) }

func (r *Report) find(phase Phase, s Scenario, v Variant) *Row {
	for _, row := range r.Rows {
		if row.Phase == phase && row.Scenario == s && row.Variant == v {
			return row
		}
	}
	return nil
}

func (r *Report) add(phase Phase, s Scenario, v Variant, sample Sample) {
	row := r.find(phase, s, v)
	if row == nil {
		row = &Row{Phase: phase, Scenario: s, Variant: v}
		r.Rows = append(r.Rows, row)
	}
	row.Samples = append(row.Samples, sample)
}

func (r *Report) finish() {
	r.Seconds = r.elapsed().Seconds()
	for _, row := range r.Rows {
		row.summarise(r)
	}
}

func (row *Row) summarise(r *Report) {
	row.MBps = row.spread(func(s Sample) (float64, bool) { return s.MBps, true })
	relay := r.find(row.Phase, row.Scenario, row.Phase.limit())
	direct := r.find(row.Phase, row.Scenario, Direct)
	speed, cpu := func(s Sample) float64 { return s.MBps }, func(s Sample) float64 { return s.CPUPerGB }
	row.VsRelay, row.VsDirect = row.ratio(relay, speed), row.ratio(direct, speed)
	if row.Variant != Direct {
		row.CPUPerGB = row.spread(func(s Sample) (float64, bool) { return s.CPUPerGB, true })
		row.CPUVsRelay = row.ratio(relay, cpu)
		row.Cores = row.spread(func(s Sample) (float64, bool) { return s.Cores, true })
	}
	row.PeakMB, row.FailedCount = 0, 0
	for _, s := range row.Samples {
		row.PeakMB = max(row.PeakMB, s.PeakMB)
		if s.Error != "" {
			row.FailedCount++
		}
	}
	if row.Scenario.Work != load.Latency {
		return
	}
	part := func(f func(*Latency) float64) *Spread {
		return row.spread(func(s Sample) (float64, bool) {
			if s.Latency == nil {
				return 0, false
			}
			return f(s.Latency), true
		})
	}
	mean, p99 := func(l *Latency) float64 { return l.Mean }, func(l *Latency) float64 { return l.P99 }
	row.Mean, row.P99 = part(mean), part(p99)
	row.P50, row.P999 = part(func(l *Latency) float64 { return l.P50 }), part(func(l *Latency) float64 { return l.P999 })
	base := direct
	if base == nil {
		base = relay
	}
	if base != row {
		row.AddedMean, row.AddedP99 = row.added(base, mean), row.added(base, p99)
	}
	if relay != row {
		row.BeyondMean, row.BeyondP99 = row.added(relay, mean), row.added(relay, p99)
	}
}

func (row *Row) spread(value func(Sample) (float64, bool)) *Spread {
	var values []float64
	for _, s := range row.Samples {
		if v, ok := value(s); ok && s.Error == "" {
			values = append(values, v)
		}
	}
	return spreadOf(values)
}

// ratio compares with the base round by round, so that what changes from round to round is in both.
func (row *Row) ratio(base *Row, value func(Sample) float64) *Spread {
	if base == nil {
		return nil
	}
	return row.spread(func(s Sample) (float64, bool) {
		b := base.round(s.Round)
		if b == nil || value(*b) <= 0 {
			return 0, false
		}
		return value(s) / value(*b), true
	})
}

func (row *Row) added(base *Row, value func(*Latency) float64) *Spread {
	if base == nil {
		return nil
	}
	return row.spread(func(s Sample) (float64, bool) {
		b := base.round(s.Round)
		if b == nil || b.Latency == nil || s.Latency == nil {
			return 0, false
		}
		return value(s.Latency) - value(b.Latency), true
	})
}

func (row *Row) round(n int) *Sample {
	for i := range row.Samples {
		if row.Samples[i].Round == n && row.Samples[i].Error == "" {
			return &row.Samples[i]
		}
	}
	return nil
}

// row prints a scenario as soon as it is measured: a run that is broken off has shown something.
func (r *Report) row(phase Phase, s Scenario) {
	for _, v := range phase.variants() {
		if row := r.find(phase, s, v); row != nil {
			row.summarise(r)
			fmt.Fprintf(os.Stderr, "          %-14s %s\n", v, row.short())
		}
	}
}

func (row *Row) short() string {
	if row.MBps == nil {
		return "failed"
	}
	if row.Scenario.Work == load.Latency {
		return fmt.Sprintf("p50 %.2f  p99 %.2f  p99.9 %.2f ms  at %.1f MB/s", row.P50.Median, row.P99.Median, row.P999.Median, row.MBps.Median)
	}
	text := fmt.Sprintf("%.0f MB/s", row.MBps.Median)
	if row.CPUPerGB != nil {
		text += fmt.Sprintf("  %.2f CPU-s/GB  peak %.0f MB", row.CPUPerGB.Median, row.PeakMB)
	}
	return text
}

func (r *Report) save(o options) error {
	if o.output != "" {
		b, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.output, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.plot != "" {
		if err := os.WriteFile(o.plot, plot(r), 0o644); err != nil {
			return err
		}
	}
	if o.page != "" {
		return r.insert(o.page)
	}
	return nil
}

// The tables stand between these lines of a page.
const (
	pageBegin = "<!-- results: written by test/bench -page -->\n"
	pageEnd   = "<!-- end of results -->\n"
)

func (r *Report) insert(page string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(b), pageBegin)
	_, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no place for results: want the lines %q and %q", page, pageBegin, pageEnd)
	}
	var tables bytes.Buffer
	r.print(&tables)
	return os.WriteFile(page, []byte(before+pageBegin+tables.String()+pageEnd+after), 0o644)
}
