package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
)

// A stable group moves by transplant: before the gate shuts we join the standby's group with the same members, and give them
// the assignment that they have on the active cluster. We send their heartbeats until each client makes its first call on
// the new cluster, under its old member id and generation: no client rebalances.

// shadowGroup is a group that we keep on the standby. All but what is marked is written before it is published.
type shadowGroup struct {
	group, from, cluster   string
	protocolType, protocol string
	generation             int32           // real, on cluster
	members                []*shadowMember // the leader is the first

	broken   bool      // guarded by groupTable.mu: the standby's group is not any more as we left it
	until    time.Time // guarded by groupTable.mu: the end of our heartbeats; zero: until taken over or dismissed
	stop     context.CancelFunc
	finished chan struct{} // closed when heartbeats have ended
}

// takeOver notes that the client now speaks for a member itself. The caller holds groupTable.mu.
func (s *shadowGroup) takeOver(shown string) {
	for _, m := range s.members {
		if m.shown == shown {
			m.taken = true
		}
	}
}

// dismiss ends the heartbeats and waits for it.
func (s *shadowGroup) dismiss() {
	s.stop()
	<-s.finished
}

// describedGroup is what a cluster says of a group.
type describedGroup = kmsg.DescribeGroupsResponseGroup

// same says whether a group is still as it was when the shadow was made of it.
func (s *shadowGroup) same(g describedGroup) bool {
	if g.Protocol != s.protocol || len(g.Members) != len(s.members) {
		return false
	}
	for _, m := range g.Members {
		i := slices.IndexFunc(s.members, func(sm *shadowMember) bool { return sm.old == m.MemberID })
		if i < 0 || !bytes.Equal(s.members[i].described, m.MemberAssignment) {
			return false
		}
	}
	return true
}

const (
	stateStable = "Stable"
	stateEmpty  = "Empty"
	stateDead   = "Dead"
)

