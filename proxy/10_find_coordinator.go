package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func findCoordinatorRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func findCoordinatorResponse(c *call, resp kmsg.Response) error { return nil }
