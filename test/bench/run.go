package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/switchback-proxy/switchback/test/bench/load"
	"github.com/switchback-proxy/switchback/test/bench/relay"
	"github.com/switchback-proxy/switchback/test/cluster"
)

// bencher owns a whole run. All of it is one goroutine.
type bencher struct {
	h           *harness
	plan        *Plan
	report      *Report
	blue, green *cluster.Cluster
	product     *product
	topics      map[string]int            // partitions by topic
	high        map[Phase]map[int]float64 // batches a second of high load, by record size
	warmed      map[*cluster.Cluster]bool
}

// endpoint is where a variant's clients connect.
type endpoint struct {
	variant   Variant
	bootstrap string
	dial      map[string]string
	ca        string
	pid       int // of what stands between; 0: nothing
}

// runAll starts the brokers and measures phase by phase.
func runAll(ctx context.Context, o options, plan *Plan, report *Report) error {
	if o.keep != "" {
		if err := os.Setenv("SWITCHBACK_TEST_DIR", o.keep); err != nil {
			return err
		}
	}
	// For tests the brokers run with the light compiler alone; here they are to be as fast as they can.
	if err := os.Setenv("_JAVA_OPTIONS", "-XX:TieredStopAtLevel=4"); err != nil {
		return err
	}
	return within(os.Stderr, func(h *harness) error {
		b := &bencher{h: h, plan: plan, report: report, topics: make(map[string]int), high: make(map[Phase]map[int]float64), warmed: make(map[*cluster.Cluster]bool)}
		if err := b.prepare(ctx, o); err != nil {
			return err
		}
		if err := b.before(ctx); err != nil {
			return err
		}
		return b.after(ctx)
	})
}

func (b *bencher) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", b.report.elapsed().Seconds(), fmt.Sprintf(format, args...))
}

