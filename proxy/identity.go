package proxy

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
)

// What clients see of the cluster itself never changes: its id, its nodes, their addresses, the versions it speaks.

// advertised is the address of a virtual node, as clients see it.
func (p *Proxy) advertised(node int32) (host string, port int32) {
	return p.cfg.AdvertisedHost, int32(p.cfg.BrokerPortStart) + node
}

// Versions are the API versions that the proxy can handle. What a virtual cluster offers is their intersection with what
// all its clusters speak, fixed when it is first made, so that a client's versions stay valid after every move.
func Versions() map[int16][2]int16 {
	out := make(map[int16][2]int16)
	for _, r := range apis() {
		if r.gate != refuse {
			out[r.key] = [2]int16{r.min, r.max}
		}
	}
	return out
}

// offered is the range of an API key that clients may use; ok is false for one that is hidden.
func (p *Proxy) offered(id control.Identity, key int16) (min, max int16, ok bool) {
	if key < 0 || int(key) >= len(p.apis) {
		return 0, 0, false
	}
	r := &p.apis[key]
	if r.gate == refuse {
		return 0, 0, false
	}
	min, max = r.min, r.max
	if id.Versions == nil || key == int16(kmsg.ApiVersions) {
		return min, max, true
	}
	clusters, known := id.Versions[key]
	if !known {
		return 0, 0, false
	}
	min, max = maxOf(min, clusters[0]), minOf(max, clusters[1])
	return min, max, min <= max
}

func maxOf(a, b int16) int16 { return max(a, b) }
func minOf(a, b int16) int16 { return min(a, b) }

// addresses are the real brokers of one cluster.
type addresses struct {
	ctx    context.Context // of the proxy: a look-up is for all who ask, and outlives the session that asked first
	client *kgo.Client

	mu     sync.Mutex // guards all below; not held across I/O
	known  map[int32]string
	asking chan struct{} // closed when the running look-up ends; nil: none runs
	err    error         // of the last look-up
}

const lookUpTimeout = 5 * time.Second

// of is the address of a broker, host:port. An unknown broker is looked up.
func (a *addresses) of(ctx context.Context, broker int32) (string, error) {
	if addr, ok := a.get(broker); ok {
		return addr, nil
	}
	if err := a.refresh(ctx); err != nil {
		return "", err
	}
	if addr, ok := a.get(broker); ok {
		return addr, nil
	}
	return "", fmt.Errorf("broker %d is not in the cluster's metadata", broker)
}

func (a *addresses) get(broker int32) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	addr, ok := a.known[broker]
	return addr, ok
}

// learn takes over what a Metadata answer lists.
func (a *addresses) learn(brokers []kmsg.MetadataResponseBroker) {
	known := make(map[int32]string, len(brokers))
	for _, b := range brokers {
		known[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(known) > 0 {
		a.known = known
	}
}

// refresh asks the cluster who its brokers are. Several askers share one request.
func (a *addresses) refresh(ctx context.Context) error {
	a.mu.Lock()
	running := a.asking
	if running == nil {
		running = make(chan struct{})
		a.asking = running
		a.mu.Unlock()
		go a.ask(running)
	} else {
		a.mu.Unlock()
	}
	select {
	case <-running:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *addresses) ask(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(a.ctx, lookUpTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, a.client)
	if err == nil {
		a.learn(resp.Brokers)
	} else {
		err = fmt.Errorf("ask who the brokers are: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asking, a.err = nil, err
}

// words is a broker's text with the physical name of a topic replaced by the one that the client knows.
func words(text *string, physical, virtual string) *string {
	if text == nil || physical == "" || physical == virtual {
		return text
	}
	t := strings.ReplaceAll(*text, physical, virtual)
	return &t
}

// nodesOf shows real brokers as virtual nodes. A broker that clients do not know, or that shares its node with one before
// it, is left out.
func (r *Route) nodesOf(brokers []int32) []int32 {
	if brokers == nil {
		return nil
	}
	out := make([]int32, 0, len(brokers))
	for _, b := range brokers {
		if n := r.nodeOf(b); n >= 0 && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// brokersBehind are the real brokers of virtual nodes; −1, which the cluster refuses, for one that there is not.
func (r *Route) brokersBehind(nodes []int32) []int32 {
	if nodes == nil {
		return nil
	}
	out := make([]int32, 0, len(nodes))
	for _, n := range nodes {
		if int(n) >= r.nodes() {
			n = -1
		}
		out = append(out, r.brokerBehind(n))
	}
	return out
}
