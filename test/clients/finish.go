package clients

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/test/proc"
)

const stopSignal = syscall.SIGTERM

// MarkStart begins the window in which rebalances and pauses count; MarkEnd ends it, Finish does so if nobody did.
func (r *Run) MarkStart() { r.mark(check.MarkStart) }

// MarkEnd ends the window.
func (r *Run) MarkEnd() { r.mark(check.MarkEnd) }

func (r *Run) mark(text string) {
	r.marks++
	r.given = append(r.given, check.Event{Kind: check.Mark, Millis: check.Now(), Text: text})
}

// Known tells the checker of records that were in the log before the clients came: as sent and acked at the place where they lie.
// They are judged like all others.
func (r *Run) Known(records []*kgo.Record) {
	r.t.Helper()
	producers := make(map[string]bool)
	for _, record := range records {
		producer, seq, err := check.ParseIdentity(record.Value)
		if err != nil {
			r.t.Fatalf("%s-%d offset %d: %v", record.Topic, record.Partition, record.Offset, err)
		}
		e := check.Event{Kind: check.Sent, Client: producer, Producer: producer, Seq: seq, Topic: record.Topic, Partition: record.Partition}
		r.given = append(r.given, e)
		e.Kind, e.Offset = check.Acked, record.Offset
		r.given = append(r.given, e)
		producers[producer] = true
	}
	for producer := range producers {
		r.given = append(r.given, check.Event{Kind: check.Stopped, Client: producer})
	}
}

// Errors sums what all clients have logged so far as failed or error.
func (r *Run) Errors() int {
	r.t.Helper()
	total := 0
	for _, c := range r.all() {
		total += c.Errors(r.t)
	}
	return total
}

func (r *Run) all() []*Client {
	return append(append([]*Client(nil), r.producers...), append(r.readers, r.stopped...)...)
}

// StopReader ends one reader; it stays part of the judgement.
func (r *Run) StopReader(c *Client) {
	r.t.Helper()
	c.Stop(r.t)
	for i, other := range r.readers {
		if other == c {
			r.readers = append(r.readers[:i:i], r.readers[i+1:]...)
		}
	}
	r.stopped = append(r.stopped, c)
}

// StopProducers ends the producers in order and returns how many records were acked to them in all.
func (r *Run) StopProducers() (acked int) {
	r.t.Helper()
	for _, p := range r.producers {
		p.signal(r.t)
	}
	for _, p := range r.producers {
		p.join(r.t)
		acked += p.Count(r.t, check.Acked)
	}
	return acked
}

// Finish ends the producers, waits until every reader that still runs has read every acked record and more come no longer, ends
// the readers and judges. The window ends before the first reader is told to stop.
func (r *Run) Finish(config check.Config) check.Report {
	r.t.Helper()
	if r.marks < 2 {
		r.MarkEnd() // pauses and rebalances of the stop are nobody's fault
	}
	r.StopProducers()
	r.settle(config)
	for _, c := range r.readers {
		c.signal(r.t)
	}
	for _, c := range r.readers {
		c.join(r.t)
	}
	report := r.Judge(config)
	if err := os.WriteFile(filepath.Join(r.dir, "report.json"), report.JSON(), 0o644); err != nil {
		r.t.Error(err)
	}
	return report
}

// settleTime is how long a run must be quiet, with nothing lost any more, before the readers are stopped: what is read twice or
// too much late must still be seen.
const settleTime = 2 * time.Second

func (r *Run) settle(config check.Config) {
	r.t.Helper()
	deadline := time.Now().Add(stopTimeout)
	quietSince, reads := time.Now(), -1
	lost := int64(-1)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for range ticker.C {
		now := 0
		for _, c := range r.readers {
			now += c.Count(r.t, check.Read)
		}
		if now != reads {
			reads, quietSince, lost = now, time.Now(), -1
		}
		if time.Since(quietSince) >= settleTime {
			if lost < 0 {
				report := r.Judge(config)
				lost = report.LostRecords
			}
			if lost == 0 {
				return
			}
		}
		if time.Now().After(deadline) {
			r.t.Errorf("readers have not read everything %v after the producers stopped: %d lost", stopTimeout, lost)
			return
		}
	}
}

// Judge digests the logs as they are.
func (r *Run) Judge(config check.Config) check.Report {
	r.t.Helper()
	c := check.New(config)
	for _, e := range r.given {
		c.Add(e)
	}
	for _, client := range r.all() {
		for _, log := range client.logs {
			if err := c.AddFile(log.path); err != nil {
				r.t.Error(err)
			}
		}
	}
	return c.Report()
}

// Require fails the test if the report is not clean, and shows it in any case.
func (r *Run) Require(report check.Report) {
	r.t.Helper()
	r.t.Logf("checker:\n%s", report.String())
	if report.OK() {
		return
	}
	for _, c := range r.all() {
		for _, p := range c.procs {
			r.t.Logf("%s printed last:\n%s", c.Name, proc.Tail(p.Output(), 800))
			if why := proc.Lines(p.Output(), 20, "Request joining group due to", "Rebootstrapping"); len(why) > 0 {
				r.t.Logf("%s rejoined, in its own words:\n%s", c.Name, strings.Join(why, "\n"))
			}
		}
	}
	r.t.Errorf("the checker found faults; logs of the clients: %s", r.dir)
}

// Why tells what applications saw so far.
func (r *Run) Why() string {
	r.t.Helper()
	report := r.Judge(check.Config{})
	var b strings.Builder
	for _, text := range report.Examples["error"] {
		b.WriteString(text + "\n")
	}
	return b.String()
}
