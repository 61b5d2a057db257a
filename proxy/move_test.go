package proxy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// plainClient is a client of one cluster, with manual partitions.
func (x *live) plainClient(cluster string, opts ...kgo.Opt) *kgo.Client {
	x.t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(x.clusters[cluster].ListenAddrs()...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks())}, opts...)...)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(c.Close)
	return c
}

func (x *live) endOffset(cluster, topic string, partition int32) int64 {
	x.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	resp, err := req.RequestWith(x.ctx, x.clients[cluster])
	if err != nil {
		x.t.Fatal(err)
	}
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		x.t.Fatalf("end of %s-%d on %s: code %d", topic, partition, cluster, code)
	}
	return resp.Topics[0].Partitions[0].Offset
}

func (x *live) produceOn(cluster, topic string, partition int32, values ...string) (first int64) {
	x.t.Helper()
	c := x.plainClient(cluster)
	for i, v := range values {
		r := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
		if err := c.ProduceSync(x.ctx, r).FirstErr(); err != nil {
			x.t.Fatal(err)
		}
		if i == 0 {
			first = r.Offset
		}
	}
	return first
}

// mirror copies a partition from one cluster to the other and returns its map: some junk first, so that virtual and
// physical differ, and strays after every third record.
func (x *live) mirror(from, to, topic string, partition int32, m *translate.Map) *translate.Map {
	x.t.Helper()
	end := x.endOffset(from, topic, partition)
	x.produceOn(to, topic, partition, "junk", "junk")
	source := x.plainClient(from, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(int64(m.Frontier()))}}))
	var err error
	for i, r := range x.read(source, int(end-int64(m.Frontier()))) {
		at := x.produceOn(to, topic, partition, string(r.Value))
		if m, err = m.AppendMirrored(translate.Virtual(r.Offset), translate.Physical(at), 1); err != nil {
			x.t.Fatal(err)
		}
		if i%3 == 2 {
			x.produceOn(to, topic, partition, "stray")
		}
	}
	return m
}

// moved is the route after a move of one topic to green at its present ends.
func (x *live) moved(topic string, partitions int32) Route {
	x.t.Helper()
	shown := &Topic{Name: topic, VirtualID: blueIDs(x.t, x, "blue", topic), PhysicalID: blueIDs(x.t, x, "green", topic)}
	for p := range partitions {
		m := x.mirror("blue", "green", topic, p, translate.NewMap(0))
		end, physical := m.Frontier(), translate.Physical(x.endOffset("green", topic, p))
		m, err := m.OpenNative(end, physical)
		if err != nil {
			x.t.Fatal(err)
		}
		shown.Partitions = append(shown.Partitions, Partition{
			Eras: []control.Era{{Generation: 1, Cluster: "blue"},
				{Generation: 2, Cluster: "green", Virtual: end, Physical: physical, Shift: 17, FirstEpoch: 17}},
			Map: m, History: translate.History{}.Append(0, 0), Producers: journal.NewProducers(),
		})
	}
	return Route{Generation: 2, Active: "green", Standby: "blue", Identity: x.identity, Topics: map[string]*Topic{topic: shown}}
}

func TestLiveClientsCrossAMove(t *testing.T) {
	x := startLive(t, map[string]translate.Names{"blue": {}, "green": {}}, nil)
	producer := x.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	reader := x.client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(5*time.Second))
	fromStart := func() *kgo.Client { // one that begins after the move
		return x.client(kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	next := 0
	produce := func(n int) {
		for range n {
			r := &kgo.Record{Topic: "orders", Partition: int32(next % 4), Value: []byte(fmt.Sprint(next))}
			if err := producer.ProduceSync(x.ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if want := int64(next / 4); r.Offset != want {
				t.Fatalf("record %d was acked at offset %d, not %d", next, r.Offset, want)
			}
			next++
		}
	}
	produce(40)
	got := x.read(reader, 40)

	if err := x.p.Hold(x.ctx); err != nil {
		t.Fatal(err)
	}
	if err := x.p.Drain(x.ctx); err != nil {
		t.Fatal(err)
	}
	route := x.moved("orders", 4)
	x.p.Publish(route)
	x.p.Release()

	began := time.Now()
	produce(40)
	got = append(got, x.read(reader, 40)...)
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("clients stood still for %v", d)
	}
	checkRecords(t, got, 80)
	checkRecords(t, x.read(fromStart(), 80), 80)
	if strays := x.endOffset("green", "orders", 0); strays <= 20 {
		t.Fatalf("green's log ends at %d, so there was nothing to translate", strays)
	}
}

// checkRecords compares what was read with what was produced: record i in partition i%4 at offset i/4.
func checkRecords(t *testing.T, got []*kgo.Record, n int) {
	t.Helper()
	perPartition := map[int32][]*kgo.Record{}
	for _, r := range got {
		perPartition[r.Partition] = append(perPartition[r.Partition], r)
	}
	for p, records := range perPartition {
		if !slices.IsSortedFunc(records, func(a, b *kgo.Record) int { return int(a.Offset - b.Offset) }) {
			t.Errorf("partition %d out of order", p)
		}
		for i, r := range records {
			if want := fmt.Sprint(i*4 + int(p)); int64(i) != r.Offset || string(r.Value) != want {
				t.Fatalf("partition %d offset %d holds %q, want %q at %d", p, r.Offset, r.Value, want, i)
			}
		}
	}
	if len(got) != n {
		t.Fatalf("%d records, want %d", len(got), n)
	}
}

func TestHeldCallsWaitAndGoToTheNewCluster(t *testing.T) {
	x := startLive(t, map[string]translate.Names{"blue": {}, "green": {}}, nil)
	producer := x.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.ProduceSync(x.ctx, &kgo.Record{Topic: "orders", Value: []byte("0")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := x.p.Hold(x.ctx); err != nil {
		t.Fatal(err)
	}
	acked := make(chan *kgo.Record, 1)
	producer.Produce(x.ctx, &kgo.Record{Topic: "orders", Value: []byte("4")}, func(r *kgo.Record, err error) {
		if err != nil {
			t.Error(err)
		}
		acked <- r
	})
	if err := x.p.Drain(x.ctx); err != nil {
		t.Fatal(err)
	}
	route := x.moved("orders", 4)
	select {
	case <-acked:
		t.Fatal("a call passed a shut gate")
	default:
	}
	before := x.endOffset("blue", "orders", 0)
	x.p.Publish(route)
	x.p.Release()
	if r := <-acked; r.Offset != 1 {
		t.Fatalf("acked at %d", r.Offset)
	}
	if after := x.endOffset("blue", "orders", 0); after != before {
		t.Fatalf("blue's log moved from %d to %d", before, after)
	}
	testkit.Eventually(t, time.Second, "the pause is told", func() bool { return x.p.PauseMillis() > 0 })
}