func (b *bencher) prepare(ctx context.Context, o options) error {
	b.progress("starting brokers")
	props := map[string]string{"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "1000"}
	wanted := []cluster.Options{{Name: "blue", Props: props, Heap: "768m"}}
	if o.product != "none" {
		wanted = append(wanted, cluster.Options{Name: "green", Props: props, Heap: "768m", FirstNode: 11})
	}
	clusters := cluster.StartAll(b.h, wanted...)
	b.blue, b.green = clusters[0], clusters[len(clusters)-1]
	if b.green != b.blue {
		// Copying runs in the product's process and would be counted with what passes through it. So while something is measured
		// the other cluster is down.
		b.green.KillAll()
	}
	var err error
	if b.product, err = newProduct(ctx, b.h, o.product, b.blue, b.green); err != nil {
		return err
	}
	for _, phase := range phases() {
		for _, s := range b.plan.Scenarios[phase] {
			if err := b.fill(ctx, s); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// fill makes the topic of a scenario on blue. Its first offset is not 0, so that numbers differ once it is copied.
func (b *bencher) fill(ctx context.Context, s Scenario) error {
	topic := s.topic()
	if b.topics[topic] != 0 {
		return nil
	}
	b.topics[topic] = s.Partitions
	b.progress("filling %s", topic)
	configs := map[string]string{"min.insync.replicas": "1"}
	bytes := b.plan.FillBytes
	if s.Record < 1024 {
		bytes /= 4 // small batches take long to write, and readers go round
	}
	bytes = max(bytes, int64(s.Partitions)*64<<10)
	if s.Work != load.Consume {
		bytes = int64(s.Partitions) * 64 << 10 // a few records to be copied, so that numbers differ on the other side
		keep := max(1<<20, int64(1<<30)/int64(s.Partitions))
		configs["retention.bytes"], configs["segment.bytes"] = fmt.Sprint(keep), fmt.Sprint(max(1<<20, keep/4))
		configs["file.delete.delay.ms"] = "1000"
	}
	b.blue.CreateTopic(b.h, cluster.Topic{Name: topic, Partitions: int32(s.Partitions), Replicas: 1, Configs: configs})
	b.blue.StartsAt(b.h, topic, map[int32]int64{0: 137, 1: 148, 2: 159})
	job := b.job(s, endpoint{bootstrap: b.blue.Addr(0)})
	job.Work, job.Bytes, job.Warmup, job.Window, job.Clients, job.BatchRecords = load.Produce, bytes, 0, 3*time.Minute, 1, 16
	// Leaders of a new topic are in the metadata before each of them has made its logs.
	for deadline := time.Now().Add(2 * time.Minute); ; pause(ctx, time.Second) {
		result, err := runLoad(ctx, job, nil)
		if err == nil && result.Bytes < bytes {
			return fmt.Errorf("fill %s: only %d of %d bytes within %v", topic, result.Bytes, bytes, job.Window)
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("fill %s: %w", topic, err)
		}
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (b *bencher) job(s Scenario, at endpoint) load.Job {
	window := b.plan.Window
	if s.Work == load.Latency {
		window = b.plan.LatencyWindow
	}
	return load.Job{
		Work: s.Work, Bootstrap: at.bootstrap, Dial: at.dial, CA: at.ca, Topic: s.topic(), Clients: s.Clients,
		RecordBytes: s.Record, BatchRecords: s.batchRecords(), Warmup: b.plan.Warmup, Window: window,
	}
}

// before measures on blue.
func (b *bencher) before(ctx context.Context) error {
	if b.product != nil && len(b.plan.Scenarios[Before]) > 0 {
		if err := b.launch(ctx, false); err != nil {
			return err
		}
		b.idleMemory(ctx)
	}
	if err := b.phase(ctx, Before, b.blue); err != nil || b.product == nil || len(b.plan.Scenarios[BeforeTLS]) == 0 {
		return err
	}
	if err := b.launch(ctx, true); err != nil {
		return err
	}
	return b.phase(ctx, BeforeTLS, b.blue)
}

// after moves to green and measures there.
func (b *bencher) after(ctx context.Context) error {
	if b.product == nil || len(b.plan.Scenarios[After])+len(b.plan.Scenarios[AfterTLS]) == 0 {
		return nil
	}
	if err := b.move(ctx); err != nil {
		return err
	}
	if err := b.launch(ctx, false); err != nil {
		return err
	}
	if err := b.phase(ctx, After, b.green); err != nil || len(b.plan.Scenarios[AfterTLS]) == 0 {
		return err
	}
	if err := b.launch(ctx, true); err != nil {
		return err
	}
	return b.phase(ctx, AfterTLS, b.green)
}

func (b *bencher) move(ctx context.Context) error {
	b.progress("copying blue to green")
	b.product.stop()
	for i := range b.green.Addrs() {
		b.green.RestartAsync(b.h, i)
	}
	b.green.WaitReady(b.h)
	moved := make(map[string]int) // only what is measured there
	for _, s := range append(slices.Clone(b.plan.Scenarios[After]), b.plan.Scenarios[AfterTLS]...) {
		moved[s.topic()] = s.Partitions
	}
	b.product.include = slices.Sorted(maps.Keys(moved))
	if err := b.product.start(ctx, false); err != nil {
		return err
	}
	if err := b.product.caughtUp(ctx, moved); err != nil {
		return err
	}
	b.progress("cutover")
	pause, err := b.product.cutover(ctx)
	if err != nil {
		return err
	}
	b.report.CutoverPauseMillis = pause.Milliseconds()
	b.progress("on green; clients would have waited %v", pause)
	b.product.stop()
	b.blue.KillAll()
	return nil
}

// launch starts the product for measuring.
func (b *bencher) launch(ctx context.Context, tls bool) error {
	b.progress("starting switchback")
	return b.product.start(ctx, tls)
}

// idleMemory waits until what the start had left behind is settled.
func (b *bencher) idleMemory(ctx context.Context) {
	pause(ctx, 3*time.Second)
	if m, err := memoryOf(b.product.process.Pid()); err == nil {
		b.report.IdleMB = float64(m.now) / 1e6
		b.progress("idle: %.1f MB", b.report.IdleMB)
	}
}

// phase measures all its scenarios, each in rounds, the variants in turns.
func (b *bencher) phase(ctx context.Context, phase Phase, active *cluster.Cluster) error {
	scenarios := b.plan.Scenarios[phase]
	if len(scenarios) == 0 {
		return nil
	}
	endpoints, stop, err := b.endpoints(phase, active)
	defer stop()
	if err != nil {
		return err
	}
	if err := b.warm(ctx, scenarios, active); err != nil {
		return err
	}
	for _, s := range scenarios {
		if !b.timeLeft(ctx) {
			b.report.Skipped = append(b.report.Skipped, fmt.Sprintf("%s: %s", phase, s))
			continue
		}
		if err := b.scenario(ctx, phase, s, endpoints); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// warm gives a cluster that has not been measured yet a little of the work to come, since a broker is slow until its code is
// compiled.
func (b *bencher) warm(ctx context.Context, scenarios []Scenario, active *cluster.Cluster) error {
	if b.warmed[active] {
		return nil
	}
	b.warmed[active] = true
	done := make(map[load.Work]bool)
	for _, s := range scenarios {
		if done[s.Work] {
			continue
		}
		done[s.Work] = true
		job := b.job(s, endpoint{bootstrap: active.Addr(0)})
		job.Rate = lowRate
		if _, err := runLoad(ctx, job, nil); err != nil {
			return fmt.Errorf("warm up with %s: %w", s, err)
		}
	}
	return nil
}

func (b *bencher) timeLeft(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) > b.plan.Spare
}

// endpoints are those of a phase; stop ends the relays, also after an error.
func (b *bencher) endpoints(phase Phase, active *cluster.Cluster) (endpoints []endpoint, stop func(), err error) {
	var relays []*child
	stop = func() {
		for _, r := range relays {
			if err := r.stop(); err != nil {
				b.progress("%v", err)
			}
		}
	}
	modes := map[Variant]relay.Mode{SpliceOnly: relay.Splice, CopyOnly: relay.Copy, TLSOnly: relay.TLS}
	for _, v := range phase.variants() {
		e := endpoint{variant: v, bootstrap: active.Addr(0)}
		switch {
		case v == Product && b.product == nil:
			continue
		case v == Product:
			e.bootstrap, e.pid = b.product.address(), b.product.process.Pid()
			if phase.tls() {
				e.ca = b.product.cert
			}
		case modes[v] != "":
			config := relay.Config{Mode: modes[v], Targets: active.Addrs()}
			if v == TLSOnly {
				config.Cert, config.Key, e.ca = b.product.cert, b.product.key, b.product.cert
			}
			c, err := startChild("relay", config)
			if err != nil {
				return nil, stop, err
			}
			relays = append(relays, c)
			var listening message
			if err := c.stdout.Decode(&listening); err != nil {
				return nil, stop, fmt.Errorf("relay: %w: %s", err, c.stderr)
			}
			e.pid, e.dial = c.pid(), make(map[string]string)
			for i, address := range active.Addrs() {
				e.dial[address] = listening.Addresses[i]
			}
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, stop, nil
}

func (b *bencher) scenario(ctx context.Context, phase Phase, s Scenario, endpoints []endpoint) error {
	if s.Load == highLoad {
		if err := b.calibrate(ctx, phase, s, endpoints); err != nil {
			return err
		}
	}
	b.progress("%s: %s", phase, s)
	for round := range b.plan.rounds(phase, s) {
		for _, e := range endpoints {
			sample, err := b.measure(ctx, phase, s, e)
			if err != nil && ctx.Err() == nil { // once more: a leader may have moved
				sample, err = b.measure(ctx, phase, s, e)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			sample.Round = round
			if err != nil {
				sample.Error = err.Error()
				b.progress("  %s: %v", e.variant, err)
			}
			b.report.add(phase, s, e.variant, sample)
		}
	}
	b.report.row(phase, s)
	return nil
}

// calibrate finds out how much goes through the splice relay when it is written and read at once, and sets high load to 70 % of
// that, the same for all variants of the phase.
func (b *bencher) calibrate(ctx context.Context, phase Phase, s Scenario, endpoints []endpoint) error {
	if b.high[phase] == nil {
		b.high[phase] = make(map[int]float64)
	}
	for _, e := range endpoints {
		if e.variant != SpliceOnly {
			continue
		}
		result, err := runLoad(ctx, b.job(s, e), nil)
		if err != nil {
			return fmt.Errorf("find the highest load: %w", err)
		}
		b.high[phase][s.Record] = 0.7 * float64(result.Batches) / result.Seconds
		b.progress("70 %% load is %.1f MB/s", 0.7*float64(result.Bytes)/result.Seconds/1e6)
		return nil
	}
	return errors.New("no relay to find the highest load with")
}

// measure runs the load once, and reads what the process in between used inside the window.
func (b *bencher) measure(ctx context.Context, phase Phase, s Scenario, e endpoint) (Sample, error) {
	job := b.job(s, e)
	switch s.Load {
	case lowLoad:
		job.Rate = lowRate
	case highLoad:
		job.Rate = b.high[phase][s.Record]
	}
	var used [2]time.Duration
	var peak memory
	var usageErr error
	result, err := runLoad(ctx, job, func(begin bool) {
		if e.pid == 0 {
			return
		}
		var err error
		if begin {
			usageErr = resetPeak(e.pid)
			used[0], err = cpuOf(e.pid)
		} else {
			used[1], err = cpuOf(e.pid)
			peak, _ = memoryOf(e.pid)
		}
		usageErr = errors.Join(usageErr, err)
	})
	if err = errors.Join(err, usageErr); err != nil {
		return Sample{}, err
	}
	if result.Bytes == 0 {
		return Sample{}, errors.New("no record bytes came through")
	}
	sample := Sample{MBps: float64(result.Bytes) / result.Seconds / 1e6, Latency: latencyOf(result.Micros)}
	if e.pid != 0 {
		sample.CPUSeconds = (used[1] - used[0]).Seconds()
		sample.Cores = sample.CPUSeconds / result.Seconds
		sample.CPUPerGB = sample.CPUSeconds / (float64(result.Bytes) / 1e9)
		sample.PeakMB = float64(peak.peak) / 1e6
	}
	return sample, nil
}
