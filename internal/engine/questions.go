package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// topicIDs are the ids of a cluster's topics by virtual name.
func (e *Engine) topicIDs(ctx context.Context, cluster string) (map[string][16]byte, error) {
	meta, err := kadm.NewClient(e.clusters[cluster].client).Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its topics: %w", cluster, err)
	}
	out := make(map[string][16]byte, len(meta.Topics))
	for physical, t := range meta.Topics {
		if name, ok := e.names[cluster].Virtual(physical); ok {
			out[name] = t.ID
		}
	}
	return out, nil
}

// clusterMap is the map of a partition on one cluster; ok is false while it is not known.
func (e *Engine) clusterMap(cluster string, tp journal.TP) (m *translate.Map, ok bool) {
	s, route := e.view()
	if route == nil {
		return nil, false
	}
	if cluster == s.State.Active {
		return mapOf(route, tp), true
	}
	run, flow := e.currentFlow()
	if run == nil || run.to != cluster {
		return nil, false
	}
	return flow.Map(tp)
}

// Translate looks one offset up.
func (e *Engine) Translate(ctx context.Context, q admin.TranslateQuery) (admin.Translation, error) {
	active := e.current().State.Active
	to := cmp.Or(q.To, q.From, active)
	for _, cluster := range []string{q.From, to} {
		if cluster != "" && e.clusters[cluster] == nil {
			return admin.Translation{}, &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("there is no cluster %q", cluster), Hint: e.cfg.Active + " or " + e.cfg.Standby}
		}
	}
	tp := journal.TP{Topic: q.Topic, Partition: q.Partition}
	end, err := e.activeEnd(ctx, tp)
	if err != nil {
		return admin.Translation{}, err
	}
	out := admin.Translation{Topic: q.Topic, Partition: q.Partition, Cluster: to, Virtual: q.Offset, Physical: -1, Kind: "unknown"}
	if q.From != "" {
		out.Virtual = -1 // until it is known
		a, ok := e.placeOn(q.From, tp, translate.Physical(q.Offset), end)
		if !ok {
			return out, nil
		}
		out.Virtual = int64(a.Virtual)
		if q.From == to {
			return show(out, a, end), nil
		}
	}
	m, ok := e.clusterMap(to, tp)
	if !ok {
		return out, nil
	}
	return show(out, m.ToPhysical(translate.Virtual(out.Virtual)), end), nil
}

// placeOn says what a place in a cluster's log is; ok is false for one behind the end, of which nothing is known. end is that of
// the virtual log on the active cluster. On the standby the end is that of what was judged: what lies behind it may be a record.
func (e *Engine) placeOn(cluster string, tp journal.TP, p translate.Physical, end translate.Virtual) (a translate.Answer, ok bool) {
	if s, route := e.view(); cluster == s.State.Active {
		a = mapOf(route, tp).ToVirtual(p)
		return a, a.Kind != translate.Unknown && a.Virtual <= end
	}
	run, flow := e.currentFlow()
	if run == nil || run.to != cluster {
		return a, false
	}
	part, ok := flow.Partition(tp)
	if !ok || p > part.PhysicalEnd {
		return a, false
	}
	a = part.Map.ToVirtual(p)
	return a, a.Kind != translate.Unknown
}

// show turns an answer of a map into ours. The open native segment of the active cluster has no end of its own: end is
// where its log ends now.
func show(out admin.Translation, a translate.Answer, end translate.Virtual) admin.Translation {
	out.Physical, out.Kind = int64(a.Physical), a.Kind.String()
	if a.Segment.Records != 0 {
		out.Segment = &admin.Segment{
			Kind: a.Segment.Kind.String(), Virtual: int64(a.Segment.Virtual), Physical: int64(a.Segment.Physical), Records: a.Segment.Records,
		}
	}
	if a.Segment.IsOpen() && a.Kind == translate.Record {
		switch {
		case a.Virtual == end:
			out.Kind = translate.End.String()
		case a.Virtual > end:
			out.Kind, out.Physical, out.Segment = translate.Unknown.String(), -1, nil
		}
	}
	return out
}

// activeEnd is where a partition's virtual log ends now.
func (e *Engine) activeEnd(ctx context.Context, tp journal.TP) (translate.Virtual, error) {
	active := e.current().State.Active
	if active == "" {
		return 0, e.notServed()
	}
	physical := e.names[active].Physical(tp.Topic)
	if physical == "" || translate.IsInternal(physical) {
		return 0, noPartition(tp)
	}
	_, route := e.view()
	if t := route.Topics[tp.Topic]; t != nil && t.Refused != nil {
		return 0, &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("topic %s is not served: %v", tp.Topic, t.Refused), Hint: hintRefused}
	}
	ends, err := kadm.NewClient(e.clusters[active].client).ListEndOffsets(ctx, physical)
	if err != nil {
		return 0, &cutover.Error{Code: cutover.CodeClusterDown, Message: fmt.Sprintf("ask %s for the end: %v", active, err), Hint: "try again when it answers"}
	}
	end, ok := ends.Lookup(physical, tp.Partition)
	if !ok || end.Err != nil {
		return 0, noPartition(tp)
	}
	return mapOf(route, tp).ToVirtual(translate.Physical(end.Offset)).Virtual, nil
}