// list returns the classic groups of a cluster that clients may use.
func (p *Proxy) list(ctx context.Context, cluster string) ([]string, error) {
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(ctx, p.cfg.Clusters[cluster].Client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("list the groups of %s: %w", cluster, err)
	}
	var out []string
	for _, g := range resp.Groups {
		if p.servesGroup(g.Group) && (g.GroupType == "" || g.GroupType == "classic") {
			out = append(out, g.Group)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// describe returns what a cluster says of groups, by name. A group that its coordinator has no answer for has an ErrorCode.
func (p *Proxy) describe(ctx context.Context, cluster string, groups []string) (map[string]describedGroup, error) {
	out := make(map[string]describedGroup, len(groups))
	if len(groups) == 0 {
		return out, nil
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = groups
	for _, shard := range p.cfg.Clusters[cluster].Client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("describe the groups of %s: %w", cluster, context.Cause(ctx))
			}
			for _, name := range shard.Req.(*kmsg.DescribeGroupsRequest).Groups {
				out[name] = describedGroup{Group: name, ErrorCode: codeOf(shard.Err)}
			}
			continue
		}
		for _, g := range shard.Resp.(*kmsg.DescribeGroupsResponse).Groups {
			if g.ErrorCode == kerr.GroupIDNotFound.Code {
				g.ErrorCode, g.State = 0, stateDead
			}
			out[g.Group] = g
		}
	}
	return out, nil
}

// describeReady describes one group. A cluster that is just making its first coordinators is asked until ctx ends.
func (p *Proxy) describeReady(ctx context.Context, cluster, group string) (describedGroup, error) {
	for {
		groups, err := p.describe(ctx, cluster, []string{group})
		if err != nil {
			return describedGroup{}, err
		}
		g := groups[group]
		said := kerr.ErrorForCode(g.ErrorCode)
		if said == nil {
			return g, nil
		}
		if !kerr.IsRetriable(said) || sleep(ctx, 20*rejoinPause) != nil {
			return describedGroup{}, fmt.Errorf("describe group %q of %s: %w", group, cluster, said)
		}
	}
}

// transplant makes the shadow of a stable group. before is the one of an earlier attempt, nil if there is none; it is used up. With an
// error, members of the shadow that is returned, if any, may have joined and are to leave.
func (p *Proxy) transplant(ctx context.Context, from, to string, g describedGroup, before *shadowGroup) (*shadowGroup, error) {
	generation, err := p.confirmGeneration(ctx, from, g)
	if err != nil {
		return nil, err
	}
	s := &shadowGroup{group: g.Group, from: from, cluster: to, protocolType: g.ProtocolType}
	s.members = p.planMembers(from, to, g)
	if before != nil {
		before.dismiss()
		if before.members[0].shown == s.members[0].shown {
			s.inherit(before)
		}
	}
	if err := p.clearLeftOvers(ctx, to, s); err != nil {
		return nil, err
	}
	j := joining{p: p, cluster: to, group: g.Group, protocolType: g.ProtocolType, members: s.members}
	if s.generation, s.protocol, err = j.run(ctx); err != nil {
		return s, err
	}
	if s.protocol != g.Protocol {
		return s, fmt.Errorf("the broker chose protocol %q on %s, not %q", s.protocol, to, g.Protocol)
	}
	p.groups.publish(p, s, generation)
	return s, nil
}

// inherit takes over the ids that members already have on the standby: a rejoin needs no new member.
func (s *shadowGroup) inherit(before *shadowGroup) {
	for _, m := range s.members {
		for _, b := range before.members {
			if b.shown == m.shown {
				m.real = b.real
			}
		}
	}
}

var (
	errNoGeneration = errors.New("no call of the group's members has passed yet, so its generation is not known")
	errNotStable    = errors.New("the group is rebalancing")
)

// confirmGeneration returns the generation that members know, as shown, after the broker has confirmed it: the heartbeat of
// a member is refused with any other.
func (p *Proxy) confirmGeneration(ctx context.Context, from string, g describedGroup) (int32, error) {
	shown := p.groups.table().generation(g.Group)
	if shown < 0 {
		return 0, errNoGeneration
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID = g.Group, g.Members[0].MemberID, g.Members[0].InstanceID
	req.Generation = p.groups.table().mapOf(from, g.Group).realGeneration(shown)
	resp, err := req.RequestWith(ctx, p.cfg.Clusters[from].Client)
	if err != nil {
		return 0, fmt.Errorf("confirm the generation of group %q on %s: %w", g.Group, from, err)
	}
	switch resp.ErrorCode {
	case 0:
		return shown, nil
	case kerr.RebalanceInProgress.Code, kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code:
		return 0, errNotStable
	case kerr.IllegalGeneration.Code:
		return 0, errNoGeneration
	}
	return 0, fmt.Errorf("confirm the generation of group %q on %s: %w", g.Group, from, kerr.ErrorForCode(resp.ErrorCode))
}

// planMembers makes the members of the standby's group from what the active cluster says and what they asked for when they
// joined. The leader is the first; if nobody remembers who leads, any is.
func (p *Proxy) planMembers(from, to string, g describedGroup) []*shadowMember {
	known, leader := p.groups.table().known(g.Group)
	mapping := p.groups.table().mapOf(from, g.Group)
	toVirtual, toPhysical := p.renamers(from, to, g.ProtocolType)
	out := make([]*shadowMember, 0, len(g.Members))
	for _, d := range g.Members {
		shown := mapping.shown(d.MemberID)
		info := known[shown]
		m := &shadowMember{
			shown: shown, old: d.MemberID, clientID: d.ClientID, instanceID: d.InstanceID,
			timeouts:   timeoutsOf(info),
			protocols:  protocolsOf(info, g.Protocol, toVirtual.subscription(d.ProtocolMetadata)),
			assignment: toPhysical.assignment(toVirtual.assignment(d.MemberAssignment)),
			described:  d.MemberAssignment,
		}
		for i := range m.protocols {
			m.protocols[i].Metadata = toPhysical.subscription(m.protocols[i].Metadata)
		}
		if shown == leader {
			out = slices.Insert(out, 0, m)
		} else {
			out = append(out, m)
		}
	}
	return out
}

func timeoutsOf(info memberInfo) control.MemberTimeouts {
	t := info.timeouts
	if t.SessionMillis <= 0 {
		t.SessionMillis = defaultSessionMillis
	}
	if t.RebalanceMillis <= 0 {
		t.RebalanceMillis = defaultRebalanceMillis
	}
	return t
}

// protocolsOf are the protocols that a member offers, in virtual names, the one in use first: so every member votes for it.
// If its request is not remembered it offers that one alone. The metadata of the one in use is what the cluster has.
func protocolsOf(info memberInfo, inUse string, described []byte) []kmsg.JoinGroupRequestProtocol {
	first := kmsg.NewJoinGroupRequestProtocol()
	first.Name, first.Metadata = inUse, described
	out := []kmsg.JoinGroupRequestProtocol{first}
	for _, one := range info.protocols {
		if one.Name != inUse {
			out = append(out, one)
		}
	}
	return out
}

// renamer rewrites what members tell each other; a nil one leaves it alone.
type renamer struct{ to rename }

func (r renamer) subscription(b []byte) []byte {
	if r.to == nil {
		return b
	}
	return renameSubscription(b, r.to)
}

func (r renamer) assignment(b []byte) []byte {
	if r.to == nil {
		return b
	}
	return renameAssignment(b, r.to)
}

// renamers turn one cluster's topic names into virtual ones, and those into the other cluster's.
func (p *Proxy) renamers(from, to, protocolType string) (toVirtual, toPhysical renamer) {
	if protocolType != consumerProtocol {
		return renamer{}, renamer{}
	}
	if names := p.cfg.Clusters[from].Names; !names.IsIdentity() {
		toVirtual.to = names.Virtual
	}
	if names := p.cfg.Clusters[to].Names; !names.IsIdentity() {
		toPhysical.to = func(virtual string) (string, bool) { s := names.Physical(virtual); return s, s != "" }
	}
	return toVirtual, toPhysical
}

// clearLeftOvers takes members out of the standby's group that an earlier attempt, or a process that died, left there. They
// are known by the ids that we gave them or by the client ids of the group's own members. Others are not ours to remove.
func (p *Proxy) clearLeftOvers(ctx context.Context, to string, s *shadowGroup) error {
	there, err := p.describeReady(ctx, to, s.group)
	if err != nil {
		return err
	}
	var gone []kmsg.LeaveGroupRequestMember
	for _, d := range there.Members {
		ours := slices.ContainsFunc(s.members, func(m *shadowMember) bool { return m.real == d.MemberID })
		like := slices.ContainsFunc(s.members, func(m *shadowMember) bool { return m.clientID == d.ClientID })
		switch {
		case ours:
		case like:
			gone = append(gone, kmsg.LeaveGroupRequestMember{MemberID: d.MemberID, InstanceID: d.InstanceID})
		default:
			return fmt.Errorf("%w: %s on %s", errForeignMember, d.MemberID, to)
		}
	}
	return p.leave(ctx, to, s.group, gone)
}

// leaving are the members as LeaveGroup wants them, on the standby.
func (s *shadowGroup) leaving() []kmsg.LeaveGroupRequestMember {
	var out []kmsg.LeaveGroupRequestMember
	for _, m := range s.members {
		if m.real != "" {
			out = append(out, kmsg.LeaveGroupRequestMember{MemberID: m.real, InstanceID: m.instanceID})
		}
	}
	return out
}

// leave takes members out of a group. That a member is not there any more is no error.
func (p *Proxy) leave(ctx context.Context, cluster, group string, members []kmsg.LeaveGroupRequestMember) error {
	if len(members) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	conn, err := p.connectCoordinator(ctx, cluster, group, ownClientID)
	if err != nil {
		return err
	}
	defer conn.close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.Members = leaveVersion, group, members
	r, err := conn.ask(ctx, req)
	if err != nil {
		return fmt.Errorf("leave group %q on %s: %w", group, cluster, err)
	}
	resp := r.(*kmsg.LeaveGroupResponse)
	if resp.ErrorCode == kerr.GroupIDNotFound.Code {
		return nil
	}
	if deniesCoordinator(resp.ErrorCode) {
		p.groups.coordinators().forget(cluster, group)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("leave group %q on %s: %w", group, cluster, err)
	}
	return nil
}

// leaveAnyway leaves, also if ctx ends meanwhile: it is not waited for any longer then.
func (p *Proxy) leaveAnyway(ctx context.Context, cluster, group string, members []kmsg.LeaveGroupRequestMember) error {
	left := make(chan error, 1)
	p.groups.running.Add(1)
	go func() {
		defer p.groups.running.Done()
		left <- p.leave(p.groups.ctx, cluster, group, members)
	}()
	select {
	case err := <-left:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaveTime bounds one LeaveGroup; ownClientID names requests of ours that are made in nobody's name.
const (
	leaveTime   = 5 * time.Second
	ownClientID = "switchback"
)
