package obs

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// PumpStates are the states of a pump; the value of MetricPumpState is the index.
func PumpStates() []string { return []string{"Probing", "Copying", "CaughtUp", "Sealed", "Stopped"} }

// PartitionMetrics are those of one pump. Its owner makes it once and calls Delete when the pump ends.
type PartitionMetrics struct {
	labels                                         []string // flow, topic, partition
	parent                                         *pumpMetrics
	lagRecords, lagSeconds, recordAge, value, gaps prometheus.Gauge

	mu      sync.Mutex // guards what follows
	state   string     // counted in MetricPumps; empty before the first SetState and after Delete
	deleted bool
}

// Partition resolves the series of one pump. flow is from.to, topic the virtual name.
func (m *Metrics) Partition(flow, topic string, partition int32) *PartitionMetrics {
	if m == nil {
		return nil
	}
	p, labels := &m.pump, []string{flow, topic, partitionLabel(partition)}
	return &PartitionMetrics{
		labels: labels, parent: p,
		lagRecords: p.lagRecords.WithLabelValues(labels...),
		lagSeconds: p.lagSeconds.WithLabelValues(labels...),
		recordAge:  p.recordAge.WithLabelValues(labels...),
		value:      p.state.WithLabelValues(labels...),
		gaps:       p.gaps.WithLabelValues(labels...),
	}
}

// SetLag tells how many records are to be copied yet, and how long the oldest of them has waited.
func (p *PartitionMetrics) SetLag(records int64, oldest time.Duration) {
	if p == nil {
		return
	}
	p.lagRecords.Set(float64(records))
	p.lagSeconds.Set(oldest.Seconds())
}

// SetRecordAge tells the age of the newest copied record at the moment it had landed.
func (p *PartitionMetrics) SetRecordAge(age time.Duration) {
	if p != nil {
		p.recordAge.Set(age.Seconds())
	}
}

// SetGaps tells the number of gaps in the map.
func (p *PartitionMetrics) SetGaps(n int) {
	if p != nil {
		p.gaps.Set(float64(n))
	}
}

// SetState takes one of PumpStates; another word is a fault of the caller and panics.
func (p *PartitionMetrics) SetState(state string) {
	if p == nil {
		return
	}
	index := slices.Index(PumpStates(), state)
	if index < 0 {
		panic("obs: no pump state is called " + state)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted || p.state == state {
		return
	}
	p.count(p.state, -1)
	p.count(state, 1)
	p.state = state
	p.value.Set(float64(index))
}

func (p *PartitionMetrics) count(state string, by float64) {
	if state != "" {
		p.parent.pumps.WithLabelValues(p.labels[0], state).Add(by)
	}
}

// Delete takes the series away, so that a partition that is no longer copied shows no stale lag. Further calls on p
// are without effect.
func (p *PartitionMetrics) Delete() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted {
		return
	}
	p.deleted = true
	p.count(p.state, -1)
	p.state = ""
	for _, vec := range []*prometheus.GaugeVec{p.parent.lagRecords, p.parent.lagSeconds, p.parent.recordAge, p.parent.state, p.parent.gaps} {
		vec.DeleteLabelValues(p.labels...)
	}
}

// FlowMetrics are those of one flow as a whole.
type FlowMetrics struct {
	flow                 string
	parent               *pumpMetrics
	records, bytes, lost prometheus.Counter
	journalBytes, slots  prometheus.Gauge
}

// Flow resolves the series of one flow, from.to.
func (m *Metrics) Flow(flow string) *FlowMetrics {
	if m == nil {
		return nil
	}
	p := &m.pump
	return &FlowMetrics{
		flow: flow, parent: p,
		records:      p.records.WithLabelValues(flow),
		bytes:        p.bytes.WithLabelValues(flow),
		lost:         p.lost.WithLabelValues(flow),
		journalBytes: p.journalBytes.WithLabelValues(flow),
		slots:        p.slots.WithLabelValues(flow),
	}
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

// SetJournalBytes tells the size of the journal topic.
func (f *FlowMetrics) SetJournalBytes(n int64) {
	if f != nil {
		f.journalBytes.Set(float64(n))
	}
}

// SetSlots tells how many slots this process owns.
func (f *FlowMetrics) SetSlots(n int) {
	if f != nil {
		f.slots.Set(float64(n))
	}
}

// SetCheckpointAge tells how old the group's offsets on the target are.
func (f *FlowMetrics) SetCheckpointAge(group string, age time.Duration) {
	if f != nil {
		f.parent.checkpointAge.WithLabelValues(f.flow, group).Set(age.Seconds())
	}
}

// DeleteGroup takes the group's series away.
func (f *FlowMetrics) DeleteGroup(group string) {
	if f != nil {
		f.parent.checkpointAge.DeleteLabelValues(f.flow, group)
	}
}
