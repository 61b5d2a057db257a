package control

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fence writes a control batch, and a topic of an older message format takes none.
func TestTheTopicIsMadeWithAMessageFormatThatCanBeFenced(t *testing.T) {
	for format, want := range map[string]string{"0.10.2-IV0": "0.11.0", "2.8-IV1": "", "": ""} {
		cluster, client := startKafka(t, "blue")
		cluster.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			asked := r.(*kmsg.DescribeConfigsRequest).Resources[0]
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName = asked.ResourceType, asked.ResourceName
			if format != "" {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value = "log.message.format.version", &format
				one.Configs = append(one.Configs, c)
			}
			resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
			resp.Resources = append(resp.Resources, one)
			return resp, nil, true
		})
		made := make(chan string, 1)
		cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
			got := ""
			for _, c := range r.(*kmsg.CreateTopicsRequest).Topics[0].Configs {
				if c.Name == "message.format.version" {
					got = *c.Value
				}
			}
			made <- got
			return nil, nil, false
		})
		if _, err := Open(testContext(t), Config{Client: client, Cluster: "blue", VirtualCluster: "main"}); err != nil {
			t.Fatal(err)
		}
		if got := <-made; got != want {
			t.Errorf("brokers with %q: the topic was made with %q, want %q", format, got, want)
		}
	}
}
