package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

func TestOneClusterUnderTwoNamesIsRefused(t *testing.T) {
	s := newSite(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	addr := s.blue.ListenAddrs()[0]
	_, port, _ := net.SplitHostPort(addr)
	err := Serve(ctx, s.config(addr, "localhost:"+port), Options{Log: zerolog.New(s.log)})
	if !errors.Is(err, errSameCluster) || !strings.Contains(err.Error(), "blue") {
		t.Errorf("it ended with %v", err)
	}
}

func TestClientsAreServedWhileTheStandbyIsDown(t *testing.T) {
	s := newSite(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0") // accepts nobody and answers nothing once closed
	if err != nil {
		t.Fatal(err)
	}
	down := nobody.Addr().String()
	_ = nobody.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], down), Options{Log: zerolog.New(s.log)}) }()
	defer func() { cancel(); <-done }()
	s.await("the standby is not missed", func(vc admin.VirtualClusterStatus) bool {
		return vc.Generation == 1 && vc.Health == admin.Yellow && strings.Contains(vc.Reason, "green") && vc.Assumed != ""
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asking, stop := context.WithTimeout(ctx, 15*time.Second)
	defer stop()
	if err := client.Ping(asking); err != nil {
		t.Errorf("a client is not served: %v", err)
	}
	id, err := s.client.StartCutover(asking, admin.CutoverOrder{To: "green"})
	if err != nil {
		t.Fatal(err)
	}
	var last admin.Cutover
	if err := s.client.Events(asking, id, func(c admin.Cutover) bool { last = c; return true }); err != nil {
		t.Fatal(err)
	}
	if last.Phase != "Aborted" || last.Error.Code != "cluster_down" {
		t.Errorf("a move to a cluster that is down: %+v", last)
	}
}

func TestAStandbyThatComesUpLaterIsTakenInWithAllItsBrokers(t *testing.T) {
	s := newSite(t)
	late, port := s.lateStandby(3)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], fmt.Sprintf("127.0.0.1:%d", port)), Options{WatchInterval: 100 * time.Millisecond, Log: zerolog.New(s.log)})
	}()
	defer func() { cancel(); <-done }()
	s.await("the standby is not missed", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 && vc.Health == admin.Yellow })
	late()
	s.await("the standby is not taken in", func(vc admin.VirtualClusterStatus) bool { return vc.Health == admin.Green && vc.Assumed == "" })
	s.cutover("green")
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	asking, stop := context.WithTimeout(ctx, 15*time.Second)
	defer stop()
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(asking, client)
	if err != nil || len(meta.Brokers) != 3 {
		t.Fatalf("clients see %+v: %v", meta, err)
	}
	for _, b := range meta.Brokers {
		if _, err := client.Broker(int(b.NodeID)).Request(asking, kmsg.NewPtrApiVersionsRequest()); err != nil {
			t.Errorf("broker %d is not served: %v", b.NodeID, err)
		}
	}
}

// A cluster that outgrows broker_ports must not keep clients from the other one, nor the process from starting again.
func TestMoreBrokersThanThereIsRoomForAreSaidAndNotShown(t *testing.T) {
	s := newSite(t)
	late, port := s.lateStandby(5)
	late()
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], fmt.Sprintf("127.0.0.1:%d", port)), Options{WatchInterval: 100 * time.Millisecond, Log: zerolog.New(s.log)})
		}()
		s.await("it does not say that there is no room", func(vc admin.VirtualClusterStatus) bool {
			return vc.Health == admin.Yellow && strings.Contains(vc.Reason, "green has 5 brokers, broker_ports has room for 4")
		})
		id, err := s.client.StartCutover(ctx, admin.CutoverOrder{To: "green"})
		if err != nil {
			t.Fatal(err)
		}
		var last admin.Cutover
		if err := s.client.Events(ctx, id, func(c admin.Cutover) bool { last = c; return true }); err != nil {
			t.Fatal(err)
		}
		if last.Phase != "Aborted" || !strings.Contains(last.Error.Message, "room for 4") {
			t.Errorf("a move there ended in %s: %+v", last.Phase, last.Error)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// lateStandby is a cluster that is down until start is called.
func (s *site) lateStandby(brokers int) (start func(), port int) {
	s.t.Helper()
	port, err := testkit.FreePorts(brokers)
	if err != nil {
		s.t.Fatal(err)
	}
	ports := make([]int, brokers)
	for i := range ports {
		ports[i] = port + i
	}
	return func() {
		late, err := testkit.StartKafka(brokers, "late", kfake.Ports(ports...))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(late.Close)
	}, port
}

// The next start takes it in at once, not at the first look of the watch.
func TestAStandbyThatWasDownAtTheFirstStartIsTakenInAtTheNext(t *testing.T) {
	s := newSite(t)
	late, port := s.lateStandby(1)
	serve := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], fmt.Sprintf("127.0.0.1:%d", port)), Options{WatchInterval: time.Hour, Log: zerolog.New(s.log)})
		}()
		return func() { cancel(); <-done }
	}
	stop := serve()
	s.await("the standby is not missed", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 && vc.Health == admin.Yellow })
	stop()
	late()
	defer serve()()
	s.await("the standby is not taken in", func(vc admin.VirtualClusterStatus) bool { return vc.Health == admin.Green })
	s.cutover("green")
}

