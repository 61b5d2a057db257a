package proxy

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator: v0–v6, one key (v0–3) or several (from v4)
//
// Request:           keys of groups that are served go to a broker, so that its errors reach the client in its own words.
// Response → shown:  NodeID, Host, Port: a virtual node that depends on the group's name alone. The real coordinator is
//                    kept, and group calls go to it whatever node the client asks.
// Refused per key:   groups that are not served; transactional ids and share groups, which are not carried over yet.

const (
	groupKey       = 0
	transactionKey = 1
	shareKey       = 2
)

// findCall holds the answers that are made here.
type findCall struct {
	keys    []string // as the client asked
	refused []kmsg.FindCoordinatorResponseCoordinator
}

func findCoordinatorRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.FindCoordinatorRequest)
	st := &findCall{keys: slices.Clone(req.CoordinatorKeys)}
	if req.Version < 4 {
		st.keys = []string{req.CoordinatorKey}
	}
	c.state = st
	var ask []string
	for _, key := range st.keys {
		if code, why := c.refuseKey(req.CoordinatorType, key); code != 0 {
			st.refused = append(st.refused, kmsg.FindCoordinatorResponseCoordinator{
				Key: key, NodeID: -1, Port: -1, ErrorCode: code, ErrorMessage: &why,
			})
			continue
		}
		ask = append(ask, key)
	}
	if len(ask) > 0 {
		req.CoordinatorKeys = ask
		return nil
	}
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	st.fill(resp)
	c.answer(resp)
	return nil
}

// refuseKey says why a key gets no coordinator; 0 if it does.
func (c *call) refuseKey(kind int8, key string) (code int16, why string) {
	switch kind {
	case groupKey:
		if c.s.p.servesGroup(key) {
			return 0, ""
		}
		return groupRefused(), "this group is not served here"
	case transactionKey:
		return kerr.TransactionalIDAuthorizationFailed.Code, "transactions through switchback are not built yet"
	case shareKey:
		return groupRefused(), "share groups through switchback are not built yet"
	}
	return kerr.InvalidRequest.Code, "unknown kind of coordinator"
}

// fill adds the answers that are made here.
func (st *findCall) fill(resp *kmsg.FindCoordinatorResponse) {
	if resp.Version >= 4 {
		resp.Coordinators = append(resp.Coordinators, st.refused...)
		return
	}
	for _, one := range st.refused {
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Port = one.ErrorCode, one.ErrorMessage, one.NodeID, one.Port
	}
}

func findCoordinatorResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.FindCoordinatorResponse)
	st := c.state.(*findCall)
	if resp.Version < 4 {
		if resp.ErrorCode == 0 {
			resp.NodeID, resp.Host, resp.Port = c.showCoordinator(st.keys[0], resp.NodeID, resp.Host, resp.Port)
		} else {
			resp.NodeID, resp.Host, resp.Port = -1, "", -1
		}
		return nil
	}
	for i := range resp.Coordinators {
		one := &resp.Coordinators[i]
		if one.ErrorCode == 0 {
			one.NodeID, one.Host, one.Port = c.showCoordinator(one.Key, one.NodeID, one.Host, one.Port)
		} else {
			one.NodeID, one.Host, one.Port = -1, "", -1
		}
	}
	st.fill(resp)
	return nil
}

// showCoordinator keeps the real coordinator of a group and returns the node that clients see.
func (c *call) showCoordinator(group string, id int32, host string, port int32) (int32, string, int32) {
	c.s.p.groups.coordinators().learn(c.route.Active, group, id, host, port)
	node := c.route.coordinatorNode(group)
	host, port = c.s.p.advertised(node)
	return node, host, port
}
