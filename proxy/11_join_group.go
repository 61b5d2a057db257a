package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func joinGroupRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func joinGroupResponse(c *call, resp kmsg.Response) error { return nil }
