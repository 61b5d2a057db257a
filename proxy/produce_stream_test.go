package proxy

import (
	"bytes"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

const streamedBytes = 300 << 10

func streamedBatch(producer int64, first int32) []byte {
	return batchAt(0, producer, 0, first, 1, string(bytes.Repeat([]byte("value"), streamedBytes/5)))
}

// streams sends req again and again until its records are passed on unheld, as the kernel's buffer grows with use, and returns how
// the broker got it. What is answered in between is thrown away.
func (c *rawClient) streams(x *stage, active string, req *kmsg.ProduceRequest) (asked, int32) {
	c.t.Helper()
	for range 200 {
		id := c.send(req)
		a := x.brokers[active].next(kmsg.Produce)
		held := true
		testkit.Eventually(c.t, time.Second, "the call is under way", func() bool {
			for _, s := range x.p.openSessions() {
				held = s.holding.bytes.Load() > 0
				if s.pending.Load() > 0 {
					return true
				}
			}
			return false
		})
		if !held {
			return a, id
		}
		a.answer(c.t, a.produced(0))
		c.receive(req, id)
	}
	c.t.Fatal("the request is held")
	return asked{}, 0
}

// warm uses the connection until requests such as the one that it returns are streamed.
func (c *rawClient) warm(x *stage, active string) *kmsg.ProduceRequest {
	c.t.Helper()
	req := produceTo("orders", -1, streamedBatch(-1, -1))
	a, id := c.streams(x, active, req)
	a.answer(c.t, a.produced(30))
	c.receive(req, id)
	return req
}

// produced answers for the one topic that was asked for, as the request calls it.
func (a asked) produced(base int64) *kmsg.ProduceResponse {
	topic := a.req.(*kmsg.ProduceRequest).Topics[0]
	resp := produced(topic.Topic, base, 0)
	resp.Topics[0].TopicID = topic.TopicID
	return resp
}

func TestALargeBatchIsPassedOnUnheld(t *testing.T) {
	for _, version := range []int16{3, 8, 9, 12, 13} {
		x := newStage(t, nil)
		r := x.route(1, "blue")
		r.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: []Partition{{}}}}
		x.p.Publish(r)
		c := x.connect()
		req := produceTo("orders", -1, streamedBatch(-1, -1))
		req.Version = version
		want := "orders"
		if version >= 13 {
			req.Topics[0].Topic, req.Topics[0].TopicID, want = "", [16]byte{1}, ""
		}
		a, id := c.streams(x, "blue", req)
		got := a.req.(*kmsg.ProduceRequest)
		topic := got.Topics[0]
		if topic.Topic != want || version >= 13 && topic.TopicID != [16]byte{2} || got.Acks != -1 {
			t.Errorf("v%d: topic %q %x", version, topic.Topic, topic.TopicID)
		}
		if !bytes.Equal(topic.Partitions[0].Records, req.Topics[0].Partitions[0].Records) {
			t.Errorf("v%d: other records", version)
		}
		a.answer(t, a.produced(5))
		if got := c.answered(req, id); got.BaseOffset != 5 || got.ErrorCode != 0 {
			t.Errorf("v%d: answered %+v", version, got)
		}
		ask := listOffsets("orders") // the connection goes on
		id = c.send(ask)
		x.brokers["blue"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 7))
		c.receive(ask, id)
	}
}

func TestALargeBatchGoesToItsTopicsPhysicalName(t *testing.T) {
	for _, version := range []int16{3, 9, 12} {
		x := newStage(t, func(cfg *Config) {
			blue := cfg.Clusters["blue"]
			blue.Names = translate.PrefixNames("physical.")
			cfg.Clusters["blue"] = blue
		})
		c := x.connect()
		req := produceTo("orders", -1, streamedBatch(-1, -1))
		req.Version = version
		a, id := c.streams(x, "blue", req)
		got := a.req.(*kmsg.ProduceRequest).Topics[0]
		if got.Topic != "physical.orders" || !bytes.Equal(got.Partitions[0].Records, req.Topics[0].Partitions[0].Records) {
			t.Errorf("v%d: %q, %d bytes", version, got.Topic, len(got.Partitions[0].Records))
		}
		a.answer(t, a.produced(5))
		if resp := c.receive(req, id).(*kmsg.ProduceResponse); resp.Topics[0].Topic != "orders" {
			t.Errorf("v%d: answered %+v", version, resp)
		}
	}
}

