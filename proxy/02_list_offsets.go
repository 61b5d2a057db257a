package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func listOffsetsRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func listOffsetsResponse(c *call, resp kmsg.Response) error { return nil }
