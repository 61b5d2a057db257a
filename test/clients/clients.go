// Package clients runs unmodified client libraries as child processes that write down what they sent and read, in the log format
// of internal/check: Java (kafka-clients), librdkafka (confluent-kafka) and franz-go.
//
//	run := clients.NewRun(t)
//	p := run.Producer(clients.Java, clients.Producer{Bootstrap: addr, Topics: []string{"orders"}, Partitions: 3, Rate: 500})
//	g := run.Group(clients.Rdkafka, clients.Group{Bootstrap: addr, Group: "billing", Topics: []string{"orders"}, Members: 2})
//	run.MarkStart()
//	…
//	report := run.Finish(check.Config{})
package clients

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/proc"
)

const stopTimeout = 60 * time.Second

// Library is a client library.
type Library string

// The libraries.
const (
	Java    Library = "java"
	Rdkafka Library = "rdkafka"
	Franz   Library = "franz"
)

// Producer says what a producer does. It is idempotent, with acks=all and five requests in flight.
type Producer struct {
	Name       string // default: the library and a number
	Bootstrap  string
	Topics     []string
	Partitions int // of each topic; records go to them in turn
	Rate       int // records a second
	Count      int // 0: until stopped
	Size       int // bytes of a value; default 100
	Props      map[string]string
	// Transactional (Java alone): transactions of PerTransaction records, each AbortEvery-th aborted (0: none).
	Transactional              bool
	PerTransaction, AbortEvery int
}

// Group says what the members of a consumer group do. They commit by hand every CommitEvery, and not when partitions are revoked.
type Group struct {
	Group       string
	Bootstrap   string
	Topics      []string
	Members     int           // default 1
	CommitEvery time.Duration // default 200 ms
	Props       map[string]string
	// Process makes the names of the members of one group in several processes differ.
	Process string
}

// Assign says what a reader without group does: it reads all partitions from the earliest offset on.
type Assign struct {
	Name      string
	Bootstrap string
	Topics    []string
	Isolation string // default read_committed
	Props     map[string]string
}

// Run is a set of clients and their logs. It belongs to the goroutine of the test.
type Run struct {
	t         testing.TB
	dir       string
	seen      map[string]int
	producers []*Client
	readers   []*Client
	stopped   []*Client
	marks     int
	given     []check.Event // marks, and what Known told
}

// NewRun starts without clients.
func NewRun(t testing.TB) *Run {
	t.Helper()
	return &Run{t: t, dir: proc.Dir(t), seen: make(map[string]int)}
}

// Client is one or more processes that act as one producer or one reader.
type Client struct {
	Name  string   // of the producer, of the group or of the reader
	IDs   []string // names of its members in the log; client ids to the broker
	procs []*proc.Process
	logs  []*tail
}

// Log is the file of the first process.
func (c *Client) Log() string { return c.logs[0].path }

// Producer starts a producer.
func (r *Run) Producer(library Library, p Producer) *Client {
	r.t.Helper()
	if p.Name == "" {
		p.Name = r.unique(string(library) + "-producer")
	}
	mode := "producer"
	if p.Transactional {
		mode = "transactional"
	}
	args := append(common(mode, p.Name, p.Bootstrap, p.Topics, p.Props),
		"partitions="+strconv.Itoa(max(p.Partitions, 1)), "rate="+strconv.Itoa(max(p.Rate, 1)), "count="+strconv.Itoa(p.Count))
	if p.Size > 0 {
		args = append(args, "size="+strconv.Itoa(p.Size))
	}
	if p.Transactional {
		args = append(args, "per_transaction="+strconv.Itoa(max(p.PerTransaction, 1)), "abort_every="+strconv.Itoa(p.AbortEvery))
	}
	c := &Client{Name: p.Name, IDs: []string{p.Name}}
	r.start(c, library, p.Name, args)
	r.producers = append(r.producers, c)
	return c
}

