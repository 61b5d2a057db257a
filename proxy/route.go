package proxy

import (
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// Route says which cluster serves a virtual cluster and how its numbers are shown. It is immutable once it was given to
// Start or Publish.
type Route struct {
	Generation      translate.Generation
	Active, Standby string
	Identity        control.Identity
	// Topics holds, by virtual name, the topics that have more than the one default era, or whose virtual id differs from
	// the real one. Any other topic is shown as the active cluster has it, but for its name.
	Topics map[string]*Topic

	// Unknown says that no more is known than the identity, because who has the maps cannot be reached: clients connect and are told
	// of the brokers, and all else waits for the next route. Only the first routes can be unknown.
	Unknown bool

	// Forced says that the move to this generation was forced: producers may go on with a hole in their sequence.
	Forced bool

	seam       *seam
	names      translate.Names // of Active
	byVirtual  map[[16]byte]*Topic
	byPhysical map[[16]byte]*Topic
	superseded chan struct{} // closed when a newer route is published
}

// Topic is how one topic is shown.
type Topic struct {
	Name       string // virtual
	VirtualID  [16]byte
	PhysicalID [16]byte // on the active cluster
	Partitions []Partition
	Refused    error // why clients do not see it; nil: they do. See RefusedTopic
}

// RefusedTopic is a topic that the active cluster may have, and of which it is not known how its numbers are to be shown. To
// clients there is no topic of that name: the code that asks for it again, and makes nobody skip a record. An id that they
// still have leads to one that no cluster has.
func RefusedTopic(name string, virtualID [16]byte, why error) *Topic {
	t := &Topic{Name: name, VirtualID: virtualID, Refused: why}
	if virtualID != ([16]byte{}) {
		for i, b := range virtualID {
			t.PhysicalID[i] = ^b
		}
	}
	return t
}

// Partition is how one partition is shown. Partitions beyond a topic's list have the default era.
type Partition struct {
	Eras      []control.Era      // oldest first; the last one is the active cluster's
	Map       *translate.Map     // of the active cluster, with the open native segment; nil: virtual = physical
	History   translate.History  // all epochs before the current era
	Producers *journal.Producers // who wrote last before the current era; nil: nobody is known
}

// prepare fills what is derived from the exported fields.
func (r Route) prepare(names translate.Names) *Route {
	r.names = names
	r.seam = newSeam(r.Generation, false)
	r.superseded = make(chan struct{})
	r.byVirtual = make(map[[16]byte]*Topic, len(r.Topics))
	r.byPhysical = make(map[[16]byte]*Topic, len(r.Topics))
	for _, t := range r.Topics {
		if t.VirtualID != ([16]byte{}) {
			r.byVirtual[t.VirtualID] = t
		}
		if t.PhysicalID != ([16]byte{}) {
			r.byPhysical[t.PhysicalID] = t
		}
	}
	return &r
}

// topic returns how a topic is shown, by its virtual name; nil: the default era, the active cluster's own id.
func (r *Route) topic(name string) *Topic { return r.Topics[name] }

// refuses says whether a topic, by its virtual name, is kept from clients.
func (r *Route) refuses(name string) bool {
	t := r.Topics[name]
	return t != nil && t.Refused != nil
}

// partition returns how partition p is shown; nil: the default era. t may be nil.
func (t *Topic) partition(p int32) *Partition {
	if t == nil || p < 0 || int(p) >= len(t.Partitions) {
		return nil
	}
	return &t.Partitions[p]
}

// The zero pointer is a partition with the default era: virtual = physical, epochs as they are.

// mapping returns the map, which is the identity for the default era.
func (p *Partition) mapping() *translate.Map {
	if p == nil {
		return nil
	}
	return p.Map
}

// shift is that of the current era.
func (p *Partition) shift() translate.Shift {
	if p == nil || len(p.Eras) == 0 {
		return 0
	}
	return p.Eras[len(p.Eras)-1].Shift
}

// era is the current one; the zero Era where nothing else is known.
func (p *Partition) era() control.Era {
	if p == nil || len(p.Eras) == 0 {
		return control.Era{}
	}
	return p.Eras[len(p.Eras)-1]
}

// virtualID is the topic id that clients see for the physical one.
func (r *Route) virtualID(physical [16]byte) [16]byte {
	if t := r.byPhysical[physical]; t != nil {
		return t.VirtualID
	}
	return physical
}

// physicalID is the topic id on the active cluster for the one that clients use.
func (r *Route) physicalID(virtual [16]byte) [16]byte {
	if t := r.byVirtual[virtual]; t != nil {
		return t.PhysicalID
	}
	return virtual
}

// topicToPhysical is the name on the active cluster; "" if clients cannot see a topic of that name.
func (r *Route) topicToPhysical(name string) string {
	physical := r.names.Physical(name)
	if translate.IsInternal(physical) || r.refuses(name) {
		return ""
	}
	return physical
}

// topicToVirtual is the name that clients see; ok is false for a topic that they do not.
func (r *Route) topicToVirtual(name string) (virtual string, ok bool) {
	if translate.IsInternal(name) {
		return "", false
	}
	virtual, ok = r.names.Virtual(name)
	return virtual, ok && !r.refuses(virtual)
}

// brokerBehind is the real broker behind a virtual node; -1 if there is none.
func (r *Route) brokerBehind(node int32) int32 {
	nodes := r.Identity.Nodes[r.Active]
	if node < 0 || len(nodes) == 0 {
		return -1
	}
	return nodes[int(node)%len(nodes)]
}

// nodeOf is the virtual node of a real broker of the active cluster; -1 for one that is not in the identity, and for -1.
func (r *Route) nodeOf(broker int32) int32 {
	for i, id := range r.Identity.Nodes[r.Active] {
		if id == broker {
			return int32(i)
		}
	}
	return -1
}

// nodes is the number of virtual nodes.
func (r *Route) nodes() int {
	n := 0
	for _, list := range r.Identity.Nodes {
		n = max(n, len(list))
	}
	return n
}
