package replicator

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// link is a client of a cluster whose connections can be cut: requests are delivered, answers are lost.
type link struct {
	client *kgo.Client
	cut    atomic.Bool
}

var errCut = errors.New("link is cut")

func newLink(t *testing.T, s *side) *link {
	t.Helper()
	l := &link{}
	var dialer net.Dialer
	client, err := kgo.NewClient(
		kgo.SeedBrokers(s.kafka.ListenAddrs()...),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if l.cut.Load() {
				return nil, errCut
			}
			c, err := dialer.DialContext(ctx, network, addr)
			return &cutConn{c, l}, err
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	l.client = client
	return l
}

type cutConn struct {
	net.Conn
	link *link
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.link.cut.Load() {
		c.Conn.Close()
		return 0, errCut
	}
	return n, err
}

// onProduce calls do for each produce request, before it is processed, saying whether it has data or is for the journal; with
// an error the request is dropped and its connection closed. Topics made later are not known.
func (s *side) onProduce(topics []string, do func(data bool) error) {
	ids := map[[16]byte]bool{}
	for _, name := range topics {
		ids[s.kafka.TopicInfo(name).TopicID] = true
	}
	s.kafka.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		s.kafka.KeepControl()
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			if err := do(ids[t.TopicID] || slices.Contains(topics, t.Topic)); err != nil {
				return nil, err, true
			}
		}
		return nil, nil, false
	})
}
