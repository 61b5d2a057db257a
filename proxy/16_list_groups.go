package proxy

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListGroups: v0–v5
//
// Request:   as it is, to the broker behind the virtual node that was asked. Clients ask every node and take the union, so
//            that each group appears once a virtual node beyond the number of real brokers answers with none.
// Response:  groups that are not served, and our own, are left out.

func listGroupsRequest(c *call, r kmsg.Request) error {
	if brokers := len(c.route.Identity.Nodes[c.route.Active]); c.s.node >= int32(brokers) {
		c.answer(r.ResponseKind())
	}
	return nil
}

func listGroupsResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.ListGroupsResponse)
	resp.Groups = slices.DeleteFunc(resp.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return !c.s.p.servesGroup(g.Group) })
	return nil
}
