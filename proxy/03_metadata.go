package proxy

import (
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/translate"
)

// Metadata: v0–v13
//
// Request → physical:  topic names or ids. While the gate is shut no topic is made: it would be on the old active alone.
// Response → virtual:  cluster id, controller, brokers (always all virtual nodes), topic names and ids, leader, replicas,
//                      leader epoch. Topics that clients do not see are left out.
// Not known:           a leader that is no virtual node yet: LEADER_NOT_AVAILABLE, the client asks again.
// Upstream down:       answered from what was seen last, every partition with LEADER_NOT_AVAILABLE. A topic of which nothing was seen
//                      gets that code itself, but only if the cluster is asked first: to a consumer it is a topic without
//                      partitions, and its group rebalances.

// metadataState is what the answer needs of the request.
type metadataState struct {
	all    bool                         // all topics were asked for
	hidden []kmsg.MetadataResponseTopic // the answer for topics that clients do not see
	asked  []kmsg.MetadataRequestTopic  // virtual
}

func (st *metadataState) hides(topic string) bool {
	return slices.ContainsFunc(st.hidden, func(t kmsg.MetadataResponseTopic) bool { return *t.Topic == topic })
}

func metadataRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.MetadataRequest)
	st := &metadataState{all: r.Topics == nil || r.Version == 0 && len(r.Topics) == 0}
	c.state = st
	c.offline = func(guess bool) kmsg.Response {
		if !guess && !c.s.p.known.has(st) {
			return nil
		}
		return c.s.p.known.metadata(c, r.Version, st)
	}
	if c.s.p.gate.isShut() {
		r.AllowAutoTopicCreation = false
	}
	kept := r.Topics[:0]
	for _, t := range r.Topics {
		st.asked = append(st.asked, t)
		if t.Topic == nil {
			t.TopicID = c.route.physicalID(t.TopicID)
			kept = append(kept, t)
			continue
		}
		physical := c.topicToPhysical(*t.Topic)
		if physical == "" {
			st.hidden = append(st.hidden, unknownTopic(*t.Topic))
			continue
		}
		t.Topic = &physical
		kept = append(kept, t)
	}
	r.Topics = kept
	if st.all && r.Version > 0 {
		r.Topics = nil
	}
	if r.Version == 0 && !st.all && len(kept) == 0 { // none would mean all
		c.answer(c.s.p.known.metadata(c, 0, st))
	}
	return nil
}

func unknownTopic(name string) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.ErrorCode = &name, kerr.UnknownTopicOrPartition.Code
	return t
}

func metadataResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.MetadataResponse)
	st := c.state.(*metadataState)
	c.s.p.cluster(c.route.Active).learn(r.Brokers)
	c.showBrokers(r)
	r.ControllerID = c.route.nodeOf(r.ControllerID)
	shown := r.Topics[:0]
	for _, t := range r.Topics {
		if c.showTopic(&t) {
			shown = append(shown, t)
		}
	}
	r.Topics = append(shown, st.hidden...)
	c.s.p.known.learn(r, st.all)
	return nil
}

// showBrokers lists all virtual nodes; what they are on the cluster does not matter.
func (c *call) showBrokers(r *kmsg.MetadataResponse) {
	id := c.route.Identity.ClusterID
	r.ClusterID = &id
	r.Brokers = make([]kmsg.MetadataResponseBroker, c.route.nodes())
	for n := range r.Brokers {
		b := &r.Brokers[n]
		b.NodeID = int32(n)
		b.Host, b.Port = c.s.p.advertised(b.NodeID)
	}
}

// showTopic rewrites one topic; false: clients do not see it.
func (c *call) showTopic(t *kmsg.MetadataResponseTopic) bool {
	var topic *Topic
	if t.Topic != nil {
		name, ok := c.topicToVirtual(*t.Topic)
		if !ok {
			return false
		}
		t.Topic = &name
		topic = c.topic(name)
		if topic != nil && t.TopicID != ([16]byte{}) && topic.PhysicalID != ([16]byte{}) && t.TopicID != topic.PhysicalID {
			c.s.p.forgetTopic(c.route, name) // made anew
			topic = nil
		}
	} else {
		topic = c.route.byPhysical[t.TopicID]
	}
	t.TopicID = c.route.virtualID(t.TopicID)
	for i := range t.Partitions {
		p := &t.Partitions[i]
		p.LeaderEpoch = int32(topic.partition(p.Partition).shift().Show(translate.RealEpoch(p.LeaderEpoch)))
		real := p.Leader
		p.Leader = c.route.nodeOf(real)
		if p.Leader < 0 && real >= 0 && p.ErrorCode == 0 {
			p.ErrorCode = kerr.LeaderNotAvailable.Code
		}
		p.Replicas = c.route.nodesOf(p.Replicas)
		p.ISR = c.route.nodesOf(p.ISR)
		p.OfflineReplicas = c.route.nodesOf(p.OfflineReplicas)
	}
	return true
}

