package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/test/bench/load"
	"github.com/switchback-proxy/switchback/test/cluster"
)

func TestSpreadIsTheLowestMiddleAndHighest(t *testing.T) {
	if got := *spreadOf([]float64{3, 1, 2}); got != (Spread{1, 2, 3}) {
		t.Errorf("%v", got)
	}
	if got := *spreadOf([]float64{4, 1, 2, 3}); got != (Spread{1, 2.5, 4}) {
		t.Errorf("%v", got)
	}
	if spreadOf(nil) != nil {
		t.Error("a spread of nothing")
	}
}

func TestPercentilesAreOfTheValuesThemselves(t *testing.T) {
	var micros []int32
	for i := int32(1000); i > 0; i-- {
		micros = append(micros, i*1000)
	}
	want := Latency{Mean: 500.5, P50: 500, P99: 990, P999: 999, Count: 1000}
	if got := *latencyOf(micros); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := *latencyOf([]int32{2000}); got != (Latency{2, 2, 2, 2, 1}) {
		t.Errorf("%+v", got)
	}
}

func TestProcessorTimeIsReadWhateverTheProgramIsCalled(t *testing.T) {
	got, err := parseStat([]byte("42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 1 0 1 1 1"))
	if err != nil || got != 2*time.Second {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseStat([]byte("42 (a")); err == nil {
		t.Error("half a line was taken")
	}
	if own, err := cpuOf(os.Getpid()); err != nil || own < 0 {
		t.Errorf("%v, %v", own, err)
	}
	if m, err := memoryOf(os.Getpid()); err != nil || m.now == 0 || m.peak < m.now {
		t.Errorf("%+v, %v", m, err)
	}
}

// sampleReport has two rounds of three variants: in the second everything is half as fast.
func sampleReport() *Report {
	r := &Report{Plan: "default", Rounds: 2, IdleMB: 20, Machine: Machine{Cores: 2, Kafka: "4.3.1"}}
	read := Scenario{Work: load.Consume, Record: 1024, Partitions: 6, Clients: 1}
	low := Scenario{Work: load.Latency, Record: 1024, Partitions: 6, Clients: 1, Load: lowLoad}
	for round, speed := range []float64{1000, 500} {
		r.add(Before, read, Direct, Sample{Round: round, MBps: speed})
		r.add(Before, read, SpliceOnly, Sample{Round: round, MBps: speed * 0.8, CPUPerGB: 0.4})
		r.add(Before, read, Product, Sample{Round: round, MBps: speed * 0.76, CPUPerGB: 0.5, PeakMB: 50})
		r.add(Before, low, Direct, Sample{Round: round, MBps: 1, Latency: &Latency{Mean: 1, P50: 1, P99: 2, P999: 3}})
		r.add(Before, low, SpliceOnly, Sample{Round: round, MBps: 1, Latency: &Latency{Mean: 1.3, P50: 1, P99: 2.2, P999: 4}})
		r.add(Before, low, Product, Sample{Round: round, MBps: 1, Latency: &Latency{Mean: 1.35, P50: 1, P99: 2.25, P999: 4}})
	}
	r.add(Before, read, Product, Sample{Round: 2, Error: "broken"})
	r.finish()
	return r
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	r := sampleReport()
	row := r.find(Before, Scenario{Work: load.Consume, Record: 1024, Partitions: 6, Clients: 1}, Product)
	if row.VsRelay.Min < 0.949 || row.VsRelay.Max > 0.951 || row.MBps.Min != 380 || row.CPUVsRelay.Median != 1.25 || row.FailedCount != 1 {
		t.Errorf("%+v", row)
	}
	if row.VsDirect.Median != 0.76 {
		t.Errorf("to direct: %+v", row.VsDirect)
	}
}

func TestGoalsAreJudged(t *testing.T) {
	met := make(map[string]bool)
	for _, g := range sampleReport().goals() {
		met[g.name] = g.met
	}
	want := map[string]bool{
		"consume throughput, before": true, "CPU per GB read, before": true, "memory, idle": true,
		"latency added to the relay's, low load, mean, before a cutover": true, "latency added to the relay's, low load, p99, before a cutover": true,
		"latency added to direct, low load, mean": false, "latency added to direct, low load, p99": true,
	}
	for name, yes := range want {
		if met[name] != yes {
			t.Errorf("%s: %v", name, met[name])
		}
	}
	if len(met) != len(want) {
		t.Errorf("judged what was not measured: %v", met)
	}
}

func TestTableAndPlotShowEveryVariant(t *testing.T) {
	r := sampleReport()
	var text strings.Builder
	r.print(&text)
	for _, want := range []string{"consume 1 KB, 6 partitions, 1 client", "switchback (1 of 3 failed)", "380 / 570 / 760", "Idle 20 MB"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	svg := plot(r)
	parser := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		_, err := parser.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
	}
	for _, want := range []string{"prefers-color-scheme: dark", "switchback", "0.95"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%q is not in the plot", want)
		}
	}
}