func TestReadinessSaysWhyNobodyIsServed(t *testing.T) {
	s := newSite(t)
	blue := s.blue.ListenAddrs()[0]
	s.blue.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, s.config(blue, s.green.ListenAddrs()[0]), Options{Log: zerolog.New(s.log)}) }()
	defer func() { cancel(); <-done }()
	s.await("the active is not missed", func(vc admin.VirtualClusterStatus) bool {
		return vc.Health == admin.Red && strings.Contains(vc.Reason, "blue")
	})
	asked := map[string]error{}
	_, asked["translate"] = s.client.Translate(ctx, admin.TranslateQuery{Topic: "orders"})
	_, asked["group"] = s.client.Group(ctx, "", "app")
	_, asked["orphans"] = s.client.Orphans(ctx)
	for what, err := range asked {
		if codeOf(err) != cutover.CodeClusterDown {
			t.Errorf("%s: what is not known is answered with %v", what, err)
		}
	}
}

func codeOf(err error) string {
	var e *cutover.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// A standby that is down hides what is on it.
func TestStraysAreNotKnownWhileTheStandbyIsDown(t *testing.T) {
	s := newSite(t)
	_, port := s.lateStandby(1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], fmt.Sprintf("127.0.0.1:%d", port)), Options{Log: zerolog.New(s.log)})
	}()
	defer func() { cancel(); <-done }()
	s.await("the standby is not missed", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 && vc.Health == admin.Yellow })
	if _, err := s.client.Orphans(ctx); codeOf(err) != cutover.CodeClusterDown {
		t.Errorf("answered with %v", err)
	}
	if _, err := s.client.Group(ctx, "", "nobody"); codeOf(err) != cutover.CodeNotFound {
		t.Errorf("a group that the active cluster does not have: %v", err)
	}
}

