package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/control"
)

func (s *site) create(topic string) {
	s.t.Helper()
	if err := s.blue.CreateTopic(topic, 2, nil); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) deleteOnBoth(topic string) {
	s.t.Helper()
	for _, c := range []*kfake.Cluster{s.blue, s.green} {
		if err := c.DeleteTopic(topic); err != nil {
			s.t.Fatal(err)
		}
	}
}

// blueLog is the control log on blue, for a test that reads or writes while nothing is served.
func (s *site) blueLog() (ctx context.Context, log *control.Log, store *control.Store) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.blue.ListenAddrs()...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	s.t.Cleanup(cancel)
	log = control.NewLog(control.Config{Client: client, Cluster: "blue", VirtualCluster: "main", Names: []string{"main"}})
	return ctx, log, control.NewStore("main", map[string]*control.Log{"blue": log})
}

func (s *site) topicsOnRecord() map[string]control.Topic {
	s.t.Helper()
	ctx, log, _ := s.blueLog()
	snap, err := log.Read(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return snap.Topics
}

func TestATopicDeletedBetweenTwoMovesDoesNotComeBack(t *testing.T) {
	s := newSite(t)
	s.create("orders")
	s.create("old")
	stop := s.serve()
	s.await("orders not copied", caughtUp("orders"))
	s.await("old not copied", caughtUp("old"))
	s.cutover("green")
	s.await("orders not copied back", caughtUp("orders"))
	s.await("old not copied back", caughtUp("old"))
	_ = stop()
	if _, ok := s.topicsOnRecord()["old"]; !ok {
		t.Fatal("blue's log has no copy of the record: there is nothing to come back")
	}
	s.deleteOnBoth("old")
	stop = s.serve()
	s.await("not serving without the topic", caughtUp("orders"))
	s.cutover("blue")
	s.await("orders not copied from blue", caughtUp("orders"))
	_ = stop()
	if old, ok := s.topicsOnRecord()["old"]; ok {
		t.Errorf("the record came back: %+v", old)
	}
	s.serve()
	s.await("not serving after the moves", caughtUp("orders"))
}

// A log as an earlier version left it, and a topic that was left out of a move: neither keeps the process from serving the
// other topics.
func TestATopicThatDoesNotFitIsRefusedAlone(t *testing.T) {
	s := newSite(t)
	s.create("orders")
	stop := s.serve()
	s.await("not copied", caughtUp("orders"))
	s.cutover("green")
	s.await("not copied back", caughtUp("orders"))
	s.cutover("blue")
	s.await("not copied from blue", caughtUp("orders"))
	_ = stop()

	s.create("odd")
	ctx, log, store := s.blueLog()
	onGreen := []control.Era{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: 5, Physical: 7, Shift: 1, FirstEpoch: 1}}
	onBlue := []control.Era{{Generation: 1, Cluster: "green"}, {Generation: 2, Cluster: "blue", Virtual: 5, Physical: 7, Shift: 1, FirstEpoch: 1}}
	left := []control.Topic{{Name: "gone", Partitions: [][]control.Era{onGreen}}, {Name: "odd", Partitions: [][]control.Era{onGreen, onBlue}}}
	if err := store.PutTopics(ctx, "blue", left); err != nil {
		t.Fatal(err)
	}
	stop = s.serve()
	s.await("nothing is said of the topic", func(vc admin.VirtualClusterStatus) bool {
		return vc.Generation == 3 && vc.Health == admin.Red && strings.Contains(vc.Reason, "topic odd is not served") && stoppedBoth(vc, "odd")
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(s.bootstrap()), kgo.DefaultProduceTopic("orders"), kgo.UnknownTopicRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Errorf("the other topic is not served: %v", err)
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "odd"}).FirstErr(); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("a record for the odd topic: %v", err)
	}
	if _, err := s.client.Translate(ctx, admin.TranslateQuery{Topic: "odd", Offset: 1}); err == nil {
		t.Error("an offset of the odd topic was translated")
	}

	s.deleteOnBoth("odd")
	s.await("not well without the topic", func(vc admin.VirtualClusterStatus) bool { return vc.Health == admin.Green })
	if _, err := kadm.NewClient(client).CreateTopic(ctx, 2, 1, nil, "odd"); err != nil {
		t.Fatal(err)
	}
	s.await("the new topic is not copied", caughtUp("odd"))
	_ = stop()
	snap, err := log.Read(ctx)
	if err != nil || len(snap.Topics) != 1 || len(snap.Topics["orders"].Partitions) != 2 {
		t.Errorf("on record: %+v, %v", snap.Topics, err)
	}
}

func stoppedBoth(vc admin.VirtualClusterStatus, topic string) bool {
	n := 0
	for _, p := range vc.Partitions {
		if p.Topic == topic && p.State == "Stopped" {
			n++
		}
	}
	return n == 2
}

func TestOnlyAClusterThatSaysSoHasATopicNoMore(t *testing.T) {
	s := newSite(t)
	s.create("there")
	s.blue.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.blue.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.Topics {
			if *asked.Topic != "secret" {
				return nil, nil, false
			}
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, kerr.TopicAuthorizationFailed.Code
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, len(resp.Topics) > 0
	})
	u, err := connect("blue", config.Cluster{Bootstrap: s.blue.ListenAddrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer u.client.Close()
	e := &Engine{clusters: map[string]*upstream{"blue": u}}
	for topic, want := range map[string]int{"there": 0, "secret": 0, "deleted": 1} {
		if gone, err := (siteSeam{e}).Gone(t.Context(), []string{topic}); err != nil || len(gone) != want {
			t.Errorf("%s: gone are %v, %v", topic, gone, err)
		}
	}
	if gone, err := (siteSeam{e}).Gone(t.Context(), nil); err != nil || len(gone) != 0 {
		t.Errorf("of none, gone are %v, %v", gone, err)
	}
}
