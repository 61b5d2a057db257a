package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func offsetDeleteRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func offsetDeleteResponse(c *call, resp kmsg.Response) error { return nil }
