package replicator

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

func statusOf(r *running, topic string, partition int32) PartitionStatus {
	for _, s := range r.Status() {
		if s.Topic == topic && s.Partition == partition {
			return s
		}
	}
	return PartitionStatus{}
}

func stopsWith(t *testing.T, r *running, topic string, reason string) {
	t.Helper()
	testkit.Eventually(t, patience, topic+" stops: "+reason, func() bool {
		s := statusOf(r, topic, 0)
		return s.State == StateStopped && strings.Contains(s.Reason, reason) && s.Hint != ""
	})
}

// C02.
func TestALostRangeStopsThePartitionOrIsAGap(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.create(t, "others", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	for i := range 10 {
		p.blue.produce(t, "orders", 0, 10*i, 10, time.Now())
	}
	p.copied(r)
	r.stop()
	for i := range 50 {
		p.blue.produce(t, "orders", 0, 100+10*i, 10, time.Now())
	}
	if err := p.blue.kafka.DeleteRecords("orders", 0, 500); err != nil {
		t.Fatal(err)
	}
	r = p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "100 to 499 lost at the source")
	testkit.Eventually(t, patience, "the other topic goes on", func() bool { return statusOf(r, "others", 0).State == StateCaughtUp })
	r.stop()
	cfg := p.config(p.blue, p.green)
	cfg.OnLostRange = OnLostSkip
	r = p.start(cfg)
	p.copied(r)
	m, _ := r.Map(journal.TP{Topic: "orders"})
	a := m.ToPhysical(300)
	if a.Kind != translate.Gap || a.Virtual != 500 || m.Frontier() != 600 {
		t.Fatalf("in the lost range: %+v, frontier %d", a, m.Frontier())
	}
	if s := statusOf(r, "orders", 0); s.State != StateCaughtUp || s.Lost != 400 {
		t.Fatalf("status %+v", s)
	}
	// A log start that moves over what is copied is no alarm.
	if err := p.blue.kafka.DeleteRecords("orders", 0, 590); err != nil {
		t.Fatal(err)
	}
	p.blue.produce(t, "orders", 0, 600, 5, time.Now())
	p.copied(r)
	if s := statusOf(r, "orders", 0); s.Frontier != 605 {
		t.Fatalf("status %+v", s)
	}
}

func TestAnEmptiedPartitionStartsAtItsLogStart(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 100, time.Now())
	if err := p.blue.kafka.DeleteRecords("orders", 0, 100); err != nil {
		t.Fatal(err)
	}
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	m, _ := r.Map(journal.TP{Topic: "orders"})
	if m.Start() != 100 || m.Frontier() != 100 {
		t.Fatalf("map from %d to %d", m.Start(), m.Frontier())
	}
}

// C04.
func TestARefusedBatchStopsItsPartitionAloneAndGoesOnAfterTheChange(t *testing.T) {
	p := newPair(t)
	for _, topic := range []string{"big", "small"} {
		p.blue.create(t, topic, 1, map[string]string{"max.message.bytes": "4000000"})
	}
	p.green.create(t, "big", 1, map[string]string{"max.message.bytes": "2000"})
	p.blue.produce(t, "big", 0, 0, 5, time.Now())
	p.blue.produce(t, "big", 0, 5, 500, time.Now())
	p.blue.produce(t, "big", 0, 510, 5, time.Now())
	p.blue.produce(t, "small", 0, 0, 5, time.Now())
	cfg := p.config(p.blue, p.green)
	r := p.start(cfg)
	stopsWith(t, r, "big", "refuses the batch at")
	testkit.Eventually(t, patience, "the other topic goes on", func() bool { return statusOf(r, "small", 0).Frontier == 5 })
	if s := statusOf(r, "big", 0); !strings.Contains(s.Hint, "max.message.bytes") {
		t.Fatalf("hint %q", s.Hint)
	}
	_, err := kadm.NewClient(p.green.client).AlterTopicConfigs(p.ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("4000000")}}, "big")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "the batch is taken", func() bool { return statusOf(r, "big", 0).Frontier == 510 })
	p.exact(r, p.blue, p.green, "big", 0)
}

// As its hint says, which asks for it where we may not make topics.
func TestATopicThatSomebodyElseMakesOnTheTargetIsCopied(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	p.green.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Topic: "orders", Err: kerr.PolicyViolation, Count: -1})
	r := p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "cannot be made on the target")
	p.green.create(t, "orders", 1, map[string]string{maxMessageBytes: "2000"})
	testkit.Eventually(t, patience, "orders is not stopped any more", func() bool { return statusOf(r, "orders", 0).State != StateStopped })
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	if most := r.pump(journal.TP{Topic: "orders"}).maxJoin(); most != 2000 {
		t.Errorf("batches are joined up to %d bytes", most)
	}
}

func TestATopicWhoseConfigsCannotBeReadStopsAlone(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.create(t, "secret", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	denied := p.blue.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "secret", Err: kerr.TopicAuthorizationFailed, Count: -1})
	r := p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "secret", "cannot be read on the source")
	p.copiedTopic(r, "orders")
	p.exact(r, p.blue, p.green, "orders", 0)
	denied.Remove()
	testkit.Eventually(t, patience, "secret is not stopped any more", func() bool { return statusOf(r, "secret", 0).State != StateStopped })
	p.copied(r)
}

// C03 (a).
func TestATargetThatWasMadeAgainIsNeverHealthy(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	again := func() {
		if err := p.green.kafka.DeleteTopic("orders"); err != nil {
			t.Fatal(err)
		}
		p.green.create(t, "orders", 1, nil)
	}
	again()
	stopsWith(t, r, "orders", "the target topic was deleted and made again")
	r.stop()
	again()
	r = p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "the target topic was deleted and made again")
	if err := r.Reseed(p.ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	p.blue.produce(t, "orders", 0, 10, 10, time.Now())
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	r.stop()
	r = p.start(p.config(p.blue, p.green)) // and it stays so
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
}

