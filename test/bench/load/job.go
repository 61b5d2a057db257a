package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Work is what a job does.
type Work string

const (
	Consume Work = "consume"
	Produce Work = "produce"
	// Latency sends batches at a rate and reads them back.
	Latency Work = "latency"
)

// Job says what to run. It travels as JSON.
type Job struct {
	Work      Work
	Bootstrap string
	// Dial maps addresses, as metadata gives them, to those that are dialled instead: how a relay gets in between unseen.
	Dial map[string]string
	// CA is a PEM file; if set, connections are TLS.
	CA    string
	Topic string
	// Clients share the partitions out; if there are more clients than partitions, several have the same one.
	Clients      int
	RecordBytes  int
	BatchRecords int
	// Rate is how many batches a second Latency sends, all partitions together; 0: as many as go through. Latency takes no more
	// clients than there are partitions.
	Rate   float64
	Warmup time.Duration
	Window time.Duration
	// Bytes ends a Produce job by amount; then Window is the most time it may take.
	Bytes int64
}

// Result is what was measured in the window.
type Result struct {
	Seconds float64
	Bytes   int64 // record batches as they lie on the wire
	Batches int64
	// Micros are the times from send to receipt, one per batch, of Latency jobs.
	Micros []int32 `json:",omitempty"`
}

// counts are shared by all clients of a run.
type counts struct {
	bytes, batches atomic.Int64
}

// run is one job while it runs.
type run struct {
	job    Job
	tls    *tls.Config
	counts counts

	mu      sync.Mutex // guards micros
	micros  []int32
	inside  atomic.Bool // the window is open
	stopped atomic.Bool
}

// Run does a job. begin, if not nil, is called as the window opens and end as it closes.
func Run(ctx context.Context, job Job, begin, end func()) (Result, error) {
	r := &run{job: job}
	if err := r.loadCA(); err != nil {
		return Result{}, err
	}
	if r.job.Clients <= 0 || r.job.Window <= 0 {
		return Result{}, fmt.Errorf("a job needs clients and a window, has %d and %v", job.Clients, job.Window)
	}
	layout, err := r.layout(ctx)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait, err := r.start(ctx, cancel, layout)
	if err != nil {
		return Result{}, err
	}
	result := r.measure(ctx, begin, end)
	r.stopped.Store(true)
	cause := context.Cause(ctx)
	cancel(nil)
	wait()
	return result, cause
}

func (r *run) loadCA() error {
	if r.job.CA == "" {
		return nil
	}
	pem, err := os.ReadFile(r.job.CA)
	if err != nil {
		return fmt.Errorf("read CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate", r.job.CA)
	}
	r.tls = &tls.Config{RootCAs: pool}
	return nil
}

// start opens all connections and runs a goroutine for each. The function it returns waits for them.
func (r *run) start(ctx context.Context, fail context.CancelCauseFunc, layout *layout) (wait func(), err error) {
	var workers []worker
	for client := range r.job.Clients {
		for leader, partitions := range layout.share(client, r.job.Clients) {
			made, err := r.workers(ctx, layout, client, leader, partitions)
			for _, w := range made {
				workers = append(workers, w)
				context.AfterFunc(ctx, w.close)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	var group sync.WaitGroup
	for _, w := range workers {
		group.Go(func() {
			if err := w.run(ctx); err != nil && !r.stopped.Load() {
				fail(err)
			}
		})
	}
	return group.Wait, nil
}

// worker owns one connection.
type worker interface {
	run(ctx context.Context) error
	close() // may be called at any time, from any goroutine
}

func (r *run) workers(ctx context.Context, l *layout, client int, leader int32, partitions []int32) ([]worker, error) {
	var made []worker
	if r.job.Work == Consume || r.job.Work == Latency {
		c, err := r.newConsumer(ctx, l, client, leader, partitions)
		if err != nil {
			return nil, err
		}
		made = append(made, c)
	}
	if r.job.Work == Produce || r.job.Work == Latency {
		p, err := r.newProducer(ctx, l, client, leader, partitions)
		if err != nil {
			return made, err
		}
		made = append(made, p)
	}
	return made, nil
}

func (r *run) measure(ctx context.Context, begin, end func()) Result {
	wait(ctx, r.job.Warmup)
	if begin != nil {
		begin()
	}
	r.inside.Store(true)
	started, bytes, batches := time.Now(), r.counts.bytes.Load(), r.counts.batches.Load()
	if r.job.Bytes > 0 {
		r.waitBytes(ctx, bytes)
	} else {
		wait(ctx, r.job.Window)
	}
	r.inside.Store(false)
	result := Result{
		Seconds: time.Since(started).Seconds(),
		Bytes:   r.counts.bytes.Load() - bytes, Batches: r.counts.batches.Load() - batches,
	}
	if end != nil {
		end()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Micros = slices.Clone(r.micros)
	return result
}

// waitBytes waits until the job's bytes are written, beyond those that were before.
func (r *run) waitBytes(ctx context.Context, before int64) {
	ctx, cancel := context.WithTimeout(ctx, r.job.Window)
	defer cancel()
	for r.counts.bytes.Load()-before < r.job.Bytes && ctx.Err() == nil {
		wait(ctx, 5*time.Millisecond)
	}
}

func (r *run) observe(micros []int32) {
	if len(micros) == 0 || !r.inside.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.micros = append(r.micros, micros...)
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