func TestALargeBatchGetsItsNewProducerOnTheWay(t *testing.T) {
	x := newStage(t, nil)
	r := seamRoute(x)
	r.Generation, r.Active = 3, "blue"
	x.p.Publish(r)
	c := x.connect()
	req := produceTo("orders", -1, streamedBatch(writer, 10))
	a, id := c.streams(x, "blue", req)
	if got, want := a.batch().ProducerID(), translate.OnCluster(writer, 3); got != want || got == writer {
		t.Fatalf("written as %d, not %d", got, want)
	}
	if err := batch.CheckCRC(a.batch()); err != nil {
		t.Fatal(err)
	}
	a.answer(t, produced("orders", 30, 0))
	c.answered(req, id)
}

func TestWhatIsKnownOfALargeRequestIsTakenOut(t *testing.T) {
	x, c := seamStage(t)
	c.warm(x, "green")
	size := string(make([]byte, streamedBytes))
	req := produceTo("orders", -1, batchAt(0, writer, 0, 5, 5, size[:streamedBytes/5])) // known
	last := kmsg.NewProduceRequestTopicPartition()
	last.Partition, last.Records = 1, batchAt(0, writer, 0, 10, 1, size)
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, last)
	other := kmsg.NewProduceRequestTopic()
	other.Topic, other.Partitions = "other", []kmsg.ProduceRequestTopicPartition{{Records: streamedBatch(-1, -1)}}
	req.Topics = append(req.Topics, other)
	a, id := c.streams(x, "green", req)
	got := a.req.(*kmsg.ProduceRequest)
	if len(got.Topics) != 2 || len(got.Topics[0].Partitions) != 1 || len(got.Topics[1].Partitions) != 1 {
		t.Fatalf("passed on: %d topics", len(got.Topics))
	}
	if p := got.Topics[0].Partitions[0]; p.Partition != 1 || !bytes.Equal(p.Records, last.Records) {
		t.Errorf("partition %d, or other records", p.Partition)
	}
	if !bytes.Equal(got.Topics[1].Partitions[0].Records, other.Partitions[0].Records) {
		t.Error("other records in the second topic")
	}
	resp := produced("orders", 30, 0)
	resp.Topics[0].Partitions[0].Partition = 1
	resp.Topics = append(resp.Topics, produced("other", 7, 0).Topics...)
	a.answer(t, resp)
	answer := c.receive(req, id).(*kmsg.ProduceResponse)
	bases := map[int32]int64{}
	for _, p := range answer.Topics[0].Partitions {
		bases[p.Partition] = p.BaseOffset
	}
	if bases[0] != 105 || bases[1] != seamStart || answer.Topics[1].Partitions[0].BaseOffset != 7 {
		t.Errorf("answered %+v", answer)
	}
}

func TestALargeBatchThatIsNotSentLeavesTheConnectionWhole(t *testing.T) {
	x, c := seamStage(t)
	c.warm(x, "green")
	known := produceTo("orders", -1, batchAt(0, writer, 0, 5, 5, string(make([]byte, streamedBytes/5))))
	hidden := produceTo("switchback.secret", -1, streamedBatch(-1, -1))
	for i := range 3 {
		if got := c.answered(known, c.send(known)); got.ErrorCode != 0 || got.BaseOffset != 105 {
			t.Fatalf("%d: answered %+v", i, got)
		}
		if got := c.answered(hidden, c.send(hidden)); got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("%d: answered %+v", i, got)
		}
	}
	x.brokers["green"].quiet()
	if held := x.p.memory.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// The end of the connection lies behind the records in the kernel, and is seen all the same.
func TestALargeHeldBatchOfAGoneClientIsDropped(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	req := c.warm(x, "blue")
	x.p.gate.hold()
	c.send(req)
	testkit.Eventually(t, time.Second, "the call is held", func() bool { return x.p.gate.standing.Load() == 1 })
	c.conn.Close()
	testkit.Eventually(t, time.Second, "it is seen that the client is gone", func() bool {
		for _, s := range x.p.openSessions() {
			return isGone(s.conn)
		}
		return false
	})
	x.p.Publish(x.route(2, "green"))
	x.p.Release()
	testkit.Eventually(t, time.Second, "the session ends", func() bool { return len(x.p.openSessions()) == 0 })
	x.brokers["green"].quiet()
	x.brokers["blue"].quiet()
}

func TestABrokerThatDiesInALargeBatchEndsTheSession(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	req := c.warm(x, "blue")
	c.send(req)
	x.brokers["blue"].next(kmsg.Produce)
	x.brokers["blue"].cut()
	c.closed(5 * time.Second)
}
