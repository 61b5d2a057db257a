package engine

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/translate"
)

// partitionSource finds what a journal says of a partition; ok is false if it says nothing.
type partitionSource func(tp journal.TP) (p *journal.Partition, ok bool)

// routeFrom makes the route of a snapshot. parts is the journal of the flow that ended when the active cluster became
// active; it is not asked in generation 1.
func routeFrom(s control.Snapshot, parts partitionSource) (proxy.Route, error) {
	st := s.State
	out := proxy.Route{Generation: st.Generation, Active: st.Active, Standby: st.Standby, Identity: st.Identity, Topics: make(map[string]*proxy.Topic)}
	for name, t := range s.Topics {
		shown := &proxy.Topic{Name: name, VirtualID: t.VirtualID, PhysicalID: t.IDs[st.Active]}
		for p, eras := range t.Partitions {
			part, err := routePartition(st, journal.TP{Topic: name, Partition: int32(p)}, eras, parts)
			if err != nil {
				return proxy.Route{}, err
			}
			shown.Partitions = append(shown.Partitions, part)
		}
		out.Topics[name] = shown
	}
	return out, nil
}

// routePartition opens the native segment of the current era on the journal's map. The journal must know all below it:
// where it does not, an offset would be shown that is not the record's.
func routePartition(st control.State, tp journal.TP, eras []control.Era, parts partitionSource) (proxy.Partition, error) {
	out := proxy.Partition{Eras: eras}
	last := eras[len(eras)-1]
	if len(eras) == 1 && last.Virtual == 0 && last.Physical == 0 && last.Cluster == st.Active {
		return out, nil // the default era: virtual = physical
	}
	if last.Generation != st.Generation || last.Cluster != st.Active {
		return out, fmt.Errorf("%v: the newest era is of generation %d on %s, the record of generation %d on %s", tp, last.Generation, last.Cluster, st.Generation, st.Active)
	}
	below := translate.NewMap(0)
	if part, ok := parts(tp); ok {
		below, out.History, out.Producers = part.Map, part.History, part.Producers
	}
	if below.Frontier() != last.Virtual && last.Virtual != 0 {
		return out, fmt.Errorf("%v: the journal on %s knows offsets below %d, generation %d begins at %d", tp, st.Active, below.Frontier(), last.Generation, last.Virtual)
	}
	m, err := below.OpenNative(last.Virtual, last.Physical)
	if err != nil {
		return out, fmt.Errorf("%v: %w", tp, err)
	}
	out.Map = m
	return out, nil
}

// loadRoute makes the route of a snapshot from the journal on the active cluster, for a process that has no flow of it.
func (e *Engine) loadRoute(ctx context.Context, s control.Snapshot) (proxy.Route, error) {
	st := s.State
	if st.Generation <= 1 {
		return routeFrom(s, nil)
	}
	loaded, err := journal.Load(ctx, e.clusters[st.Active].client, st.Standby, st.Active)
	if err != nil {
		return proxy.Route{}, err
	}
	return routeFrom(s, func(tp journal.TP) (*journal.Partition, bool) { p, ok := loaded[tp]; return p, ok })
}

// liveTopics leaves out topics that were created anew on the active cluster since the last move: what is recorded is of a
// topic that is gone, and the new one is in its first era.
func (e *Engine) liveTopics(ctx context.Context, s control.Snapshot) (out control.Snapshot, gone []string, err error) {
	if len(s.Topics) == 0 {
		return s, nil, nil
	}
	names := e.names[s.State.Active]
	meta, err := kadm.NewClient(e.clusters[s.State.Active].client).Metadata(ctx)
	if err != nil {
		return s, nil, err
	}
	out = s
	out.Topics = make(map[string]control.Topic, len(s.Topics))
	for name, t := range s.Topics {
		now, there := meta.Topics[names.Physical(name)]
		recorded := t.IDs[s.State.Active]
		if there && now.Err == nil && now.ID != (kadm.TopicID{}) && recorded != ([16]byte{}) && [16]byte(now.ID) != recorded {
			gone = append(gone, name)
			continue
		}
		out.Topics[name] = t
	}
	return out, gone, nil
}
