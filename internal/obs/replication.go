package obs

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PumpStates are the states of a pump; the value of MetricPumpState is the index.
func PumpStates() []string { return []string{"Probing", "Copying", "CaughtUp", "Sealed", "Stopped"} }

// FlowSample is what a flow shows of itself when metrics are gathered.
type FlowSample struct {
	Partitions []PartitionSample
	Groups     []GroupSample
	Slots      int   // that this process owns
	Journal    int64 // bytes of one replica of the journal topic; −1: not known
}

// PartitionSample is one pump. While it is not recovered nothing is known but its state.
type PartitionSample struct {
	Topic      string // virtual
	Partition  int32
	State      string // one of PumpStates
	Known      bool
	LagRecords int64
	Lag        time.Duration // how long the oldest record that is not copied has waited
	Gaps       int64
	Copied     bool          // a record was, since the pump began
	RecordAge  time.Duration // of the newest record copied, by its timestamp, when it was on the target
}

// GroupSample is the age of a group's offsets on the target.
type GroupSample struct {
	Group string
	Age   time.Duration
}

// flowCollector asks the flows that run at each scrape: what is kept between would be as old as the last round of a pump, and stay
// when the flow has ended.
type flowCollector struct {
	lagRecords, lagSeconds, recordAge, state, gaps *prometheus.Desc // flow, topic, partition
	checkpointAge                                  *prometheus.Desc // flow, group
	pumps                                          *prometheus.Desc // flow, state
	slots, journal                                 *prometheus.Desc // flow

	mu    sync.Mutex // guards flows; not held while one is asked
	flows map[string]*flowReader
}

type flowReader struct{ read func() FlowSample }

func newFlowCollector() *flowCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	partition := []string{labelFlow, labelTopic, labelPartition}
	return &flowCollector{
		lagRecords:    desc(MetricLagRecords, "Records of the source that are not on the target yet.", partition...),
		lagSeconds:    desc(MetricLagSeconds, "How long the oldest record that is not on the target yet has waited.", partition...),
		recordAge:     desc(MetricRecordAge, "Age of the newest copied record, by its timestamp, when it was on the target.", partition...),
		state:         desc(MetricPumpState, "State of the pump: 0 Probing, 1 Copying, 2 CaughtUp, 3 Sealed, 4 Stopped.", partition...),
		gaps:          desc(MetricGaps, "Gaps in the map of the target.", partition...),
		checkpointAge: desc(MetricCheckpointAge, "Time since the group's offsets were last known to be right on the target, or since it was found.", labelFlow, labelGroup),
		pumps:         desc(MetricPumps, "Pumps in each state.", labelFlow, labelState),
		slots:         desc(MetricSlotsOwned, "Slots that this process owns.", labelFlow),
		journal:       desc(MetricJournalBytes, "Size of the journal topic, of one replica.", labelFlow),
		flows:         make(map[string]*flowReader),
	}
}

// ShowFlow shows a flow, from.to, until hide is called. read may be called from any goroutine until then, and for a moment after.
func (m *Metrics) ShowFlow(flow string, read func() FlowSample) (hide func()) {
	if m == nil {
		return func() {}
	}
	c, r := m.flows, &flowReader{read}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flows[flow] = r
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.flows[flow] == r { // else its successor is shown
			delete(c.flows, flow)
		}
	}
}

// Describe is of prometheus.Collector.
func (c *flowCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.lagRecords, c.lagSeconds, c.recordAge, c.state, c.gaps, c.checkpointAge, c.pumps, c.slots, c.journal} {
		out <- d
	}
}

// Collect is of prometheus.Collector.
func (c *flowCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	flows := make(map[string]func() FlowSample, len(c.flows))
	for name, r := range c.flows {
		flows[name] = r.read
	}
	c.mu.Unlock()
	for name, read := range flows {
		c.collect(out, name, read())
	}
}

func (c *flowCollector) collect(out chan<- prometheus.Metric, flow string, s FlowSample) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, append([]string{flow}, labels...)...)
	}
	count := make([]int, len(PumpStates()))
	for _, p := range s.Partitions {
		n := partitionLabel(p.Partition)
		if i := slices.Index(PumpStates(), p.State); i >= 0 {
			count[i]++
			gauge(c.state, float64(i), p.Topic, n)
		}
		if p.Known {
			gauge(c.lagRecords, float64(p.LagRecords), p.Topic, n)
			gauge(c.lagSeconds, p.Lag.Seconds(), p.Topic, n)
			gauge(c.gaps, float64(p.Gaps), p.Topic, n)
		}
		if p.Copied {
			gauge(c.recordAge, p.RecordAge.Seconds(), p.Topic, n)
		}
	}
	for i, state := range PumpStates() {
		gauge(c.pumps, float64(count[i]), state)
	}
	for _, g := range s.Groups {
		gauge(c.checkpointAge, g.Age.Seconds(), g.Group)
	}
	gauge(c.slots, float64(s.Slots))
	if s.Journal >= 0 {
		gauge(c.journal, float64(s.Journal))
	}
}

// FlowMetrics count what a flow has done; they go on over its restarts.
type FlowMetrics struct {
	records, bytes, lost prometheus.Counter
}

// Flow resolves the counters of one flow, from.to.
func (m *Metrics) Flow(flow string) *FlowMetrics {
	if m == nil {
		return nil
	}
	p := &m.pump
	return &FlowMetrics{records: p.records.WithLabelValues(flow), bytes: p.bytes.WithLabelValues(flow), lost: p.lost.WithLabelValues(flow)}
}

// Copied counts what landed on the target.
func (f *FlowMetrics) Copied(records, bytes int) {
	if f == nil {
		return
	}
	f.records.Add(float64(records))
	f.bytes.Add(float64(bytes))
}

// Lost counts offsets that on_lost_range: skip gave up.
func (f *FlowMetrics) Lost(records int64) {
	if f != nil {
		f.lost.Add(float64(records))
	}
}
