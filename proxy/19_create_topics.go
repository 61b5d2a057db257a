package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopics: v2–v7, held at a cutover
//
// Request → physical:  topic names; replica assignments (virtual nodes → real brokers).
// Response → virtual:  topic names and ids, names in error messages.
// Names of ours:       INVALID_TOPIC_EXCEPTION, as for any name that cannot be had.

func createTopicsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.CreateTopicsRequest)
	refused := []kmsg.CreateTopicsResponseTopic{}
	kept := r.Topics[:0]
	for _, t := range r.Topics {
		physical := c.topicToPhysical(t.Topic)
		if physical == "" {
			refused = append(refused, refusedTopic(t.Topic))
			continue
		}
		t.Topic = physical
		for i := range t.ReplicaAssignment {
			t.ReplicaAssignment[i].Replicas = c.route.brokersBehind(t.ReplicaAssignment[i].Replicas)
		}
		kept = append(kept, t)
	}
	r.Topics = kept
	c.state = refused
	return nil
}

func refusedTopic(name string) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	why := "this name cannot be used"
	t.Topic, t.ErrorCode, t.ErrorMessage = name, kerr.InvalidTopicException.Code, &why
	t.NumPartitions, t.ReplicationFactor = -1, -1
	return t
}

func createTopicsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.CreateTopicsResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		name, ok := c.topicToVirtual(t.Topic)
		if !ok {
			return c.badAnswer("a topic that was not asked for")
		}
		t.ErrorMessage = words(t.ErrorMessage, t.Topic, name)
		t.Topic, t.TopicID = name, c.route.virtualID(t.TopicID)
		for j := range t.Configs {
			t.Configs[j].Value = shownConfig(t.Configs[j].Name, t.Configs[j].Value)
		}
	}
	r.Topics = append(r.Topics, c.state.([]kmsg.CreateTopicsResponseTopic)...)
	return nil
}
