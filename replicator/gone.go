package replicator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errGone ends a reign because a topic of the slot is on neither cluster any more, or came back.
var errGone = errors.New("a topic is gone, or came back")

// notOnSource is said of a topic that the source does not show any more.
func notOnSource() *trouble {
	return &trouble{"the topic is not on the source any more", "if that was meant, delete it on the target too"}
}

// dropGone stops the pumps of topics that the source does not show any more. Their records on the target stay. A topic that
// neither cluster has is not copied any more, and nothing is left to be said of it.
func (f *Flow) dropGone(ctx context.Context, wanted map[string]bool) error {
	gone := map[string][]*pump{}
	for _, p := range f.allPumps() {
		if wanted[p.tp.Topic] {
			continue
		}
		p.mu.Lock()
		p.topic = notOnSource()
		p.mu.Unlock()
		p.feed.end()
		if f.source.topic(p.source) == nil && f.target.topic(p.target) == nil {
			gone[p.tp.Topic] = append(gone[p.tp.Topic], p)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	var sources, targets []string
	for _, pumps := range gone {
		sources, targets = append(sources, pumps[0].source), append(targets, pumps[0].target)
	}
	notThere, err := f.source.lacks(ctx, sources)
	if err != nil {
		return err
	}
	norThere, err := f.target.lacks(ctx, targets)
	if err != nil {
		return err
	}
	for topic, pumps := range gone {
		if notThere[pumps[0].source] && norThere[pumps[0].target] {
			f.forget(topic, pumps)
		}
	}
	return nil
}

// dropMadeAgain forgets the pumps of topics that were deleted and made again on both clusters. Others begin with the new ones.
func (f *Flow) dropMadeAgain() {
	gone := map[string][]*pump{}
	for _, p := range f.allPumps() {
		source, target := f.source.topic(p.source), f.target.topic(p.target)
		if source != nil && target != nil && p.anotherOnBoth(source.id, target.id) {
			gone[p.tp.Topic] = append(gone[p.tp.Topic], p)
		}
	}
	for topic, pumps := range gone {
		f.forget(topic, pumps)
	}
}

// lacks asks for topics by name, and returns those that the cluster says it does not have. A list of all topics does not tell
// that: one that we may not see is not in it, nor one with an error.
func (c *cluster) lacks(ctx context.Context, topics []string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, fmt.Errorf("metadata of %d topics of %s: %w", len(topics), c.name, err)
	}
	out := map[string]bool{}
	for _, t := range resp.Topics {
		if t.Topic != nil && t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			out[*t.Topic] = true
		}
	}
	return out, nil
}

// forget removes the pumps of a topic that neither cluster has. What is known of its partitions stays (reign.parts): if a topic
// of that name comes, its ids are compared with those of the old one.
func (f *Flow) forget(topic string, pumps []*pump) {
	left := false
	for _, p := range pumps {
		if !p.slot.forget(p) {
			left = true
			continue
		}
		f.fetchers.remove(p.feed)
		f.mu.Lock()
		delete(f.pumps, p.tp)
		f.mu.Unlock()
		f.groups.lose(p.tp)
	}
	if left {
		return
	}
	f.mu.Lock()
	delete(f.topics, topic)
	f.mu.Unlock()
	f.log.Info().Str("topic", topic).Msg("topic is on neither cluster any more")
	f.progress.signal()
}

// forget takes a pump out and ends the reign that runs it. A sealed slot keeps what it was sealed with.
func (s *slot) forget(p *pump) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == sealed {
		return false
	}
	s.pumps = slices.DeleteFunc(slices.Clone(s.pumps), func(one *pump) bool { return one == p })
	s.endNow(errGone)
	return true
}
