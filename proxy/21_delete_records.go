package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/translate"
)

// DeleteRecords: v0–v2, held at a cutover
//
// Request → physical:  topic names; Offset (exclusive: the first record that stays; −1 is the high watermark).
// Response → virtual:  topic names; LowWatermark (inclusive).
// Not known yet:       NOT_LEADER_OR_FOLLOWER for that partition; nothing is deleted.

func deleteRecordsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.DeleteRecordsRequest)
	local := []kmsg.DeleteRecordsResponseTopic{}
	kept := r.Topics[:0]
	for _, t := range r.Topics {
		here := kmsg.DeleteRecordsResponseTopic{Topic: t.Topic}
		physical, topic := c.topicToPhysical(t.Topic), c.topic(t.Topic)
		partitions := t.Partitions[:0]
		for _, p := range t.Partitions {
			offset, code := topic.partition(p.Partition).deleteBefore(p.Offset)
			if physical == "" {
				code = kerr.UnknownTopicOrPartition.Code
			}
			if code != 0 {
				a := kmsg.NewDeleteRecordsResponseTopicPartition()
				a.Partition, a.LowWatermark, a.ErrorCode = p.Partition, -1, code
				here.Partitions = append(here.Partitions, a)
				continue
			}
			p.Offset = offset
			partitions = append(partitions, p)
		}
		if len(here.Partitions) > 0 {
			local = append(local, here)
		}
		if t.Topic, t.Partitions = physical, partitions; len(partitions) > 0 {
			kept = append(kept, t)
		}
	}
	r.Topics = kept
	c.state = local
	return nil
}

// deleteBefore is the physical offset before which records go.
func (p *Partition) deleteBefore(v int64) (physical int64, code int16) {
	m := p.mapping()
	if m == nil || v < 0 {
		return v, 0
	}
	a := m.ToPhysical(translate.Virtual(v))
	if a.Kind == translate.Unknown {
		return 0, notKnownYet()
	}
	return int64(a.Physical), 0
}

func deleteRecordsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.DeleteRecordsResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		name, ok := c.topicToVirtual(t.Topic)
		if !ok {
			return c.badAnswer("a topic that was not asked for")
		}
		t.Topic = name
		for j := range t.Partitions {
			p := &t.Partitions[j]
			p.LowWatermark = c.topic(name).partition(p.Partition).shownOffset(p.LowWatermark)
		}
	}
	for _, here := range c.state.([]kmsg.DeleteRecordsResponseTopic) {
		r.Topics = mergeDeleted(r.Topics, here)
	}
	return nil
}

// mergeDeleted adds a topic to an answer that may have it already.
func mergeDeleted(topics []kmsg.DeleteRecordsResponseTopic, more kmsg.DeleteRecordsResponseTopic) []kmsg.DeleteRecordsResponseTopic {
	for i := range topics {
		if topics[i].Topic == more.Topic {
			topics[i].Partitions = append(topics[i].Partitions, more.Partitions...)
			return topics
		}
	}
	return append(topics, more)
}
