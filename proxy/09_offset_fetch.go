package proxy

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch: v1–v10; several groups from v8
//
// Request → physical:  topic names or ids; MemberID, MemberEpoch (from v9).
// Response → virtual:  topic names or ids; Offset (the first record at or after it); LeaderEpoch, if it is of the current
//                      era. Topics that clients do not see are left out.
// Outside the map:     COORDINATOR_LOAD_IN_PROGRESS, for the partition in v1 and for the whole group from v2 on, because
//                      clients take it as retriable there alone. Never −1 or 0, which would restart the group elsewhere.
// Several groups:      each is asked from its own coordinator; the answers are put together here.

func offsetFetchRequest(c *call, r kmsg.Request) error {
	req := r.(*kmsg.OffsetFetchRequest)
	if req.Version >= 8 {
		if len(req.Groups) != 1 {
			groups := cloneFetchGroups(req.Groups) // the request is not ours after we return
			c.answerLater(func(ctx context.Context) (kmsg.Response, error) {
				return c.fetchEach(ctx, req.RequireStable, groups)
			})
			return nil
		}
		c.group = req.Groups[0].Group
	} else {
		c.group = req.Group
	}
	c.state = c.unseenFetch(req)
	if !c.s.p.servesGroup(c.group) {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		fillFetchError(resp, c.group, groupRefused())
		if req.Version < 2 {
			resp.Topics = fetchTopicErrors(req.Topics, groupRefused())
		}
		c.answer(resp)
		return nil
	}
	c.fetchToCluster(req)
	return nil
}

// fetchErrors are the topics of a request that clients do not see, as answers.
type fetchErrors struct {
	single []kmsg.OffsetFetchResponseTopic
	group  []kmsg.OffsetFetchResponseGroupTopic
}

// unseenFetch takes the topics that clients do not see out of the request. A broker answers for such a topic that there is
// no offset; so do we.
func (c *call) unseenFetch(req *kmsg.OffsetFetchRequest) *fetchErrors {
	out := &fetchErrors{}
	if req.Version >= 10 {
		return out // ids: an unknown one is answered by the broker
	}
	if req.Version >= 8 {
		g := &req.Groups[0]
		kept := g.Topics[:0]
		for _, t := range g.Topics {
			if c.topicToPhysical(t.Topic) != "" {
				kept = append(kept, t)
				continue
			}
			answer := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				answer.Partitions = append(answer.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: -1, LeaderEpoch: -1})
			}
			out.group = append(out.group, answer)
		}
		if g.Topics != nil {
			g.Topics = kept
		}
		return out
	}
	var unseen []kmsg.OffsetFetchRequestTopic
	kept := req.Topics[:0]
	for _, t := range req.Topics {
		if c.topicToPhysical(t.Topic) != "" {
			kept = append(kept, t)
		} else {
			unseen = append(unseen, t)
		}
	}
	if req.Topics != nil {
		req.Topics = kept
	}
	out.single = fetchTopicErrors(unseen, 0)
	return out
}

func fetchTopicErrors(topics []kmsg.OffsetFetchRequestTopic, code int16) []kmsg.OffsetFetchResponseTopic {
	var out []kmsg.OffsetFetchResponseTopic
	for _, t := range topics {
		answer := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			answer.Partitions = append(answer.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p, Offset: -1, LeaderEpoch: -1, ErrorCode: code,
			})
		}
		out = append(out, answer)
	}
	return out
}

// fetchToCluster rewrites a request for one group.
func (c *call) fetchToCluster(req *kmsg.OffsetFetchRequest) {
	for i := range req.Topics {
		req.Topics[i].Topic = c.topicToPhysical(req.Topics[i].Topic)
	}
	for i := range req.Groups {
		g := &req.Groups[i]
		if g.MemberID != nil {
			view := c.enterGroup(*g.MemberID)
			real := view.real(*g.MemberID)
			g.MemberID, g.MemberEpoch = &real, view.realGeneration(g.MemberEpoch)
		}
		for j := range g.Topics {
			t := &g.Topics[j]
			if req.Version >= 10 {
				t.TopicID = c.route.physicalID(t.TopicID)
			} else {
				t.Topic = c.topicToPhysical(t.Topic)
			}
		}
	}
}

func offsetFetchResponse(c *call, r kmsg.Response) error {
	resp := r.(*kmsg.OffsetFetchResponse)
	st, _ := c.state.(*fetchErrors)
	if resp.Version >= 8 {
		for i := range resp.Groups {
			g := &resp.Groups[i]
			if err := c.coordinatorSaid(g.ErrorCode); err != nil {
				return err
			}
			c.fetchGroupToClients(resp.Version, g)
			if g.ErrorCode == 0 && st != nil {
				g.Topics = append(g.Topics, st.group...)
			}
		}
		return nil
	}
	if err := c.coordinatorSaid(resp.ErrorCode); err != nil {
		return err
	}
	c.fetchToClients(resp)
	if resp.ErrorCode == 0 && st != nil {
		resp.Topics = append(resp.Topics, st.single...)
	}
	return nil
}

