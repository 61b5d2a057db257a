package proxy

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
)

// JoinGroup: v0–v9
//
// Request → real:    MemberID; in the metadata of consumers the topic names.
// Response → shown:  MemberID, LeaderID, Members (ids; topic names in the metadata), Generation.
// Remembered:        what the member asked for, who leads, the generation: a move makes the same members on the other
//                    cluster from it, and a restarted process knows it from the group's record.
// Generation change: a member that stands before the barrier joins as a new one. One that was moved joins by the id that
//                    its shadow got, and keeps its own. An answer that comes from the old cluster after a move becomes
//                    NOT_COORDINATOR: the client joins anew.
// Errors:            a generation or member id that comes with an error is that of the request, or none.

// joinCall is the request as the client sent it. The slices are those of the call's frame.
type joinCall struct {
	member       string
	barred       bool
	info         memberInfo
	protocolType string
}

func joinGroupRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.JoinGroupRequest)
	c.group = req.Group
	if !c.s.p.servesGroup(req.Group) {
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID = groupRefused(), unknownGeneration, req.MemberID
		c.answer(resp)
		return nil
	}
	view := c.enterGroup(req.MemberID)
	c.state = &joinCall{
		member: req.MemberID, barred: view.barred, protocolType: req.ProtocolType,
		info: memberInfo{
			instanceID: req.InstanceID,
			protocols:  req.Protocols,
			timeouts:   control.MemberTimeouts{SessionMillis: req.SessionTimeoutMillis, RebalanceMillis: joinRebalanceMillis(req)},
		},
	}
	req.MemberID = view.real(req.MemberID)
	if view.barred {
		req.MemberID = ""
	}
	if c.renames(req.ProtocolType) {
		req.Protocols = renameProtocols(req.Protocols, c.toCluster())
	}
	return nil
}

// joinRebalanceMillis is the rebalance timeout; v0 has one timeout for both.
func joinRebalanceMillis(req *kmsg.JoinGroupRequest) int32 {
	if req.Version < 1 {
		return req.SessionTimeoutMillis
	}
	return req.RebalanceTimeoutMillis
}

// renameProtocols returns copies with other topic names in the metadata.
func renameProtocols(protocols []kmsg.JoinGroupRequestProtocol, to rename) []kmsg.JoinGroupRequestProtocol {
	out := slices.Clone(protocols)
	for i := range out {
		out[i].Metadata = renameSubscription(out[i].Metadata, to)
	}
	return out
}

func joinGroupResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.JoinGroupResponse)
	if err := c.coordinatorSaid(resp.ErrorCode); err != nil {
		return err
	}
	st := c.state.(*joinCall)
	if c.overtaken() {
		*resp = kmsg.JoinGroupResponse{Version: resp.Version, ErrorCode: kerr.NotCoordinator.Code, Generation: unknownGeneration, MemberID: st.member}
		return nil
	}
	table := c.s.p.groups.table()
	switch resp.ErrorCode {
	case 0:
		info := st.info
		info.clientID = c.clientID()
		info.protocols = cloneProtocols(info.protocols)
		table.joined(c.route.Active, c.group, info, st.protocolType, resp)
		if c.renames(st.protocolType) {
			for i := range resp.Members {
				resp.Members[i].ProtocolMetadata = renameSubscription(resp.Members[i].ProtocolMetadata, c.toClients())
			}
		}
	case kerr.MemberIDRequired.Code:
		table.newcomer(c.route.Active, c.group, resp.MemberID)
	default:
		resp.MemberID = c.groupMap().shown(resp.MemberID)
		if st.barred && resp.MemberID == "" {
			resp.MemberID = st.member
		}
	}
	return nil
}

// cloneProtocols makes protocols independent of the frame that they were read from.
func cloneProtocols(protocols []kmsg.JoinGroupRequestProtocol) []kmsg.JoinGroupRequestProtocol {
	out := slices.Clone(protocols)
	for i := range out {
		out[i].Metadata = slices.Clone(out[i].Metadata)
	}
	return out
}
