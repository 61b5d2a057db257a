package proxy

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups: v0–v6
//
// Request:             each group is asked from its own coordinator; the answers are put together here.
// Response → virtual:  MemberID; topic names in the metadata and the assignments of consumers.
// Not handled:         ClientHost is that of our connection, as the broker sees it.

func describeGroupsRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.DescribeGroupsRequest)
	groups, authorized := slices.Clone(req.Groups), req.IncludeAuthorizedOperations
	c.answerLater(func(ctx context.Context) (kmsg.Response, error) { return c.describeEach(ctx, groups, authorized) })
	return nil
}

func describeGroupsResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.DescribeGroupsResponse)
	for i := range resp.Groups {
		c.showDescribed(&resp.Groups[i])
	}
	return nil
}

func (c *call) showDescribed(g *kmsg.DescribeGroupsResponseGroup) {
	mapping := c.s.p.groups.table().mapOf(c.route.Active, g.Group)
	renames := c.renames(g.ProtocolType)
	for i := range g.Members {
		m := &g.Members[i]
		m.MemberID = mapping.shown(m.MemberID)
		if renames {
			m.ProtocolMetadata = renameSubscription(m.ProtocolMetadata, c.toClients())
			m.MemberAssignment = renameAssignment(m.MemberAssignment, c.toClients())
		}
	}
}

func (c *call) describeEach(ctx context.Context, groups []string, authorized bool) (kmsg.Response, error) {
	answers := make(map[string]kmsg.DescribeGroupsResponseGroup, len(groups))
	failed := func(name string, code int16) {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.ErrorCode = name, code
		answers[name] = g
	}
	var asked []string
	for _, name := range groups {
		if c.s.p.servesGroup(name) {
			asked = append(asked, name)
		} else {
			failed(name, groupRefused())
		}
	}
	s := scatter{c: c, fail: failed, ask: func(names []string) kmsg.Request {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups, req.IncludeAuthorizedOperations = c.version, names, authorized
		return req
	}, take: func(r kmsg.Response) map[string]int16 {
		codes := map[string]int16{}
		for _, g := range r.(*kmsg.DescribeGroupsResponse).Groups {
			codes[g.Group] = g.ErrorCode
			c.showDescribed(&g)
			answers[g.Group] = g
		}
		return codes
	}}
	s.run(ctx, asked)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Version = c.version
	for _, name := range groups {
		resp.Groups = append(resp.Groups, answers[name])
	}
	return resp, nil
}