// Group starts the members of a group: of Java in one process, of the others in one each.
func (r *Run) Group(library Library, g Group) *Client {
	r.t.Helper()
	members, processes := max(g.Members, 1), 1
	if library != Java {
		members, processes = 1, members
	}
	commit := g.CommitEvery
	if commit == 0 {
		commit = 200 * time.Millisecond
	}
	c := &Client{Name: g.Group}
	for range processes {
		name := r.unique(g.Group + g.Process)
		args := append(common("group", name, g.Bootstrap, g.Topics, g.Props),
			"group="+g.Group, "members="+strconv.Itoa(members), "commit_ms="+strconv.FormatInt(commit.Milliseconds(), 10))
		r.start(c, library, name, args)
		c.IDs = append(c.IDs, name)
		if library == Java {
			c.IDs = javaMembers(name, members)
		}
	}
	r.readers = append(r.readers, c)
	return c
}

// javaMembers are the names that the Java client gives to the members in its process.
func javaMembers(name string, members int) []string {
	ids := make([]string, members)
	for i := range ids {
		ids[i] = name + "-" + strconv.Itoa(i)
	}
	return ids
}

// Assign starts a reader without group.
func (r *Run) Assign(library Library, a Assign) *Client {
	r.t.Helper()
	args := common("assign", a.Name, a.Bootstrap, a.Topics, a.Props)
	if a.Isolation != "" {
		args = append(args, "isolation="+a.Isolation)
	}
	c := &Client{Name: a.Name, IDs: []string{a.Name}}
	r.start(c, library, a.Name, args)
	r.readers = append(r.readers, c)
	return c
}

func common(mode, name, bootstrap string, topics []string, props map[string]string) []string {
	args := []string{"mode=" + mode, "name=" + name, "bootstrap=" + bootstrap, "topics=" + strings.Join(topics, ",")}
	for key, value := range props {
		args = append(args, "prop."+key+"="+value)
	}
	return args
}

func (r *Run) unique(base string) string {
	r.seen[base]++
	return base + "-" + strconv.Itoa(r.seen[base])
}

func (r *Run) start(c *Client, library Library, name string, args []string) {
	r.t.Helper()
	log := filepath.Join(r.dir, name+".events")
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
	path, before := r.program(library)
	c.procs = append(c.procs, proc.Start(r.t, proc.Config{
		Name: name, Path: path, Args: append(append(before, args...), "log="+log), Output: filepath.Join(r.dir, name+".out"),
	}))
	c.logs = append(c.logs, &tail{path: log})
}

// program is what runs a library's test client, and its first arguments.
func (r *Run) program(library Library) (path string, args []string) {
	switch library {
	case Java:
		jars := filepath.Join(proc.Cache(r.t, "clients-4.3.1"), "jars", "*")
		return "java", []string{
			"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
			"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
			"-cp", proc.Cache(r.t, "java") + string(os.PathListSeparator) + jars, "Client",
		}
	case Rdkafka:
		return filepath.Join(proc.Cache(r.t, "venv"), "bin", "python"), []string{filepath.Join(proc.Root(r.t), "test", "clients", "rdkafka", "client.py")}
	case Franz:
		return proc.Build(r.t, "franz", "./test/clients/franz"), nil
	}
	r.t.Fatalf("unknown library %q", library)
	return "", nil
}

// WaitRead returns when the client has logged at least n records as read.
func (c *Client) WaitRead(t testing.TB, n int, timeout time.Duration) {
	c.wait(t, check.Read, n, timeout)
}

// WaitAcked returns when the client has logged at least n acks.
func (c *Client) WaitAcked(t testing.TB, n int, timeout time.Duration) {
	c.wait(t, check.Acked, n, timeout)
}

// WaitAssigned returns when the client has logged at least n assignments.
func (c *Client) WaitAssigned(t testing.TB, n int, timeout time.Duration) {
	c.wait(t, check.Assigned, n, timeout)
}

