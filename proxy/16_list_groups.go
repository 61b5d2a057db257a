package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func listGroupsRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func listGroupsResponse(c *call, resp kmsg.Response) error { return nil }
