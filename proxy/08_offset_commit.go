package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit: v2–v10
//
// Request → physical:  topic name or id; Offset (the first record at or after it); LeaderEpoch, −1 unless it is of the
//                      current era; MemberID, Generation.
// Response → virtual:  topic name or id.
// Outside the map:     COORDINATOR_LOAD_IN_PROGRESS for the partition, which clients retry. Offset −1 stays −1.
// Generation change:   a member that stands before the barrier commits without a member while the group is empty on the
//                      cluster. Once it is not: REBALANCE_IN_PROGRESS, and the client commits again after its rejoin.
// Topics not seen:     UNKNOWN_TOPIC_OR_PARTITION, as from a broker.

// commitCall is what of the answer is made here.
type commitCall struct {
	memberCall
	barred bool
	here   []kmsg.OffsetCommitResponseTopic // as clients see them
}

func offsetCommitRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.OffsetCommitRequest)
	c.group = req.Group
	st := &commitCall{memberCall: memberCall{req.MemberID, req.Generation}}
	c.state = st
	if !c.s.p.servesGroup(req.Group) {
		for i := range req.Topics {
			st.refuseTopic(&req.Topics[i], groupRefused())
		}
		return c.commitAnsweredHere(req, st)
	}
	view := c.enterGroup(req.MemberID)
	st.barred = view.barred
	if view.barred {
		req.MemberID, req.Generation, req.InstanceID = "", unknownGeneration, nil
	}
	req.MemberID, req.Generation = view.real(req.MemberID), view.realGeneration(req.Generation)
	asked := len(req.Topics)
	kept := req.Topics[:0]
	for i := range req.Topics {
		t := req.Topics[i]
		if c.commitTopic(st, &t) {
			kept = append(kept, t)
		}
	}
	req.Topics = kept
	if asked > 0 && len(kept) == 0 {
		return c.commitAnsweredHere(req, st)
	}
	return nil
}

func (c *call) commitAnsweredHere(req *kmsg.OffsetCommitRequest, st *commitCall) error {
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	resp.Topics = st.here
	c.answer(resp)
	return nil
}

// commitTopic rewrites one topic; false if nothing of it is left to send.
func (c *call) commitTopic(st *commitCall, t *kmsg.OffsetCommitRequestTopic) bool {
	shown := *t
	topic := c.topicOf(t.Topic, t.TopicID)
	if c.version < 10 {
		if t.Topic = c.topicToPhysical(t.Topic); t.Topic == "" {
			st.refuseTopic(&shown, kerr.UnknownTopicOrPartition.Code)
			return false
		}
	} else {
		t.TopicID = c.route.physicalID(t.TopicID)
	}
	kept := t.Partitions[:0]
	for _, p := range t.Partitions {
		part := topic.partition(p.Partition)
		physical, ok := part.committedToPhysical(p.Offset)
		if !ok {
			st.refuse(&shown, p.Partition, kerr.CoordinatorLoadInProgress.Code)
			continue
		}
		p.Offset, p.LeaderEpoch = physical, part.epochToCluster(p.LeaderEpoch)
		kept = append(kept, p)
	}
	asked := len(t.Partitions)
	t.Partitions = kept
	return len(kept) > 0 || asked == 0
}

func (st *commitCall) refuseTopic(t *kmsg.OffsetCommitRequestTopic, code int16) {
	for _, p := range t.Partitions {
		st.refuse(t, p.Partition, code)
	}
}

func (st *commitCall) refuse(t *kmsg.OffsetCommitRequestTopic, partition int32, code int16) {
	st.here = addCommitAnswer(st.here, t.Topic, t.TopicID, kmsg.OffsetCommitResponseTopicPartition{Partition: partition, ErrorCode: code})
}

// addCommitAnswer adds a partition to its topic.
func addCommitAnswer(topics []kmsg.OffsetCommitResponseTopic, name string, id [16]byte, parts ...kmsg.OffsetCommitResponseTopicPartition) []kmsg.OffsetCommitResponseTopic {
	for i := range topics {
		if topics[i].Topic == name && topics[i].TopicID == id {
			topics[i].Partitions = append(topics[i].Partitions, parts...)
			return topics
		}
	}
	return append(topics, kmsg.OffsetCommitResponseTopic{Topic: name, TopicID: id, Partitions: parts})
}

func offsetCommitResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.OffsetCommitResponse)
	st := c.state.(*commitCall)
	committed := false
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if err := c.coordinatorSaid(p.ErrorCode); err != nil {
				return err
			}
			committed = committed || p.ErrorCode == 0
			if st.barred && (p.ErrorCode == kerr.UnknownMemberID.Code || p.ErrorCode == kerr.IllegalGeneration.Code) {
				p.ErrorCode = kerr.RebalanceInProgress.Code
			}
		}
		if c.version >= 10 {
			t.TopicID = c.route.virtualID(t.TopicID)
		} else {
			t.Topic, _ = c.topicToVirtual(t.Topic)
		}
	}
	if committed && !st.barred && st.member != "" {
		c.s.p.groups.table().confirmed(c.group, st.generation)
	}
	for _, t := range st.here {
		resp.Topics = addCommitAnswer(resp.Topics, t.Topic, t.TopicID, t.Partitions...)
	}
	return nil
}
