package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func describeClusterRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func describeClusterResponse(c *call, resp kmsg.Response) error { return nil }
