package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

func (s *site) ready() bool {
	s.t.Helper()
	resp, err := http.Get(s.client.URL + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (s *site) metrics() string {
	s.t.Helper()
	resp, err := http.Get(s.client.URL + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// Clients of the Kafka library remember the brokers they have seen: only an answer over the network says that one is there.
func TestAClusterThatDiesAfterTheStartIsMissed(t *testing.T) {
	s := newSite(t)
	if err := s.blue.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	stop := s.serve()
	s.await("copied", caughtUp("orders"))
	s.green.Close()
	s.await("the standby is not missed", func(vc admin.VirtualClusterStatus) bool {
		return vc.Health == admin.Yellow && strings.Contains(vc.Reason, "the standby gets no copies")
	})
	if !s.ready() {
		t.Error("not ready, and clients are served")
	}
	testkit.Eventually(t, 10*time.Second, "the metrics tell", func() bool {
		text := s.metrics()
		return strings.Contains(text, `switchback_cluster_reachable{cluster="blue"} 1`) && strings.Contains(text, `switchback_cluster_reachable{cluster="green"} 0`)
	})
	s.blue.Close()
	s.await("the active is not missed", func(vc admin.VirtualClusterStatus) bool {
		return vc.Health == admin.Red && strings.Contains(vc.Reason, "the active cluster blue cannot be reached")
	})
	if s.ready() {
		t.Error("ready, and the active cluster is gone")
	}
	if _, err := s.client.Group(t.Context(), "", "app"); codeOf(err) != cutover.CodeClusterDown || !strings.Contains(err.Error(), "blue") {
		t.Errorf("asked for a group: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("it ended with: %v", err)
	}
}

// One broker of a cluster hangs: it takes connections and answers nothing. The cluster is there.
func TestABrokerThatHangsIsNotTheCluster(t *testing.T) {
	cluster, err := testkit.StartKafka(1, "blue")
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = hanging.Close() }()
	for _, bootstrap := range [][]string{{hanging.Addr().String(), cluster.ListenAddrs()[0]}, {cluster.ListenAddrs()[0], hanging.Addr().String()}} {
		u, err := connect("blue", config.Cluster{Bootstrap: bootstrap})
		if err != nil {
			t.Fatal(err)
		}
		if err := u.ping(t.Context()); err != nil || u.clusterID() != "blue" {
			t.Errorf("bootstrap %v: id %q, %v", bootstrap, u.clusterID(), err)
		}
		u.client.Close()
	}
}

// The standby's copy of the record says who is active, and is not enough to serve by.
func TestAStartWithTheActiveDownSaysWhoIsActive(t *testing.T) {
	s := newSite(t)
	if err := s.blue.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	stop := s.serve()
	s.await("copied", caughtUp("orders"))
	s.cutover("green")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	green := s.green.ListenAddrs()[0]
	s.green.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], green), Options{Log: zerolog.New(s.log)}) }()
	defer func() { cancel(); <-done }()
	s.await("the record is not shown", func(vc admin.VirtualClusterStatus) bool {
		return vc.Active == "green" && vc.Standby == "blue" && vc.Generation == 2 && vc.Health == admin.Red &&
			strings.Contains(vc.Reason, "the active cluster green cannot be reached") && strings.Contains(vc.Assumed, "green")
	})
	if s.ready() {
		t.Error("ready, and nobody can be served")
	}
}

// With the active down clients connect, learn the brokers and wait; what they asked is done when it is back, in the numbers they know.
func TestClientsWaitForAnActiveThatIsDownAtTheStart(t *testing.T) {
	s := newSite(t)
	if err := s.blue.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	stop := s.serve()
	s.await("copied", caughtUp("orders"))
	s.cutover("green")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	port, err := testkit.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	away := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], away), Options{Log: zerolog.New(s.log)}) }()
	defer func() { cancel(); <-done }()
	s.await("the active is not missed", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 2 && vc.Health == admin.Red })

	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("orders")
	req.Topics = append(req.Topics, topic)
	meta, err := req.RequestWith(ctx, client)
	if err != nil || len(meta.Brokers) != 1 || int(meta.Brokers[0].Port) != s.ports+1 || meta.Topics[0].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Fatalf("clients are told %+v, %v", meta, err)
	}
	sent := make(chan error, 1)
	r := &kgo.Record{Topic: "orders", Value: []byte("held")}
	go func() { sent <- client.ProduceSync(ctx, r).FirstErr() }()
	found := make(chan error, 1)
	go func() {
		_, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, client) // goes to a broker at once, and is held
		found <- err
	}()
	testkit.Eventually(t, 10*time.Second, "the calls wait", func() bool {
		return strings.Contains(s.log.String(), "calls wait")
	})
	select {
	case err := <-sent:
		t.Fatalf("sent while nobody was there: %v", err)
	case err := <-found:
		t.Fatalf("answered while nobody was there: %v", err)
	default:
	}
	forward(t, away, s.green.ListenAddrs()[0])
	if err := errors.Join(<-sent, <-found); err != nil {
		t.Fatal(err)
	}
	if r.Offset != 0 || s.green.PartitionInfo("orders", 0).HighWatermark < 2 {
		t.Errorf("the record is at virtual %d, want 0; on green it is not the first", r.Offset)
	}
}

func TestCopyingThatDoesNotStartIsLogged(t *testing.T) {
	s := newSite(t)
	late, port := s.lateStandby(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], fmt.Sprintf("127.0.0.1:%d", port)), Options{WatchInterval: 100 * time.Millisecond, Log: zerolog.New(s.log)})
	}()
	defer func() { cancel(); <-done }()
	count := func(message string) int { return strings.Count(s.log.String(), `"message":"`+message+`"`) }
	testkit.Eventually(t, 20*time.Second, "nothing is logged", func() bool { return count("the standby gets no copies") > 0 })
	late()
	s.await("the standby is not taken in", func(vc admin.VirtualClusterStatus) bool { return vc.Health == admin.Green })
	if n, again := count("the standby gets no copies"), count("copying can go on"); n != 1 || again != 1 {
		t.Errorf("told %d times, and %d times that it can go on:\n%s", n, again, s.log.String())
	}
}
