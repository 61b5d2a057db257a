package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func initProducerIDRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func initProducerIDResponse(c *call, resp kmsg.Response) error { return nil }
