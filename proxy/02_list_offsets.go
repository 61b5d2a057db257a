package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets: v1–v11
//
// Request → physical:  topic names; CurrentLeaderEpoch.
// Response → virtual:  Offset (inclusive for earliest and by time, exclusive for latest: the map turns both into the first
//                      record at or after it); LeaderEpoch.
// Earliest:            the first record that is left; a gap before it is no place to start.
// By time:             asked of the active cluster, which has all records with their timestamps.
// Not handled:         v0, which answers with several offsets.

func listOffsetsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.ListOffsetsRequest)
	hidden := []kmsg.ListOffsetsResponseTopic{}
	kept := r.Topics[:0]
	for _, t := range r.Topics {
		physical := c.topicToPhysical(t.Topic)
		if physical == "" {
			hidden = append(hidden, unknownOffsets(t))
			continue
		}
		topic := c.topic(t.Topic)
		t.Topic = physical
		for i := range t.Partitions {
			p := &t.Partitions[i]
			p.CurrentLeaderEpoch = topic.partition(p.Partition).currentEpoch(p.CurrentLeaderEpoch)
		}
		kept = append(kept, t)
	}
	r.Topics = kept
	c.state = hidden
	return nil
}

func unknownOffsets(t kmsg.ListOffsetsRequestTopic) kmsg.ListOffsetsResponseTopic {
	out := kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
	for _, p := range t.Partitions {
		a := kmsg.NewListOffsetsResponseTopicPartition()
		a.Partition, a.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
		out.Partitions = append(out.Partitions, a)
	}
	return out
}

func listOffsetsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.ListOffsetsResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		name, ok := c.topicToVirtual(t.Topic)
		if !ok {
			return c.badAnswer("a topic that was not asked for")
		}
		t.Topic = name
		topic := c.topic(name)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			p.Offset, p.LeaderEpoch = topic.partition(p.Partition).shownRecord(p.Offset, p.LeaderEpoch)
		}
	}
	r.Topics = append(r.Topics, c.state.([]kmsg.ListOffsetsResponseTopic)...)
	return nil
}
