package proxy

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

// fetchSession is the fetch session that a client has with the broker behind its node, and the generation of the route
// under which it was begun: another cluster's session of the same number is not meant.
type fetchSession struct {
	id         atomic.Int32
	generation atomic.Int64
}

func (f *fetchSession) set(id int32, generation translate.Generation) {
	f.generation.Store(int64(generation))
	f.id.Store(id)
}

func (f *fetchSession) is(id int32, generation translate.Generation) bool {
	return f.id.Load() == id && f.generation.Load() == int64(generation)
}

// answerEmpty answers a Fetch that gets no answer from its link.
func (c *call) answerEmpty() error {
	c.route = c.s.p.route.Load()
	return c.answerFetch()
}

// answerFetch answers a Fetch here: a position in a terminal gap gets a gap marker, one that is not known yet a retriable
// code, any other nothing. A session that we cannot go on with is not found, so the client names all its partitions again.
func (c *call) answerFetch() error {
	req := kmsg.NewPtrFetchRequest()
	if err := c.decode(req); err != nil {
		return err
	}
	resp := kmsg.NewPtrFetchResponse()
	if c.fetch.strange || c.fetch.incremental {
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		c.answer(resp)
		return nil
	}
	for _, t := range req.Topics {
		resp.Topics = append(resp.Topics, c.fetchedTopic(t))
	}
	c.answer(resp)
	return nil
}

func (c *call) fetchedTopic(t kmsg.FetchRequestTopic) kmsg.FetchResponseTopic {
	out := kmsg.FetchResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
	var topic *Topic
	var marks *topicMarks
	hidden := false
	if c.version >= 13 {
		topic, marks = c.route.byVirtual[t.TopicID], c.s.p.seen.find(nil, t.TopicID)
	} else {
		topic, hidden = c.topic(t.Topic), c.topicToPhysical(t.Topic) == ""
		marks = c.s.p.seen.find([]byte(t.Topic), [16]byte{})
	}
	for _, p := range t.Partitions {
		a := topic.partition(p.Partition).fetchedHere(p.FetchOffset, marks.get(p.Partition))
		a.Partition = p.Partition
		if hidden {
			a.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		out.Partitions = append(out.Partitions, a)
	}
	return out
}

// fetchedHere is the answer for position v of a partition whose high watermark was last shown as hw. That may be long ago, so what
// is answered lies above the position: at it, a client that reads to the end would take the position for the end.
func (p *Partition) fetchedHere(v, hw int64) kmsg.FetchResponseTopicPartition {
	a := kmsg.NewFetchResponseTopicPartition()
	a.RecordBatches = []byte{}
	a.HighWatermark = max(hw, v+1)
	if m := p.mapping(); m != nil && v >= 0 {
		if m.ToPhysical(translate.Virtual(v)).Kind == translate.Unknown {
			a.ErrorCode, a.HighWatermark = notKnownYet(), -1
		} else if end, ok := m.TerminalGap(translate.Virtual(v)); ok {
			a.HighWatermark = max(hw, int64(end)+1)
			a.RecordBatches = batch.GapMarker(nil, v, int64(end), p.gapEpoch(translate.Virtual(v)))
		}
	}
	a.LastStableOffset = a.HighWatermark
	return a
}

// gapEpoch is the epoch shown of a terminal gap: it belongs to the era before the current one.
func (p *Partition) gapEpoch(v translate.Virtual) int32 {
	return int32(max(p.History.At(v), 0))
}
