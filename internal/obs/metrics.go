package obs

import (
	"net/http"
	"runtime"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Build says what is running.
type Build struct{ Version, Commit string }

// Metrics holds every metric of a process, in a registry of its own. A nil *Metrics does nothing.
type Metrics struct {
	registry *prometheus.Registry
	pump     pumpMetrics
	flows    *flowCollector
	proxy    proxyMetrics
	cutover  cutoverMetrics

	reachable *prometheus.GaugeVec // cluster
}

type pumpMetrics struct {
	records, bytes, lost *prometheus.CounterVec // flow
}

type proxyMetrics struct {
	sessions, held *prometheus.GaugeVec   // virtual cluster
	closes         *prometheus.CounterVec // virtual cluster, reason
	calls          *prometheus.CounterVec // virtual cluster, api
	bytes          *prometheus.CounterVec // virtual cluster, direction
	duplicates     *prometheus.CounterVec // virtual cluster
	latency        *prometheus.HistogramVec

	mu     sync.Mutex // guards the map below
	byName map[string]*ProxyMetrics
}

type cutoverMetrics struct {
	phase             *prometheus.GaugeVec // virtual cluster, phase
	active            *prometheus.GaugeVec // virtual cluster, cluster
	pause, generation *prometheus.GaugeVec // virtual cluster
	cutovers          *prometheus.CounterVec
}

// NewMetrics registers everything, and what the Go runtime and the process tell of themselves.
func NewMetrics(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.addPump()
	m.addProxy()
	m.addCutover()
	m.reachable = m.gauge(MetricReachable, "1 if the cluster answered when it was asked last, else 0.", labelCluster)
	m.gauge(MetricBuildInfo, "Always 1; the labels say what is running.", "version", "commit", "go_version").
		WithLabelValues(b.Version, b.Commit, runtime.Version()).Set(1)
	return m
}

// Handler serves the metrics to Prometheus; on a nil receiver it serves none.
func (m *Metrics) Handler() http.Handler {
	if m == nil {
		return promhttp.HandlerFor(prometheus.NewRegistry(), promhttp.HandlerOpts{})
	}
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// SetReachable tells whether a cluster answers.
func (m *Metrics) SetReachable(cluster string, yes bool) {
	switch {
	case m == nil:
	case yes:
		m.reachable.WithLabelValues(cluster).Set(1)
	default:
		m.reachable.WithLabelValues(cluster).Set(0)
	}
}

// Gatherer gives the present values, for tests and for status.
func (m *Metrics) Gatherer() prometheus.Gatherer {
	if m == nil {
		return prometheus.NewRegistry()
	}
	return m.registry
}

func (m *Metrics) addPump() {
	m.flows = newFlowCollector()
	m.registry.MustRegister(m.flows)
	p := &m.pump
	p.records = m.counter(MetricCopiedRecords, "Records that landed on the target.", labelFlow)
	p.bytes = m.counter(MetricCopiedBytes, "Bytes of batches that landed on the target, as compressed.", labelFlow)
	p.lost = m.counter(MetricLostRecords, "Offsets that the source's retention removed before we copied them, as far as on_lost_range: skip went on.", labelFlow)
}

func (m *Metrics) addProxy() {
	p := &m.proxy
	p.byName = make(map[string]*ProxyMetrics)
	p.sessions = m.gauge(MetricSessions, "Client connections.", labelVirtualCluster)
	p.held = m.gauge(MetricHeldCalls, "Calls that wait at the gate.", labelVirtualCluster)
	p.closes = m.counter(MetricSessionCloses, "Client connections that ended.", labelVirtualCluster, labelReason)
	p.calls = m.counter(MetricCalls, "Calls of clients.", labelVirtualCluster, labelAPI)
	p.bytes = m.counter(MetricClientBytes, "Bytes from (in) and to (out) clients.", labelVirtualCluster, labelDirection)
	p.duplicates = m.counter(MetricDuplicates, "Produce batches that were on the active cluster already and were answered, not written.", labelVirtualCluster)
	p.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    MetricAddedLatency,
		Help:    "Time that a call spent in the proxy, without waiting for the broker or at the gate.",
		Buckets: []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1},
	}, []string{labelVirtualCluster})
	m.registry.MustRegister(p.latency)
}

func (m *Metrics) addCutover() {
	c := &m.cutover
	c.phase = m.gauge(MetricCutoverPhase, "1 for the phase that the running or last cutover is in, else 0.", labelVirtualCluster, labelPhase)
	c.active = m.gauge(MetricActive, "1 for the active cluster, 0 for the standby.", labelVirtualCluster, labelCluster)
	c.pause = m.gauge(MetricCutoverPause, "Longest time that a call stood at the gate in the last cutover.", labelVirtualCluster)
	c.generation = m.gauge(MetricGeneration, "Generation of the route in use.", labelVirtualCluster)
	c.cutovers = m.counter(MetricCutovers, "Cutovers that ended.", labelVirtualCluster, labelMode, labelResult)
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func partitionLabel(partition int32) string { return strconv.FormatInt(int64(partition), 10) }
