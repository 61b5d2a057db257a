package proxy

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// IncrementalAlterConfigs: v0–v1, held at a cutover
//
// Request → physical:  topic names. Other resources are refused (INVALID_REQUEST): brokers belong to one cluster.
// Response → virtual:  topic names, also in error messages.

func incrementalAlterConfigsRequest(c *call, req kmsg.Request) error {
	r := req.(*kmsg.IncrementalAlterConfigsRequest)
	refused := []kmsg.IncrementalAlterConfigsResponseResource{}
	kept := r.Resources[:0]
	for _, one := range r.Resources {
		physical, code := c.resourceToPhysical(one.ResourceType, one.ResourceName)
		if one.ResourceType != kmsg.ConfigResourceTypeTopic {
			code = kerr.InvalidRequest.Code
		}
		if code != 0 {
			a := kmsg.NewIncrementalAlterConfigsResponseResource()
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

func incrementalAlterConfigsResponse(c *call, resp kmsg.Response) error {
	r := resp.(*kmsg.IncrementalAlterConfigsResponse)
	for i := range r.Resources {
		one := &r.Resources[i]
		name, ok := c.resourceToVirtual(one.ResourceType, one.ResourceName)
		if !ok {
			return c.badAnswer("a resource that was not asked for")
		}
		one.ErrorMessage = words(one.ErrorMessage, one.ResourceName, name)
		one.ResourceName = name
	}
	r.Resources = append(r.Resources, c.state.([]kmsg.IncrementalAlterConfigsResponseResource)...)
	return nil
}
