package engine

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// site is two clusters and a configuration for them; switchback may be started and stopped on it.
type site struct {
	t           *testing.T
	blue, green *kfake.Cluster
	ports       int // first of six
	client      *admin.Client
	log         *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, ports: freePorts(t), log: &lockedBuffer{}}
	for name, c := range map[string]**kfake.Cluster{"blue": &s.blue, "green": &s.green} {
		var err error
		if *c, err = testkit.StartKafka(1, name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*c).Close)
	}
	s.client = &admin.Client{URL: fmt.Sprintf("http://127.0.0.1:%d", s.ports+5)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// freePorts finds six ports in a row.
func freePorts(t *testing.T) int {
	t.Helper()
	first, err := testkit.FreePorts(6)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func (s *site) config(blue, green string) *config.Config {
	s.t.Helper()
	cfg, err := config.Parse(fmt.Appendf(nil, `
clusters:
  blue:  {bootstrap: ["%s"]}
  green: {bootstrap: ["%s"]}
virtual_clusters:
  - {name: main, active: blue, standby: green, listen: "127.0.0.1:%d", broker_ports: {start: %d, count: 4}, advertised_host: 127.0.0.1}
replication: {checkpoint_interval: 200ms}
admin: {listen: "127.0.0.1:%d"}
`, blue, green, s.ports, s.ports+1, s.ports+5))
	if err != nil {
		s.t.Fatal(err)
	}
	return cfg
}

// serve starts switchback; the returned function ends it and gives its error.
func (s *site) serve() (stop func() error) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cfg := s.config(s.blue.ListenAddrs()[0], s.green.ListenAddrs()[0])
	go func() {
		done <- Serve(ctx, cfg, Options{Version: "test", WatchInterval: 200 * time.Millisecond, Log: zerolog.New(s.log)})
	}()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() { cancel(); err = <-done })
		return err
	}
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

func (s *site) await(what string, ok func(admin.VirtualClusterStatus) bool) {
	s.t.Helper()
	testkit.Eventually(s.t, 20*time.Second, what, func() bool {
		st, err := s.client.Status(s.t.Context(), admin.StatusQuery{})
		return err == nil && ok(st.VirtualClusters[0])
	})
}

func caughtUp(topic string) func(admin.VirtualClusterStatus) bool {
	return func(vc admin.VirtualClusterStatus) bool {
		n := 0
		for _, p := range vc.Partitions {
			if p.Topic == topic && p.State == "CaughtUp" {
				n++
			}
		}
		return n == 2 && vc.Health == admin.Green
	}
}

func (s *site) bootstrap() string { return fmt.Sprintf("127.0.0.1:%d", s.ports) }

// cutover moves to a cluster.
func (s *site) cutover(to string) admin.Cutover {
	s.t.Helper()
	last := s.order(admin.CutoverOrder{To: to})
	if last.Phase != "Done" {
		s.t.Fatalf("ended in %s: %+v", last.Phase, last.Error)
	}
	return last
}

// order starts a move and waits for its end.
func (s *site) order(o admin.CutoverOrder) (last admin.Cutover) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	id, err := s.client.StartCutover(ctx, o)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.client.Events(ctx, id, func(c admin.Cutover) bool { last = c; return true }); err != nil {
		s.t.Fatalf("%v; last %+v", err, last)
	}
	return last
}

