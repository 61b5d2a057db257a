package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/switchback-proxy/switchback/test/bench/load"
)

// table is printed as Markdown with columns in line, to be read as it is or pasted into a page.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(out io.Writer) {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	line := func(cells []string) {
		var b strings.Builder
		for i, cell := range cells {
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(out, b.String()+"|")
	}
	line(t.head)
	rule := make([]string, len(widths))
	for i, w := range widths {
		rule[i] = strings.Repeat("-", w)
	}
	line(rule)
	for _, row := range t.rows {
		line(row)
	}
}

// print shows everything for people.
func (r *Report) print(out io.Writer) {
	fmt.Fprintf(out, "\n`%s` at %s, %s, %.0f s", r.Command, r.Commit, r.StartedAt.Format("2006-01-02"), r.Seconds)
	m := r.Machine
	fmt.Fprintf(out, "  \n%d cores (%s), %.0f GB memory, Linux %s, %s, Kafka %s  \n", m.Cores, m.CPU, m.MemoryGB, m.Kernel, m.Go, m.Kafka)
	fmt.Fprintf(out, "%d rounds of %s (latency: %s; at low load twice as many); cells are min / median / max of the rounds, ratios are taken within a round\n", r.Rounds, r.Window, r.LatencyWindow)
	if r.Plan == "smoke" {
		fmt.Fprintln(out, "\n**Smoke run: it shows that everything runs. The figures mean nothing.**")
	}
	for _, phase := range phases() {
		r.printThroughput(out, phase)
		r.printLatency(out, phase)
	}
	r.printMemory(out)
	if r.Micro != nil {
		r.Micro.print(out, nil)
	}
	r.printGoals(out)
	for _, s := range r.Skipped {
		fmt.Fprintf(out, "\nNot measured for want of time: %s", s)
	}
	fmt.Fprintln(out)
}

func (r *Report) printThroughput(out io.Writer, phase Phase) {
	t := table{head: []string{"work", "variant", "MB/s", "× relay", "× direct", "CPU-s/GB", "× relay", "peak MB"}}
	var last Scenario
	for _, row := range r.Rows {
		if row.Phase != phase || row.Scenario.Work == load.Latency {
			continue
		}
		name := ""
		if row.Scenario != last {
			name, last = row.Scenario.String(), row.Scenario
		}
		peak := "–"
		if row.PeakMB > 0 {
			peak = fmt.Sprintf("%.0f", row.PeakMB)
		}
		t.add(name, string(row.Variant)+row.failures(), row.MBps.text("%.0f"), row.VsRelay.text("%.2f"), row.VsDirect.text("%.2f"),
			row.CPUPerGB.text("%.2f"), row.CPUVsRelay.text("%.2f"), peak)
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(out, "\n### Throughput, %s\n\n", phase)
		t.print(out)
	}
}

func (row *Row) failures() string {
	if row.FailedCount == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d failed)", row.FailedCount, len(row.Samples))
}

func (r *Report) printLatency(out io.Writer, phase Phase) {
	t := table{head: []string{"work", "variant", "MB/s", "mean ms", "p50 ms", "p99 ms", "p99.9 ms", "mean added", "p99 added", "cores"}}
	var last Scenario
	for _, row := range r.Rows {
		if row.Phase != phase || row.Scenario.Work != load.Latency {
			continue
		}
		name := ""
		if row.Scenario != last {
			name, last = row.Scenario.String(), row.Scenario
		}
		t.add(name, string(row.Variant)+row.failures(), row.MBps.median("%.1f"), row.Mean.text("%.2f"), row.P50.text("%.2f"), row.P99.text("%.2f"),
			row.P999.text("%.2f"), row.AddedMean.text("%+.2f"), row.AddedP99.text("%+.2f"), row.Cores.median("%.2f"))
	}
	if len(t.rows) > 0 {
		fmt.Fprintf(out, "\n### End-to-end latency, %s\n\n", phase)
		t.print(out)
	}
}

func (s *Spread) median(format string) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf(format, s.Median)
}

func (r *Report) printMemory(out io.Writer) {
	if r.IdleMB == 0 {
		return
	}
	busy := 0.0
	for _, row := range r.Rows {
		if row.Variant == Product && row.Scenario.Clients == 200 && !row.Phase.tls() {
			busy = max(busy, row.PeakMB)
		}
	}
	fmt.Fprintf(out, "\n### Memory of switchback\n\nIdle %.0f MB.", r.IdleMB)
	if busy > 0 {
		fmt.Fprintf(out, " With 200 busy clients at most %.0f MB.", busy)
	}
	if r.CutoverPauseMillis > 0 {
		fmt.Fprintf(out, " The cutover of this run paused calls for %d ms.", r.CutoverPauseMillis)
	}
	fmt.Fprintln(out)
}

