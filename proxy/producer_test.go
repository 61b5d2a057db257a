package proxy

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

const (
	writer    = int64(1000) | 1<<40 // shown id, issued in generation 1
	newcomer  = int64(1001) | 1<<40 // that no state knows
	seamStart = 500
)

// seamRoute is generation 2: the writer's sequences 0–4 at virtual 100, 5–9 at 105 are known; green goes on at virtual 500,
// physical 30.
func seamRoute(x *stage) Route {
	x.t.Helper()
	m, err := translate.NewMap(0).AppendMirrored(100, 7, 10)
	if err == nil {
		m, err = m.OpenNative(seamStart, 30)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	states := journal.NewProducers()
	states.Add(writer, 0, 0, 4, 100, 0)
	states.Add(writer, 0, 5, 9, 105, 0)
	part := Partition{Map: m, Producers: states, History: translate.History{}.Append(3, 0), Eras: []control.Era{
		{Generation: 1, Cluster: "blue"},
		{Generation: 2, Cluster: "green", Virtual: seamStart, Physical: 30, Shift: 20, FirstEpoch: 20}}}
	r := x.route(2, "green")
	r.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: []Partition{part, part}}}
	return r
}

func seamStage(t testing.TB) (*stage, *rawClient) {
	t.Helper()
	x := newStage(t, nil)
	x.p.Publish(seamRoute(x))
	return x, x.connect()
}

func (c *rawClient) produce(records []byte) (*kmsg.ProduceRequest, int32) {
	req := produceTo("orders", -1, records)
	return req, c.send(req)
}

func (c *rawClient) answered(req *kmsg.ProduceRequest, id int32) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return c.receive(req, id).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func (a asked) batch() batch.Header {
	return batch.Header(a.req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records)
}

// C28
func TestKnownBatchIsAnsweredAndNotWritten(t *testing.T) {
	x, c := seamStage(t)
	req, id := c.produce(sampleBatch(writer, 5, 9))
	if p := c.answered(req, id); p.ErrorCode != 0 || p.BaseOffset != 105 {
		t.Fatalf("answer %+v", p)
	}
	x.brokers["green"].quiet()
	req, id = c.produce(sampleBatch(writer, 10, 11))
	x.brokers["green"].next(kmsg.Produce).answer(t, produced("orders", 31, 0))
	if p := c.answered(req, id); p.ErrorCode != 0 || p.BaseOffset != 501 {
		t.Fatalf("answer %+v", p)
	}
	req, id = c.produce(sampleBatch(writer, 0, 4)) // also when newer ones are on the cluster
	if p := c.answered(req, id); p.ErrorCode != 0 || p.BaseOffset != 100 {
		t.Fatalf("answer %+v", p)
	}
	x.brokers["green"].quiet()
}

func TestKnownPartOfARequestIsTakenOut(t *testing.T) {
	x, c := seamStage(t)
	req := produceTo("orders", -1, sampleBatch(writer, 5, 9))
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, kmsg.ProduceRequestTopicPartition{Partition: 1, Records: sampleBatch(writer, 10, 12)})
	id := c.send(req)
	a := x.brokers["green"].next(kmsg.Produce)
	sent := a.req.(*kmsg.ProduceRequest).Topics
	if len(sent) != 1 || len(sent[0].Partitions) != 1 || sent[0].Partitions[0].Partition != 1 || batch.CheckCRC(sent[0].Partitions[0].Records) != nil {
		t.Fatalf("sent %+v", sent)
	}
	resp := produced("orders", 40, 0)
	resp.Topics[0].Partitions[0].Partition = 1
	a.answer(t, resp)
	bases := map[int32]int64{}
	for _, topic := range c.receive(req, id).(*kmsg.ProduceResponse).Topics {
		for _, p := range topic.Partitions {
			bases[p.Partition] = p.BaseOffset
			if p.ErrorCode != 0 {
				t.Errorf("code %d", p.ErrorCode)
			}
		}
	}
	if len(bases) != 2 || bases[0] != 105 || bases[1] != 510 {
		t.Fatalf("bases %v", bases)
	}
}

