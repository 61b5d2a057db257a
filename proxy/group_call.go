package proxy

import (
	"encoding/binary"
	"hash/fnv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/translate"
)

// servesGroup says whether clients may see and use a group: the configured ones, and none of ours.
func (p *Proxy) servesGroup(name string) bool {
	return p.cfg.Groups.Match(name) && !strings.HasPrefix(name, "switchback.")
}

// groupRefused answers for a group that is not served. Clients take it as final.
func groupRefused() int16 { return kerr.GroupAuthorizationFailed.Code }

// coordinatorNode is the virtual node that clients see as the coordinator of a group. It depends on nothing that a move
// changes; the calls are routed to the real one.
func (r *Route) coordinatorNode(group string) int32 {
	h := fnv.New32a()
	h.Write([]byte(group))
	return int32(h.Sum32() % uint32(max(r.nodes(), 1)))
}

// enterGroup looks up the group of this call for one of its members; "" if it names none.
func (c *call) enterGroup(member string) memberView {
	return c.s.p.groups.table().enter(c.route.Active, c.group, member)
}

// groupMap is the mapping of the call's group.
func (c *call) groupMap() *groupMap { return c.s.p.groups.table().mapOf(c.route.Active, c.group) }

// coordinatorSaid takes note of the code of an answer. A broker that is not the coordinator is not asked again; the call
// goes to the right one, once.
func (c *call) coordinatorSaid(code int16) error {
	if !deniesCoordinator(code) {
		return nil
	}
	c.s.p.groups.coordinators().forget(c.route.Active, c.group)
	if code == kerr.NotCoordinator.Code && c.again == 0 {
		return errReissue
	}
	return nil
}

// overtaken says whether a move has passed the call by: its answer comes from the cluster that was left. What that says of
// members and generations is not for clients any more.
func (c *call) overtaken() bool { return c.s.p.activeCluster() != c.route.Active }

// topicToPhysical is the name on the active cluster; "" for a topic that clients do not see.
func (c *call) topicToPhysical(name string) string {
	if !c.s.p.cfg.Topics.Match(name) {
		return ""
	}
	return c.route.topicToPhysical(name)
}

// topicToVirtual is the name that clients see; ok is false for a topic that they do not.
func (c *call) topicToVirtual(name string) (string, bool) {
	virtual, ok := c.route.topicToVirtual(name)
	return virtual, ok && c.s.p.cfg.Topics.Match(virtual)
}

// topicOf finds a topic by its virtual name, or by its virtual id where the version has ids alone.
func (c *call) topicOf(name string, id [16]byte) *Topic {
	if name != "" {
		return c.route.topic(name)
	}
	return c.route.byVirtual[id]
}

// topicBehind finds a topic by its physical id, or by its virtual name where the version has names.
func (c *call) topicBehind(virtual string, physicalID [16]byte) *Topic {
	if virtual != "" {
		return c.route.topic(virtual)
	}
	return c.route.byPhysical[physicalID]
}

// toCluster renames a topic in what clients tell each other; toClients the other way.
func (c *call) toCluster() rename {
	return func(name string) (string, bool) {
		physical := c.route.names.Physical(name)
		return physical, physical != ""
	}
}

func (c *call) toClients() rename { return c.route.names.Virtual }

// renames says whether payloads between members have to be rewritten.
func (c *call) renames(protocolType string) bool {
	return protocolType == consumerProtocol && !c.route.names.IsIdentity()
}

// committedToPhysical is where the first record at or after a committed offset is on the cluster. A negative one is no
// offset, and stays it. ok is false if it is not known yet.
func (p *Partition) committedToPhysical(v int64) (physical int64, ok bool) {
	m := p.mapping()
	if m == nil || v < 0 {
		return v, true
	}
	a := m.ToPhysical(translate.Virtual(v))
	return int64(a.Physical), a.Kind != translate.Unknown
}

// committedToVirtual is the first record at or after an offset that the cluster has for a group. Beyond the end of a map
// that does not grow nothing is known.
func (p *Partition) committedToVirtual(physical int64) (v int64, ok bool) {
	m := p.mapping()
	if m == nil || physical < 0 {
		return physical, true
	}
	a := m.ToVirtual(translate.Physical(physical))
	return int64(a.Virtual), a.Kind != translate.End || translate.Physical(physical) <= m.PhysicalEnd()
}

// epochToCluster is the real epoch of a shown one. Only epochs of the current era mean something to the cluster.
func (p *Partition) epochToCluster(shown int32) int32 {
	era := p.era()
	if p == nil || len(p.Eras) == 0 {
		return shown
	}
	if translate.Epoch(shown) < era.FirstEpoch {
		return int32(translate.UnknownEpoch)
	}
	return int32(era.Shift.Real(translate.Epoch(shown)))
}

// epochToClients is the shown epoch of one that the cluster has stored with the commit of v. It is shown only if it
// belongs to a record of the current era.
func (p *Partition) epochToClients(real int32, v int64) int32 {
	if p == nil || len(p.Eras) == 0 {
		return real
	}
	era := p.era()
	shown := era.Shift.Show(translate.RealEpoch(real))
	if era.Virtual > 0 && v <= int64(era.Virtual) || shown < era.FirstEpoch {
		return int32(translate.UnknownEpoch)
	}
	return int32(shown)
}

// clientID is the client id in the call's header: int16 key · int16 version · int32 correlation id · nullable string.
func (c *call) clientID() string {
	const at = 8
	if len(c.frame) < at+2 {
		return ""
	}
	n := int(int16(binary.BigEndian.Uint16(c.frame[at:])))
	if n < 0 || len(c.frame) < at+2+n {
		return ""
	}
	return string(c.frame[at+2 : at+2+n])
}
