package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreatePartitions: v0–v3, held at a cutover
//
// Request → physical:  topic names; assignments (virtual nodes → real brokers).
// Response → virtual:  topic names, also in error messages.

func createPartitionsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.CreatePartitionsRequest)
	hidden := []kmsg.CreatePartitionsResponseTopic{}
	kept := r.Topics[:0]
	for _, t := range r.Topics {
		physical := c.topicToPhysical(t.Topic)
		if physical == "" {
			a := kmsg.NewCreatePartitionsResponseTopic()
			a.Topic, a.ErrorCode = t.Topic, kerr.UnknownTopicOrPartition.Code
			hidden = append(hidden, a)
			continue
		}
		t.Topic = physical
		for i := range t.Assignment {
			t.Assignment[i].Replicas = c.route.brokersBehind(t.Assignment[i].Replicas)
		}
		kept = append(kept, t)
	}
	r.Topics = kept
	c.state = hidden
	return nil
}

func createPartitionsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.CreatePartitionsResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		name, ok := c.topicToVirtual(t.Topic)
		if !ok {
			return c.badAnswer("a topic that was not asked for")
		}
		t.ErrorMessage = words(t.ErrorMessage, t.Topic, name)
		t.Topic = name
	}
	r.Topics = append(r.Topics, c.state.([]kmsg.CreatePartitionsResponseTopic)...)
	return nil
}
