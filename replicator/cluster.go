package replicator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

// cluster is one side of a flow: its client and the newest metadata.
type cluster struct {
	name   string
	base   *kgo.Client // the configured one
	client *kgo.Client // our own; set by Flow.open
	// spare are further clients, for slots that are being recovered: a broker answers one request of a connection at a time, and
	// each step of a fence waits for its replicas. Set by Flow.open; of the target only.
	spare  []*kgo.Client
	kicked chan struct{}

	view       atomic.Pointer[view]
	expiration atomic.Int64 // producer.id.expiration.ms as a time.Duration
	formats    atomic.Bool  // topics have a message format of their own choice
	oldFormat  atomic.Bool  // new topics are made with one that has no producer ids

	refreshing token // one request at a time; no other lock is taken inside
}

// view is immutable.
type view struct {
	at      time.Time
	brokers []int32 // sorted
	racks   bool    // some broker has a rack
	topics  map[string]*topicView
}

type topicView struct {
	id         [16]byte
	internal   bool
	partitions []partitionView // by number
}

type partitionView struct {
	leader   int32 // −1: none
	epoch    translate.RealEpoch
	replicas []int32
}

// defaultExpiration is Kafka's producer.id.expiration.ms.
const defaultExpiration = 24 * time.Hour

func newCluster(name string, base *kgo.Client) *cluster {
	c := &cluster{name: name, base: base, kicked: make(chan struct{}, 1), refreshing: newToken()}
	c.view.Store(&view{})
	c.expiration.Store(int64(defaultExpiration))
	return c
}

// kick asks for new metadata soon.
func (c *cluster) kick() {
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

func (c *cluster) nodes() []int32 { return c.view.Load().brokers }

func (c *cluster) topic(name string) *topicView { return c.view.Load().topics[name] }

// leader of a partition; ok is false if it has none.
func (c *cluster) leader(topic string, partition int32) (node int32, epoch translate.RealEpoch, ok bool) {
	t := c.topic(topic)
	if t == nil || int(partition) >= len(t.partitions) {
		return -1, -1, false
	}
	p := t.partitions[partition]
	return p.leader, p.epoch, p.leader >= 0
}

// refresh reads the metadata of all topics.
func (c *cluster) refresh(ctx context.Context) error {
	if err := c.refreshing.take(ctx); err != nil {
		return err
	}
	defer c.refreshing.put()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, c.client)
	if err != nil {
		return fmt.Errorf("metadata of %s: %w", c.name, err)
	}
	v := &view{at: time.Now(), topics: make(map[string]*topicView, len(resp.Topics))}
	for _, b := range resp.Brokers {
		v.brokers = append(v.brokers, b.NodeID)
		v.racks = v.racks || b.Rack != nil && *b.Rack != ""
	}
	slices.Sort(v.brokers)
	for _, t := range resp.Topics {
		if t.Topic == nil || t.ErrorCode != 0 {
			continue
		}
		v.topics[*t.Topic] = viewOf(&t)
	}
	c.view.Store(v)
	return nil
}

func viewOf(t *kmsg.MetadataResponseTopic) *topicView {
	out := &topicView{id: t.TopicID, internal: t.IsInternal, partitions: make([]partitionView, len(t.Partitions))}
	for i := range out.partitions {
		out.partitions[i] = partitionView{leader: -1, epoch: -1}
	}
	for _, p := range t.Partitions {
		if p.Partition < 0 || int(p.Partition) >= len(out.partitions) {
			continue
		}
		leader := p.Leader
		if p.ErrorCode != 0 && p.ErrorCode != kerr.ReplicaNotAvailable.Code {
			leader = -1
		}
		out.partitions[p.Partition] = partitionView{leader, translate.RealEpoch(p.LeaderEpoch), p.Replicas}
	}
	return out
}

// loadConfigs asks a broker for what we need of its configs; where it does not say, Kafka's defaults count.
func (c *cluster) loadConfigs(ctx context.Context) {
	nodes := c.nodes()
	if len(nodes) == 0 {
		return
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(nodes[0]))
	r.ConfigNames = []string{expirationConfig, protocolConfig, batch.BrokerFormatConfig}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return
	}
	values := map[string]string{}
	for _, r := range resp.Resources {
		for _, one := range r.Configs {
			if one.Value != nil {
				values[one.Name] = *one.Value
			}
		}
	}
	if ms, err := strconv.ParseInt(values[expirationConfig], 10, 32); err == nil && ms > 0 {
		c.expiration.Store(int64(time.Duration(ms) * time.Millisecond))
	}
	c.formats.Store(batch.Below(values[protocolConfig], 3, 0))
	c.oldFormat.Store(batch.OldFormat(values[batch.BrokerFormatConfig]))
}

const (
	expirationConfig = "producer.id.expiration.ms"
	protocolConfig   = "inter.broker.protocol.version" // from 3.0 on, message.format.version says nothing any more
)