// fetchToClients rewrites an answer up to v7.
func (c *call) fetchToClients(resp *kmsg.OffsetFetchResponse) {
	kept := resp.Topics[:0]
	for _, t := range resp.Topics {
		name, ok := c.topicToVirtual(t.Topic)
		if !ok {
			continue
		}
		t.Topic = name
		topic := c.topic(name)
		for i := range t.Partitions {
			p := &t.Partitions[i]
			var known bool
			p.Offset, p.LeaderEpoch, known = topic.partition(p.Partition).fetched(p.Offset, p.LeaderEpoch)
			switch {
			case known:
			case resp.Version >= 2:
				resp.Topics, resp.ErrorCode = nil, kerr.CoordinatorLoadInProgress.Code
				return
			default:
				p.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			}
		}
		kept = append(kept, t)
	}
	resp.Topics = kept
}

// fetchGroupToClients rewrites one group of an answer from v8 on.
func (c *call) fetchGroupToClients(version int16, g *kmsg.OffsetFetchResponseGroup) {
	kept := g.Topics[:0]
	for _, t := range g.Topics {
		var topic *Topic
		if version >= 10 {
			topic = c.topicBehind("", t.TopicID)
			t.TopicID = c.route.virtualID(t.TopicID)
		} else {
			name, ok := c.topicToVirtual(t.Topic)
			if !ok {
				continue
			}
			t.Topic, topic = name, c.topic(name)
		}
		for i := range t.Partitions {
			p := &t.Partitions[i]
			var known bool
			p.Offset, p.LeaderEpoch, known = topic.partition(p.Partition).fetched(p.Offset, p.LeaderEpoch)
			if !known {
				g.Topics, g.ErrorCode = nil, kerr.CoordinatorLoadInProgress.Code
				return
			}
		}
		kept = append(kept, t)
	}
	if g.Topics != nil {
		g.Topics = kept
	}
}

// fetched is what clients see of a stored offset and its epoch.
func (p *Partition) fetched(physical int64, realEpoch int32) (offset int64, epoch int32, known bool) {
	v, known := p.committedToVirtual(physical)
	if !known {
		return -1, -1, false
	}
	return v, p.epochToClients(realEpoch, v), true
}

// fillFetchError answers for one group as a whole; v1 has no place for it.
func fillFetchError(resp *kmsg.OffsetFetchResponse, group string, code int16) {
	if resp.Version >= 8 {
		resp.Groups = append(resp.Groups, kmsg.OffsetFetchResponseGroup{Group: group, ErrorCode: code})
		return
	}
	resp.ErrorCode = code
}

// cloneFetchGroups copies the parts of groups that the request functions change in place.
func cloneFetchGroups(groups []kmsg.OffsetFetchRequestGroup) []kmsg.OffsetFetchRequestGroup {
	return append([]kmsg.OffsetFetchRequestGroup(nil), groups...)
}

// fetchEach asks each group's coordinator and puts the answers together, in the order of the request.
func (c *call) fetchEach(ctx context.Context, stable bool, groups []kmsg.OffsetFetchRequestGroup) (kmsg.Response, error) {
	answers := make(map[string]kmsg.OffsetFetchResponseGroup, len(groups))
	var names []string
	byName := make(map[string]kmsg.OffsetFetchRequestGroup, len(groups))
	for _, g := range groups {
		if !c.s.p.servesGroup(g.Group) {
			answers[g.Group] = kmsg.OffsetFetchResponseGroup{Group: g.Group, ErrorCode: groupRefused()}
			continue
		}
		names = append(names, g.Group)
		byName[g.Group] = g
	}
	unseen := make(map[string]*fetchErrors, len(groups))
	s := scatter{c: c, ask: func(names []string) kmsg.Request {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.RequireStable = c.version, stable
		for _, name := range names {
			one := kmsg.OffsetFetchRequest{Version: c.version, Groups: []kmsg.OffsetFetchRequestGroup{cloneFetchTopics(byName[name])}}
			unseen[name] = c.unseenFetch(&one)
			c.group = name
			c.fetchToCluster(&one)
			req.Groups = append(req.Groups, one.Groups...)
		}
		return req
	}, take: func(r kmsg.Response) map[string]int16 {
		codes := map[string]int16{}
		for _, g := range r.(*kmsg.OffsetFetchResponse).Groups {
			codes[g.Group] = g.ErrorCode
			c.fetchGroupToClients(c.version, &g)
			if g.ErrorCode == 0 && unseen[g.Group] != nil {
				g.Topics = append(g.Topics, unseen[g.Group].group...)
			}
			answers[g.Group] = g
		}
		return codes
	}, fail: func(name string, code int16) {
		answers[name] = kmsg.OffsetFetchResponseGroup{Group: name, ErrorCode: code}
	}}
	s.run(ctx, names)
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = c.version
	for _, g := range groups {
		resp.Groups = append(resp.Groups, answers[g.Group])
	}
	return resp, nil
}

// cloneFetchTopics copies what rewriting changes in place, so that a group can be asked again.
func cloneFetchTopics(g kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchRequestGroup {
	if g.Topics != nil {
		g.Topics = append([]kmsg.OffsetFetchRequestGroupTopic{}, g.Topics...)
	}
	return g
}
