package replicator

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

const patience = 20 * time.Second

// pair is two embedded clusters.
type pair struct {
	t           *testing.T
	ctx         context.Context
	blue, green *side
}

type side struct {
	name   string
	kafka  *kfake.Cluster
	client *kgo.Client
}

func newPair(t *testing.T, opts ...kfake.Opt) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := &pair{t: t, ctx: ctx}
	p.blue, p.green = newSide(t, "blue", opts...), newSide(t, "green", opts...)
	return p
}

func newSide(t *testing.T, name string, opts ...kfake.Opt) *side {
	t.Helper()
	kafka, err := testkit.StartKafka(3, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.RetryTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &side{name, kafka, client}
}

func (s *side) create(t *testing.T, topic string, partitions int32, configs map[string]string) {
	t.Helper()
	if err := s.kafka.CreateTopic(topic, partitions, configs); err != nil {
		t.Fatal(err)
	}
}

// running is a flow that runs until it is stopped.
type running struct {
	*Flow
	cancel context.CancelFunc
	ended  chan error
}

func (p *pair) config(from, to *side) Config {
	return Config{
		From: from.name, To: to.name, Source: from.client, Target: to.client, VirtualCluster: "main",
		SourceNames: translate.IdentityNames(), TargetNames: translate.IdentityNames(),
		Slots: 2, MetadataInterval: 50 * time.Millisecond, RetryInterval: 20 * time.Millisecond, CheckpointInterval: 30 * time.Millisecond,
		Log: zerolog.New(zerolog.NewTestWriter(p.t)).Level(zerolog.WarnLevel),
	}
}

func (p *pair) start(cfg Config) *running {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.ctx)
	r := &running{New(cfg), cancel, make(chan error, 1)}
	go func() { r.ended <- r.Run(ctx) }()
	p.t.Cleanup(r.stop)
	return r
}

// stop ends the flow and waits for it; more than once is allowed.
func (r *running) stop() {
	r.cancel()
	if r.ended != nil {
		<-r.ended
		r.ended = nil
	}
}

// copied waits until the flow has copied all of a topic.
func (p *pair) copied(r *running) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := r.Refresh(ctx); err != nil {
		p.t.Fatalf("refresh: %v; status %+v", err, r.Status())
	}
	ends, err := r.Ends(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := r.Reach(ctx, stable(ends), nil); err != nil {
		p.t.Fatalf("reach %v: %v; status %+v", ends, err, r.Status())
	}
}

func stable(ends map[journal.TP]End) map[journal.TP]translate.Virtual {
	out := map[journal.TP]translate.Virtual{}
	for tp, e := range ends {
		out[tp] = e.Stable
	}
	return out
}

// written is one record as it stands in a log.
type written struct {
	offset     int64
	key, value string
	at         int64
}

// read returns all records of a partition up to its last stable offset as a read_committed reader sees them: by its own
// rule, transactions by the marker that ends them.
func (s *side) read(t *testing.T, topic string, partition int32) []written {
	t.Helper()
	info := s.kafka.TopicInfo(topic)
	end := translate.Physical(s.kafka.PartitionInfo(topic, partition).LastStableOffset)
	start := translate.Physical(s.kafka.PartitionInfo(topic, partition).LogStartOffset)
	c := &journal.Cursor{Topic: topic, ID: info.TopicID, Partition: partition, Next: start, Done: start >= end}
	return readLog(t, s.client, c, end)
}

