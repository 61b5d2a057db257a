//go:build e2e

package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/replicator"
	"github.com/switchback-proxy/switchback/test/cluster"
	"github.com/switchback-proxy/switchback/translate"
)

// flowTrial is a flow that is started again and again, in this process.
type flowTrial struct {
	t   *testing.T
	ctx context.Context
	cfg replicator.Config
}

func newFlowTrial(t *testing.T, blue, green *cluster.Cluster) *flowTrial {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	client := func(c *cluster.Cluster) *kgo.Client {
		client := c.Client(t)
		t.Cleanup(client.Close)
		return client
	}
	return &flowTrial{t, ctx, replicator.Config{
		From: "blue", To: "green", Source: client(blue), Target: client(green), VirtualCluster: "main",
		SourceNames: translate.IdentityNames(), TargetNames: translate.IdentityNames(),
		MetadataInterval: 200 * time.Millisecond, RetryInterval: 100 * time.Millisecond,
		Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	}}
}

// start runs a flow; stop ends it and returns when it has ended.
func (f *flowTrial) start() (flow *replicator.Flow, stop func()) {
	flow = replicator.New(f.cfg)
	ctx, cancel := context.WithCancel(f.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = flow.Run(ctx) // the end of ctx
	}()
	stop = func() { cancel(); <-ended }
	f.t.Cleanup(stop)
	return flow, stop
}

// copied waits until all that the source has now is copied.
func (f *flowTrial) copied(flow *replicator.Flow) {
	f.t.Helper()
	if err := flow.Refresh(f.ctx); err != nil {
		f.t.Fatalf("refresh: %v; %+v", err, flow.Status())
	}
	ends, err := flow.Ends(f.ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	upTo := map[journal.TP]translate.Virtual{}
	for tp, end := range ends {
		upTo[tp] = end.Stable
	}
	if err := flow.Reach(f.ctx, upTo, nil); err != nil {
		f.t.Fatalf("reach: %v; %+v", err, flow.Status())
	}
}

// exact: each record of the source stands where the map says, once, and the target has nothing that is neither mapped nor listed.
func (f *flowTrial) exact(flow *replicator.Flow, source, target *cluster.Cluster, tp journal.TP) {
	f.t.Helper()
	m, ok := flow.Map(tp)
	if !ok {
		f.t.Fatalf("no map of %v", tp)
	}
	at := map[int64]*kgo.Record{}
	strays := 0
	for _, r := range data(target.ReadPartition(f.t, tp.Topic, tp.Partition)) {
		at[r.Offset] = r
		for _, s := range flow.Strays() {
			if s.TP == tp && int64(s.Base) <= r.Offset && r.Offset < int64(s.Next) {
				strays++
			}
		}
	}
	want := data(source.ReadPartition(f.t, tp.Topic, tp.Partition))
	for _, r := range want {
		a := m.ToPhysical(translate.Virtual(r.Offset))
		got := at[int64(a.Physical)]
		if a.Kind != translate.Record || got == nil || string(got.Key) != string(r.Key) || string(got.Value) != string(r.Value) || !got.Timestamp.Equal(r.Timestamp) {
			f.t.Fatalf("%v: virtual %d: the map says %+v; there is %+v, not %+v", tp, r.Offset, a, got, r)
		}
	}
	if len(at)-strays != len(want) {
		f.t.Fatalf("%v: %d records at the source, %d on the target, %d of them strays", tp, len(want), len(at), strays)
	}
}

func data(list []*kgo.Record) (out []*kgo.Record) {
	for _, r := range list {
		if !r.Attrs.IsControl() {
			out = append(out, r)
		}
	}
	return out
}

// The whole of a flow on real brokers: transactions, timestamps that let the brokers forget its producers within seconds, ends in
// the middle, a seal and the way back.
func TestAFlowOnRealBrokers(t *testing.T) {
	const partitions = 3
	both := cluster.StartAll(t, cluster.Options{Name: "blue", Brokers: 1}, cluster.Options{Name: "green", Brokers: 1, FirstNode: 11,
		Props: map[string]string{"producer.id.expiration.ms": "5000", "producer.id.expiration.check.interval.ms": "1000"}})
	blue, green := both[0], both[1]
	blue.CreateTopic(t, cluster.Topic{Name: orders, Partitions: partitions})
	trial := newFlowTrial(t, blue, green)
	trial.cfg.Slots = 4
	fill := cluster.Fill{Topic: orders, Partitions: partitions}
	write := func(to *cluster.Cluster, i int) {
		fill.Producer, fill.Count, fill.Time = fmt.Sprintf("trial-%d", i), 60, time.Time{}
		if i%2 == 1 {
			fill.Time = time.Now().Add(-72 * time.Hour)
		}
		to.Write(t, fill)
		to.WriteTransactions(t, fill, 10)
	}
	for i := range 6 {
		flow, stop := trial.start()
		write(blue, i)
		if i%3 != 2 { // else ended in the middle
			trial.copied(flow)
		}
		stop()
	}
	flow, stop := trial.start()
	trial.copied(flow)
	sealed, err := flow.Seal(trial.ctx)
	if err != nil {
		t.Fatal(err)
	}
	eras := make([][]control.Era, partitions)
	for i := range int32(partitions) {
		tp := journal.TP{Topic: orders, Partition: i}
		trial.exact(flow, blue, green, tp)
		s := sealed[tp]
		eras[i] = []control.Era{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: s.Frontier, Physical: s.Physical, Shift: 100}}
	}
	stop()
	write(green, 7)
	cfg := &trial.cfg
	cfg.From, cfg.To, cfg.Source, cfg.Target, cfg.Generation = "green", "blue", cfg.Target, cfg.Source, 2
	cfg.Eras = func(string, int) [][]control.Era { return eras }
	flow, _ = trial.start()
	trial.copied(flow)
	for i := range int32(partitions) {
		if a, b := contents(green, t, i), contents(blue, t, i); a != b {
			t.Fatalf("partition %d: %d and %d bytes on green and blue", i, len(a), len(b))
		}
	}
}

func contents(c *cluster.Cluster, t *testing.T, partition int32) (out string) {
	for _, r := range data(c.ReadPartition(t, orders, partition)) {
		out += string(r.Key) + string(r.Value)
	}
	return out
}
