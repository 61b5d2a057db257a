package proxy

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// live is two embedded clusters behind a proxy that listens.
type live struct {
	t        testing.TB
	ctx      context.Context
	p        *Proxy
	clusters map[string]*kfake.Cluster
	clients  map[string]*kgo.Client // of the clusters themselves
	identity control.Identity
}

func freePorts(t testing.TB, n int) int {
	t.Helper()
	first, err := testkit.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return first
}

func startLive(t testing.TB, names map[string]translate.Names, change func(*Config)) *live {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	cfg, clusters := pairConfig(t, names)
	cfg.AdvertisedHost = "127.0.0.1"
	base := freePorts(t, 4)
	cfg.Listen, cfg.BrokerPortStart = fmt.Sprintf("127.0.0.1:%d", base), base+1
	cfg.Log = zerolog.New(zerolog.NewTestWriter(t))
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	x := &live{t: t, ctx: ctx, p: p, clusters: clusters, clients: map[string]*kgo.Client{}}
	for name, c := range cfg.Clusters {
		x.clients[name] = c.Client
	}
	if x.identity, err = discover(ctx, "blue", x.clients, control.Identity{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(ctx, Route{Generation: 1, Active: "blue", Standby: "green", Identity: x.identity}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

// client is a client of the virtual cluster.
func (x *live) client(opts ...kgo.Opt) *kgo.Client {
	x.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(x.p.Addr().String()), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}, opts...)...)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(c.Close)
	return c
}

// read polls until n records have come.
func (x *live) read(c *kgo.Client, n int) []*kgo.Record {
	x.t.Helper()
	var out []*kgo.Record
	for len(out) < n {
		fetches := c.PollFetches(x.ctx)
		if err := fetches.Err0(); err != nil {
			x.t.Fatalf("after %d of %d records: %v", len(out), n, err)
		}
		fetches.EachError(func(topic string, p int32, err error) { x.t.Fatalf("%s-%d: %v", topic, p, err) })
		out = append(out, fetches.Records()...)
	}
	return out
}

func blueIDs(t testing.TB, x *live, cluster, topic string) [16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	name := kmsg.NewMetadataRequestTopic()
	name.Topic = &topic
	req.Topics = append(req.Topics, name)
	resp, err := req.RequestWith(x.ctx, x.clients[cluster])
	if err != nil {
		t.Fatal(err)
	}
	return resp.Topics[0].TopicID
}

func TestClientsProduceAndConsumeUnderTheirOwnNames(t *testing.T) {
	x := startLive(t, map[string]translate.Names{"blue": translate.PrefixNames("eu."), "green": {}}, nil)
	producer := x.client(kgo.DefaultProduceTopic("orders"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	const n = 200
	for i := range n {
		if err := producer.ProduceSync(x.ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	reader := x.client(kgo.ConsumeTopics("orders"), kgo.ConsumerGroup("readers"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[string]bool{}
	for _, r := range x.read(reader, n) {
		if r.Topic != "orders" || seen[string(r.Value)] {
			t.Fatalf("record %q of topic %q", r.Value, r.Topic)
		}
		seen[string(r.Value)] = true
	}
	direct, err := kgo.NewClient(kgo.SeedBrokers(x.clusters["blue"].ListenAddrs()...), kgo.ConsumeTopics("eu.orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	if got := x.read(direct, n); len(got) != n {
		t.Fatalf("%d records on the cluster", len(got))
	}
}
