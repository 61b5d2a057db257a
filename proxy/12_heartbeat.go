package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat: v0–v4
//
// Request → real:    MemberID, Generation.
// Response:          ErrorCode alone; NOT_COORDINATOR sends the call to the right broker, once.
// Generation change: the first call after a move takes over the member's shadow. A member that stands before the barrier
//                    gets REBALANCE_IN_PROGRESS and rejoins.

// memberCall is what a member said of itself, as shown.
type memberCall struct {
	member     string
	generation int32
}

func heartbeatRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.HeartbeatRequest)
	c.group = req.Group
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
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
	c.state = &memberCall{req.MemberID, req.Generation}
	req.MemberID, req.Generation = view.real(req.MemberID), view.realGeneration(req.Generation)
	return nil
}

func heartbeatResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.HeartbeatResponse)
	if st, ok := c.state.(*memberCall); ok && resp.ErrorCode == 0 {
		c.s.p.groups.table().confirmed(c.group, st.generation)
	}
	return c.coordinatorSaid(resp.ErrorCode)
}
