package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func metadataRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func metadataResponse(c *call, resp kmsg.Response) error { return nil }
