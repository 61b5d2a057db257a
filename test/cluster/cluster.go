// Package cluster runs real Kafka clusters for tests: three KRaft brokers (each controller too) on 127.0.0.1, from the jars that
// test/setup.sh downloads. Versions before 3.0 run with ZooKeeper.
//
//	blue := cluster.Start(t, cluster.Options{Name: "blue"})
//	blue.CreateTopic(t, cluster.Topic{Name: "orders", Partitions: 3})
//	blue.Kill(1)
//	blue.Restart(t, 1)
package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/test/proc"
)

// DefaultVersion is the Kafka that runs if neither Options nor the variable SWITCHBACK_KAFKA_VERSION name one.
const DefaultVersion = "4.3.1"

const readyTimeout = 3 * time.Minute // seconds on a free machine; many share theirs

const (
	host           = "127.0.0.1" // where brokers listen
	portsPerBroker = 3
)

// Options say what runs.
type Options struct {
	Name      string
	Brokers   int               // default 3
	FirstNode int               // node id of the first broker; default 1
	Version   string            // default: see DefaultVersion
	Props     map[string]string // server properties, over the defaults
	Heap      string            // default 512m
	// AdvertisedHost is where clients are sent; default 127.0.0.1, where brokers listen. A relay may stand on another.
	AdvertisedHost string
}

// Cluster is a running cluster. The brokers are counted from 0.
type Cluster struct {
	Name    string
	options Options
	dir     string
	id      string
	port    int // the first; each broker has portsPerBroker: for clients, for its controller, for other brokers
	brokers []*proc.Process
}

// Start runs a cluster and returns when all its brokers answer. It ends with the test.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	return StartAll(t, options)[0]
}

// StartAll runs several clusters at the same time.
func StartAll(t testing.TB, options ...Options) []*Cluster {
	t.Helper()
	clusters := make([]*Cluster, len(options))
	for i, o := range options {
		clusters[i] = Prepare(t, o)
		clusters[i].launchAll(t)
	}
	for _, c := range clusters {
		c.WaitReady(t)
	}
	return clusters
}

// Launch starts the brokers of a prepared cluster and returns when all answer.
func (c *Cluster) Launch(t testing.TB) {
	t.Helper()
	c.launchAll(t)
	c.WaitReady(t)
}

func (c *Cluster) launchAll(t testing.TB) {
	t.Helper()
	if c.options.zooKeeper() {
		c.launchZooKeeper(t)
	}
	for i := range c.brokers {
		c.launch(t, i)
	}
}