func TestBatchesThatAreNotNextAreRefused(t *testing.T) {
	epoch1 := func(first int32) []byte { return batchAt(0, writer, 1, first, 2, "v") }
	for name, c := range map[string]struct {
		records []byte
		code    int16
	}{
		"ahead":                            {sampleBatch(writer, 12, 13), kerr.OutOfOrderSequenceNumber.Code},
		"overlap":                          {sampleBatch(writer, 4, 6), kerr.OutOfOrderSequenceNumber.Code},
		"other bounds":                     {sampleBatch(writer, 5, 8), kerr.OutOfOrderSequenceNumber.Code},
		"new epoch not from its beginning": {epoch1(3), kerr.OutOfOrderSequenceNumber.Code},
		"next":                             {sampleBatch(writer, 10, 11), 0},
		"new epoch":                        {epoch1(0), 0},
		"in mid-stream, known to nobody":   {sampleBatch(newcomer, 77, 78), 0},
		"issued in this generation":        {sampleBatch(int64(5)|2<<40, 3, 4), 0},
		"without a producer":               {sampleBatch(-1, 0, 1), 0},
	} {
		t.Run(name, func(t *testing.T) {
			x, client := seamStage(t)
			req, id := client.produce(c.records)
			if c.code == 0 {
				x.brokers["green"].next(kmsg.Produce).answer(t, produced("orders", 30, 0))
			}
			if p := client.answered(req, id); p.ErrorCode != c.code {
				t.Fatalf("code %d, not %d", p.ErrorCode, c.code)
			}
			x.brokers["green"].quiet()
		})
	}
}

func TestOldEpochIsFenced(t *testing.T) {
	x := newStage(t, nil)
	r := seamRoute(x)
	r.Topics["orders"].Partitions[0].Producers.Add(writer, 4, 0, 1, 200, 0)
	x.p.Publish(r)
	c := x.connect()
	req, id := c.produce(sampleBatch(writer, 10, 11))
	if p := c.answered(req, id); p.ErrorCode != kerr.InvalidProducerEpoch.Code {
		t.Fatalf("code %d", p.ErrorCode)
	}
	x.brokers["green"].quiet()
}

// A broker takes any first sequence of an id that it does not know. So if the first batch fails for a passing reason while
// the second is under way, the second would be taken and the first refused for ever.
func TestOneBatchIsInFlightUntilTheClusterKnowsTheProducer(t *testing.T) {
	for name, records := range map[string][3][]byte{
		"known":   {sampleBatch(writer, 10, 11), sampleBatch(writer, 12, 13), sampleBatch(writer, 14, 15)},
		"unknown": {sampleBatch(newcomer, 40, 41), sampleBatch(newcomer, 42, 43), sampleBatch(newcomer, 44, 45)},
	} {
		t.Run(name, func(t *testing.T) {
			x, c := seamStage(t)
			green := x.brokers["green"]
			first, id1 := c.produce(records[0])
			second, id2 := c.produce(records[1])
			a := green.next(kmsg.Produce)
			green.quiet()
			a.answer(t, produced("orders", -1, kerr.NotLeaderForPartition.Code))
			if p := c.answered(first, id1); p.ErrorCode != kerr.NotLeaderForPartition.Code || p.BaseOffset != -1 {
				t.Fatalf("answer %+v", p)
			}
			if p := c.answered(second, id2); p.ErrorCode != kerr.NotLeaderForPartition.Code { // as the broker would have
				t.Fatalf("the second was answered with %d", p.ErrorCode)
			}
			green.quiet()
			for i, r := range records { // sent again, from the first on
				req, id := c.produce(r)
				if i == 0 {
					later, id2 := c.produce(records[1])
					a := green.next(kmsg.Produce)
					green.quiet()
					a.answer(t, produced("orders", 30, 0))
					c.answered(req, id)
					green.next(kmsg.Produce).answer(t, produced("orders", 32, 0))
					if p := c.answered(later, id2); p.BaseOffset != 502 {
						t.Fatalf("answer %+v", p)
					}
					continue
				}
				green.next(kmsg.Produce).answer(t, produced("orders", 40, 0))
				c.answered(req, id)
			}
		})
	}
}

