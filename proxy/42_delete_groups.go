package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func deleteGroupsRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func deleteGroupsResponse(c *call, resp kmsg.Response) error { return nil }
