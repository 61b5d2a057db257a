package obs

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// everything uses each metric once, so that each has a series.
func everything(m *Metrics) {
	m.ShowFlow("blue.green", sample)
	flow := m.Flow("blue.green")
	flow.Copied(10, 1000)
	flow.Lost(5)
	p := m.Proxy("main")
	p.SessionOpened()
	p.SessionOpened()
	p.SessionClosed("client_closed")
	p.Refused("too_many_connections")
	p.Calls(int16(kmsg.Fetch)).Inc()
	p.Calls(-1).Inc()
	p.Calls(32767).Add(2)
	p.BytesIn(10)
	p.BytesOut(20)
	p.AddedLatency(30 * time.Microsecond)
	p.Duplicate()
	p.Held(1)
	m.BufferedBytes(func() int64 { return 65536 })
	m.SetReachable("blue", false)
	m.SetReachable("green", true)
	c := m.Cutover("main")
	c.SetPhase("", "Preflight")
	c.SetPhase("Preflight", "Preparing")
	c.SetRoute(2, "green", "blue")
	c.Ended("planned", "Done", 420*time.Millisecond)
}

func sample() FlowSample {
	return FlowSample{
		Partitions: []PartitionSample{
			{Topic: "orders", Partition: 3, State: "Copying", Known: true, LagRecords: 120, Lag: 2 * time.Second, Gaps: 7, Copied: true, RecordAge: time.Second},
			{Topic: "orders", Partition: 4, State: "Probing"},
		},
		Groups:  []GroupSample{{"app", time.Second}},
		Slots:   16,
		Journal: 4096,
	}
}

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	out := httptest.NewRecorder()
	m.Handler().ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if out.Code != http.StatusOK {
		t.Fatalf("status %d", out.Code)
	}
	return out.Body.String()
}

func TestMetricsShowWhatWasSet(t *testing.T) {
	m := NewMetrics(Build{Version: "1.2.3", Commit: "abc"})
	everything(m)
	text := scrape(t, m)
	for _, line := range []string{
		`switchback_replication_lag_records{flow="blue.green",partition="3",topic="orders"} 120`,
		`switchback_replication_lag_seconds{flow="blue.green",partition="3",topic="orders"} 2`,
		`switchback_pump_state{flow="blue.green",partition="3",topic="orders"} 1`,
		`switchback_pumps{flow="blue.green",state="Copying"} 1`,
		`switchback_map_gaps{flow="blue.green",partition="3",topic="orders"} 7`,
		`switchback_replication_records_total{flow="blue.green"} 10`,
		`switchback_checkpoint_age_seconds{flow="blue.green",group="app"} 1`,
		`switchback_replication_record_age_seconds{flow="blue.green",partition="3",topic="orders"} 1`,
		`switchback_journal_bytes{flow="blue.green"} 4096`,
		`switchback_slots_owned{flow="blue.green"} 16`,
		`switchback_pumps{flow="blue.green",state="Stopped"} 0`,
		`switchback_sessions{virtual_cluster="main"} 1`,
		`switchback_session_closes_total{reason="client_closed",virtual_cluster="main"} 1`,
		`switchback_calls_total{api="Fetch",virtual_cluster="main"} 1`,
		`switchback_calls_total{api="Unknown",virtual_cluster="main"} 3`,
		`switchback_buffered_bytes 65536`,
		`switchback_client_bytes_total{direction="out",virtual_cluster="main"} 20`,
		`switchback_added_latency_seconds_bucket{virtual_cluster="main",le="5e-05"} 1`,
		`switchback_cutover_phase{phase="Preflight",virtual_cluster="main"} 0`,
		`switchback_cutover_phase{phase="Preparing",virtual_cluster="main"} 1`,
		`switchback_active{cluster="blue",virtual_cluster="main"} 0`,
		`switchback_generation{virtual_cluster="main"} 2`,
		`switchback_cutover_pause_seconds{virtual_cluster="main"} 0.42`,
		`switchback_cutovers_total{mode="planned",result="Done",virtual_cluster="main"} 1`,
		`switchback_cluster_reachable{cluster="blue"} 0`,
		`switchback_cluster_reachable{cluster="green"} 1`,
		`switchback_build_info{commit="abc",go_version=`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestAFlowIsShownWhileItRuns(t *testing.T) {
	m := NewMetrics(Build{})
	hide := m.ShowFlow("blue.green", sample)
	now := FlowSample{Partitions: []PartitionSample{{Topic: "orders", Partition: 3, State: "Stopped", Known: true, LagRecords: 121}}}
	hideNext := m.ShowFlow("blue.green", func() FlowSample { return now })
	hide() // late: its successor is shown already
	text := scrape(t, m)
	for _, line := range []string{
		`switchback_replication_lag_records{flow="blue.green",partition="3",topic="orders"} 121`,
		`switchback_pump_state{flow="blue.green",partition="3",topic="orders"} 4`,
		`switchback_pumps{flow="blue.green",state="Copying"} 0`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("missing: %s", line)
		}
	}
	now.Partitions[0].LagRecords = 122
	if text := scrape(t, m); !strings.Contains(text, `topic="orders"} 122`) {
		t.Error("what is shown is of the scrape before")
	}
	hideNext()
	if text := scrape(t, m); strings.Contains(text, "blue.green") {
		t.Errorf("series are left:\n%s", text)
	}
}

func TestOfAPumpThatIsNotRecoveredOnlyTheStateIsShown(t *testing.T) {
	m := NewMetrics(Build{})
	m.ShowFlow("blue.green", sample)
	text := scrape(t, m)
	if !strings.Contains(text, `switchback_pump_state{flow="blue.green",partition="4",topic="orders"} 0`) {
		t.Error("its state is not shown")
	}
	if strings.Contains(text, `switchback_replication_lag_records{flow="blue.green",partition="4"`) {
		t.Error("its lag is shown, and is not known")
	}
}

func TestNoMetricsMeansNothingIsDone(t *testing.T) {
	var m *Metrics
	everything(m)
	m.ShowFlow("f", sample)()
	if families, err := m.Gatherer().Gather(); err != nil || len(families) > 0 {
		t.Errorf("%v %v", families, err)
	}
	scrape(t, m)
	p := m.Proxy("main")
	if n := testing.AllocsPerRun(100, func() { p.Calls(1).Inc() }); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestCountingACallAllocatesNothing(t *testing.T) {
	p := NewMetrics(Build{}).Proxy("main")
	n := testing.AllocsPerRun(100, func() {
		p.Calls(1).Inc()
		p.BytesIn(1)
		p.BytesOut(1)
		p.AddedLatency(time.Millisecond)
	})
	if n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func TestTwoMetricsDoNotMeet(t *testing.T) {
	a, b := NewMetrics(Build{}), NewMetrics(Build{})
	a.Proxy("main").BytesIn(1)
	if strings.Contains(scrape(t, b), "switchback_client_bytes_total") {
		t.Error("b shows what a counted")
	}
	if first, second := a.Proxy("main"), a.Proxy("main"); first != second {
		t.Error("a virtual cluster has two metrics")
	}
}

func TestMetricsMayBeUsedFromManyGoroutines(t *testing.T) {
	m := NewMetrics(Build{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				everything(m)
			}
		})
	}
	for range 5 {
		scrape(t, m)
	}
	all.Wait()
}

// names returns the families of ours that a full use shows.
func names(t *testing.T) []string {
	t.Helper()
	m := NewMetrics(Build{})
	everything(m)
	return gather(t, m.Gatherer())
}

func gather(t *testing.T, g prometheus.Gatherer) []string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "switchback_") {
			out = append(out, f.GetName())
		}
	}
	return out
}