func TestTheSeamIsOneForAllConnections(t *testing.T) {
	x, c := seamStage(t)
	other := x.connect()
	green := x.brokers["green"]
	c.produce(sampleBatch(writer, 10, 11))
	a := green.next(kmsg.Produce)
	req, id := other.produce(sampleBatch(writer, 10, 11)) // the client has given up on its first connection
	green.quiet()
	c.conn.Close()
	a.answer(t, produced("orders", 30, 0))
	green.next(kmsg.Produce).answer(t, produced("orders", 30, 0)) // the broker knows a duplicate
	if p := other.answered(req, id); p.BaseOffset != 500 {
		t.Fatalf("answer %+v", p)
	}
}

func TestALostAnswerLetsTheNextBatchTryAgain(t *testing.T) {
	x, c := seamStage(t)
	c.produce(sampleBatch(writer, 10, 11))
	x.brokers["green"].next(kmsg.Produce)
	x.brokers["green"].cut()
	c.closed(time.Second)
	c = x.connect()
	req, id := c.produce(sampleBatch(writer, 10, 11))
	x.brokers["green"].next(kmsg.Produce).answer(t, produced("orders", 30, 0))
	if p := c.answered(req, id); p.BaseOffset != 500 {
		t.Fatalf("answer %+v", p)
	}
}

func TestProducersComeBackUnderATaggedID(t *testing.T) {
	x := newStage(t, nil)
	r := seamRoute(x)
	r.Generation, r.Active = 3, "blue"
	x.p.Publish(r)
	c := x.connect()
	req, id := c.produce(sampleBatch(writer, 10, 11))
	a := x.brokers["blue"].next(kmsg.Produce)
	if got, want := a.batch().ProducerID(), translate.OnCluster(writer, 3); got != want || got == writer {
		t.Fatalf("written as %d, not %d", got, want)
	}
	if err := batch.CheckCRC(a.batch()); err != nil {
		t.Fatal(err)
	}
	a.answer(t, produced("orders", 30, 0))
	c.answered(req, id)
}

func TestWhoWroteIsAskedOnceAfterARestart(t *testing.T) {
	s := newSeam(2, true)
	key := seamKey{topic: "orders"}
	asked := 0
	ask := func(context.Context) (writers, error) {
		asked++
		return writers{ids: []int64{translate.OnCluster(writer, 2), 4711}}, nil
	}
	for range 3 {
		if err := s.learnWriters(context.Background(), key, ask); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := sequenced{key: key, id: writer, first: 900, last: 901} // far ahead: the broker knows better
	if r := s.rule(&b, false); r.code != 0 || r.producer != nil {
		t.Errorf("ruling %+v", r)
	}
	unknown := sequenced{key: key, id: newcomer, first: 900, last: 901}
	if r := s.rule(&unknown, false); r.producer == nil {
		t.Errorf("ruling %+v", r)
	}
}

// A broker forgets who has been silent for long, and would take any sequence of it.
func TestAProducerThatTheBrokersForgotGoesOnAfterARestart(t *testing.T) {
	type sent struct {
		epoch int16
		first int32
		code  int16
	}
	late := kerr.OutOfOrderSequenceNumber.Code
	for name, batches := range map[string][]sent{
		"as in the states":       {{0, 10, 0}, {0, 12, late}, {0, 10, 0}},
		"in mid-stream":          {{0, 900, 0}, {0, 902, late}, {0, 10, late}, {0, 900, 0}},
		"in a later epoch":       {{2, 900, 0}, {2, 902, late}, {2, 900, 0}},
		"from a new epoch on":    {{1, 0, 0}, {1, 2, late}, {1, 0, 0}},
		"before what it wrote":   {{0, 4, late}},
		"in an epoch that ended": {{-1, 900, kerr.InvalidProducerEpoch.Code}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeam(2, true)
			key, states := seamKey{topic: "orders"}, journal.NewProducers()
			states.Add(writer, 0, 0, 4, 100, 0)
			states.Add(writer, 0, 5, 9, 105, 0)
			nobody := func(context.Context) (writers, error) { return writers{}, nil }
			if err := s.learnWriters(context.Background(), key, nobody); err != nil {
				t.Fatal(err)
			}
			for _, one := range batches {
				b := sequenced{key: key, states: states, id: writer, epoch: one.epoch, first: one.first, last: one.first + 1}
				s.mu.Lock()
				r := s.rule(&b, false)
				s.mu.Unlock()
				if r.code != one.code || (r.producer == nil) != (one.code != 0) {
					t.Fatalf("epoch %d, %d: ruling %+v, want code %d", one.epoch, one.first, r, one.code)
				}
				if r.producer != nil {
					s.told(r.producer, failed)
				}
			}
		})
	}
}

