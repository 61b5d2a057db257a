// Package proc starts the processes of the end-to-end tests: brokers, clients, the product. None of them outlives the test: the
// kernel kills them when the test process ends, however it ends, and Cleanup ends them before.
//
//	p := proc.Start(t, proc.Config{Name: "blue-1", Path: "java", Args: args, Output: "blue-1.log"})
//	p.Signal(syscall.SIGTERM)
//	p.Wait(10 * time.Second)
package proc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Config names a program and where its output goes.
type Config struct {
	Name   string   // for messages
	Path   string   // of the program
	Args   []string // without the program's name
	Dir    string   // if empty, that of the test
	Env    []string // added to the test's own
	Output string   // file that standard output and error are appended to
}

// Process is a running or ended child. Its methods may be called from several goroutines.
type Process struct {
	config Config
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	err    error         // of Wait; valid once done is closed
}

// Start runs the program, or fails the test. When the test ends the process is killed.
func Start(t testing.TB, config Config) *Process {
	t.Helper()
	output, err := os.OpenFile(config.Output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("%s: open output: %v", config.Name, err)
	}
	defer output.Close() // the child has its own copy
	cmd := exec.Command(config.Path, config.Args...)
	cmd.Dir = config.Dir
	cmd.Env = append(os.Environ(), config.Env...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{config: config, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		t.Fatalf("%s: start: %v", config.Name, err)
	}
	t.Cleanup(p.Kill)
	return p
}

// run starts the process and waits for its end, on one thread: the kernel takes for the parent the thread that forked, and kills
// the children of a thread that ends.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

// Pid is the process id, and that of its group.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is the file that holds what the process printed.
func (p *Process) Output() string { return p.config.Output }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends to the process and all that it started. An ended process is not an error.
func (p *Process) Signal(signal syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.Pid(), signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: signal %v: %w", p.config.Name, signal, err)
	}
	return nil
}

// Kill ends the process at once, as a power failure would, and returns when it has ended.
func (p *Process) Kill() {
	if p.Signal(syscall.SIGKILL) == nil {
		<-p.done
	}
}

// Wait returns when the process has ended: nil if it did so with exit code 0.
func (p *Process) Wait(timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.err != nil {
			return fmt.Errorf("%s ended with %w; output: %s\n%s", p.config.Name, p.err, p.config.Output, Tail(p.config.Output, 2000))
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("%s still runs after %v; output: %s\n%s", p.config.Name, timeout, p.config.Output, Tail(p.config.Output, 2000))
	}
}

// Stop asks the process to end in order and waits for it.
func (p *Process) Stop(timeout time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return p.Wait(timeout)
}

// Tail is the end of a file, for messages.
func Tail(path string, bytes int64) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if int64(len(b)) > bytes {
		b = b[int64(len(b))-bytes:]
	}
	return string(b)
}

// Lines returns the last n lines of a file that contain one of the texts, for messages.
func Lines(path string, n int, texts ...string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out[max(0, len(out)-n):]
}

// Root is the top folder of the project.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if filepath.Dir(dir) == dir {
			t.Fatal("no go.mod above the working folder")
		}
		dir = filepath.Dir(dir)
	}
}

// Cache is a folder below test/.cache, where test/setup.sh puts what the tests need. What is missing fails the test.
func Cache(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(Root(t), "test", ".cache", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is missing: run test/setup.sh (for another Kafka version: test/setup.sh VERSION)", path)
	}
	return path
}

// Build builds a command of the project and returns the path of the binary. Nothing is done if it is up to date.
func Build(t testing.TB, name, pkg string, flags ...string) string {
	t.Helper()
	path := filepath.Join(Root(t), "test", ".cache", "bin", name)
	build := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), pkg)...)
	build.Dir = Root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// Dir is a folder for the logs of a test. It is kept, for a look after a failure, if SWITCHBACK_TEST_DIR names a place.
func Dir(t testing.TB) string {
	t.Helper()
	base := os.Getenv("SWITCHBACK_TEST_DIR")
	if base == "" {
		return t.TempDir()
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(base, filepath.Base(t.Name())+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("files of this test: %s", dir)
	return dir
}

// Ports below the range from which the kernel takes the ports of outgoing connections, so that a restarted listener finds its
// port free.
const firstPort, endPort = 20000, 32000

// FreePorts returns the first of n ports in a row on which nobody listens.
func FreePorts(t testing.TB, n int) int {
	t.Helper()
	for range 1000 {
		first := firstPort + rand.IntN(endPort-firstPort-n)
		if allFree(first, n) {
			return first
		}
	}
	t.Fatalf("no %d free ports in a row", n)
	return 0
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// Until calls f every 20 ms until it returns nil, and fails the test with f's last error after timeout.
func Until(t testing.TB, timeout time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, timeout, err)
		}
		<-ticker.C
	}
}
