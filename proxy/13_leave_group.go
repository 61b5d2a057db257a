package proxy

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup: v0–v5
//
// Request → real:    MemberID (v0–2), Members (from v3).
// Response → shown:  Members.
// Generation change: the group's mapping drops who left. A member that stands before the barrier is in no group, so it
//                    leaves with success.

// leaveCall is what of the answer is made here.
type leaveCall struct {
	member string                          // v0–2
	gone   []kmsg.LeaveGroupResponseMember // answered here
}

func leaveGroupRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.LeaveGroupRequest)
	c.group = req.Group
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	if !c.s.p.servesGroup(req.Group) {
		resp.ErrorCode = groupRefused()
		c.answer(resp)
		return nil
	}
	st := &leaveCall{member: req.MemberID}
	c.state = st
	if req.Version < 3 {
		view := c.enterGroup(req.MemberID)
		req.MemberID = view.real(req.MemberID)
		if view.barred {
			c.answer(resp)
		}
		return nil
	}
	here := req.Members[:0]
	for _, m := range req.Members {
		view := c.enterGroup(m.MemberID)
		if view.barred {
			st.gone = append(st.gone, kmsg.LeaveGroupResponseMember{MemberID: m.MemberID, InstanceID: m.InstanceID})
			continue
		}
		m.MemberID = view.real(m.MemberID)
		here = append(here, m)
	}
	req.Members = here
	if len(here) == 0 && len(st.gone) > 0 {
		resp.Members = st.gone
		c.answer(resp)
	}
	return nil
}

func leaveGroupResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.LeaveGroupResponse)
	if err := c.coordinatorSaid(resp.ErrorCode); err != nil {
		return err
	}
	st := c.state.(*leaveCall)
	table := c.s.p.groups.table()
	if resp.Version < 3 {
		if resp.ErrorCode == 0 {
			table.left(c.route.Active, c.group, st.member, nil)
		}
		return nil
	}
	mapping := c.groupMap()
	for i := range resp.Members {
		m := &resp.Members[i]
		m.MemberID = mapping.shown(m.MemberID)
		if m.ErrorCode == 0 && resp.ErrorCode == 0 {
			table.left(c.route.Active, c.group, m.MemberID, m.InstanceID)
		}
	}
	resp.Members = append(resp.Members, st.gone...)
	return nil
}
