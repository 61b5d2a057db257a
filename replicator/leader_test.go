package replicator

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

func TestLeadersMoveOnBothSidesWhileItCopies(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 3, nil)
	r := p.start(p.config(p.blue, p.green))
	for i := range 60 {
		p.blue.produce(t, "orders", int32(i%3), i*10, 3, time.Now())
		if i%10 == 5 {
			p.blue.kafka.ShufflePartitionLeaders()
			p.green.kafka.ShufflePartitionLeaders()
		}
	}
	p.copied(r)
	for n := range int32(3) {
		p.exact(r, p.blue, p.green, "orders", n)
		part, _ := r.Partition(journal.TP{Topic: "orders", Partition: n})
		if part.History.Last() < 1 {
			t.Fatalf("epochs of the source are not known: %v", part.History)
		}
	}
}

// DESIGN §8.18: later versions of the two requests are for brokers, or change the epoch of the fence.
func TestTheFenceUsesTheOldTransactionRequests(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	bad := make(chan error, 100)
	for key, most := range map[int16]int16{24: 3, 26: 4} {
		p.green.kafka.ControlKey(key, func(r kmsg.Request) (kmsg.Response, error, bool) {
			p.green.kafka.KeepControl()
			if r.GetVersion() > most {
				bad <- errors.New("version too high")
			}
			return nil, nil, false
		})
	}
	p.copied(p.start(p.config(p.blue, p.green)))
	select {
	case err := <-bad:
		t.Fatal(err)
	default:
	}
}

func TestSmallBatchesAreWrittenTogether(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	for i := range 500 {
		p.blue.raw(t, "orders", 0, []batch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte{byte(i)}}}, batch.Params{LeaderEpoch: -1, Codec: batch.LZ4})
	}
	requests := 0
	p.green.create(t, "orders", 1, nil)
	p.green.onProduce([]string{"orders"}, func(data bool) error {
		if data {
			requests++ // the control functions of a cluster run one at a time
		}
		return nil
	})
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	r.stop()
	p.exact(r, p.blue, p.green, "orders", 0)
	if requests > 20 {
		t.Fatalf("%d produce requests for 500 batches", requests)
	}
}

func TestASlotIsFencedOnceAndItsStatusSaysWhoHasIt(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	a := p.start(p.config(p.blue, p.green))
	p.copied(a)
	cfg := p.config(p.blue, p.green)
	cfg.RetryInterval = time.Hour // it does not come back by itself
	a.stop()
	a = p.start(cfg)
	p.copied(a)
	b := p.start(p.config(p.blue, p.green))
	p.copied(b)
	p.blue.produce(t, "orders", 0, 0, 5, time.Now())
	testkit.Eventually(t, patience, "the first one says that it lost the slot", func() bool {
		s := statusOf(a, "orders", 0)
		return s.State == StateProbing && s.Reason != "" && s.Hint == hintLost
	})
	p.copied(b)
	p.exact(b, p.blue, p.green, "orders", 0)
}

// A batch of which the first records are copied already (it was cut at a hole, or by other bounds) is copied from the next
// one on.
func TestABatchThatIsPartlyCopiedIsCutAtTheFrontier(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	p.blue.produce(t, "orders", 0, 11, 10, time.Now())
	cfg := p.config(p.blue, p.green)
	cfg.Eras = func(string, int) [][]control.Era {
		return [][]control.Era{{{Generation: 1, Cluster: "green"}, {Generation: 2, Cluster: "blue", Virtual: 3, Physical: 3}}}
	}
	p.green.create(t, "orders", 1, nil)
	p.green.produce(t, "orders", 0, 0, 3, time.Now())
	r := p.start(cfg)
	p.copied(r)
	got := p.green.read(t, "orders", 0)
	want := p.blue.read(t, "orders", 0)[3:]
	if len(got) != 3+len(want) {
		t.Fatalf("%d records", len(got))
	}
	for i, w := range want {
		if got[3+i].value != w.value || got[3+i].key != w.key {
			t.Fatalf("%+v, want %+v", got[3+i], w)
		}
	}
}

func TestIdsOfProducersAreKnownOnTheTarget(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	shown, err := translate.Show(1234, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		p.blue.raw(t, "orders", 0, []batch.Record{{Value: []byte("a")}, {Value: []byte("b")}},
			batch.Params{LeaderEpoch: -1, Producer: &batch.Producer{ID: shown, Epoch: 2, FirstSequence: 2 * i}})
	}
	p.blue.raw(t, "orders", 0, []batch.Record{{Value: []byte("a")}}, // not through us
		batch.Params{LeaderEpoch: -1, Producer: &batch.Producer{ID: 99, FirstSequence: 0}})
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	check := func(part *journal.Partition) {
		t.Helper()
		if v, verdict := part.Producers.Lookup(shown, 2, 2, 3); verdict != journal.Known || v != 2 {
			t.Fatalf("%v at %d", verdict, v)
		}
		if _, verdict := part.Producers.Lookup(shown, 2, 6, 7); verdict != journal.Next {
			t.Fatal(verdict)
		}
		if part.Producers.Len() != 1 {
			t.Fatalf("%d producers", part.Producers.Len())
		}
	}
	part, _ := r.Partition(journal.TP{Topic: "orders"})
	check(part)
	r.stop()
	r = p.start(p.config(p.blue, p.green)) // what the last claim became of may not be in the journal yet: recovery finds out
	p.copied(r)
	part, _ = r.Partition(journal.TP{Topic: "orders"})
	check(part)
}

// A leader that was just elected does not tell its high watermark at once, and a move need not go back for that.
func TestEndsAreAskedForAgainWhileAnElectionPasses(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	var asked atomic.Int32
	p.blue.kafka.ControlKey(int16(kmsg.ListOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		p.blue.kafka.KeepControl()
		if asked.Add(1) > 6 {
			return nil, nil, false
		}
		req, resp := kreq.(*kmsg.ListOffsetsRequest), kreq.ResponseKind().(*kmsg.ListOffsetsResponse)
		one := kmsg.NewListOffsetsResponseTopicPartition()
		one.ErrorCode = kerr.OffsetNotAvailable.Code
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = req.Topics[0].Topic
		topic.Partitions = append(topic.Partitions, one)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	ends, err := r.Ends(p.ctx)
	if end := ends[journal.TP{Topic: "orders"}]; err != nil || end.High != 10 || asked.Load() <= 6 {
		t.Fatalf("%+v, %v, asked %d times", end, err, asked.Load())
	}
}
