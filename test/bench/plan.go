package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/switchback-proxy/switchback/test/bench/load"
)

// Scenario is one kind of work.
type Scenario struct {
	Work       load.Work
	Record     int // bytes of a value
	Partitions int
	Clients    int
	Batch      int    `json:",omitempty"` // records in a batch; 0: see batchRecords
	Load       string `json:",omitempty"` // of Latency: low or high
}

// The loads of Latency.
const (
	lowLoad  = "low"
	highLoad = "70 %"
)

func (s Scenario) String() string {
	record := fmt.Sprintf("%d B", s.Record)
	if s.Record%1024 == 0 {
		record = fmt.Sprintf("%d KB", s.Record/1024)
	}
	clients := fmt.Sprintf("%d clients", s.Clients)
	if s.Clients == 1 {
		clients = "1 client"
	}
	name := fmt.Sprintf("%s %s, %d partitions, %s", s.Work, record, s.Partitions, clients)
	if s.Batch != 0 {
		name += fmt.Sprintf(", %d KB batches", s.Batch*s.Record>>10)
	}
	if s.Load != "" {
		name += ", " + s.Load + " load"
	}
	return name
}

// topic is where a scenario's records are. Readers share one that is filled once; writers have one that forgets.
func (s Scenario) topic() string {
	return fmt.Sprintf("bench.%s.%d.%d", s.Work, s.Record, s.Partitions)
}

// Phase is a state of the product under which variants are measured in turns.
type Phase string

const (
	Before    Phase = "before a cutover"
	BeforeTLS Phase = "before a cutover, TLS"
	After     Phase = "after a cutover"
	AfterTLS  Phase = "after a cutover, TLS"
)

func phases() []Phase { return []Phase{Before, BeforeTLS, After, AfterTLS} }

func (p Phase) tls() bool   { return p == BeforeTLS || p == AfterTLS }
func (p Phase) after() bool { return p == After || p == AfterTLS }

// Variant is what stands between client and brokers.
type Variant string

const (
	Direct     Variant = "direct"
	SpliceOnly Variant = "relay, splice"
	CopyOnly   Variant = "relay, copy"
	TLSOnly    Variant = "relay, TLS"
	Product    Variant = "switchback"
)

// variants are measured in this order, round after round.
func (p Phase) variants() []Variant {
	switch {
	case p.tls():
		return []Variant{SpliceOnly, TLSOnly, Product}
	case p.after():
		return []Variant{Direct, SpliceOnly, Product}
	}
	return []Variant{Direct, SpliceOnly, CopyOnly, Product}
}

// limit is the relay that ratios are taken to: the least that does what the product must do in this phase.
func (p Phase) limit() Variant {
	if p.tls() {
		return TLSOnly
	}
	return SpliceOnly
}

// Plan is what a run does.
type Plan struct {
	Name        string
	Rounds      int
	MicroRounds int
	Warmup      time.Duration
	Window      time.Duration
	// LatencyWindow is longer, since a high percentile needs many.
	LatencyWindow time.Duration
	FillBytes     int64 // of each topic that is read
	Limit         time.Duration
	// Spare is what is left of Limit when the measuring ends at the latest; what does not fit in before is left out.
	Spare     time.Duration
	Scenarios map[Phase][]Scenario
}

// rounds is how often a scenario is measured. At low load what is added is small beside how much the rest differs from one moment to
// the next.
func (p *Plan) rounds(phase Phase, s Scenario) int {
	if s.Load == lowLoad && !phase.tls() {
		return 2 * p.Rounds
	}
	return p.Rounds
}

func planFor(name, only string) (*Plan, error) {
	var p *Plan
	switch name {
	case "", "default":
		p = defaultPlan()
	case "full":
		p = fullPlan()
	case "smoke":
		p = smokePlan()
	default:
		return nil, fmt.Errorf("BENCH=%s: want default, full or smoke", name)
	}
	for phase, all := range p.Scenarios {
		var chosen []Scenario
		for _, s := range all {
			if strings.Contains(s.String(), only) {
				chosen = append(chosen, s)
			}
		}
		p.Scenarios[phase] = chosen
	}
	return p, nil
}