// goal is one line of the list that this is built to.
type goal struct {
	name  string
	limit string
	value float64
	shown string
	met   bool
}

func (r *Report) printGoals(out io.Writer) {
	goals := r.goals()
	if len(goals) == 0 {
		return
	}
	t := table{head: []string{"goal", "limit", "measured", "met"}}
	for _, g := range goals {
		met := "no"
		if g.met {
			met = "yes"
		}
		t.add(g.name, g.limit, g.shown, met)
	}
	fmt.Fprintf(out, "\n### Goals\nMedians; 1 KB records, 6 partitions, 1 client.\n\n")
	t.print(out)
}

// goals compares medians with the limits that the project has set itself. What was not measured is left out.
func (r *Report) goals() []goal {
	var found []goal
	check := func(name string, phase Phase, s Scenario, value func(*Row) *Spread, atMost bool, limit float64, unit string) {
		row := r.find(phase, s, Product)
		if row == nil || value(row) == nil {
			return
		}
		g := goal{name: name, value: value(row).Median, limit: fmt.Sprintf("≥ %.2f %s", limit, unit)}
		g.met = g.value >= limit
		if atMost {
			g.met, g.limit = g.value <= limit, fmt.Sprintf("≤ %.2f %s", limit, unit)
		}
		g.shown = fmt.Sprintf("%.2f", g.value)
		found = append(found, g)
	}
	read := Scenario{Work: load.Consume, Record: 1024, Partitions: 6, Clients: 1}
	written := Scenario{Work: load.Produce, Record: 1024, Partitions: 6, Clients: 1}
	low := Scenario{Work: load.Latency, Record: 1024, Partitions: 6, Clients: 1, Load: lowLoad}
	speed, cpu := func(row *Row) *Spread { return row.VsRelay }, func(row *Row) *Spread { return row.CPUVsRelay }
	check("consume throughput, before", Before, read, speed, false, 0.95, "× relay")
	check("consume throughput, after", After, read, speed, false, 0.85, "× relay")
	check("produce throughput, before", Before, written, speed, false, 0.95, "× relay")
	check("CPU per GB read, before", Before, read, cpu, true, 1.3, "× relay")
	check("CPU per GB read, after", After, read, cpu, true, 2.1, "× relay")
	check("CPU per GB written, before", Before, written, cpu, true, 1.5, "× relay")
	check("CPU per GB written, after", After, written, cpu, true, 1.5, "× relay")
	for _, phase := range []Phase{Before, After} {
		check(fmt.Sprintf("latency added to the relay's, low load, mean, %s", phase), phase, low, func(row *Row) *Spread { return row.BeyondMean }, true, 0.1, "ms")
		check(fmt.Sprintf("latency added to the relay's, low load, p99, %s", phase), phase, low, func(row *Row) *Spread { return row.BeyondP99 }, true, 0.5, "ms")
	}
	check("latency added to direct, low load, mean", Before, low, func(row *Row) *Spread { return row.AddedMean }, true, 0.1, "ms")
	check("latency added to direct, low load, p99", Before, low, func(row *Row) *Spread { return row.AddedP99 }, true, 0.5, "ms")
	if r.IdleMB > 0 {
		found = append(found, goal{name: "memory, idle", limit: "≤ 30 MB", shown: fmt.Sprintf("%.0f", r.IdleMB), met: r.IdleMB <= 30})
	}
	for _, phase := range []Phase{Before, After} {
		for _, work := range []load.Work{load.Consume, load.Produce} {
			busy := Scenario{Work: work, Record: 1024, Partitions: 6, Clients: 200}
			if row := r.find(phase, busy, Product); row != nil && row.PeakMB > 0 {
				name := fmt.Sprintf("memory, 200 clients %s, %s", work, phase)
				found = append(found, goal{name: name, limit: "≤ 200 MB", shown: fmt.Sprintf("%.0f", row.PeakMB), met: row.PeakMB <= 200})
			}
		}
	}
	return found
}

// render shows an earlier run again.
func render(args []string) error {
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	svg := flags.String("svg", "", "write the plot to this file")
	page := flags.String("page", "", "put the tables into this page")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: render [-svg FILE] [-page FILE] FILE.json")
	}
	b, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("read %s: %w", flags.Arg(0), err)
	}
	for _, row := range r.Rows {
		row.summarise(&r)
	}
	r.print(os.Stdout)
	return r.save(options{plot: *svg, page: *page})
}