// WaitAssembled returns when every member of the group holds some of its n partitions, and together they hold all: a member
// that came later would make the others read again what they had not committed.
func (c *Client) WaitAssembled(t testing.TB, n int, timeout time.Duration) {
	t.Helper()
	proc.Until(t, timeout, fmt.Sprintf("%s: %d members hold %d partitions", c.Name, len(c.IDs), n), func() error {
		held := make(map[string]int)
		total := 0
		for _, log := range c.logs {
			if err := log.follow(); err != nil {
				t.Fatal(err)
			}
			for member, count := range log.held {
				held[member] += count
				total += count
			}
		}
		for _, id := range c.IDs {
			if held[id] == 0 {
				return fmt.Errorf("%s holds none: %v; last output:\n%s", id, held, proc.Tail(c.procs[0].Output(), 600))
			}
		}
		if total != n {
			return fmt.Errorf("together they hold %d: %v", total, held)
		}
		return nil
	})
}

func (c *Client) wait(t testing.TB, kind check.Kind, n int, timeout time.Duration) {
	t.Helper()
	proc.Until(t, timeout, fmt.Sprintf("%s: %d × %s", c.Name, n, kind), func() error {
		ended := c.ended() // before counting: what it wrote last must be counted
		got := c.Count(t, kind)
		if got >= n {
			return nil
		}
		if ended {
			t.Fatalf("%s ended after %d × %s, want %d\nlog:\n%s\noutput:\n%s", c.Name, got, kind, n,
				proc.Tail(c.Log(), 600), proc.Tail(c.procs[0].Output(), 600))
		}
		return fmt.Errorf("%d so far; last output:\n%s", got, proc.Tail(c.procs[0].Output(), 600))
	})
}

func (c *Client) ended() bool {
	for _, p := range c.procs {
		if !p.Running() {
			return true
		}
	}
	return false
}

// Count is how many events of a kind the client has logged so far.
func (c *Client) Count(t testing.TB, kind check.Kind) int {
	t.Helper()
	total := 0
	for _, log := range c.logs {
		if err := log.follow(); err != nil {
			t.Fatal(err)
		}
		total += log.counts[kind]
	}
	return total
}

// Errors are the failures and errors that the client has logged so far, for a test that wants to stop early.
func (c *Client) Errors(t testing.TB) int {
	t.Helper()
	return c.Count(t, check.Failed) + c.Count(t, check.Error)
}

// Stop ends the client in order and waits: a producer flushes, readers commit and close.
func (c *Client) Stop(t testing.TB) {
	t.Helper()
	c.signal(t)
	c.join(t)
}

func (c *Client) signal(t testing.TB) {
	t.Helper()
	for _, p := range c.procs {
		if err := p.Signal(stopSignal); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *Client) join(t testing.TB) {
	t.Helper()
	for _, p := range c.procs {
		// Java ends with 143 after SIGTERM. That the end was orderly is in the client's own log, where the checker looks.
		if err := p.Wait(stopTimeout); err != nil && p.Running() {
			t.Errorf("stop: %v", err)
			p.Kill()
		}
	}
}

// tail counts the events of a growing log.
type tail struct {
	path   string
	offset int64
	counts map[check.Kind]int
	held   map[string]int // partitions of a group that each member holds
	parser check.Parser
}

func (l *tail) follow() error {
	if l.counts == nil {
		l.counts = make(map[check.Kind]int)
		l.held = make(map[string]int)
	}
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	for {
		line, rest, found := bytes.Cut(b, []byte{'\n'})
		if !found {
			return nil
		}
		var e check.Event
		if err := l.parser.Parse(line, &e); err != nil {
			return fmt.Errorf("%s: %w", l.path, err)
		}
		l.counts[e.Kind]++
		switch e.Kind {
		case check.Assigned:
			l.held[e.Client] += e.Count
		case check.Revoked, check.Lost:
			l.held[e.Client] -= e.Count
		}
		l.offset += int64(len(line)) + 1
		b = rest
	}
}

// Acked is how many acks the client has logged so far.
func (c *Client) Acked(t testing.TB) int {
	t.Helper()
	return c.Count(t, check.Acked)
}
