package replicator

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// oldBrokers make a cluster tell the configs of one before Kafka 3.0. topic is the message format that it tells of its topics;
// created are those that topics are created with, by their names.
func (s *side) oldBrokers(protocol, broker string, topic *atomic.Pointer[string]) (created *sync.Map) {
	created = new(sync.Map)
	s.kafka.ControlKey(int16(kmsg.DescribeConfigs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.kafka.KeepControl()
		req := r.(*kmsg.DescribeConfigsRequest)
		resp := r.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range req.Resources {
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName = asked.ResourceType, asked.ResourceName
			add := func(name, value string) {
				c := kmsg.NewDescribeConfigsResponseResourceConfig()
				c.Name, c.Value = name, kmsg.StringPtr(value)
				one.Configs = append(one.Configs, c)
			}
			if asked.ResourceType == kmsg.ConfigResourceTypeBroker {
				add(protocolConfig, protocol)
				add(batch.BrokerFormatConfig, broker)
			} else {
				add(maxMessageBytes, "1000000")
				add(batch.FormatConfig, *topic.Load())
			}
			resp.Resources = append(resp.Resources, one)
		}
		return resp, nil, true
	})
	s.kafka.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.kafka.KeepControl()
		for _, t := range r.(*kmsg.CreateTopicsRequest).Topics {
			for _, c := range t.Configs {
				if c.Name == batch.FormatConfig {
					created.Store(t.Topic, *c.Value)
				}
			}
		}
		return nil, nil, false
	})
	return created
}

// Such a topic takes no marker, so the flow would wait for it for ever, and with it the end of a move.
func TestATopicOfAnOldMessageFormatIsNotWrittenUntilThatIsChanged(t *testing.T) {
	p := newPair(t)
	var format atomic.Pointer[string]
	format.Store(kmsg.StringPtr("0.10.2-IV0"))
	p.green.oldBrokers("2.8-IV1", "2.8-IV1", &format)
	for _, side := range []*side{p.blue, p.green} {
		side.create(t, "orders", 1, nil)
	}
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "message format 0.10.2-IV0")
	if s := statusOf(r, "orders", 0); !strings.Contains(s.Hint, "message.format.version") {
		t.Errorf("hint %q", s.Hint)
	}
	if end := p.green.kafka.PartitionInfo("orders", 0).HighWatermark; end != 0 {
		t.Errorf("something was written, up to %d", end)
	}
	format.Store(kmsg.StringPtr("0.11.0-IV2"))
	testkit.Eventually(t, patience, "the topic is copied", func() bool { return statusOf(r, "orders", 0).Frontier == translate.Virtual(10) })
}

// From 3.0 on the config may be left over from earlier days, and counts for nothing.
func TestAnOldMessageFormatIsNoObstacleWhereItDoesNotCount(t *testing.T) {
	p := newPair(t)
	var format atomic.Pointer[string]
	format.Store(kmsg.StringPtr("0.10.2-IV0"))
	p.green.oldBrokers("3.9-IV0", "3.0-IV1", &format)
	for _, side := range []*side{p.blue, p.green} {
		side.create(t, "orders", 1, nil)
	}
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	if s := statusOf(r, "orders", 0); s.Frontier != 10 {
		t.Errorf("status %+v", s)
	}
}

func TestTopicsAreMadeWithAMessageFormatThatCanBeFenced(t *testing.T) {
	p := newPair(t)
	var format atomic.Pointer[string]
	format.Store(kmsg.StringPtr(batch.FirstFormat))
	created := p.green.oldBrokers("2.8-IV1", "0.10.2-IV0", &format)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	for _, topic := range []string{"orders", journal.Topic("blue", "green")} {
		if got, _ := created.Load(topic); got != batch.FirstFormat {
			t.Errorf("%s was made with message format %v", topic, got)
		}
	}
}
