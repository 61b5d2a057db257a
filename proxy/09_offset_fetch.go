package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func offsetFetchRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func offsetFetchResponse(c *call, resp kmsg.Response) error { return nil }
