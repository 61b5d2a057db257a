package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func apiVersionsRequest(c *call, req kmsg.Request) error { return c.unsupported() }
