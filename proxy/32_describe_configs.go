package proxy

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs: v1–v4
//
// Request → physical:  topic names; brokers by virtual node. Other resources are refused: INVALID_REQUEST.
// Response → virtual:  the same; ids of brokers. Values that hold addresses or ids of real brokers are blanked, and marked
//                      as sensitive, which is how a broker shows what it does not tell.

func describeConfigsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.DescribeConfigsRequest)
	refused := []kmsg.DescribeConfigsResponseResource{}
	kept := r.Resources[:0]
	for _, one := range r.Resources {
		physical, code := c.resourceToPhysical(one.ResourceType, one.ResourceName)
		if code != 0 {
			a := kmsg.NewDescribeConfigsResponseResource()
			a.ResourceType, a.ResourceName, a.ErrorCode = one.ResourceType, one.ResourceName, code
			refused = append(refused, a)
			continue
		}
		one.ResourceName = physical
		kept = append(kept, one)
	}
	r.Resources = kept
	c.state = refused
	return nil
}

// resourceToPhysical names a topic or a broker as the cluster does.
func (c *call) resourceToPhysical(kind kmsg.ConfigResourceType, name string) (physical string, code int16) {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		if physical = c.topicToPhysical(name); physical == "" {
			return "", kerr.UnknownTopicOrPartition.Code
		}
		return physical, 0
	case kmsg.ConfigResourceTypeBroker:
		if name == "" { // the default of all brokers
			return "", 0
		}
		node, err := strconv.ParseInt(name, 10, 32)
		if err != nil || node < 0 || int(node) >= c.route.nodes() {
			return "", kerr.InvalidRequest.Code
		}
		return strconv.Itoa(int(c.route.brokerBehind(int32(node)))), 0
	}
	return "", kerr.InvalidRequest.Code
}

// resourceToVirtual names it as clients do. The broker of a node is shown as the node that was asked.
func (c *call) resourceToVirtual(kind kmsg.ConfigResourceType, name string) (virtual string, ok bool) {
	if kind == kmsg.ConfigResourceTypeTopic {
		return c.topicToVirtual(name)
	}
	if kind != kmsg.ConfigResourceTypeBroker || name == "" {
		return name, kind == kmsg.ConfigResourceTypeBroker
	}
	broker, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return "", false
	}
	if c.s.node >= 0 && c.route.brokerBehind(c.s.node) == int32(broker) {
		return strconv.Itoa(int(c.s.node)), true
	}
	node := c.route.nodeOf(int32(broker))
	return strconv.Itoa(int(node)), node >= 0
}

func describeConfigsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.DescribeConfigsResponse)
	for i := range r.Resources {
		one := &r.Resources[i]
		name, ok := c.resourceToVirtual(one.ResourceType, one.ResourceName)
		if !ok {
			return c.badAnswer("a resource that was not asked for")
		}
		one.ErrorMessage = words(one.ErrorMessage, one.ResourceName, name)
		one.ResourceName = name
		for j := range one.Configs {
			showConfig(&one.Configs[j], name)
		}
	}
	r.Resources = append(r.Resources, c.state.([]kmsg.DescribeConfigsResponseResource)...)
	return nil
}

func showConfig(config *kmsg.DescribeConfigsResponseResourceConfig, resource string) {
	if config.Name == "broker.id" || config.Name == "node.id" {
		config.Value, config.ConfigSynonyms = &resource, nil
		return
	}
	if tellsOfBrokers(config.Name) {
		config.Value, config.IsSensitive, config.ConfigSynonyms = nil, true, nil
	}
}

// shownConfig is the value of a topic's config as clients see it; nil for one that tells of real brokers.
func shownConfig(name string, value *string) *string {
	if tellsOfBrokers(name) {
		return nil
	}
	return value
}

// tellsOfBrokers says whether a config holds addresses, directories or ids of real brokers.
func tellsOfBrokers(name string) bool {
	parts := []string{"listener", "quorum", "zookeeper", "host", "bootstrap", "throttled.replicas", "log.dir", "metadata.log", "rack"}
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
}
