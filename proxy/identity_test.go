package proxy

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// Sessions share look-ups. One that ends must not fail those of the others: their clients would be told that topics have no leaders.
func TestALookUpOutlivesTheSessionThatAskedFirst(t *testing.T) {
	kafka, err := testkit.StartKafka(1, "blue")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	asked, answer := make(chan struct{}), make(chan struct{})
	kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		kafka.SleepControl(func() { <-answer })
		return nil, nil, false
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	a := &addresses{ctx: t.Context(), client: client}
	first, leave := context.WithCancel(t.Context())
	gone, got := make(chan error, 1), make(chan error, 1)
	go func() { gone <- a.refresh(first) }()
	<-asked
	go func() { got <- a.refresh(t.Context()) }()
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the session that left got %v", err)
	}
	close(answer)
	if err := <-got; err != nil {
		t.Errorf("the session that stayed got %v", err)
	}
}

func TestCallsWaitWhileTheClusterIsDown(t *testing.T) {
	x := newStage(t, nil)
	x.brokers["blue"].stop()
	c := x.connect()
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("orders")
	metadata.Topics = []kmsg.MetadataRequestTopic{topic}
	id := c.send(metadata)
	resp := c.receive(metadata, id).(*kmsg.MetadataResponse)
	if len(resp.Brokers) != 1 || resp.Brokers[0].Port != int32(x.p.cfg.BrokerPortStart) || resp.Topics[0].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Fatalf("metadata %+v", resp)
	}
	produce := produceTo("orders", -1, sampleBatch(-1, 0, 0))
	id = c.send(produce)
	<-time.After(50 * time.Millisecond)
	x.p.Publish(x.route(2, "green"))
	x.brokers["green"].next(kmsg.Produce).answer(t, produced("orders", 3, 0))
	if p := c.receive(produce, id).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.BaseOffset != 3 {
		t.Fatalf("answer %+v", p)
	}
}

// A topic with an error and without partitions makes a consumer leave its group's assignment: that is for a cluster that is down.
func TestOneFailedConnectionIsNotTakenForAClusterThatIsDown(t *testing.T) {
	kafka, err := testkit.StartKafka(1, "blue")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	if err := kafka.CreateTopic("orders", 2, nil); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var failed atomic.Bool
	x := newStage(t, func(c *Config) {
		c.Clusters["blue"] = Cluster{Client: client, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if failed.CompareAndSwap(false, true) {
				return nil, errors.New("no descriptor is left")
			}
			return dialTCP(ctx, addr)
		}}
	})
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr("orders")
	metadata.Topics = []kmsg.MetadataRequestTopic{topic}
	c := x.connect()
	id := c.send(metadata)
	resp := c.receive(metadata, id).(*kmsg.MetadataResponse)
	if one := resp.Topics[0]; one.ErrorCode != 0 || len(one.Partitions) != 2 || !failed.Load() {
		t.Fatalf("metadata %+v", resp)
	}
}

// Clients cannot look for another coordinator: they are shown the same node again. librdkafka fails a commit when its connection
// ends a third time.
func TestAGroupsCallWaitsWhileItsCoordinatorCannotBeReached(t *testing.T) {
	kafka, err := testkit.StartKafka(1, "blue")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var dialled atomic.Int32
	x := newStage(t, func(c *Config) {
		c.Clusters["blue"] = Cluster{Client: client, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if dialled.Add(1) < 4 {
				return nil, errors.New("connection refused")
			}
			return dialTCP(ctx, addr)
		}}
	})
	heartbeat := kmsg.NewPtrHeartbeatRequest()
	heartbeat.Group, heartbeat.MemberID, heartbeat.Generation = "billing", "nobody", 1
	c := x.connect()
	id := c.send(heartbeat)
	if code := c.receive(heartbeat, id).(*kmsg.HeartbeatResponse).ErrorCode; code != kerr.GroupIDNotFound.Code || dialled.Load() < 4 {
		t.Fatalf("the answer's code is %d after %d connections", code, dialled.Load())
	}
}

func TestReplicasOnANodeThatThereIsNotAreOnNoBroker(t *testing.T) {
	r := Route{Active: "blue", Identity: control.Identity{Nodes: map[string][]int32{"blue": {11, 12}, "green": {1, 2, 3}}}}
	for node, broker := range map[int32]int32{0: 11, 1: 12, 2: 11, 3: -1, 7: -1, -1: -1} {
		if got := r.brokersBehind([]int32{node}); len(got) != 1 || got[0] != broker {
			t.Errorf("node %d is %v, not %d", node, got, broker)
		}
	}
}
