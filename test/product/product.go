// Package product runs the switchback binary in tests, as an operator would: a configuration file, a process, the admin API and the
// command line.
//
//	p := product.Start(t, product.Config{Blue: blue.Addrs(), Green: green.Addrs()})
//	p.Admin.Move(t, "green", time.Minute)
//	p.Kill()
//	p.Restart(t)
package product

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/test/proc"
)

// VirtualCluster is the name of the only one.
const VirtualCluster = "main"

const (
	token        = "test-token"
	readyTimeout = 60 * time.Second
	brokerPorts  = 3
)

// Config says what the product stands between.
type Config struct {
	Blue, Green []string // bootstrap addresses
	// AdvertisedHost is where clients are sent; default 127.0.0.1, where the product listens. A relay may stand on another.
	AdvertisedHost string
	Offsets        string // default preserved
	Instance       string // default one
	LogLevel       string // default info
}

// Product is a switchback process that is started and killed as the test goes.
type Product struct {
	Admin  *Admin
	config Config
	binary string
	dir    string
	port   int // bootstrap; brokers from port+1 on
	admin  int
	proc   *proc.Process
}

// Build builds the binary, with the race detector if RACE=1.
func Build(t testing.TB) string {
	t.Helper()
	var flags []string
	if os.Getenv("RACE") == "1" {
		flags = append(flags, "-race")
	}
	return proc.Build(t, "switchback", "./cmd/switchback", flags...)
}

// Start runs the product and returns when it is ready.
func Start(t testing.TB, config Config) *Product {
	t.Helper()
	p := Prepare(t, config)
	p.Launch(t)
	p.WaitReady(t)
	return p
}

// Prepare picks ports and writes the configuration; nothing runs yet.
func Prepare(t testing.TB, config Config) *Product {
	t.Helper()
	first := proc.FreePorts(t, 2+brokerPorts)
	p := &Product{config: config, binary: Build(t), dir: proc.Dir(t), port: first, admin: first + 1 + brokerPorts}
	p.Admin = &Admin{base: fmt.Sprintf("http://127.0.0.1:%d", p.admin), token: token}
	if err := os.WriteFile(p.configFile(), []byte(p.yaml()), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.report(t) })
	return p
}

func (p *Product) configFile() string { return filepath.Join(p.dir, "switchback.yaml") }

func (p *Product) yaml() string {
	or := func(v, fallback string) string {
		if v == "" {
			return fallback
		}
		return v
	}
	list := func(addrs []string) string {
		b, _ := json.Marshal(addrs) // a JSON list is a YAML list
		return string(b)
	}
	return fmt.Sprintf(`instance: %s
clusters:
  blue:  {bootstrap: %s}
  green: {bootstrap: %s}
virtual_clusters:
  - name: %s
    active: blue
    standby: green
    listen: 127.0.0.1:%d
    broker_ports: {start: %d, count: %d}
    advertised_host: %s
    offsets: %s
replication: {checkpoint_interval: 1s}
admin: {listen: 127.0.0.1:%d, token: %s}
log: {level: %s, format: json}
`, or(p.config.Instance, "one"), list(p.config.Blue), list(p.config.Green), VirtualCluster, p.port, p.port+1, brokerPorts,
		or(p.config.AdvertisedHost, "127.0.0.1"), or(p.config.Offsets, "preserved"), p.admin, token, or(p.config.LogLevel, "info"))
}

// Ports are the first of the ports that clients use, and how many there are: bootstrap and brokers.
func (p *Product) Ports() (first, count int) { return p.port, 1 + brokerPorts }

// Bootstrap is the address for clients, at the advertised host.
func (p *Product) Bootstrap() string {
	host := p.config.AdvertisedHost
	if host == "" {
		host = "127.0.0.1"
	}
	return host + ":" + strconv.Itoa(p.port)
}

// DirectBootstrap is the address without a relay between.
func (p *Product) DirectBootstrap() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// Launch starts the process and does not wait.
func (p *Product) Launch(t testing.TB) {
	t.Helper()
	p.proc = proc.Start(t, proc.Config{
		Name: "switchback", Path: p.binary, Args: []string{"serve", "-c", p.configFile()}, Output: filepath.Join(p.dir, "switchback.log"),
	})
}

// WaitReady returns when /readyz says so.
func (p *Product) WaitReady(t testing.TB) {
	t.Helper()
	client := http.Client{Timeout: 2 * time.Second}
	proc.Until(t, readyTimeout, "switchback is ready", func() error {
		if !p.proc.Running() {
			t.Fatalf("switchback ended: %v", p.proc.Wait(0))
		}
		resp, err := client.Get(p.Admin.base + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz: %s", resp.Status)
		}
		return nil
	})
}

// Kill ends the process as kill -9 does.
func (p *Product) Kill() { p.proc.Kill() }

// Restart starts the killed process again and returns when it is ready.
func (p *Product) Restart(t testing.TB) {
	t.Helper()
	p.Launch(t)
	p.WaitReady(t)
}

// Stop ends the process in order.
func (p *Product) Stop(t testing.TB) {
	t.Helper()
	if err := p.proc.Stop(30 * time.Second); err != nil {
		t.Errorf("stop switchback: %v", err)
	}
}

// CLI runs a subcommand against the process and decodes what it prints with --json.
func (p *Product) CLI(t testing.TB, into any, args ...string) {
	t.Helper()
	cmd := exec.Command(p.binary, append(args, "--json", "--admin", p.Admin.base)...)
	cmd.Env = append(os.Environ(), "SWITCHBACK_TOKEN="+token)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("switchback %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("switchback %s printed %q: %v", strings.Join(args, " "), out, err)
	}
}

// report shows the last words of the product if the test failed.
func (p *Product) report(t testing.TB) {
	if !t.Failed() || p.proc == nil {
		return
	}
	status := "does not answer"
	if s, err := p.Admin.Status(); err == nil {
		b, _ := json.Marshal(s)
		status = string(b)
	}
	t.Logf("switchback status: %s\nlog %s ends with:\n%s", status, p.proc.Output(), proc.Tail(p.proc.Output(), 6000))
}
