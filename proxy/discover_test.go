package proxy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
)

// discover makes the identity of a virtual cluster from what its clusters say, or brings a known one up to date: brokers
// that are new are added at the end of their cluster's list, everything else stays as it is, because clients know it.
// active names the cluster whose id a new virtual cluster takes. A cluster that is down is an error for a new identity; a
// known one keeps what it has of that cluster.
func discover(ctx context.Context, active string, clusters map[string]*kgo.Client, known control.Identity) (control.Identity, error) {
	fresh := known.ClusterID == ""
	id := control.Identity{ClusterID: known.ClusterID, Nodes: maps.Clone(known.Nodes), Versions: maps.Clone(known.Versions)}
	if id.Nodes == nil {
		id.Nodes = make(map[string][]int32)
	}
	if fresh {
		id.Versions = Versions()
	}
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		clusterID, brokers, err := describeCluster(ctx, clusters[name])
		if err != nil {
			if fresh {
				return control.Identity{}, fmt.Errorf("ask cluster %s who it is: %w", name, err)
			}
			continue
		}
		if fresh && name == active {
			id.ClusterID = clusterID
		}
		for _, b := range brokers {
			if !slices.Contains(id.Nodes[name], b) {
				id.Nodes[name] = append(slices.Clip(id.Nodes[name]), b)
			}
		}
		if !fresh {
			continue
		}
		if err := narrow(ctx, clusters[name], id.Versions); err != nil {
			return control.Identity{}, fmt.Errorf("ask cluster %s what it speaks: %w", name, err)
		}
	}
	return id, nil
}

func describeCluster(ctx context.Context, client *kgo.Client) (id string, brokers []int32, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return "", nil, err
	}
	if resp.ClusterID != nil {
		id = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		brokers = append(brokers, b.NodeID)
	}
	slices.Sort(brokers)
	return id, brokers, nil
}

// narrow leaves in versions what every broker of a cluster speaks.
func narrow(ctx context.Context, client *kgo.Client, versions map[int16][2]int16) error {
	_, brokers, err := describeCluster(ctx, client)
	if err != nil {
		return err
	}
	for _, b := range brokers {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "switchback", "1"
		resp, err := req.RequestWith(ctx, client.Broker(int(b)))
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			return err
		}
		narrowTo(versions, resp.ApiKeys)
	}
	return nil
}

func narrowTo(versions map[int16][2]int16, keys []kmsg.ApiVersionsResponseApiKey) {
	spoken := make(map[int16][2]int16, len(keys))
	for _, k := range keys {
		spoken[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	for key, ours := range versions {
		theirs, ok := spoken[key]
		low, high := max(ours[0], theirs[0]), min(ours[1], theirs[1])
		if !ok || low > high {
			delete(versions, key)
			continue
		}
		versions[key] = [2]int16{low, high}
	}
}
