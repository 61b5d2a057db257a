package proxy

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
)

// restarted is seamStage in a process that was started again: green says who has written in this generation.
func restarted(t *testing.T) (*stage, *rawClient, *kfake.Cluster) {
	t.Helper()
	green, err := testkit.StartKafka(1, "green")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(green.Close)
	if err := green.CreateTopic("orders", 1, nil); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(green.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	x := newStage(t, func(cfg *Config) { cfg.Clusters["green"] = Cluster{Client: client, Dial: dialTCP} })
	x.p.publishing.Lock()
	x.p.publish(seamRoute(x), true)
	x.p.publishing.Unlock()
	return x, x.connect(), green
}

// Who has written could not be asked when the first batch came, and could when the second did.
func TestWhatIsBehindABatchThatHasToComeAgainIsNotTakenForTheFirst(t *testing.T) {
	for name, records := range map[string][2][]byte{
		"as in the states": {sampleBatch(writer, 10, 11), sampleBatch(writer, 12, 13)},
		"in mid-stream":    {sampleBatch(writer, 900, 901), sampleBatch(writer, 902, 903)},
		"known to nobody":  {sampleBatch(newcomer, 40, 41), sampleBatch(newcomer, 42, 43)},
	} {
		t.Run(name, func(t *testing.T) {
			x, c, green := restarted(t)
			green.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeProducers}, Err: kerr.TopicAuthorizationFailed})
			first, id1 := c.produce(records[0])
			second, id2 := c.produce(records[1])
			if p := c.answered(first, id1); p.ErrorCode != notKnownYet() {
				t.Fatalf("the first was answered with %d", p.ErrorCode)
			}
			if p := c.answered(second, id2); p.ErrorCode != notKnownYet() {
				t.Fatalf("the second was answered with %d", p.ErrorCode)
			}
			for i, r := range records {
				x.goesOn(c, r, 2*int64(i))
			}
		})
	}
}

// A retry of what was written before the move says nothing of what comes next.
func TestABatchBehindARetryThatHasToComeAgainIsWritten(t *testing.T) {
	x, c, green := restarted(t)
	green.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeProducers}, Err: kerr.TopicAuthorizationFailed})
	first, id := c.produce(sampleBatch(writer, 5, 9))
	if p := c.answered(first, id); p.ErrorCode != notKnownYet() {
		t.Fatalf("the retry was answered with %d", p.ErrorCode)
	}
	x.goesOn(c, sampleBatch(writer, 10, 11), 0)
}

// goesOn writes a batch, which is to be the nth record behind the move.
func (x *stage) goesOn(c *rawClient, records []byte, n int64) {
	x.t.Helper()
	req, id := c.produce(records)
	x.brokers["green"].next(kmsg.Produce).answer(x.t, produced("orders", 30+n, 0))
	if p := c.answered(req, id); p.BaseOffset != seamStart+n || p.ErrorCode != 0 {
		x.t.Fatalf("answer %+v", p)
	}
}
