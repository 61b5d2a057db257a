package replicator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/obs"
)

// sample is what metrics show of the flow now.
func (f *Flow) sample() obs.FlowSample {
	out := obs.FlowSample{Journal: f.journalBytes.Load()}
	for _, p := range f.allPumps() {
		s, age := p.status(), p.recordAge.Load()
		out.Partitions = append(out.Partitions, obs.PartitionSample{
			Topic: s.Topic, Partition: s.Partition, State: string(s.State), Known: s.Frontier >= 0,
			LagRecords: s.LagRecords, Lag: time.Duration(s.LagMillis) * time.Millisecond, Gaps: p.gaps(),
			Copied: age != nil, RecordAge: *cmp.Or(age, new(time.Duration)),
		})
	}
	out.Groups = f.groups.ages()
	for _, s := range f.slots {
		if s.owned() {
			out.Slots++
		}
	}
	return out
}

// weighEvery is how often the size of the journal is asked for.
const weighEvery = 30 * time.Second

// weigh asks for the size of the journal until ctx ends. Who may not ask, or cannot be answered, shows none.
func (f *Flow) weigh(ctx context.Context) {
	for {
		size, err := f.journalSize(ctx)
		if err != nil {
			size = -1
		}
		f.journalBytes.Store(size)
		if sleep(ctx, weighEvery) != nil {
			return
		}
	}
}

// journalSize is the size of the largest replica of each partition of the journal, in bytes, together.
func (f *Flow) journalSize(ctx context.Context) (bytes int64, err error) {
	req := kmsg.NewPtrDescribeLogDirsRequest()
	t := kmsg.NewDescribeLogDirsRequestTopic()
	t.Topic = journal.Topic(f.cfg.From, f.cfg.To)
	for n := range f.slots {
		t.Partitions = append(t.Partitions, int32(n))
	}
	req.Topics = append(req.Topics, t)
	largest := make([]int64, len(f.slots))
	found := false
	for _, shard := range f.target.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			err = shard.Err
			continue
		}
		for _, dir := range shard.Resp.(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, topic := range dir.Topics {
				for _, p := range topic.Partitions {
					if topic.Topic == t.Topic && int(p.Partition) < len(largest) && !p.IsFuture {
						largest[p.Partition], found = max(largest[p.Partition], p.Size), true
					}
				}
			}
		}
	}
	if !found {
		return 0, fmt.Errorf("size of %s: no broker told it: %w", t.Topic, err)
	}
	for _, size := range largest {
		bytes += size
	}
	return bytes, nil
}

func (p *pump) gaps() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part == nil {
		return 0
	}
	return p.part.Map.Gaps()
}

// owned says whether a reign has recovered, and was not lost since.
func (s *slot) owned() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return closed(s.done) && s.trouble == nil
}

// ages tells of each group how long ago its offsets were right on the target. One of which they never were counts from when it was
// found, so that it is not taken for a fresh one.
func (g *groupSync) ages() []obs.GroupSample {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]obs.GroupSample, 0, len(g.states))
	for group, s := range g.states {
		since := s.at
		if since.IsZero() {
			since = s.found
		}
		out = append(out, obs.GroupSample{Group: group, Age: time.Since(since)})
	}
	return out
}
