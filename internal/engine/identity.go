package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/switchback-proxy/switchback/internal/control"
)

// errSameCluster says that two configured names are one cluster; a flow between them would copy for ever.
var errSameCluster = errors.New("two configured clusters are one and the same")

// distinct fails if both clusters are known and are the same one.
func distinct(a, b *upstream) error {
	if id := a.clusterID(); id != "" && id == b.clusterID() {
		return fmt.Errorf("%w: %s and %s have the cluster id %s", errSameCluster, a.name, b.name, id)
	}
	return nil
}

// completeIdentity adds to an identity what it lacks and a cluster that answers can tell: its nodes, and at the first start
// the versions it speaks. What clients have seen is never taken away but for versions, and those only while the identity has
// not been completed by the second cluster. changed is false if nothing was added.
func completeIdentity(ctx context.Context, id control.Identity, u *upstream) (out control.Identity, changed bool, err error) {
	if err := u.ping(ctx); err != nil {
		return id, false, err
	}
	out = control.Identity{ClusterID: id.ClusterID, Nodes: make(map[string][]int32), Versions: id.Versions}
	for cluster, nodes := range id.Nodes {
		out.Nodes[cluster] = nodes
	}
	if out.ClusterID == "" { // clients that come from the cluster itself keep what they know
		out.ClusterID, changed = u.clusterID(), true
	}
	known := id.Nodes[u.name]
	nodes := growNodes(known, u.brokerIDs())
	if len(nodes) != len(known) {
		out.Nodes[u.name], changed = nodes, true
	}
	if len(known) == 0 {
		versions, err := u.apiVersions(ctx)
		if err != nil {
			return id, false, err
		}
		out.Versions = intersect(id.Versions, versions)
	}
	return out, changed, nil
}

// growNodes puts brokers that are new at the end, so that no virtual node moves.
func growNodes(known, brokers []int32) []int32 {
	out := slices.Clone(known)
	for _, b := range slices.Sorted(slices.Values(brokers)) {
		if !slices.Contains(known, b) {
			out = append(out, b)
		}
	}
	return out
}

// nodeCount is how many virtual brokers an identity shows.
func nodeCount(id control.Identity) int {
	n := 0
	for _, nodes := range id.Nodes {
		n = max(n, len(nodes))
	}
	return n
}

// lacking finds an API version that is offered to clients and that the cluster does not speak; "" if there is none.
func lacking(offered, spoken map[int16][2]int16) string {
	for key, r := range offered {
		if have, ok := spoken[key]; !ok || have[0] > r[0] || have[1] < r[1] {
			return fmt.Sprintf("API key %d versions %d to %d", key, r[0], r[1])
		}
	}
	return ""
}
