package obs

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ProxyMetrics are those of one virtual cluster's proxy. All series but the closes are resolved when it is made.
type ProxyMetrics struct {
	virtualCluster string
	parent         *proxyMetrics
	calls          []prometheus.Counter // by API key; the last is for keys beyond those known
	in, out        prometheus.Counter
	duplicates     prometheus.Counter
	sessions, held prometheus.Gauge
	latency        prometheus.Observer
}

// Proxy returns the metrics of a virtual cluster, the same each time.
func (m *Metrics) Proxy(virtualCluster string) *ProxyMetrics {
	if m == nil {
		return nil
	}
	p := &m.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.byName[virtualCluster]; known != nil {
		return known
	}
	made := &ProxyMetrics{
		virtualCluster: virtualCluster, parent: p,
		in:         p.bytes.WithLabelValues(virtualCluster, "in"),
		out:        p.bytes.WithLabelValues(virtualCluster, "out"),
		duplicates: p.duplicates.WithLabelValues(virtualCluster),
		sessions:   p.sessions.WithLabelValues(virtualCluster),
		held:       p.held.WithLabelValues(virtualCluster),
		latency:    p.latency.WithLabelValues(virtualCluster),
	}
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		made.calls = append(made.calls, p.calls.WithLabelValues(virtualCluster, APIName(key)))
	}
	made.calls = append(made.calls, p.calls.WithLabelValues(virtualCluster, unknownAPI))
	p.byName[virtualCluster] = made
	return made
}

const unknownAPI = "Unknown"

// APIName is how logs and metrics call an API key.
func APIName(key int16) string {
	if key < 0 || key > kmsg.MaxKey {
		return unknownAPI
	}
	return kmsg.NameForKey(key)
}

// Calls is the counter of one API; any key may be asked for, also one that no Kafka has.
func (p *ProxyMetrics) Calls(key int16) prometheus.Counter {
	if p == nil {
		return noCounter{}
	}
	if last := len(p.calls) - 1; key < 0 || int(key) >= last {
		return p.calls[last]
	}
	return p.calls[key]
}

// BytesIn counts what clients sent.
func (p *ProxyMetrics) BytesIn(n int) {
	if p != nil {
		p.in.Add(float64(n))
	}
}

// BytesOut counts what clients were sent.
func (p *ProxyMetrics) BytesOut(n int) {
	if p != nil {
		p.out.Add(float64(n))
	}
}

// AddedLatency takes the time that one call spent in the proxy itself.
func (p *ProxyMetrics) AddedLatency(d time.Duration) {
	if p != nil {
		p.latency.Observe(d.Seconds())
	}
}

// Duplicate counts a produce batch that was answered from the producer states and not written.
func (p *ProxyMetrics) Duplicate() {
	if p != nil {
		p.duplicates.Inc()
	}
}

// SessionOpened counts a client connection in; SessionClosed must follow.
func (p *ProxyMetrics) SessionOpened() {
	if p != nil {
		p.sessions.Inc()
	}
}

// SessionClosed counts it out. reason is from the proxy's enum of reasons, never a free text.
func (p *ProxyMetrics) SessionClosed(reason string) {
	if p == nil {
		return
	}
	p.sessions.Dec()
	p.parent.closes.WithLabelValues(p.virtualCluster, reason).Inc()
}

// Refused counts a connection that was closed before it became a session.
func (p *ProxyMetrics) Refused(reason string) {
	if p != nil {
		p.parent.closes.WithLabelValues(p.virtualCluster, reason).Inc()
	}
}

// Held counts calls into (1) and out of (-1) the gate.
func (p *ProxyMetrics) Held(by int) {
	if p != nil {
		p.held.Add(float64(by))
	}
}

// BufferedBytes shows how many bytes of frames are held for clients; read is called when metrics are gathered. Once per
// process; a second one is not shown.
func (m *Metrics) BufferedBytes(read func() int64) {
	if m == nil {
		return
	}
	g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: MetricBuffered, Help: "Bytes of frames that are held for clients."},
		func() float64 { return float64(read()) })
	_ = m.registry.Register(g)
}

// noCounter counts nothing. It is of size zero, so that handing it out costs no memory.
type noCounter struct{ prometheus.Counter }

func (noCounter) Inc()        {}
func (noCounter) Add(float64) {}