func defaultPlan() *Plan {
	before := []Scenario{
		{Work: load.Consume, Record: 1024, Partitions: 6, Clients: 1},
		{Work: load.Consume, Record: 1024, Partitions: 6, Clients: 200},
		{Work: load.Consume, Record: 1024, Partitions: 600, Clients: 1},
		{Work: load.Consume, Record: 100, Partitions: 6, Clients: 1},
		{Work: load.Produce, Record: 1024, Partitions: 6, Clients: 1},
		{Work: load.Produce, Record: 1024, Partitions: 6, Clients: 200},
		{Work: load.Produce, Record: 1024, Partitions: 6, Clients: 1, Batch: largeBatch},
		{Work: load.Produce, Record: 100, Partitions: 6, Clients: 1},
		{Work: load.Latency, Record: 1024, Partitions: 6, Clients: 1, Load: lowLoad},
		{Work: load.Latency, Record: 1024, Partitions: 6, Clients: 1, Load: highLoad},
	}
	after := []Scenario{before[0], before[1], before[3], before[4], before[8], before[9]}
	return &Plan{
		Name: "default", Rounds: 3, MicroRounds: 2, Warmup: 300 * time.Millisecond, Window: 1800 * time.Millisecond, LatencyWindow: 2500 * time.Millisecond,
		FillBytes: 400 << 20, Limit: 14*time.Minute + 30*time.Second, Spare: 20 * time.Second,
		Scenarios: map[Phase][]Scenario{Before: before, BeforeTLS: {before[0], before[4], before[8]}, After: after},
	}
}

func fullPlan() *Plan {
	var all []Scenario
	for _, work := range []load.Work{load.Consume, load.Produce} {
		for _, record := range []int{1024, 100} {
			for _, partitions := range []int{6, 600} {
				for _, clients := range []int{1, 200} {
					all = append(all, Scenario{Work: work, Record: record, Partitions: partitions, Clients: clients})
				}
			}
		}
	}
	all = append(all, Scenario{Work: load.Produce, Record: 1024, Partitions: 6, Clients: 1, Batch: largeBatch})
	for _, record := range []int{1024, 100} {
		for _, level := range []string{lowLoad, highLoad} {
			all = append(all, Scenario{Work: load.Latency, Record: record, Partitions: 6, Clients: 1, Load: level})
		}
	}
	p := &Plan{
		Name: "full", Rounds: 5, MicroRounds: 5, Warmup: time.Second, Window: 5 * time.Second, LatencyWindow: 10 * time.Second, FillBytes: 1 << 30,
		Limit: 4 * time.Hour, Spare: time.Minute, Scenarios: map[Phase][]Scenario{},
	}
	for _, phase := range phases() {
		p.Scenarios[phase] = all
	}
	return p
}

func smokePlan() *Plan {
	p := defaultPlan()
	p.Name, p.Rounds, p.MicroRounds = "smoke", 2, 1
	p.Warmup, p.Window, p.LatencyWindow = 100*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	p.FillBytes, p.Limit = 8<<20, 8*time.Minute
	return p
}

// measuring is how long all windows of the plan last, with the start of each load.
func (p *Plan) measuring() time.Duration {
	const start = 350 * time.Millisecond
	total := time.Duration(0)
	for phase, scenarios := range p.Scenarios {
		for _, s := range scenarios {
			each := start + p.Warmup + p.Window
			if s.Work == load.Latency {
				each = start + p.Warmup + p.LatencyWindow
			}
			total += each * time.Duration(p.rounds(phase, s)*len(phase.variants()))
		}
	}
	return total
}

// batchRecords is how many records of a size a client puts into a batch: 16 is what fills the default of 16 KB with 1 KB records,
// and with 100 B makes small batches, as come from many slow producers. At low load there is one.
func (s Scenario) batchRecords() int {
	switch {
	case s.Batch != 0:
		return s.Batch
	case s.Load == lowLoad:
		return 1
	}
	return 16
}

// largeBatch is what producers with a raised batch.size send, in records of 1 KB.
const largeBatch = 128

// lowRate is that of low load, in records a second.
const lowRate = 400
