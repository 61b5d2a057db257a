package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func syncGroupRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func syncGroupResponse(c *call, resp kmsg.Response) error { return nil }
