package engine

import (
	"context"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/replicator"
)

// finalOffsets stores the offsets of all groups on the target, of those with shadow members as one of them: a broker takes
// no commit from outside a group that has members.
func finalOffsets(ctx context.Context, flow *replicator.Flow, p *proxy.Proxy) (int, error) {
	return flow.FinalOffsets(ctx, func(group string) (replicator.Member, bool) {
		id, generation, instanceID, ok := p.ShadowMember(group)
		return replicator.Member{ID: id, Generation: generation, InstanceID: instanceID}, ok
	})
}

// groupLines shows the groups of a flow.
func groupLines(flow *replicator.Flow) []admin.GroupLine {
	list := flow.GroupStatus()
	out := make([]admin.GroupLine, 0, len(list))
	for _, g := range list {
		age := int64(-1) // never
		if g.CheckpointAge >= 0 {
			age = g.CheckpointAge.Milliseconds()
		}
		out = append(out, admin.GroupLine{
			Group: g.Group, CheckpointAgeMillis: age, State: string(g.State), Reason: g.Reason, Hint: g.Hint,
		})
	}
	return out
}
