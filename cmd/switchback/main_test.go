package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// command runs one command line.
func command(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	code = run(ctx, args, streams{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

func freePorts(t *testing.T, n int) int {
	t.Helper()
	first, err := testkit.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// configFile writes a configuration for two embedded clusters and returns its path and the admin address.
func configFile(t *testing.T) (path, adminURL string) {
	t.Helper()
	var addrs []string
	for _, name := range []string{"blue", "green"} {
		var seeds []kfake.Opt
		if name == "blue" {
			seeds = []kfake.Opt{kfake.SeedTopics(1, "orders")}
		}
		c, err := testkit.StartKafka(1, name, seeds...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		addrs = append(addrs, c.ListenAddrs()[0])
	}
	ports := freePorts(t, 4)
	path = filepath.Join(t.TempDir(), "switchback.yaml")
	text := fmt.Sprintf(`
clusters: {blue: {bootstrap: ["%s"]}, green: {bootstrap: ["%s"]}}
virtual_clusters:
  - {name: main, active: blue, standby: green, listen: "127.0.0.1:%d", broker_ports: {start: %d, count: 2}, advertised_host: 127.0.0.1}
admin: {listen: "127.0.0.1:%d", token: "${SWITCHBACK_TOKEN}"}
log: {level: error}
`, addrs[0], addrs[1], ports, ports+1, ports+3)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("http://127.0.0.1:%d", ports+3)
}

// serving runs serve from the file until the returned function is called.
func serving(t *testing.T, path, adminURL string) (stop func()) {
	t.Helper()
	cfg, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serveWith(ctx, cfg, zerolog.Nop()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	t.Cleanup(stop)
	testkit.Eventually(t, 20*time.Second, "serve is not healthy", func() bool {
		code, out, _ := command(t, "status", "--json", "--admin", adminURL)
		var st admin.Status
		return code == exitOK && json.Unmarshal([]byte(out), &st) == nil && st.VirtualClusters[0].Health == admin.Green
	})
	return stop
}

func TestAnOperatorMovesAndMovesBackOverARestart(t *testing.T) {
	t.Setenv("SWITCHBACK_TOKEN", "secret")
	path, url := configFile(t)
	if code, out, _ := command(t, "validate", "-c", path); code != exitOK || !strings.Contains(out, "is valid") {
		t.Fatalf("validate: %d %s", code, out)
	}
	stop := serving(t, path, url)
	code, out, _ := command(t, "cutover", "--to", "green", "--dry-run", "--admin", url)
	if code != exitOK || !strings.Contains(out, "nothing stands in the way") {
		t.Errorf("dry run: %d %s", code, out)
	}
	code, out, stderr := command(t, "cutover", "--to", "green", "--max-pause", "20s", "--admin", url)
	if code != exitOK || !strings.Contains(out, "green is active") || !strings.Contains(out, "Sealing") {
		t.Fatalf("cutover: %d %s %s", code, out, stderr)
	}
	code, out, _ = command(t, "status", "--admin", url)
	if code != exitOK || !strings.Contains(out, "green → blue") || !strings.Contains(out, "generation 2") || strings.Contains(out, "\x1b") {
		t.Errorf("status: %d %s", code, out)
	}
	stop()
	serving(t, path, url)
	code, out, stderr = command(t, "cutover", "--to", "blue", "--json", "--admin", url)
	var c admin.Cutover
	if err := json.Unmarshal([]byte(out), &c); code != exitOK || err != nil || c.Phase != "Done" || c.From != "green" {
		t.Fatalf("failback: %d %s %s", code, out, stderr)
	}
	if !strings.Contains(stderr, "Sealing") {
		t.Errorf("with --json progress goes to standard error: %s", stderr)
	}
	translations(t, url)
	mistakes(t, url)
}

// translations checks that an offset is shown on both clusters unless one is named.
func translations(t *testing.T, url string) {
	t.Helper()
	ask := func(args ...string) string {
		args = append([]string{"translate", "--topic", "orders", "--partition", "0", "--offset", "0", "--admin", url}, args...)
		code, out, stderr := command(t, args...)
		if code != exitOK {
			t.Errorf("%v: %d %s%s", args, code, out, stderr)
		}
		return out
	}
	for _, c := range []struct {
		args        []string
		blue, green int
	}{
		{nil, 1, 1},
		{[]string{"--from", "green"}, 1, 1},
		{[]string{"--to", "green"}, 0, 1},
	} {
		out := ask(c.args...)
		if strings.Count(out, "on blue ") != c.blue || strings.Count(out, "on green ") != c.green {
			t.Errorf("%v: %s", c.args, out)
		}
	}
	var one admin.Translation
	if out := ask("--json"); json.Unmarshal([]byte(out), &one) != nil || one.Cluster != "blue" {
		t.Errorf("--json: %s", out)
	}
}

func TestATopicThatIsNotCopiedIsSaidSo(t *testing.T) {
	st := admin.Status{VirtualClusters: []admin.VirtualClusterStatus{{Partitions: []admin.Partition{{Topic: "orders"}}}}}
	var out bytes.Buffer
	if err := saySilentTopics(&out, st, admin.StatusQuery{Topics: []string{"orders", "nope"}}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "nope") {
		t.Errorf("it says %q", text)
	}
}

// mistakes checks exit codes.
func mistakes(t *testing.T, url string) {
	t.Helper()
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitUsage, "not built", []string{"cutover", "--to", "green", "--force"}},
		{exitUsage, "--to", []string{"cutover"}},
		{exitUsage, "already", []string{"cutover", "--to", "blue"}},
		{exitUsage, "not the standby", []string{"cutover", "--to", "red"}},
		{exitUsage, "no virtual cluster", []string{"cutover", "--to", "green", "--virtual-cluster", "nope"}},
		{exitUsage, "above zero", []string{"cutover", "--to", "green", "--max-pause", "0s"}},
		{exitUsage, "above zero", []string{"cutover", "--to", "green", "--max-pause", "-1s"}},
		{exitUsage, "no cutover runs", []string{"abort"}},
		{exitUsage, "no virtual cluster", []string{"abort", "--virtual-cluster", "nope"}},
		{exitUsage, "no cutover", []string{"abort", "x"}},
		{exitUsage, "not built", []string{"rehearse", "--to", "green"}},
		{exitUsage, "not built", []string{"explain", "--group", "app"}},
		{exitUsage, "not built", []string{"orphans", "export"}},
		{exitUsage, "not built", []string{"orphans", "republish", "x"}},
		{exitUsage, "no command", []string{"orphans", "eat"}},
		{exitUsage, "no command", []string{"jump"}},
		{exitUsage, "unknown flag", []string{"status", "--loud"}},
		{exitUsage, "unknown command", []string{"status", "now"}},
		{exitUsage, "needed", []string{"translate", "--topic", "x"}},
		{exitUsage, "partition", []string{"translate", "--topic", "x", "--offset", "1", "--partition", "-1"}},
		{exitUsage, "partition", []string{"translate", "--topic", "x", "--offset", "1", "--partition", "99999999999"}},
		{exitUsage, "no partition", []string{"translate", "--topic", "x", "--offset", "1"}},
		{exitUsage, "no group", []string{"group", "nobody"}},
		{exitUsage, "not built", []string{"serve", "-c", "x", "--roles", "proxy"}},
		{exitUsage, "role", []string{"serve", "-c", "x", "--roles", "cook"}},
		{exitUsage, "-c", []string{"serve"}},
		{exitUsage, "--cycles", []string{"demo", "--cycles", "-1"}},
		{exitUsage, "--clients", []string{"demo", "--clients", "-1"}},
		{exitUsage, "--clients", []string{"demo", "--clients", "2"}},
		{exitUsage, "no such file", []string{"validate", "-c", "/nowhere.yaml"}},
	} {
		code, out, stderr := command(t, append(c.args, "--admin", url)...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, want %d; %s%s", c.args, code, c.code, out, stderr)
		}
	}
	if code, out, _ := command(t, "orphans", "list", "--json", "--admin", url); code != exitOK || !strings.Contains(out, `"strays": []`) {
		t.Errorf("orphans: %d %s", code, out)
	}
}

func TestAServerThatIsNotThereIsSaidSo(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", freePorts(t, 1))
	for _, url := range []string{address, "http://" + address} {
		for _, args := range [][]string{{"status"}, {"cutover", "--to", "green"}} {
			code, _, stderr := command(t, append(args, "--admin", url)...)
			if code != exitUsage || !strings.Contains(stderr, "does not answer") || !strings.Contains(stderr, "hint:") {
				t.Errorf("%s %s: %d %s", args[0], url, code, stderr)
			}
		}
	}
}

func TestAnAddressThatIsNoneIsSaidSo(t *testing.T) {
	for _, address := range []string{"", ":8080", "http://", "http://a b", "tcp://127.0.0.1:8080", "127.0.0.1:", "127.0.0.1:8080?x", "http://[::1"} {
		code, _, stderr := command(t, "status", "--admin", address)
		if code != exitUsage || !strings.Contains(stderr, "HOST:PORT") {
			t.Errorf("%q: %d %s", address, code, stderr)
		}
	}
}

// answers serves one fixed answer to orders, and knows of nothing else.
func answers(t *testing.T, status int, body string) (address string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"code":"not_found","message":"m","hint":"h"}}`)
	})
	mux.HandleFunc("POST /v1/cutovers", func(w http.ResponseWriter, _ *http.Request) {
		if status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestTheExitCodeOfACutoverTellsWhetherItWasTried(t *testing.T) {
	const refusal = `{"error":{"code":"c","message":"m","hint":"h"}}`
	for _, c := range []struct {
		name   string
		status int
		body   string
		code   int
	}{
		{"another one runs", 409, refusal, exitUsage},
		{"a wrong token", 401, refusal, exitUsage},
		{"no record yet", 503, refusal, exitUsage},
		{"a fault of the server", 500, refusal, exitFailed},
		{"another server", 404, "not here", exitUsage},
		{"a gateway that gave up", 503, "later", exitFailed},
		{"no answer to the order", 0, "", exitFailed},
		{"begun, and forgotten over a restart", 202, `{"id":"x"}`, exitFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := command(t, "cutover", "--to", "green", "--admin", answers(t, c.status, c.body))
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, stderr)
			}
		})
	}
}

func TestEveryMistakeOfAConfigurationIsShown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(path, []byte("clusters: {blue: {bootstrap: []}}\nvirtual_clustres: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := command(t, "validate", "-c", path)
	if code != exitUsage || strings.Count(stderr, "\n") < 3 || strings.Contains(stderr, "error:") || !strings.Contains(stderr, "docs/configuration.md") {
		t.Errorf("%d %s", code, stderr)
	}
	code, out, _ := command(t, "validate", "-c", path, "--json")
	if code != exitUsage || !strings.Contains(out, `"problems"`) {
		t.Errorf("%d %s", code, out)
	}
}

func TestVersion(t *testing.T) {
	if code, out, _ := command(t, "version"); code != exitOK || !strings.HasPrefix(out, "switchback ") {
		t.Errorf("%d %s", code, out)
	}
}

func TestProgressOnATerminalIsDrawnOver(t *testing.T) {
	var out bytes.Buffer
	v := &view{o: &options{out: &out, err: &out}, w: &out, p: painter{on: true}, live: true}
	c := admin.Cutover{ID: "x", From: "blue", To: "green", Phase: "Sealing", Phases: []admin.Phase{
		{Phase: "Draining", Millis: 5}, {Phase: "Sealing", StartedAt: time.Now(), Facts: map[string]any{"reached": float64(1234)}},
	}}
	v.show(c)
	if text := out.String(); !strings.Contains(text, "✓") || !strings.Contains(text, "reached 1,234") || strings.HasSuffix(text, "\n") {
		t.Errorf("drew %q", text)
	}
	c.Phase, c.Error = "Aborted", &cutover.Error{Code: "log_moved", Message: "moved", Hint: "h"}
	v.show(c)
	err := v.finish(c)
	if text := out.String(); !strings.Contains(text, "✗") || !strings.Contains(text, "\r\x1b[2K") || !strings.Contains(text, "blue stays active") || exitCode(err) != exitFailed {
		t.Errorf("drew %q, %v", text, err)
	}
}

func TestAPhaseFitsIntoEightyColumns(t *testing.T) {
	facts := map[string]any{
		"catch_up_rounds": float64(2), "groups": float64(120), "groups_at_barrier": float64(0), "groups_idle": float64(100),
		"groups_moved": float64(20), "members": float64(60), "warm_ms": float64(1250),
	}
	running := admin.Cutover{Phase: "Preparing", Phases: []admin.Phase{{Phase: "Preparing", StartedAt: time.Now(), Facts: facts}}}
	ended := admin.Cutover{Phase: "Done", Phases: []admin.Phase{{Phase: "Preparing", Millis: 116_000, Facts: facts}}}
	var out bytes.Buffer
	v := &view{o: &options{out: &out, err: &out}, w: &out, live: true}
	v.show(running)
	if text := out.String(); !strings.HasPrefix(text, "\x1b[?7l") || !strings.HasSuffix(text, "\x1b[?7h") || strings.Contains(text, "\n") {
		t.Errorf("a line to draw over is not cut by the terminal: %q", text)
	}
	out.Reset()
	v.pending = false
	v.show(ended)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for _, line := range lines {
		if visible(line) > 80 {
			t.Errorf("%d columns: %q", visible(line), line)
		}
	}
	if len(lines) < 2 || !strings.Contains(out.String(), "warm ms 1,250") {
		t.Errorf("drew %q", lines)
	}
	out.Reset()
	plain := &view{o: &options{out: &out, err: &out}, w: &out}
	plain.show(ended)
	if strings.Count(out.String(), "\n") != 1 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("in a file: %q", out.String())
	}
}

func TestColoursDoNotMoveColumns(t *testing.T) {
	var out bytes.Buffer
	p := painter{on: true}
	tb := table{head: []string{"A", "B"}, right: []bool{false, true}}
	tb.add(p.red("long word"), "1")
	tb.add("x", "22")
	tb.print(&out, painter{}, "")
	plain := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(out.String())
	if want := "A           B\nlong word   1\nx          22\n"; plain != want {
		t.Errorf("printed\n%s\nwant\n%s", plain, want)
	}
	if number(-1234567) != "-1,234,567" || millis(1500) != "1.5 s" || millis(900) != "900 ms" {
		t.Error(number(-1234567), millis(1500))
	}
}
