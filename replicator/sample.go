package replicator

import (
	"time"

	"github.com/switchback-proxy/switchback/internal/obs"
)

// sample is what metrics show of the flow now.
func (f *Flow) sample() obs.FlowSample {
	var out obs.FlowSample
	for _, p := range f.allPumps() {
		s := p.status()
		out.Partitions = append(out.Partitions, obs.PartitionSample{
			Topic: s.Topic, Partition: s.Partition, State: string(s.State), Known: s.Frontier >= 0,
			LagRecords: s.LagRecords, Lag: time.Duration(s.LagMillis) * time.Millisecond, Gaps: p.gaps(),
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
