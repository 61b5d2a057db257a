package proxy

import (
	"errors"
	"testing"

	"github.com/switchback-proxy/switchback/translate"
)

func TestARefusedTopicIsReachedByNoNameAndNoID(t *testing.T) {
	id := [16]byte{7, 1}
	r := Route{Generation: 3, Active: "blue", Topics: map[string]*Topic{
		"odd":    RefusedTopic("odd", id, errors.New("it does not fit")),
		"no-id":  RefusedTopic("no-id", [16]byte{}, errors.New("it does not fit")),
		"orders": {Name: "orders", VirtualID: [16]byte{8}, PhysicalID: [16]byte{9}},
	}}
	route := r.prepare(translate.PrefixNames("b."))
	for name, seen := range map[string]bool{"odd": false, "no-id": false, "orders": true, "new": true} {
		if physical := route.topicToPhysical(name); (physical == "b."+name) != seen || (physical == "") == seen {
			t.Errorf("%s goes to the cluster as %q", name, physical)
		}
		if virtual, ok := route.topicToVirtual("b." + name); ok != seen || ok && virtual != name {
			t.Errorf("%s goes to clients as %q, %v", name, virtual, ok)
		}
	}
	if real := route.physicalID(id); real == id || route.virtualID(real) != id {
		t.Errorf("its id goes to the cluster as %x, and comes back as %x", real, route.virtualID(real))
	}
	if zero := [16]byte{}; route.physicalID(zero) != zero || route.virtualID(zero) != zero {
		t.Error("no id became one")
	}
}
