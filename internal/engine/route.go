package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/translate"
)

// partitionSource finds what a journal says of a partition; ok is false if it says nothing.
type partitionSource func(tp journal.TP) (p *journal.Partition, ok bool)

// routeFrom makes the route of a snapshot. parts is the journal of the flow that ended when the active cluster became
// active; it is not asked in generation 1. A topic whose record does not fit is refused, alone.
func routeFrom(s control.Snapshot, parts partitionSource) (proxy.Route, error) {
	st := s.State
	out := proxy.Route{Generation: st.Generation, Active: st.Active, Standby: st.Standby, Identity: st.Identity, Topics: make(map[string]*proxy.Topic)}
	for name, t := range s.Topics {
		if why := misfit(st, t); why != nil {
			out.Topics[name] = proxy.RefusedTopic(name, t.VirtualID, why)
			continue
		}
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

// misfit says why a topic's record cannot be of the current generation; nil if it can. Its topic was not part of the last
// move: it was deleted before, or was excluded, or we were not let see it.
func misfit(st control.State, t control.Topic) error {
	for p, eras := range t.Partitions {
		last := eras[len(eras)-1]
		if !isDefault(st, eras) && (last.Generation != st.Generation || last.Cluster != st.Active) {
			return fmt.Errorf("the newest era of partition %d is of generation %d on %s, the record of generation %d on %s",
				p, last.Generation, last.Cluster, st.Generation, st.Active)
		}
	}
	return nil
}

// isDefault: virtual = physical.
func isDefault(st control.State, eras []control.Era) bool {
	return len(eras) == 1 && eras[0].Virtual == 0 && eras[0].Physical == 0 && eras[0].Cluster == st.Active
}

// routePartition opens the native segment of the current era on the journal's map. The eras fit. The journal must know all
// below it: where it does not, an offset would be shown that is not the record's.
func routePartition(st control.State, tp journal.TP, eras []control.Era, parts partitionSource) (proxy.Partition, error) {
	out := proxy.Partition{Eras: eras}
	if isDefault(st, eras) {
		return out, nil
	}
	last := eras[len(eras)-1]
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

// liveTopics leaves out topics of which the record is of a topic that is gone: the active cluster has another one of that
// name, created anew since the last move, which is in its first era; or it has none, and the record does not fit. A record
// that fits does no harm without its topic, and the next move leaves it out.
func (e *Engine) liveTopics(ctx context.Context, s control.Snapshot) (out control.Snapshot, gone []string, err error) {
	if len(s.Topics) == 0 {
		return s, nil, nil
	}
	active := s.State.Active
	meta, err := kadm.NewClient(e.clusters[active].client).Metadata(ctx)
	if err != nil {
		return s, nil, err
	}
	var odd []string
	for name, t := range s.Topics {
		now, there := meta.Topics[e.names[active].Physical(name)]
		recorded := t.IDs[active]
		switch {
		case there && now.Err == nil && now.ID != (kadm.TopicID{}) && recorded != ([16]byte{}) && [16]byte(now.ID) != recorded:
			gone = append(gone, name)
		case misfit(s.State, t) != nil:
			odd = append(odd, name)
		}
	}
	absent, err := e.absent(ctx, active, odd)
	if err != nil {
		return s, nil, err
	}
	gone = append(gone, absent...)
	out = s
	out.Topics = maps.Clone(s.Topics)
	for _, name := range gone {
		delete(out.Topics, name)
	}
	return out, gone, nil
}

// absent are those topics of which the cluster itself says that it does not have them. It is asked for each by its name, and
// now: a list lacks topics that we may not see, and what the client keeps is of a while ago.
func (e *Engine) absent(ctx context.Context, cluster string, topics []string) ([]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	virtual := make(map[string]string, len(topics))
	for _, name := range topics {
		if physical := e.names[cluster].Physical(name); physical != "" {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(physical)
			req.Topics = append(req.Topics, t)
			virtual[physical] = name
		}
	}
	if len(req.Topics) == 0 { // none would mean all
		return nil, nil
	}
	resp, err := req.RequestWith(ctx, e.clusters[cluster].client)
	if err != nil {
		return nil, fmt.Errorf("ask %s for topics: %w", cluster, err)
	}
	var absent []string
	for _, t := range resp.Topics {
		if t.Topic != nil && t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			absent = append(absent, virtual[*t.Topic])
		}
	}
	return absent, nil
}

// noteRefused tells once of each topic that clients are to see and do not.
func (e *Engine) noteRefused(route *proxy.Route) {
	for name, t := range route.Topics {
		if t.Refused != nil && e.topics.Match(name) {
			e.log.Error().Str(obs.KeyTopic, name).Err(t.Refused).Msg("topic is not served")
		}
	}
}

// refused is the first topic, by name, that clients are to see and do not; nil if there is none.
func (e *Engine) refused() *proxy.Topic {
	_, route := e.view()
	if route == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(route.Topics)) {
		if t := route.Topics[name]; t.Refused != nil && e.topics.Match(name) {
			return t
		}
	}
	return nil
}