func TestAPortThatIsTakenEndsTheStart(t *testing.T) {
	s := newSite(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.ports+1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Serve(ctx, s.config(s.blue.ListenAddrs()[0], s.green.ListenAddrs()[0]), Options{Log: zerolog.New(s.log)}); err == nil || ctx.Err() != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestVersionsAreThoseThatBothClustersSpeak(t *testing.T) {
	a := map[int16][2]int16{0: {3, 11}, 1: {4, 16}, 2: {0, 1}, 5: {0, 3}}
	b := map[int16][2]int16{0: {0, 9}, 1: {4, 17}, 2: {2, 5}}
	got := intersect(intersect(nil, a), b)
	if len(got) != 2 || got[0] != [2]int16{3, 9} || got[1] != [2]int16{4, 16} {
		t.Errorf("both speak %v", got)
	}
	if missing := lacking(got, b); missing != "" {
		t.Errorf("b lacks %s", missing)
	}
	if missing := lacking(a, got); missing == "" {
		t.Error("nothing is lacking")
	}
}

func TestVirtualNodesNeverMove(t *testing.T) {
	known := []int32{5, 3}
	got := growNodes(known, []int32{1, 3, 9})
	if fmt.Sprint(got) != "[5 3 1 9]" {
		t.Errorf("nodes %v", got)
	}
	if n := nodeCount(control.Identity{Nodes: map[string][]int32{"blue": {1}, "green": got}}); n != 4 {
		t.Errorf("%d nodes", n)
	}
}

func TestALoginIsDoneBeforeTheFirstRequest(t *testing.T) {
	for name, mechanism := range map[string]kfake.Opt{
		config.MechanismPlain:       kfake.Superuser("PLAIN", "user", "secret"),
		config.MechanismScramSHA256: kfake.Superuser("SCRAM-SHA-256", "user", "secret"),
		config.MechanismScramSHA512: kfake.Superuser("SCRAM-SHA-512", "user", "secret"),
	} {
		t.Run(name, func(t *testing.T) {
			cluster, err := testkit.StartKafka(1, "blue", kfake.EnableSASL(), mechanism)
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			addr := cluster.ListenAddrs()[0]
			u, err := connect("blue", config.Cluster{Bootstrap: []string{addr}, SASL: config.SASL{Mechanism: name, Username: "user", Password: "secret"}})
			if err != nil {
				t.Fatal(err)
			}
			defer u.client.Close()
			if err := u.ping(ctx); err != nil {
				t.Error(err)
			}
			conn, err := u.dial(ctx, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			req, resp := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
			req.Version = 1
			if err := exchange(conn, req, resp, 7); err != nil || len(resp.Brokers) != 1 {
				t.Errorf("after the login: %v, %+v", err, resp)
			}
			wrong, err := connect("blue", config.Cluster{Bootstrap: []string{addr}, SASL: config.SASL{Mechanism: name, Username: "user", Password: "wrong"}})
			if err != nil {
				t.Fatal(err)
			}
			defer wrong.client.Close()
			if _, err := wrong.dial(ctx, addr); err == nil {
				t.Error("a wrong password is accepted")
			}
		})
	}
}

func TestAStandbyThatRestartsWhileItIsWarmedIsAskedAgain(t *testing.T) {
	gone := errors.New("gone for good")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"loads, then closes":  {[]error{kerr.CoordinatorLoadInProgress, &kgo.ErrFirstReadEOF{}, nil}, nil},
		"is not allowed":      {[]error{kerr.GroupAuthorizationFailed}, kerr.GroupAuthorizationFailed},
		"fails for good":      {[]error{gone}, gone},
		"closes, then fails":  {[]error{&kgo.ErrFirstReadEOF{}, gone}, gone},
		"is there all along":  {[]error{nil}, nil},
		"says it by its code": {[]error{kerr.CoordinatorNotAvailable, nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			err := untilReady(t.Context(), func() (int16, error) {
				asked++
				var code *kerr.Error
				if errors.As(c.answers[asked-1], &code) {
					return code.Code, nil
				}
				return 0, c.answers[asked-1]
			})
			if !errors.Is(err, c.want) || asked != len(c.answers) {
				t.Errorf("asked %d times of %d: %v", asked, len(c.answers), err)
			}
		})
	}
}

// A move waits until the journal of the target says all that was copied: the next process has nothing else to go by.
func TestNoMoveIsCommittedBeforeTheJournalIsSettled(t *testing.T) {
	s := newSite(t)
	if err := s.blue.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	stop := s.serve()
	s.await("copied", caughtUp("orders"))
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap()), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 20 {
		if err := client.ProduceSync(t.Context(), kgo.StringRecord("x")).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, 20*time.Second, "all is on green, behind a marker of each partition", func() bool {
		return s.green.PartitionInfo("orders", 0).HighWatermark+s.green.PartitionInfo("orders", 1).HighWatermark == 20+2
	})
	var refused atomic.Bool
	refused.Store(true)
	journal := s.green.TopicInfo("switchback.blue.green.journal").TopicID
	s.green.ControlKey(int16(kmsg.Produce), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		s.green.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		if !refused.Load() || len(req.Topics) != 1 || req.Topics[0].TopicID != journal {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		t := kmsg.NewProduceResponseTopic()
		t.TopicID = journal
		for _, rp := range req.Topics[0].Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = rp.Partition, kerr.NotEnoughReplicas.Code
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
		return resp, nil, true
	})
	if last := s.order(admin.CutoverOrder{To: "green", MaxPause: "2s"}); last.Phase != "Aborted" {
		t.Fatalf("ended in %s", last.Phase)
	}
	refused.Store(false)
	s.await("copied", caughtUp("orders"))
	s.cutover("green")
	_ = stop()
	s.serve()
	s.await("serving generation 2", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 2 && vc.Health == admin.Green })
}
