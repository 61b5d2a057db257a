package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func leaveGroupRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func leaveGroupResponse(c *call, resp kmsg.Response) error { return nil }