// After 2³¹ records a producer's sequences are those of its last batches before the move again.
func TestSequencesThatComeAgainAreWrittenAndRetriesAreNot(t *testing.T) {
	now := time.Now()
	long := now.Add(-keptStates - time.Minute)
	for name, one := range map[string]struct {
		begun     time.Time // zero: before a restart
		claimed   time.Time
		confirmed bool
		known     bool
	}{
		"soon after the move":                  {now, long, true, true},
		"long after the move":                  {long, long, true, false},
		"long after the move, the first batch": {long, long, false, true},
		"soon after a restart in a move":       {time.Time{}, now, true, true},
		"after a later restart":                {time.Time{}, long, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeam(2, one.begun.IsZero())
			s.begun = one.begun
			key, states := seamKey{topic: "orders"}, journal.NewProducers()
			states.Add(writer, 0, 5, 9, 105, one.claimed.UnixMilli())
			states.Add(newcomer, 0, 5, 9, 110, now.UnixMilli())
			s.mu.Lock()
			defer s.mu.Unlock()
			s.partition(key).producers[writer] = &seamProducer{confirmed: one.confirmed}
			b := sequenced{key: key, states: states, id: writer, first: 5, last: 9}
			if r := s.rule(&b, false); r.code != 0 || r.producer != nil || r.known != one.known {
				t.Fatalf("ruling %+v", r)
			}
			if b.id = newcomer; !s.rule(&b, false).known {
				t.Fatal("another producer's batch is not known")
			}
		})
	}
}

// The sequence after the largest int32 is 0. A sequence error would have librdkafka begin a new epoch.
func TestWhatFollowsAFailedBatchComesTooEarlyAlsoWhereSequencesWrap(t *testing.T) {
	for first, want := range map[int32]int16{
		0: kerr.NotLeaderForPartition.Code, 1<<31 - 2: 0, 1<<31 - 4: kerr.OutOfOrderSequenceNumber.Code,
	} {
		s := newSeam(2, false)
		b := sequenced{key: seamKey{topic: "orders"}, id: newcomer, first: 1<<31 - 2, last: 1<<31 - 1}
		s.mu.Lock()
		r := s.rule(&b, false)
		s.mu.Unlock()
		s.told(r.producer, passing)
		b.first, b.last = first, first+1
		s.mu.Lock()
		if r = s.rule(&b, false); r.code != want {
			t.Errorf("%d behind %d: code %d, not %d", first, 1<<31-2, r.code, want)
		}
		s.mu.Unlock()
	}
}

// While no broker can be reached a call waits for the next route, and is made physical once more.
func TestACallIsMadePhysicalByAnotherRouteAsIfForTheFirstTime(t *testing.T) {
	const id = 7 | 1<<40 // issued in generation 1
	d := newDesk(t, 3, []Partition{{}})
	req := produceTo("orders", 1, batchAt(0, id, 0, 5, 1, "value"))
	req.Version = 13
	req.Topics[0].Topic, req.Topics[0].TopicID = "", [16]byte{1}
	c := d.call(req)
	defer c.release()
	for generation := translate.Generation(3); generation < 6; generation++ {
		r := Route{Generation: generation, Active: "blue", Identity: d.p.route.Load().Identity}
		r.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{byte(generation)}, Partitions: []Partition{{}}}}
		for range 2 { // a route of the same generation has the same guard
			d.p.Publish(r)
			c.route = d.p.route.Load()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err := c.prepare(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			var got kmsg.ProduceRequest
			got.Version = 13
			if err := got.ReadFrom(c.message()[c.bodyAt:]); err != nil {
				t.Fatal(err)
			}
			if got.Topics[0].TopicID != [16]byte{byte(generation)} {
				t.Errorf("generation %d: topic %x", generation, got.Topics[0].TopicID)
			}
			want := batchAt(0, translate.OnCluster(id, generation), 0, 5, 1, "value")
			if !bytes.Equal(got.Topics[0].Partitions[0].Records, want) {
				t.Errorf("generation %d: another batch", generation)
			}
		}
	}
}