func TestASourceThatWasMadeAgainStops(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	if err := p.blue.kafka.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	p.blue.create(t, "orders", 1, nil)
	stopsWith(t, r, "orders", "the source topic was deleted")
}

// C03 (c).
func TestATargetThatSomeoneElseWritesStops(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.green.produce(t, "orders", 0, 1000, 7, time.Now())
	p.blue.produce(t, "orders", 0, 10, 10, time.Now())
	stopsWith(t, r, "orders", "someone else wrote 7 records")
	r.stop()
	r = p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "someone else wrote 7 records")
}

func TestATargetWithUnknownRecordsIsNotStartedOn(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.green.create(t, "orders", 1, nil)
	p.green.produce(t, "orders", 0, 1000, 7, time.Now())
	r := p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "7 records that no journal knows")
}

// C08.
func TestPartitionCountsDifferOrGrow(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "more", 2, nil)
	p.green.create(t, "more", 3, nil)
	p.blue.create(t, "fewer", 3, nil)
	p.green.create(t, "fewer", 1, nil)
	p.blue.produce(t, "fewer", 2, 0, 5, time.Now())
	r := p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "more", "2 partitions on the source and 3 on the target")
	p.copiedTopic(r, "fewer")
	p.exact(r, p.blue, p.green, "fewer", 2)
	adm := kadm.NewClient(p.blue.client)
	if _, err := adm.CreatePartitions(p.ctx, 2, "fewer"); err != nil {
		t.Fatal(err)
	}
	p.blue.produce(t, "fewer", 4, 100, 5, time.Now())
	testkit.Eventually(t, patience, "the new partition is copied", func() bool { return statusOf(r, "fewer", 4).Frontier == 5 })
	p.exact(r, p.blue, p.green, "fewer", 4)
}

// The answer INVALID_PARTITIONS is that of a target which has the partitions, but not yet in its metadata.
func TestATopicThatCouldNotBeGrownIsCopiedOnceItHasItsPartitions(t *testing.T) {
	for _, refusal := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.InvalidPartitions} {
		t.Run(refusal.Message, func(t *testing.T) {
			p := newPair(t)
			p.blue.create(t, "orders", 2, nil)
			p.green.create(t, "orders", 1, nil)
			refused := make(chan struct{}, 1)
			p.green.kafka.ControlKey(int16(kmsg.CreatePartitions), func(req kmsg.Request) (kmsg.Response, error, bool) {
				resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
				resp.Topics = []kmsg.CreatePartitionsResponseTopic{{Topic: "orders", ErrorCode: refusal.Code}}
				refused <- struct{}{}
				return resp, nil, true
			})
			r := p.start(p.config(p.blue, p.green))
			<-refused
			if _, err := kadm.NewClient(p.green.client).CreatePartitions(p.ctx, 1, "orders"); err != nil {
				t.Fatal(err)
			}
			p.blue.produce(t, "orders", 1, 0, 5, time.Now())
			testkit.Eventually(t, patience, "the new partition is copied", func() bool { return statusOf(r, "orders", 1).Frontier == 5 })
		})
	}
}

func (p *pair) copiedTopic(r *running, topic string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_ = r.Refresh(ctx)
	ends, err := r.Ends(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	of := map[journal.TP]translate.Virtual{}
	for tp, e := range ends {
		if tp.Topic == topic {
			of[tp] = e.Stable
		}
	}
	if err := r.Reach(ctx, of, nil); err != nil {
		p.t.Fatalf("reach: %v; status %+v", err, r.Status())
	}
}

// C05: aborted and open transactions.
func TestOnlyCommittedDataIsCopied(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	p.transaction(t, "a", 100, kgo.TryCommit)
	p.transaction(t, "b", 100, kgo.TryAbort)
	open := p.begin(t, "c", 100)
	p.blue.produce(t, "orders", 0, 0, 50, time.Now())
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	testkit.Eventually(t, patience, "says what it waits for", func() bool {
		s := statusOf(r, "orders", 0)
		return s.State == StateCaughtUp && strings.Contains(s.Reason, "open at the source")
	})
	if err := open.EndTransaction(p.ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	if n := len(p.green.read(t, "orders", 0)); n != 250 {
		t.Fatalf("%d records", n)
	}
	for _, s := range r.Status() {
		if s.LagRecords != 0 {
			t.Fatalf("lag at the end: %+v", s)
		}
	}
}

func (p *pair) begin(t *testing.T, id string, n int) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.blue.kafka.ListenAddrs()...), kgo.TransactionalID(id), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range n {
		client.Produce(p.ctx, kgo.StringRecord(id), nil)
	}
	if err := client.Flush(p.ctx); err != nil {
		t.Fatal(err)
	}
	return client
}

func (p *pair) transaction(t *testing.T, id string, n int, end kgo.TransactionEndTry) {
	t.Helper()
	if err := p.begin(t, id, n).EndTransaction(p.ctx, end); err != nil {
		t.Fatal(err)
	}
}

func TestCompactedHolesAreGaps(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"})
	for i := range 30 {
		p.blue.produce(t, "orders", 0, i%7, 10, time.Now())
	}
	p.blue.kafka.Compact()
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
	m, _ := r.Map(journal.TP{Topic: "orders"})
	t.Logf("%d records, %d segments, %d gaps", len(p.blue.read(t, "orders", 0)), m.Len(), m.Gaps())
}