// notServed is the answer to what cannot be known before clients are served.
func (e *Engine) notServed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	message := "the control record has not been read yet"
	if e.found.State.Generation > 0 && e.problem != nil {
		message = e.problem.Error()
	}
	return &cutover.Error{Code: cutover.CodeClusterDown, Message: message, Hint: "see /readyz"}
}

func noPartition(tp journal.TP) error {
	return &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("there is no partition %d of topic %s", tp.Partition, tp.Topic), Hint: "topics are named as clients see them"}
}

// Group says where a group stands on both clusters.
func (e *Engine) Group(ctx context.Context, name string) (admin.Group, error) {
	out := admin.Group{Group: name, Type: "unknown", Partitions: []admin.GroupPartition{}}
	found := make(map[journal.TP]*admin.GroupPartition)
	s := e.current()
	if s.State.Active == "" {
		return out, e.notServed()
	}
	for _, cluster := range []string{s.State.Active, s.State.Standby} {
		if err := e.groupOn(ctx, cluster, name, &out, found); err != nil && cluster == s.State.Active {
			return out, err
		}
	}
	if len(found) == 0 && out.Type == "unknown" {
		return out, &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("there is no group %q", name), Hint: "groups without members and without offsets are not kept by brokers"}
	}
	for _, p := range found {
		e.judgeGroup(name, s.State.Active, p)
		out.Partitions = append(out.Partitions, *p)
	}
	slices.SortFunc(out.Partitions, func(a, b admin.GroupPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// groupOn adds what one cluster has of a group.
func (e *Engine) groupOn(ctx context.Context, cluster, name string, out *admin.Group, found map[journal.TP]*admin.GroupPartition) error {
	if _, down := e.clusters[cluster].health(); down != nil {
		return cannotAsk(cluster, name, down)
	}
	client := kadm.NewClient(e.clusters[cluster].client)
	if groups, err := client.DescribeGroups(ctx, name); err == nil {
		if g, ok := groups[name]; ok && g.Err == nil && g.State != "Dead" {
			out.Type = "classic"
		}
	}
	offsets, err := client.FetchOffsets(ctx, name)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	var refused *kerr.Error
	switch {
	case errors.As(err, &refused) && !refused.Retriable:
		return fmt.Errorf("offsets of group %s on %s: %w", name, cluster, err)
	case err != nil:
		return cannotAsk(cluster, name, err)
	}
	offsets.Each(func(o kadm.OffsetResponse) {
		topic, ok := e.names[cluster].Virtual(o.Topic)
		if !ok || o.Err != nil || o.At < 0 {
			return
		}
		tp := journal.TP{Topic: topic, Partition: o.Partition}
		p := found[tp]
		if p == nil {
			p = &admin.GroupPartition{Topic: topic, Partition: o.Partition, Committed: make(map[string]int64)}
			found[tp] = p
		}
		p.Committed[cluster] = o.At
	})
	return nil
}

func cannotAsk(cluster, group string, err error) error {
	return &cutover.Error{Code: cutover.CodeClusterDown, Message: fmt.Sprintf("ask %s for group %s: %v", cluster, group, err), Hint: "try again when it answers"}
}

// judgeGroup fills what follows from the maps and from the flow.
func (e *Engine) judgeGroup(group, active string, p *admin.GroupPartition) {
	tp := journal.TP{Topic: p.Topic, Partition: p.Partition}
	p.State = "ok"
	if at, ok := p.Committed[active]; ok {
		if m, known := e.clusterMap(active, tp); known {
			v := int64(m.ToVirtual(translate.Physical(at)).Virtual)
			p.Virtual = &v
		}
	}
	_, flow := e.currentFlow()
	if flow == nil {
		p.State, p.Reason, p.Hint = "stale", "the standby gets no copies", "see the status"
		return
	}
	for _, line := range groupLines(flow) {
		if line.Group == group {
			p.State, p.Reason, p.Hint, p.CheckpointAgeMillis = line.State, line.Reason, line.Hint, line.CheckpointAgeMillis
		}
	}
}

// Orphans lists strays: copies of ours on the standby that no map has. Orphans come from forced moves alone, which are
// not built.
func (e *Engine) Orphans(context.Context) (admin.Orphans, error) {
	out := admin.Orphans{Orphans: []admin.Orphan{}, Strays: []admin.Orphan{}}
	if e.current().State.Active == "" {
		return out, e.notServed()
	}
	run, flow := e.currentFlow()
	err := errNoFlow
	if flow != nil {
		err = flow.Recovered()
	}
	if err != nil { // "none" would be a guess
		return out, &cutover.Error{Code: cutover.CodeClusterDown, Message: fmt.Sprintf("not known yet: %v", errors.Join(err, e.flowProblemNow())), Hint: "try again when the standby gets copies"}
	}
	for _, s := range flow.Strays() {
		out.Strays = append(out.Strays, admin.Orphan{
			Cluster: run.to, Topic: s.TP.Topic, Partition: s.TP.Partition, From: int64(s.Base), To: int64(s.Next), Records: int64(s.Next - s.Base),
		})
	}
	return out, nil
}
