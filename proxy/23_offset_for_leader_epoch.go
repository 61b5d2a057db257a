package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func offsetForLeaderEpochRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func offsetForLeaderEpochResponse(c *call, resp kmsg.Response) error { return nil }
