package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/translate"
)

// OffsetForLeaderEpoch: v2–v4
//
// Request → physical:  topic names; CurrentLeaderEpoch; LeaderEpoch of the current era.
// Response → virtual:  LeaderEpoch, EndOffset (exclusive).
// Earlier eras:        answered here from the history. The end of an era is the start of the next, also over the hole of a
//                      forced move: a lower answer makes Java and librdkafka clients stop for good.
// Not handled:         v0–1, which do not say the current epoch.

// epochState is what the answer needs of the request.
type epochState struct {
	local []kmsg.OffsetForLeaderEpochResponseTopic // answered here, by virtual name
}

func offsetForLeaderEpochRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.OffsetForLeaderEpochRequest)
	st := &epochState{}
	c.state = st
	kept := r.Topics[:0]
	for _, t := range r.Topics {
		here := kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
		physical, topic := c.topicToPhysical(t.Topic), c.topic(t.Topic)
		partitions := t.Partitions[:0]
		for _, p := range t.Partitions {
			how := topic.partition(p.Partition)
			switch {
			case physical == "":
				here.Partitions = append(here.Partitions, epochAnswer(p.Partition, kerr.UnknownTopicOrPartition.Code, -1, -1))
			case how.isPast(p.LeaderEpoch):
				epoch, end := how.endOfPast(p.LeaderEpoch)
				here.Partitions = append(here.Partitions, epochAnswer(p.Partition, 0, epoch, end))
			default:
				p.CurrentLeaderEpoch = how.currentEpoch(p.CurrentLeaderEpoch)
				p.LeaderEpoch = int32(how.shift().Real(translate.Epoch(p.LeaderEpoch)))
				partitions = append(partitions, p)
			}
		}
		if len(here.Partitions) > 0 {
			st.local = append(st.local, here)
		}
		if t.Topic, t.Partitions = physical, partitions; len(partitions) > 0 {
			kept = append(kept, t)
		}
	}
	if r.Topics = kept; len(kept) == 0 && len(st.local) > 0 {
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		resp.Topics = st.local
		c.answer(resp)
	}
	return nil
}

func epochAnswer(partition int32, code int16, epoch int32, end int64) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	a := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	a.Partition, a.ErrorCode, a.LeaderEpoch, a.EndOffset = partition, code, epoch, end
	return a
}

// isPast says whether a shown epoch belongs to an era before the current one.
func (p *Partition) isPast(epoch int32) bool {
	return p != nil && len(p.Eras) > 0 && epoch >= 0 && translate.Epoch(epoch) < p.era().FirstEpoch
}

// endOfPast is the largest epoch at or below a past one, and its end, which is at most the start of the current era.
func (p *Partition) endOfPast(epoch int32) (int32, int64) {
	start := p.era().Virtual
	largest, end, ok := p.History.EndOf(translate.Epoch(epoch), start)
	if !ok { // shown, but no record has it: as the last one that has
		largest, end = max(p.History.Last(), 0), start
	}
	return int32(min(largest, translate.Epoch(epoch))), int64(min(end, start))
}

func offsetForLeaderEpochResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.OffsetForLeaderEpochResponse)
	for i := range r.Topics {
		t := &r.Topics[i]
		name, ok := c.topicToVirtual(t.Topic)
		if !ok {
			return c.badAnswer("a topic that was not asked for")
		}
		t.Topic = name
		for j := range t.Partitions {
			p := &t.Partitions[j]
			c.topic(name).partition(p.Partition).showEpochEnd(p)
		}
	}
	st := c.state.(*epochState)
	for _, here := range st.local {
		r.Topics = mergeEpochs(r.Topics, here)
	}
	return nil
}

// showEpochEnd rewrites the broker's answer to a question about an epoch of the current era. The broker may answer with an
// epoch from before it, if the current era has no record up to the one asked: then what went before ends at its start.
func (p *Partition) showEpochEnd(a *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	if p == nil || len(p.Eras) == 0 || a.ErrorCode != 0 || a.EndOffset < 0 {
		a.LeaderEpoch, a.EndOffset = p.shownEpoch(a.LeaderEpoch), p.shownOffset(a.EndOffset)
		return
	}
	era := p.era()
	if shown := era.Shift.Show(translate.RealEpoch(a.LeaderEpoch)); shown >= era.FirstEpoch || era.FirstEpoch <= 0 {
		a.LeaderEpoch, a.EndOffset = int32(shown), max(p.shownOffset(a.EndOffset), int64(era.Virtual))
		return
	}
	a.LeaderEpoch, a.EndOffset = p.endOfPast(int32(era.FirstEpoch) - 1)
}

// mergeEpochs adds a topic to an answer that may have it already.
func mergeEpochs(topics []kmsg.OffsetForLeaderEpochResponseTopic, more kmsg.OffsetForLeaderEpochResponseTopic) []kmsg.OffsetForLeaderEpochResponseTopic {
	for i := range topics {
		if topics[i].Topic == more.Topic {
			topics[i].Partitions = append(topics[i].Partitions, more.Partitions...)
			return topics
		}
	}
	return append(topics, more)
}
