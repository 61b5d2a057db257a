package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster: v0–v2
//
// Request:             about brokers alone; controllers are of no use to clients.
// Response → virtual:  cluster id, controller, brokers (always all virtual nodes, none of them fenced).
// Upstream down:       answered from what was seen last.

const endpointBrokers = 1

func describeClusterRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.DescribeClusterRequest)
	if r.Version >= 1 && r.EndpointType != endpointBrokers {
		resp := c.describeCluster(r.Version)
		resp.ErrorCode, resp.EndpointType = kerr.UnsupportedEndpointType.Code, r.EndpointType
		c.answer(resp)
		return nil
	}
	c.offline = func(bool) kmsg.Response { return c.describeCluster(r.Version) }
	return nil
}

func describeClusterResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.DescribeClusterResponse)
	r.ClusterID = c.route.Identity.ClusterID
	r.ControllerID = c.route.nodeOf(r.ControllerID)
	r.Brokers = c.describedBrokers()
	return nil
}

func (c *call) describeCluster(version int16) *kmsg.DescribeClusterResponse {
	r := kmsg.NewPtrDescribeClusterResponse()
	r.Version, r.EndpointType = version, endpointBrokers
	r.ClusterID = c.route.Identity.ClusterID
	r.ControllerID = c.s.p.known.controllerNode()
	r.Brokers = c.describedBrokers()
	return r
}

func (c *call) describedBrokers() []kmsg.DescribeClusterResponseBroker {
	brokers := make([]kmsg.DescribeClusterResponseBroker, c.route.nodes())
	for n := range brokers {
		b := &brokers[n]
		b.NodeID = int32(n)
		b.Host, b.Port = c.s.p.advertised(b.NodeID)
	}
	return brokers
}

func (k *knownTopics) controllerNode() int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.controller
}