func TestDashboardsAndAlertsUseOnlyMetricsThatExist(t *testing.T) {
	exist := names(t)
	deploy := filepath.Join("..", "..", "deploy")
	files := []string{filepath.Join(deploy, "grafana-dashboard.json"), filepath.Join(deploy, "prometheus-rules.yaml")}
	word := regexp.MustCompile(`\bswitchback_[a-z0-9_]+`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		used := word.FindAllString(string(text), -1)
		if len(used) == 0 {
			t.Errorf("%s uses no metric", file)
		}
		for _, name := range used {
			family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if !slices.Contains(exist, name) && !slices.Contains(exist, family) {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is not JSON", file)
		}
	}
}

func TestLogLinesHaveTimeLevelAndInstance(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(LogConfig{Out: &out, Level: "warn", Format: "json", Instance: "proxy-1"})
	if err != nil {
		t.Fatal(err)
	}
	log.Info().Msg("not written")
	log.Warn().Str(KeyTopic, "orders").Msg("written")
	var line map[string]string
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if _, err := time.Parse(time.RFC3339, line[KeyTime]); err != nil || !strings.Contains(line[KeyTime], ".") {
		t.Errorf("time %q: %v", line[KeyTime], err)
	}
	if line["message"] != "written" || line["level"] != "warn" || line[KeyInstance] != "proxy-1" || line[KeyTopic] != "orders" {
		t.Errorf("%v", line)
	}
}

func TestConsoleOutputHasColoursOnlyOnATerminal(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(LogConfig{Out: &out, Format: "console"})
	if err != nil {
		t.Fatal(err)
	}
	log.Info().Msg("hello")
	if strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), "INF hello") {
		t.Errorf("%q", out.String())
	}
}

func TestUnknownLogWordsAreRefused(t *testing.T) {
	for _, c := range []LogConfig{{Level: "loud"}, {Format: "xml"}} {
		if _, err := NewLogger(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestEventsAreOneLineEach(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(&out)
	PhaseChanged{VirtualCluster: "main", Cutover: "c1", Mode: "planned", From: "Holding", To: "Draining", Generation: 1, Took: time.Second}.Log(log)
	PhaseChanged{VirtualCluster: "main", From: "Sealing", To: "Aborted", Err: errors.New("a writer goes past us"), Hint: "find it"}.Log(log)
	PumpChanged{Flow: "blue.green", Topic: "orders", Partition: 3, From: "Copying", To: "Stopped", Reason: "source re-created", Hint: "drop it"}.Log(log)
	SlotChanged{Flow: "blue.green", Slot: 3, State: "owned", Took: time.Second}.Log(log)
	SessionEnded{VirtualCluster: "main", Client: "127.0.0.1:1", Reason: "idle"}.Log(log)
	want := `{"level":"info","virtual_cluster":"main","cutover":"c1","mode":"planned","from":"Holding","to":"Draining","generation":1,"ms":1000,"message":"cutover phase changed"}
{"level":"error","error":"a writer goes past us","virtual_cluster":"main","cutover":"","mode":"","from":"Sealing","to":"Aborted","generation":0,"ms":0,"hint":"find it","message":"cutover phase changed"}
{"level":"warn","flow":"blue.green","topic":"orders","partition":3,"from":"Copying","to":"Stopped","reason":"source re-created","hint":"drop it","message":"pump changed"}
{"level":"info","flow":"blue.green","slot":3,"state":"owned","ms":1000,"message":"slot changed"}
{"level":"debug","virtual_cluster":"main","client":"127.0.0.1:1","reason":"idle","message":"session ended"}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}
