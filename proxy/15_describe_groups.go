package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func describeGroupsRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func describeGroupsResponse(c *call, resp kmsg.Response) error { return nil }
