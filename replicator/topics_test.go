package replicator

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
)

// A cluster of another version refuses configs that it does not know; what fails for a moment is not that. A compacted topic made
// without its cleanup.policy would lose records by retention.
func TestAConfigIsLeftOutOnlyIfTheTargetRefusesIt(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, map[string]string{"cleanup.policy": "compact", "segment.ms": "60000"})
	var failed atomic.Bool
	p.green.kafka.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		p.green.kafka.KeepControl()
		req, resp := kreq.(*kmsg.CreateTopicsRequest), kreq.ResponseKind().(*kmsg.CreateTopicsResponse)
		one := req.Topics[0]
		has := func(name string) bool {
			return slices.ContainsFunc(one.Configs, func(c kmsg.CreateTopicsRequestTopicConfig) bool { return c.Name == name })
		}
		answer := kmsg.NewCreateTopicsResponseTopic()
		answer.Topic = one.Topic
		switch {
		case one.Topic != "orders":
			return nil, nil, false
		case has("segment.ms"):
			answer.ErrorCode = kerr.InvalidConfig.Code
		case req.ValidateOnly && has("cleanup.policy") && failed.CompareAndSwap(false, true):
			answer.ErrorCode = kerr.RequestTimedOut.Code
		default:
			return nil, nil, false
		}
		resp.Topics = append(resp.Topics, answer)
		return resp, nil, true
	})
	r := p.start(p.config(p.blue, p.green))
	testkit.Eventually(t, patience, "the topic is made", func() bool { return p.green.kafka.TopicInfo("orders") != nil })
	p.copied(r)
	if got := p.green.kafka.TopicInfo("orders").Configs["cleanup.policy"]; got == nil || *got != "compact" || !failed.Load() {
		t.Fatalf("made with cleanup.policy %v", got)
	}
}

func TestManyTopicsAreMadeInSeveralRequests(t *testing.T) {
	topics := make([]kmsg.CreateTopicsRequestTopic, 3000)
	for i := range topics {
		topics[i].NumPartitions = 3
		topics[i].Configs = make([]kmsg.CreateTopicsRequestTopicConfig, 1)
	}
	for made := 0; made < len(topics); made += 1000 {
		if n := madeAtOnce(topics[made:]); n != 1000 {
			t.Fatalf("behind %d topics %d are made at once", made, n)
		}
	}
	topics[0].NumPartitions, topics[1].NumPartitions = -1, -1
	topics[0].ReplicaAssignment = make([]kmsg.CreateTopicsRequestTopicReplicaAssignment, 20_000)
	if n := madeAtOnce(topics); n != 1 {
		t.Errorf("with one that is large, %d are made at once", n)
	}
}
