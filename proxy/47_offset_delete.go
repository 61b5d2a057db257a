package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete: v0
//
// Request → physical:  topic names. Topics that clients do not see: UNKNOWN_TOPIC_OR_PARTITION.
// Response → virtual:  topic names.

// offsetDeleteCall is what of the answer is made here.
type offsetDeleteCall struct {
	here []kmsg.OffsetDeleteResponseTopic
}

func offsetDeleteRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.OffsetDeleteRequest)
	c.group = req.Group
	st := &offsetDeleteCall{}
	c.state = st
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if !c.s.p.servesGroup(req.Group) {
		resp.ErrorCode = groupRefused()
		c.answer(resp)
		return nil
	}
	asked := len(req.Topics)
	kept := req.Topics[:0]
	for _, t := range req.Topics {
		physical := c.topicToPhysical(t.Topic)
		if physical == "" {
			st.refuse(t)
			continue
		}
		t.Topic = physical
		kept = append(kept, t)
	}
	req.Topics = kept
	if asked > 0 && len(kept) == 0 {
		resp.Topics = st.here
		c.answer(resp)
	}
	return nil
}

func (st *offsetDeleteCall) refuse(t kmsg.OffsetDeleteRequestTopic) {
	answer := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
	for _, p := range t.Partitions {
		answer.Partitions = append(answer.Partitions, kmsg.OffsetDeleteResponseTopicPartition{
			Partition: p.Partition, ErrorCode: kerr.UnknownTopicOrPartition.Code,
		})
	}
	st.here = append(st.here, answer)
}

func offsetDeleteResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.OffsetDeleteResponse)
	if err := c.coordinatorSaid(resp.ErrorCode); err != nil {
		return err
	}
	for i := range resp.Topics {
		resp.Topics[i].Topic, _ = c.topicToVirtual(resp.Topics[i].Topic)
	}
	if st, ok := c.state.(*offsetDeleteCall); ok && resp.ErrorCode == 0 {
		resp.Topics = append(resp.Topics, st.here...)
	}
	return nil
}
