package proxy

import "github.com/twmb/franz-go/pkg/kmsg"

func createTopicsRequest(c *call, req kmsg.Request) error               { return c.unsupported() }
func createTopicsResponse(c *call, resp kmsg.Response) error            { return nil }
func deleteTopicsRequest(c *call, req kmsg.Request) error               { return c.unsupported() }
func deleteTopicsResponse(c *call, resp kmsg.Response) error            { return nil }
func deleteRecordsRequest(c *call, req kmsg.Request) error              { return c.unsupported() }
func deleteRecordsResponse(c *call, resp kmsg.Response) error           { return nil }
func describeConfigsRequest(c *call, req kmsg.Request) error            { return c.unsupported() }
func describeConfigsResponse(c *call, resp kmsg.Response) error         { return nil }
func createPartitionsRequest(c *call, req kmsg.Request) error           { return c.unsupported() }
func createPartitionsResponse(c *call, resp kmsg.Response) error        { return nil }
func incrementalAlterConfigsRequest(c *call, req kmsg.Request) error    { return c.unsupported() }
func incrementalAlterConfigsResponse(c *call, resp kmsg.Response) error { return nil }
