package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteTopics: v1–v6, held at a cutover
//
// Request → physical:  topic names or ids.
// Response → virtual:  topic names and ids, names in error messages.
// Deleted:             what the route says of the topic is forgotten (gone.go).

func deleteTopicsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.DeleteTopicsRequest)
	hidden := []kmsg.DeleteTopicsResponseTopic{}
	hide := func(name string) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.ErrorCode = &name, kerr.UnknownTopicOrPartition.Code
		hidden = append(hidden, t)
	}
	names := r.TopicNames[:0]
	for _, name := range r.TopicNames {
		if physical := c.topicToPhysical(name); physical != "" {
			names = append(names, physical)
		} else {
			hide(name)
		}
	}
	topics := r.Topics[:0]
	for _, t := range r.Topics {
		if t.Topic == nil {
			t.TopicID = c.route.physicalID(t.TopicID)
			topics = append(topics, t)
			continue
		}
		physical := c.topicToPhysical(*t.Topic)
		if physical == "" {
			hide(*t.Topic)
			continue
		}
		t.Topic = &physical
		topics = append(topics, t)
	}
	r.TopicNames, r.Topics = names, topics
	c.state = hidden
	return nil
}

func deleteTopicsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.DeleteTopicsResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		real := t.TopicID
		t.TopicID = c.route.virtualID(real)
		if known := c.route.byPhysical[real]; known != nil && t.ErrorCode == 0 {
			c.s.p.forgetTopic(c.route, known.Name)
		}
		if t.Topic == nil {
			continue
		}
		name, ok := c.topicToVirtual(*t.Topic)
		if !ok {
			return c.badAnswer("a topic that clients do not see")
		}
		if t.ErrorCode == 0 {
			c.s.p.forgetTopic(c.route, name)
		}
		t.ErrorMessage = words(t.ErrorMessage, *t.Topic, name)
		t.Topic = &name
	}
	r.Topics = append(r.Topics, c.state.([]kmsg.DeleteTopicsResponseTopic)...)
	return nil
}
