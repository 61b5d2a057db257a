package proxy

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteGroups: v0–v3
//
// Request:   each group is deleted by its own coordinator; the answers are put together here.
// Response:  as it is. What is known of a deleted group is forgotten.

func deleteGroupsRequest(c *call, r kmsg.Request) error {
	groups := slices.Clone(r.(*kmsg.DeleteGroupsRequest).Groups)
	c.answerLater(func(ctx context.Context) (kmsg.Response, error) { return c.deleteEach(ctx, groups) })
	return nil
}

func deleteGroupsResponse(*call, kmsg.Response) error { return nil }

func (c *call) deleteEach(ctx context.Context, groups []string) (kmsg.Response, error) {
	answers := make(map[string]kmsg.DeleteGroupsResponseGroup, len(groups))
	failed := func(name string, code int16) {
		answers[name] = kmsg.DeleteGroupsResponseGroup{Group: name, ErrorCode: code}
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
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = c.version, names
		return req
	}, take: func(r kmsg.Response) map[string]int16 {
		codes := map[string]int16{}
		for _, g := range r.(*kmsg.DeleteGroupsResponse).Groups {
			codes[g.Group] = g.ErrorCode
			answers[g.Group] = g
			if g.ErrorCode == 0 {
				c.s.p.groups.table().deleted(g.Group)
			}
		}
		return codes
	}}
	s.run(ctx, asked)
	resp := kmsg.NewPtrDeleteGroupsResponse()
	resp.Version = c.version
	for _, name := range groups {
		resp.Groups = append(resp.Groups, answers[name])
	}
	return resp, nil
}
