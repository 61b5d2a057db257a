package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func offsetCommitRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func offsetCommitResponse(c *call, resp kmsg.Response) error { return nil }
