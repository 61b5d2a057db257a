package proxy

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SyncGroup: v0–v5
//
// Request → real:      MemberID, Generation; of the leader also each member's id, and the topic names in assignments.
// Response → virtual:  topic names in the assignment.
// Remembered:          what the leader assigned.
// Generation change:   a member that stands before the barrier gets REBALANCE_IN_PROGRESS and rejoins. An answer that comes
//                      from the old cluster after a move becomes NOT_COORDINATOR.

// syncCall is the request as the client sent it. The slices are those of the call's frame.
type syncCall struct {
	memberCall
	assignments []kmsg.SyncGroupRequestGroupAssignment
}

func syncGroupRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.SyncGroupRequest)
	c.group = req.Group
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	if !c.s.p.servesGroup(req.Group) {
		resp.ErrorCode = groupRefused()
		c.answer(resp)
		return nil
	}
	view := c.enterGroup(req.MemberID)
	if view.barred {
		resp.ErrorCode = kerr.RebalanceInProgress.Code
		c.answer(resp)
		return nil
	}
	c.state = &syncCall{memberCall{req.MemberID, req.Generation}, slices.Clone(req.GroupAssignment)}
	renames := c.syncRenames()
	req.MemberID, req.Generation = view.real(req.MemberID), view.realGeneration(req.Generation)
	for i := range req.GroupAssignment {
		a := &req.GroupAssignment[i]
		a.MemberID = view.real(a.MemberID)
		if renames {
			a.MemberAssignment = renameAssignment(a.MemberAssignment, c.toCluster())
		}
	}
	return nil
}

// syncRenames looks up the protocol type, which SyncGroup tells from v5 on only. A group that no JoinGroup was seen of
// since the start is taken for one of consumers.
func (c *call) syncRenames() bool {
	protocolType := c.s.p.groups.table().protocolType(c.group)
	if protocolType == "" {
		protocolType = consumerProtocol
	}
	return c.renames(protocolType)
}

func syncGroupResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.SyncGroupResponse)
	if err := c.coordinatorSaid(resp.ErrorCode); err != nil {
		return err
	}
	st := c.state.(*syncCall)
	if c.overtaken() {
		*resp = kmsg.SyncGroupResponse{Version: resp.Version, ErrorCode: kerr.NotCoordinator.Code}
	}
	if resp.ErrorCode != 0 {
		return nil
	}
	table := c.s.p.groups.table()
	table.confirmed(c.group, st.generation)
	if len(st.assignments) > 0 {
		table.synced(c.group, st.assignments)
	}
	if c.syncRenames() {
		resp.MemberAssignment = renameAssignment(resp.MemberAssignment, c.toClients())
	}
	return nil
}