func readLog(t *testing.T, client *kgo.Client, c *journal.Cursor, end translate.Physical) []written {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	codecs := batch.NewCodecs(0)
	var out []written
	open := map[int64][]written{}
	err := journal.Read(ctx, client, []*journal.Cursor{c}, func(c *journal.Cursor, b journal.Batch, raw []byte) error {
		c.Done = raw == nil || b.Next >= end
		switch {
		case raw == nil || b.Base >= end:
			return nil
		case b.Marker:
			if kind, _, err := batch.ControlType(raw); err != nil || kind == batch.Commit {
				out = append(out, open[b.Owner.ID]...)
			}
			delete(open, b.Owner.ID)
			return nil
		}
		records, err := codecs.Decode(raw)
		if err != nil {
			return err
		}
		for _, r := range records {
			w := written{r.Offset, string(r.Key), string(r.Value), r.Timestamp}
			if batch.Header(raw).Transactional() {
				open[b.Owner.ID] = append(open[b.Owner.ID], w)
			} else {
				out = append(out, w)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(out, func(a, b written) int { return cmp.Compare(a.offset, b.offset) })
	return out
}

// produce writes one batch per call, of n records, and returns their values.
func (s *side) produce(t *testing.T, topic string, partition int32, from, n int, at time.Time) {
	t.Helper()
	var records []batch.Record
	for i := range n {
		v := strconv.Itoa(from + i)
		records = append(records, batch.Record{Timestamp: at.UnixMilli(), Key: []byte("k" + v), Value: []byte("v" + v)})
	}
	s.raw(t, topic, partition, records, batch.Params{LeaderEpoch: -1, Codec: batch.Codec(from % 5)})
}

func (s *side) raw(t *testing.T, topic string, partition int32, records []batch.Record, params batch.Params) {
	t.Helper()
	raw, err := batch.NewCodecs(0).Encode(records, params)
	if err != nil {
		t.Fatal(err)
	}
	s.send(t, topic, partition, raw)
}

func (s *side) send(t *testing.T, topic string, partition int32, raw []byte) {
	t.Helper()
	info := s.kafka.TopicInfo(topic)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, info.TopicID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if _, err := kmsg.NewPtrMetadataRequest().RequestWith(context.Background(), s.client); err != nil {
		t.Fatal(err)
	}
	kresp, err := s.client.Broker(int(s.kafka.LeaderFor(topic, partition))).Request(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	if code := kresp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("produce to %s: code %d", topic, code)
	}
}

// exact compares map and logs, record by record: every record of the source, at its virtual offset, stands where the map says
// on the target, nothing else is in the map, and what the target has beyond the map is listed as a stray.
func (p *pair) exact(r *running, from, to *side, topic string, partition int32) {
	p.t.Helper()
	m, ok := r.Map(journal.TP{Topic: topic, Partition: partition})
	if !ok {
		p.t.Fatalf("no map of %s-%d", topic, partition)
	}
	source, target := from.read(p.t, topic, partition), to.read(p.t, topic, partition)
	p.exactMap(m, source, target, r.Strays())
}

func (p *pair) exactMap(m *translate.Map, source, target []written, strays []journal.Stray) {
	p.t.Helper()
	at := map[int64]written{}
	for _, w := range target {
		at[w.offset] = w
	}
	used := map[int64]bool{}
	for _, w := range source {
		a := m.ToPhysical(translate.Virtual(w.offset))
		if a.Kind != translate.Record {
			p.t.Fatalf("record at virtual %d: the map says %+v", w.offset, a)
		}
		got := at[int64(a.Physical)]
		if got.key != w.key || got.value != w.value || got.at != w.at {
			p.t.Fatalf("virtual %d at physical %d: got %+v, want %+v", w.offset, a.Physical, got, w)
		}
		used[int64(a.Physical)] = true
	}
	extra := 0
	for _, w := range target {
		if !used[w.offset] {
			i := slices.IndexFunc(strays, func(s journal.Stray) bool {
				return s.Base <= translate.Physical(w.offset) && translate.Physical(w.offset) < s.Next
			})
			if i < 0 {
				p.t.Fatalf("target has %+v, which is neither mapped nor a stray", w)
			}
			extra++
		}
	}
	if len(target)-extra != len(source) {
		p.t.Fatalf("%d records on the source, %d on the target, %d of them strays", len(source), len(target), extra)
	}
	var mapped int64
	for s := range m.Segments() {
		mapped += s.Records
	}
	if mapped != int64(len(source)) {
		p.t.Fatalf("the map has %d records, the source %d", mapped, len(source))
	}
}
