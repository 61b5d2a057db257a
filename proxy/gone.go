package proxy

import "maps"

// A topic that was deleted, or deleted and made anew, has nothing to do with what a route says of the one before: its log
// begins at 0 again, and has the default era. The route forgets it at once, not only when the process starts again.

// goneTopic is a topic as a route knows it.
type goneTopic struct {
	name     string   // virtual
	physical [16]byte // id on the active cluster
}

// forgetTopic takes a topic out of the current route, and out of later ones of this generation that still have it.
func (p *Proxy) forgetTopic(route *Route, name string) {
	t := route.Topics[name]
	if t == nil {
		return
	}
	p.publishing.Lock()
	defer p.publishing.Unlock()
	now := p.route.Load()
	if now.Generation != route.Generation || p.gone[goneTopic{name, t.PhysicalID}] {
		return
	}
	if p.gone == nil {
		p.gone = make(map[goneTopic]bool)
	}
	p.gone[goneTopic{name, t.PhysicalID}] = true
	p.publish(*now, false)
}

// withoutGone leaves topics out that are gone. The caller holds publishing.
func (p *Proxy) withoutGone(route Route) Route {
	if old := p.route.Load(); old == nil || old.Generation != route.Generation {
		p.gone = nil
		return route
	}
	if len(p.gone) == 0 {
		return route
	}
	route.Topics = maps.Clone(route.Topics)
	maps.DeleteFunc(route.Topics, func(name string, t *Topic) bool { return p.gone[goneTopic{name, t.PhysicalID}] })
	return route
}
