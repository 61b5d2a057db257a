package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func heartbeatRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func heartbeatResponse(c *call, resp kmsg.Response) error { return nil }
