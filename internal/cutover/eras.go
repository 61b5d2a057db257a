package cutover

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

// addEras returns the topic records of the next generation: for each partition its eras so far and the new one, which
// begins at its end E on the target, sorted by name. Topics without a record get one, whose id as clients see it is the
// one of the cluster that is active now.
func addEras(s control.Snapshot, to string, ends map[TP]End, sealed map[TP]Sealed) ([]control.Topic, error) {
	counts := make(map[string]int32)
	for tp := range ends {
		counts[tp.Topic] = max(counts[tp.Topic], tp.Partition+1)
	}
	topics := make([]control.Topic, 0, len(counts))
	for name, n := range counts {
		t, err := addTopicEras(s, name, n, to, ends, sealed)
		if err != nil {
			return nil, err
		}
		topics = append(topics, t)
	}
	slices.SortFunc(topics, func(a, b control.Topic) int { return strings.Compare(a.Name, b.Name) })
	return topics, nil
}

func addTopicEras(s control.Snapshot, name string, n int32, to string, ends map[TP]End, sealed map[TP]Sealed) (control.Topic, error) {
	old, known := s.Topics[name]
	t := control.Topic{Name: name, VirtualID: old.VirtualID, IDs: make(map[string][16]byte, 2)}
	for cluster, id := range old.IDs {
		t.IDs[cluster] = id
	}
	eras := s.Eras(name, int(n))
	for p := range n {
		tp := TP{name, p}
		end, isThere := ends[tp]
		seal, isSealed := sealed[tp]
		if !isThere || !isSealed {
			return control.Topic{}, &Error{
				Code:    CodeNotCopied,
				Message: fmt.Sprintf("partition %d of topic %s was not sealed", p, name),
				Hint:    "see the partition's reason in the status",
			}
		}
		if p == 0 {
			t.IDs[s.State.Active], t.IDs[to] = end.TopicID, seal.TopicID
			if !known {
				t.VirtualID = end.TopicID
			}
		}
		t.Partitions = append(t.Partitions, append(slices.Clip(eras[p]), nextEra(s.State.Generation+1, to, eras[p], end, seal)))
	}
	return t, nil
}

// nextEra begins where the source ended. Every epoch shown so far is at most that of the source's leader now, under the
// shift of its era.
func nextEra(g translate.Generation, to string, eras []control.Era, end End, seal Sealed) control.Era {
	last := eras[len(eras)-1]
	shown := max(last.Shift.Show(end.LeaderEpoch), last.FirstEpoch)
	shift := translate.ShiftFor(shown, seal.TargetEpoch)
	return control.Era{
		Generation: g, Cluster: to, Virtual: end.HighWatermark, Physical: seal.Next,
		Shift: shift, FirstEpoch: shift.Show(max(seal.TargetEpoch, 0)),
	}
}

// withTopics returns the snapshot that holds once st, the state of the new generation, is committed. Topics that were not
// part of the move keep the record they had, as in the target's log: whoever makes a route of it sees that they do not fit.
func withTopics(s control.Snapshot, st control.State, topics []control.Topic, groups []control.Group) control.Snapshot {
	out := control.Snapshot{State: st, Topics: make(map[string]control.Topic, len(topics)), Groups: make(map[string]control.Group, len(groups))}
	maps.Copy(out.Topics, s.Topics)
	for _, t := range topics {
		out.Topics[t.Name] = t
	}
	for _, g := range groups {
		out.Groups[g.Name] = g
	}
	return out
}

// compareEnds finds a partition whose log has changed between two looks; nil if none has.
func compareEnds(first, second map[TP]End) error {
	for tp, b := range second {
		a, known := first[tp]
		if known && a.HighWatermark == b.HighWatermark && a.TopicID == b.TopicID || !known && b.HighWatermark == 0 {
			continue
		}
		return &Error{
			Code: CodeLogMoved,
			Message: fmt.Sprintf("partition %d of topic %s grew from offset %d to %d while the gate was shut: a writer bypasses the proxy",
				tp.Partition, tp.Topic, a.HighWatermark, b.HighWatermark),
			Hint: "find the producer that is configured with the cluster's own address and give it the proxy's",
		}
	}
	for tp := range first {
		if _, ok := second[tp]; !ok {
			return &Error{
				Code:    CodeLogMoved,
				Message: fmt.Sprintf("partition %d of topic %s was deleted while the gate was shut", tp.Partition, tp.Topic),
				Hint:    "find who administers topics past the proxy",
			}
		}
	}
	return nil
}

// openTransaction finds a partition with a transaction that has not ended; nil if there is none.
func openTransaction(ends map[TP]End) error {
	for tp, e := range ends {
		if e.LastStableOffset < e.HighWatermark {
			return &Error{
				Code: CodeOpenTransaction,
				Message: fmt.Sprintf("a transaction in partition %d of topic %s is open: last stable offset %d, end %d",
					tp.Partition, tp.Topic, e.LastStableOffset, e.HighWatermark),
				Hint: "wait until its producer is done, or end it (kafka-transactions.sh find-hanging, abort)",
			}
		}
	}
	return nil
}

// allCopied checks that each copy ended exactly where its source did.
func allCopied(ends map[TP]End, sealed map[TP]Sealed) error {
	for tp, e := range ends {
		if s, ok := sealed[tp]; !ok || s.Frontier != e.HighWatermark {
			return &Error{
				Code:    CodeNotCopied,
				Message: fmt.Sprintf("partition %d of topic %s was copied up to offset %d, its end is %d", tp.Partition, tp.Topic, s.Frontier, e.HighWatermark),
				Hint:    "see the partition's reason in the status",
			}
		}
	}
	return nil
}