func TestACutoverARestartAndAFailbackKeepEveryRecord(t *testing.T) {
	s := newSite(t)
	stop := s.serve()
	testkit.Eventually(t, 20*time.Second, "not ready", func() bool {
		_, err := s.client.Status(t.Context(), admin.StatusQuery{})
		return err == nil
	})
	producer, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s.await("not serving", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 })
	if _, err := kadm.NewClient(producer).CreateTopic(ctx, 2, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	sent := 0
	produce := func(n int) {
		t.Helper()
		for range n {
			r := &kgo.Record{Topic: "orders", Partition: int32(sent % 2), Value: fmt.Appendf(nil, "%d", sent)}
			if err := producer.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatalf("record %d: %v", sent, err)
			}
			if want := int64(sent / 2); r.Offset != want {
				t.Fatalf("record %d has offset %d, want %d", sent, r.Offset, want)
			}
			sent++
		}
	}
	produce(20)
	s.await("not copied", caughtUp("orders"))
	c := s.cutover("green")
	t.Logf("to green: pause %d ms, phases %+v", c.PauseMillis, c.Phases)
	produce(20)
	s.await("not copied back", caughtUp("orders"))

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.serve()
	s.await("not serving after the restart", func(vc admin.VirtualClusterStatus) bool {
		return vc.Generation == 2 && vc.Active == "green" && vc.Phase == "Idle"
	})
	produce(20)
	s.await("not copied after the restart", caughtUp("orders"))
	s.cutover("blue")
	produce(20)
	read(t, ctx, s.bootstrap(), sent)
	s.askAround(ctx)
	if text := s.metrics(); strings.Contains(text, `switchback_pumps{flow="green.blue"`) || !strings.Contains(text, `switchback_pumps{flow="blue.green"`) {
		t.Error("metrics show a flow that has ended, or not the one that runs")
	}
}

// read reads all from the start and checks that nothing is missing, twice or out of order.
func read(t *testing.T, ctx context.Context, bootstrap string, sent int) {
	t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	next := [2]int{0, 1}
	for got := 0; got < sent; {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d records: %v", got, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if want := fmt.Sprint(next[r.Partition]); string(r.Value) != want {
				t.Fatalf("partition %d offset %d: %s, want %s", r.Partition, r.Offset, r.Value, want)
			}
			next[r.Partition] += 2
			got++
		})
	}
}

// askAround checks the questions of the admin interface after a failback.
func (s *site) askAround(ctx context.Context) {
	s.t.Helper()
	tr, err := s.client.Translate(ctx, admin.TranslateQuery{Topic: "orders", Partition: 0, Offset: 15, To: "green"})
	if err != nil || tr.Kind != "record" || tr.Segment == nil || tr.Segment.Kind != "native" {
		s.t.Errorf("translate: %+v, %v", tr, err)
	}
	end, err := s.client.Translate(ctx, admin.TranslateQuery{Topic: "orders", Partition: 0, Offset: 40})
	if err != nil || end.Kind != "end" {
		s.t.Errorf("translate at the end: %+v, %v", end, err)
	}
	beyond, err := s.client.Translate(ctx, admin.TranslateQuery{Topic: "orders", Partition: 0, Offset: 41})
	if err != nil || beyond.Kind != "unknown" {
		s.t.Errorf("translate beyond the end: %+v, %v", beyond, err)
	}
	for _, cluster := range []string{"blue", "green"} { // the active one, and the standby
		q := admin.TranslateQuery{Topic: "orders", Offset: 500_000, From: cluster}
		if tr, err := s.client.Translate(ctx, q); err != nil || tr.Kind != "unknown" || tr.Virtual != -1 || tr.Physical != -1 {
			s.t.Errorf("a place behind the end of %s: %+v, %v", cluster, tr, err)
		}
	}
	s.await("not copied", caughtUp("orders"))
	testkit.Eventually(s.t, 10*time.Second, "the ends of both logs are the end", func() bool {
		for cluster, on := range map[string]*kfake.Cluster{"blue": s.blue, "green": s.green} {
			q := admin.TranslateQuery{Topic: "orders", Offset: on.PartitionInfo("orders", 0).HighWatermark, From: cluster}
			if tr, err := s.client.Translate(ctx, q); err != nil || tr.Kind != "end" || tr.Virtual != 40 || tr.Physical != q.Offset {
				return false
			}
		}
		return true
	})
	if _, err := s.client.Translate(ctx, admin.TranslateQuery{Topic: "orders", Partition: 7, Offset: 1}); err == nil {
		s.t.Error("a partition that is not there was translated")
	}
	if _, err := s.client.Group(ctx, "", "nobody"); err == nil {
		s.t.Error("a group that is not there was found")
	}
	if _, err := s.client.Orphans(ctx); err != nil {
		s.t.Error(err)
	}
}
