// Command franz is an ordinary application on franz-go that writes down what it sent and read, in the log format of
// internal/check.
//
// Arguments are key=value: mode (producer, group, assign), bootstrap, name, topics (comma), log; for producers partitions, rate
// (records a second), count (0: until told to stop), size (bytes); for group also group, commit_ms (one member per process); for
// readers isolation. SIGTERM ends it in order: a producer flushes, readers commit and close.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/check"
)

// run is how many records in a row go to one partition, as a sticky partitioner does it; the same in all clients.
const run = 8

type application struct {
	options map[string]string
	name    string
	topics  []string
	log     *check.Log
}

func main() {
	a := &application{options: make(map[string]string)}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		a.options[key] = value
	}
	a.name = a.options["name"]
	a.topics = strings.Split(a.options["topics"], ",")
	file, err := os.OpenFile(a.options["log"], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	a.log = check.NewLog(file)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	flushed := make(chan struct{})
	done := make(chan struct{})
	go a.flushLog(done, flushed)
	if err := a.run(ctx); err != nil {
		a.log.Write(check.Event{Kind: check.Error, Millis: check.Now(), Client: a.name, Text: err.Error()})
	}
	a.log.Write(check.Event{Kind: check.Stopped, Millis: check.Now(), Client: a.name})
	close(done)
	<-flushed
	if err := a.log.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (a *application) flushLog(done, flushed chan struct{}) {
	defer close(flushed)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			a.log.Flush() // the error comes again at the last Flush
		}
	}
}

func (a *application) run(ctx context.Context) error {
	switch a.options["mode"] {
	case "producer":
		return a.produce(ctx)
	case "group":
		return a.consumeInGroup(ctx)
	case "assign":
		return a.consumeAssigned(ctx)
	}
	return fmt.Errorf("unknown mode %q", a.options["mode"])
}

func (a *application) number(name string, fallback int) int {
	n, err := strconv.Atoi(a.options[name])
	if err != nil {
		return fallback
	}
	return n
}

func (a *application) common() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(a.options["bootstrap"], ",")...),
		kgo.ClientID(a.name),
		kgo.MetadataMaxAge(5 * time.Second),
		// Else a connection that is cut before its first answer counts as a missing SASL set-up, and its records fail for good.
		kgo.AlwaysRetryEOF(),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	if a.options["isolation"] != "read_uncommitted" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return opts
}

func (a *application) produce(ctx context.Context) error {
	client, err := kgo.NewClient(append(a.common(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20*time.Millisecond),
		kgo.RecordDeliveryTimeout(5*time.Minute))...)
	if err != nil {
		return err
	}
	defer client.Close()
	partitions, count := a.number("partitions", 1), int64(a.number("count", 0))
	interval := time.Second / time.Duration(a.number("rate", 500))
	start := time.Now()
	for seq := int64(0); count == 0 || seq < count; seq++ {
		timer := time.NewTimer(time.Until(start.Add(time.Duration(seq) * interval)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			break
		}
		slot := int(seq / run % int64(partitions*len(a.topics)))
		a.send(client, seq, a.topics[slot/partitions], int32(slot%partitions))
	}
	a.log.Write(check.Event{Kind: check.Stopping, Millis: check.Now(), Client: a.name})
	return client.Flush(context.Background())
}

func (a *application) send(client *kgo.Client, seq int64, topic string, partition int32) {
	identity := check.Identity(a.name, seq)
	value := identity
	if padding := a.number("size", 100) - len(identity) - 1; padding > 0 {
		value += " " + strings.Repeat("x", padding)
	}
	event := check.Event{Kind: check.Sent, Millis: check.Now(), Client: a.name, Producer: a.name, Seq: seq, Topic: topic, Partition: partition}
	a.log.Write(event)
	record := &kgo.Record{Topic: topic, Partition: partition, Key: []byte(identity), Value: []byte(value)}
	client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
		event.Millis = check.Now()
		event.Kind, event.Partition, event.Offset = check.Acked, r.Partition, r.Offset
		if err != nil {
			event.Kind, event.Partition, event.Text = check.Failed, partition, err.Error()
		}
		a.log.Write(event)
	})
}

func (a *application) consumeAssigned(ctx context.Context) error {
	client, err := kgo.NewClient(append(a.common(), kgo.ConsumeTopics(a.topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for ctx.Err() == nil {
		a.logFetches(client.PollFetches(ctx), check.NoGroup)
	}
	a.log.Write(check.Event{Kind: check.Stopping, Millis: check.Now(), Client: a.name})
	return nil
}

func (a *application) consumeInGroup(ctx context.Context) error {
	group := a.options["group"]
	rebalanced := func(kind check.Kind) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			count := 0
			for _, partitions := range topics {
				count += len(partitions)
			}
			a.log.Write(check.Event{Kind: kind, Millis: check.Now(), Client: a.name, Group: group, Count: count})
		}
	}
	client, err := kgo.NewClient(append(a.common(), kgo.ConsumeTopics(a.topics...), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(rebalanced(check.Assigned)), kgo.OnPartitionsRevoked(rebalanced(check.Revoked)),
		kgo.OnPartitionsLost(rebalanced(check.Lost)))...)
	if err != nil {
		return err
	}
	commitEvery := time.Duration(a.number("commit_ms", 200)) * time.Millisecond
	committed := time.Now()
	for ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		a.logFetches(client.PollFetches(poll), group)
		cancel()
		if time.Since(committed) >= commitEvery {
			a.commit(client, group)
			committed = time.Now()
		}
		client.AllowRebalance()
	}
	a.log.Write(check.Event{Kind: check.Stopping, Millis: check.Now(), Client: a.name})
	a.commit(client, group)
	client.CloseAllowingRebalance()
	return nil
}

func (a *application) commit(client *kgo.Client, group string) {
	offsets := client.UncommittedOffsets()
	if len(offsets) == 0 {
		return
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		a.log.Write(check.Event{Kind: check.Error, Millis: check.Now(), Client: a.name, Text: "commit: " + err.Error()})
		return
	}
	for topic, partitions := range offsets {
		for partition, offset := range partitions {
			a.log.Write(check.Event{Kind: check.Committed, Millis: check.Now(), Client: a.name, Group: group,
				Topic: topic, Partition: partition, Offset: offset.Offset})
		}
	}
}

func (a *application) logFetches(fetches kgo.Fetches, group string) {
	fetches.EachError(func(topic string, partition int32, err error) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrClientClosed) {
			return
		}
		a.log.Write(check.Event{Kind: check.Error, Millis: check.Now(), Client: a.name, Text: fmt.Sprintf("fetch %s-%d: %v", topic, partition, err)})
	})
	now := check.Now()
	fetches.EachRecord(func(r *kgo.Record) {
		producer, seq, err := check.ParseIdentity(r.Value)
		if err != nil {
			a.log.Write(check.Event{Kind: check.Error, Millis: now, Client: a.name, Text: fmt.Sprintf("%s-%d %d: %v", r.Topic, r.Partition, r.Offset, err)})
			return
		}
		a.log.Write(check.Event{Kind: check.Read, Millis: now, Client: a.name, Group: group, Topic: r.Topic, Partition: r.Partition,
			Offset: r.Offset, Producer: producer, Seq: seq})
	})
}