// Prepare formats a cluster and starts nothing.
func Prepare(t testing.TB, options Options) *Cluster {
	t.Helper()
	options.Brokers = orInt(options.Brokers, 3)
	options.FirstNode = orInt(options.FirstNode, 1)
	options.Version = orString(options.Version, orString(os.Getenv("SWITCHBACK_KAFKA_VERSION"), DefaultVersion))
	options.Heap = orString(options.Heap, "512m")
	options.AdvertisedHost = orString(options.AdvertisedHost, host)
	c := &Cluster{Name: options.Name, options: options, dir: proc.Dir(t), id: uuid(), port: proc.FreePorts(t, portsPerBroker*options.Brokers)}
	c.brokers = make([]*proc.Process, options.Brokers)
	for i := range options.Brokers {
		if err := os.WriteFile(c.file(i, "server.properties"), []byte(c.properties(i)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if options.zooKeeper() {
		c.prepareZooKeeper(t)
	} else {
		c.format(t)
	}
	return c
}

func orInt(v, fallback int) int {
	if v == 0 {
		return fallback
	}
	return v
}

func orString(v, fallback string) string {
	if v == "" {
		return fallback
	}
	return v
}

// uuid is one as Kafka writes it, and without the leading dash that its tools would take for an option.
func uuid() string {
	var b [16]byte
	rand.Read(b[:])
	b[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// format runs the storage tool for the first broker alone, and gives the others a copy under their own ids: it spares two JVMs.
func (c *Cluster) format(t testing.TB) {
	t.Helper()
	tool := proc.Start(t, proc.Config{
		Name: c.Name + " format", Path: "java", Output: filepath.Join(c.dir, c.Name+"-format.log"),
		Args: append(c.javaArgs(t), "kafka.tools.StorageTool", "format", "-t", c.id, "-c", c.file(0, "server.properties")),
	})
	if err := tool.Wait(time.Minute); err != nil {
		t.Fatalf("format %s: %v", c.Name, err)
	}
	from := c.dataDir(0)
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < c.options.Brokers; i++ {
		if err := os.MkdirAll(c.dataDir(i), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			b, err := os.ReadFile(filepath.Join(from, entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if entry.Name() == "meta.properties" {
				b = c.ownIDs(b, i)
			}
			if err := os.WriteFile(filepath.Join(c.dataDir(i), entry.Name()), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (c *Cluster) ownIDs(meta []byte, i int) []byte {
	lines := strings.Split(string(meta), "\n")
	for at, line := range lines {
		switch key, _, _ := strings.Cut(line, "="); key {
		case "node.id":
			lines[at] = fmt.Sprintf("node.id=%d", c.Node(i))
		case "directory.id":
			lines[at] = "directory.id=" + uuid()
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

func (c *Cluster) file(i int, name string) string {
	return filepath.Join(c.dir, fmt.Sprintf("%s-%d-%s", c.Name, c.Node(i), name))
}

func (c *Cluster) dataDir(i int) string { return c.file(i, "data") }

// Node is the node id of broker i.
func (c *Cluster) Node(i int) int { return c.options.FirstNode + i }

// Addr is the address of broker i for clients.
func (c *Cluster) Addr(i int) string { return c.address(c.options.AdvertisedHost, i, 0) }

// Ports are the first of the ports of all brokers, and how many there are.
func (c *Cluster) Ports() (first, count int) { return c.port, portsPerBroker * c.options.Brokers }

// address is that of broker i: which is 0 for clients, 1 for its controller, 2 for other brokers.
func (c *Cluster) address(host string, i, which int) string {
	return fmt.Sprintf("%s:%d", host, c.port+portsPerBroker*i+which)
}

// Addrs are the addresses of all brokers.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, c.options.Brokers)
	for i := range addrs {
		addrs[i] = c.Addr(i)
	}
	return addrs
}

// Bootstrap is what a client takes as its bootstrap servers.
func (c *Cluster) Bootstrap() string { return strings.Join(c.Addrs(), ",") }

func (c *Cluster) properties(i int) string {
	replicas := min(3, c.options.Brokers)
	voters := make([]string, c.options.Brokers)
	for v := range voters {
		voters[v] = fmt.Sprintf("%d@%s", c.Node(v), c.address(host, v, 1))
	}
	props := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          fmt.Sprint(c.Node(i)),
		"controller.quorum.voters":                         strings.Join(voters, ","),
		"listeners":                                        c.listeners(i, host) + ",CONTROLLER://" + c.address(host, i, 1),
		"advertised.listeners":                             c.listeners(i, c.options.AdvertisedHost),
		"listener.security.protocol.map":                   "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "INNER",
		"log.dirs":                                         c.dataDir(i),
		"default.replication.factor":                       fmt.Sprint(replicas),
		"min.insync.replicas":                              fmt.Sprint(min(2, replicas)),
		"offsets.topic.replication.factor":                 fmt.Sprint(replicas),
		"offsets.topic.num.partitions":                     "5",
		"transaction.state.log.replication.factor":         fmt.Sprint(replicas),
		"transaction.state.log.min.isr":                    fmt.Sprint(min(2, replicas)),
		"transaction.state.log.num.partitions":             "5",
		"share.coordinator.state.topic.replication.factor": fmt.Sprint(replicas),
		"share.coordinator.state.topic.min.isr":            fmt.Sprint(min(2, replicas)),
		"share.coordinator.state.topic.num.partitions":     "3",
		"group.initial.rebalance.delay.ms":                 "0",
		"unclean.leader.election.enable":                   "false",
		"auto.create.topics.enable":                        "false",
		"controlled.shutdown.enable":                       "true",
		"num.network.threads":                              "2",
		"num.io.threads":                                   "4",
		"log.cleaner.dedupe.buffer.size":                   "8388608",
		"log.cleaner.backoff.ms":                           "1000",
	}
	if c.options.zooKeeper() {
		c.onZooKeeper(props, i)
	}
	maps.Copy(props, c.options.Props)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(props)) {
		fmt.Fprintf(&b, "%s=%s\n", key, props[key])
	}
	return b.String()
}

func (c *Cluster) listeners(i int, clientHost string) string {
	return "PLAINTEXT://" + c.address(clientHost, i, 0) + ",INNER://" + c.address(host, i, 2)
}

// javaArgs are the same for broker and tools: little heap, the light compiler and collector.
func (c *Cluster) javaArgs(t testing.TB) []string {
	jars := filepath.Join(proc.Cache(t, "kafka-"+c.options.Version), "jars", "*")
	return []string{
		"-Xmx" + c.options.Heap, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS", "-cp", jars,
	}
}

func (c *Cluster) launch(t testing.TB, i int) {
	t.Helper()
	c.brokers[i] = proc.Start(t, proc.Config{
		Name: fmt.Sprintf("%s broker %d", c.Name, c.Node(i)), Path: "java", Output: c.file(i, "broker.log"),
		Args: append(c.javaArgs(t), "kafka.Kafka", c.file(i, "server.properties")),
	})
}

// Kill ends broker i at once.
func (c *Cluster) Kill(i int) { c.brokers[i].Kill() }

// KillAll ends all brokers at once.
func (c *Cluster) KillAll() {
	for _, b := range c.brokers {
		b.Kill()
	}
}

// Stop ends broker i in order.
func (c *Cluster) Stop(t testing.TB, i int) {
	t.Helper()
	// A broker that got SIGTERM ends with 143, so its exit code says nothing.
	if err := c.brokers[i].Stop(time.Minute); err != nil && c.brokers[i].Running() {
		t.Fatalf("stop %s: %v", c.Name, err)
	}
}

// Restart starts broker i, which has ended, again, and returns when it answers.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	c.RestartAsync(t, i)
	c.WaitReady(t)
}

// RestartAsync starts broker i again and does not wait.
func (c *Cluster) RestartAsync(t testing.TB, i int) {
	t.Helper()
	if c.brokers[i].Running() {
		t.Fatalf("%s broker %d still runs", c.Name, c.Node(i))
	}
	c.launch(t, i)
}

// WaitReady returns when every broker that runs is in the metadata and a controller is known.
func (c *Cluster) WaitReady(t testing.TB) {
	t.Helper()
	client := c.Client(t)
	defer client.Close()
	running := make([]bool, len(c.brokers))
	for i, b := range c.brokers {
		running[i] = b != nil && b.Running()
	}
	proc.Until(t, readyTimeout, c.Name+" is ready", func() error {
		for i, b := range c.brokers {
			if running[i] && !b.Running() {
				t.Fatalf("%s broker %d ended:\n%s", c.Name, c.Node(i), proc.Tail(b.Output(), 3000))
			}
		}
		meta, err := metadata(client, []kmsg.MetadataRequestTopic{})
		if err != nil {
			return err
		}
		return c.complete(meta, running)
	})
}

func (c *Cluster) complete(meta *kmsg.MetadataResponse, running []bool) error {
	listed := make(map[int32]bool)
	for _, b := range meta.Brokers {
		listed[b.NodeID] = true
	}
	for i, runs := range running {
		if runs && !listed[int32(c.Node(i))] {
			return fmt.Errorf("broker %d of %s is not in the metadata", c.Node(i), c.Name)
		}
	}
	if meta.ControllerID < 0 {
		return fmt.Errorf("%s has no controller", c.Name)
	}
	return nil
}

// metadata asks a broker. The client's and kadm's own metadata calls answer from a cache, and never ask again.
func metadata(client *kgo.Client, topics []kmsg.MetadataRequestTopic) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = topics
	return req.RequestWith(ctx, client)
}

// Client is a franz-go client of the cluster, for the caller to close.
func (c *Cluster) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return Dial(t, c.Bootstrap(), opts...)
}

// Dial is a franz-go client of any bootstrap address, for the caller to close.
func Dial(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	base := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.DialTimeout(time.Second),
		kgo.AlwaysRetryEOF(), // brokers come and go here, and relays before them
	}
	client, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Admin is an admin client that is closed with the test.
func (c *Cluster) Admin(t testing.TB) *kadm.Client {
	t.Helper()
	client := c.Client(t)
	t.Cleanup(client.Close)
	return kadm.NewClient(client)
}

// Close ends the cluster before its test does.
func (c *Cluster) Close() { c.KillAll() }