func TestTablesGoBetweenTheMarkersOfAPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	for range 2 { // the second time what the first put there is replaced
		if _, err := os.Stat(page); err != nil {
			if err := os.WriteFile(page, []byte("above\n"+pageBegin+"old\n"+pageEnd+"below\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := sampleReport().save(options{page: page}); err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(page)
		text := string(b)
		if !strings.HasPrefix(text, "above\n"+pageBegin) || !strings.HasSuffix(text, pageEnd+"below\n") || strings.Contains(text, "old") ||
			strings.Count(text, "### Goals") != 1 {
			t.Errorf("page:\n%s", text)
		}
	}
}

func TestReportSurvivesJSON(t *testing.T) {
	b, err := json.Marshal(sampleReport())
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if string(plot(&back)) != string(plot(sampleReport())) {
		t.Error("another plot")
	}
}

func TestEveryPlanHasWorkForEachPhase(t *testing.T) {
	for _, name := range []string{"default", "full", "smoke"} {
		p, err := planFor(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if took := p.measuring(); took > p.Limit-2*time.Minute {
			t.Errorf("%s: the measurements alone take %v, the limit is %v", name, took, p.Limit)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
	if _, err := planFor("ful", ""); err == nil {
		t.Error("an unknown plan was taken")
	}
	p, _ := planFor("", "latency")
	for _, s := range p.Scenarios[Before] {
		if s.Work != load.Latency {
			t.Errorf("-only latency runs %s", s)
		}
	}
}

func TestBenchmarkLinesAreRead(t *testing.T) {
	got, err := parseBenchmarks(strings.NewReader("goos: linux\nBenchmarkIter/a-2 \t 100\t 83.5 ns/op\t 12.3 MB/s\t 16 B/op\t 2 allocs/op\nPASS\n"))
	if err != nil || len(got) != 1 || got["Iter/a-2"] != (Cost{Ns: 83.5, Bytes: 16, Allocs: 2}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCheckFindsWhatGotWorse(t *testing.T) {
	baseline := &Micro{CPU: "x", Benchmarks: map[string]Cost{
		"p.Same": {Ratio: 1, Allocs: 10}, "p.Slower": {Ratio: 1}, "p.Allocates": {Ratio: 1, Allocs: 0}, "p.Gone": {Ratio: 1},
	}}
	measured := &Micro{CPU: "x", Benchmarks: map[string]Cost{
		"p.Same": {Ratio: 1.09, Allocs: 11}, "p.Slower": {Ratio: 1.11}, "p.Allocates": {Ratio: 1, Allocs: 1}, "p.New": {Ratio: 9},
	}}
	if got := names(worseThan(measured, baseline)); got != "p.Allocates p.Gone p.Slower" {
		t.Errorf("found %s", got)
	}
	measured.CPU = "y"
	if got := names(worseThan(measured, baseline)); got != "p.Allocates p.Gone" {
		t.Errorf("on another processor: found %s", got)
	}
	if err := judge(io.Discard, measured, baseline); err == nil {
		t.Error("passed")
	}
}

func names(found []worse) string {
	var all []string
	for _, w := range found {
		all = append(all, w.name)
	}
	return strings.Join(all, " ")
}

func TestFatalOfTheHarnessIsAnErrorAndCleansUp(t *testing.T) {
	var order []string
	err := within(io.Discard, func(h *harness) error {
		h.Cleanup(func() { order = append(order, "first") })
		h.Cleanup(func() { order = append(order, "second") })
		h.Fatalf("no %s", "broker")
		return nil
	})
	if err == nil || err.Error() != "no broker" || strings.Join(order, " ") != "second first" {
		t.Errorf("%v, %v", err, order)
	}
	if err := within(io.Discard, func(h *harness) error { h.Error("odd"); return nil }); err == nil {
		t.Error("Error was forgotten")
	}
}

func TestConfigurationOfTheProductIsValid(t *testing.T) {
	dir := t.TempDir()
	p := product{port: 20000, cert: dir + "/cert.pem", key: dir + "/key.pem", blue: new(cluster.Cluster), green: new(cluster.Cluster)}
	if err := writeCertificate(p.cert, p.key); err != nil {
		t.Fatal(err)
	}
	for _, tls := range []bool{false, true} {
		p.include = []string{"bench.consume.1024.6"}
		text := strings.NewReplacer(`[""]`, `["127.0.0.1:19092"]`).Replace(p.config(tls))
		text = strings.Replace(text, "green: {bootstrap: [\"127.0.0.1:19092\"]}", "green: {bootstrap: [\"127.0.0.1:19192\"]}", 1)
		path := dir + "/switchback.yaml"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(path); err != nil {
			t.Errorf("TLS %v: %v\n%s", tls, err, text)
		}
	}
}

func TestABaselineKeepsTheWorstOfItsRuns(t *testing.T) {
	m := &Micro{Benchmarks: map[string]Cost{"a": {Ns: 10, Ratio: 1, Allocs: 2}, "b": {Ns: 10, Ratio: 1}}}
	m.raise(&Micro{Benchmarks: map[string]Cost{"a": {Ns: 12, Ratio: 1.2, Allocs: 3}, "b": {Ns: 9, Ratio: 0.9}}})
	if a := m.Benchmarks["a"]; a.Ratio != 1.2 || a.Ns != 12 || a.Allocs != 2 {
		t.Errorf("slower, with an allocation by chance: %+v", a)
	}
	if b := m.Benchmarks["b"]; b.Ratio != 1 {
		t.Errorf("faster: %+v", b)
	}
}