// knownTopics is what clients were last shown of each topic, for the time when no broker answers.
type knownTopics struct {
	mu         sync.Mutex                            // guards what follows
	all        bool                                  // an answer listed all topics
	topics     map[string]kmsg.MetadataResponseTopic // by virtual name; values are never changed in place
	controller int32                                 // a virtual node
}

// learn takes over a virtual answer.
func (k *knownTopics) learn(r *kmsg.MetadataResponse, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = k.all || all
	if k.topics == nil {
		k.topics = make(map[string]kmsg.MetadataResponseTopic)
	}
	k.controller = max(r.ControllerID, 0)
	if all && len(r.Topics) > 0 { // a broker that has just started may list none
		k.keepOnly(r.Topics)
	}
	for _, t := range r.Topics {
		switch {
		case t.Topic == nil:
		case t.ErrorCode == kerr.UnknownTopicOrPartition.Code:
			delete(k.topics, *t.Topic)
		case t.ErrorCode == 0:
			if old, ok := k.topics[*t.Topic]; ok && t.TopicID == ([16]byte{}) {
				t.TopicID = old.TopicID // this version does not tell
			}
			k.topics[*t.Topic] = t
		}
	}
}

// keepOnly forgets topics that a list of all does not have: they were deleted. The caller holds mu.
func (k *knownTopics) keepOnly(listed []kmsg.MetadataResponseTopic) {
	there := make(map[string]bool, len(listed))
	for _, t := range listed {
		if t.Topic != nil {
			there[*t.Topic] = true
		}
	}
	maps.DeleteFunc(k.topics, func(name string, _ kmsg.MetadataResponseTopic) bool { return !there[name] })
}

// has says that all that is asked for was seen.
func (k *knownTopics) has(st *metadataState) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if st.all {
		return k.all
	}
	for _, asked := range st.asked {
		known := asked.Topic != nil && (k.topics[*asked.Topic].Topic != nil || st.hides(*asked.Topic))
		if asked.Topic == nil {
			known = k.byID(asked.TopicID).Topic != nil
		}
		if !known {
			return false
		}
	}
	return true
}

// metadata answers from what was seen last.
func (k *knownTopics) metadata(c *call, version int16, st *metadataState) *kmsg.MetadataResponse {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := kmsg.NewPtrMetadataResponse()
	r.Version, r.ControllerID = version, k.controller
	c.showBrokers(r)
	if st.all {
		for _, t := range k.topics {
			r.Topics = append(r.Topics, leaderless(t))
		}
		return r
	}
	for _, asked := range st.asked {
		switch {
		case asked.Topic == nil:
			r.Topics = append(r.Topics, k.byID(asked.TopicID))
		case !st.hides(*asked.Topic):
			r.Topics = append(r.Topics, k.byName(*asked.Topic))
		}
	}
	r.Topics = append(r.Topics, st.hidden...)
	return r
}

func (k *knownTopics) byName(name string) kmsg.MetadataResponseTopic {
	if t, ok := k.topics[name]; ok {
		return leaderless(t)
	}
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.ErrorCode = &name, kerr.LeaderNotAvailable.Code
	return t
}

func (k *knownTopics) byID(id [16]byte) kmsg.MetadataResponseTopic {
	for _, t := range k.topics {
		if t.TopicID == id {
			return leaderless(t)
		}
	}
	t := kmsg.NewMetadataResponseTopic()
	t.TopicID, t.ErrorCode = id, kerr.LeaderNotAvailable.Code
	return t
}

// name is that of the topic with a virtual id; "" if none is known.
func (k *knownTopics) name(id [16]byte) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, t := range k.topics {
		if t.TopicID == id {
			return name
		}
	}
	return ""
}

// leaderless copies a topic with no partition having a leader.
func leaderless(t kmsg.MetadataResponseTopic) kmsg.MetadataResponseTopic {
	partitions := make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		p.ErrorCode, p.Leader, p.LeaderEpoch = kerr.LeaderNotAvailable.Code, -1, -1
		partitions[i] = p
	}
	t.Partitions = partitions
	return t
}
