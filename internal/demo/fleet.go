package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/check"
)

// rate is how many records a second each producer writes.
const rate = 300

// fleet is the live clients: ordinary franz-go applications that know one bootstrap address.
type fleet struct {
	bootstrap                   string
	producers, members, readers int
	checker                     *check.Checker
	counts                      counts

	clients        []*kgo.Client // producers first
	stopProducing  context.CancelFunc
	stopReading    context.CancelFunc
	produce, read  sync.WaitGroup
	assigned       atomic.Int64 // partitions held by the group's members
	rebalancedAt   atomic.Int64 // Unix ms; the last time that a member was given or lost any
	readersStarted atomic.Int64
}

// counts is what the board shows.
type counts struct{ acked, read, errors atomic.Int64 }

func newFleet(bootstrap string, clients int) *fleet {
	f := &fleet{bootstrap: bootstrap}
	f.producers = max(1, clients/3)
	f.readers = max(1, clients/6)
	f.members = clients - f.producers - f.readers
	readers := []check.Reader{{Name: group, Topics: []string{topic}}}
	for i := range f.readers {
		readers = append(readers, check.Reader{Name: readerName(i), Topics: []string{topic}})
	}
	f.checker = check.New(check.Config{Readers: readers})
	return f
}

func readerName(i int) string { return fmt.Sprintf("reader-%d", i+1) }

// start starts every client. Call finish, then close.
func (f *fleet) start(ctx context.Context) error {
	producing, stopProducing := context.WithCancel(ctx)
	reading, stopReading := context.WithCancel(ctx)
	f.stopProducing, f.stopReading = stopProducing, stopReading
	for i := range f.producers {
		name := fmt.Sprintf("producer-%d", i+1)
		client, err := f.client(name, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic))
		if err != nil {
			return err
		}
		f.produce.Go(func() { f.runProducer(producing, client, name) })
	}
	for i := range f.members {
		name := fmt.Sprintf("%s-%d", group, i+1)
		client, err := f.client(name, append(f.groupOptions(name), kgo.ConsumeTopics(topic))...)
		if err != nil {
			return err
		}
		f.read.Go(func() { f.runMember(reading, client, name) })
	}
	for i := range f.readers {
		name := readerName(i)
		client, err := f.client(name, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err != nil {
			return err
		}
		f.read.Go(func() { f.runReader(reading, client, name) })
	}
	return nil
}

func (f *fleet) client(name string, opts ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(f.bootstrap), kgo.ClientID(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err == nil {
		f.clients = append(f.clients, client)
	}
	return client, err
}

func (f *fleet) groupOptions(name string) []kgo.Opt {
	on := func(kind check.Kind, sign int64) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			n := len(topics[topic])
			f.assigned.Add(sign * int64(n))
			f.rebalancedAt.Store(check.Now())
			f.checker.Add(check.Event{Kind: kind, Millis: check.Now(), Client: name, Group: group, Count: n})
		}
	}
	return []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.OnPartitionsAssigned(on(check.Assigned, 1)), kgo.OnPartitionsRevoked(on(check.Revoked, -1)), kgo.OnPartitionsLost(on(check.Lost, -1)),
	}
}

func (f *fleet) runProducer(ctx context.Context, client *kgo.Client, name string) {
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for seq := int64(0); ctx.Err() == nil; seq++ {
		identity := check.Identity(name, seq)
		e := check.Event{Kind: check.Sent, Millis: check.Now(), Client: name, Producer: name, Seq: seq, Topic: topic, Partition: int32(seq % partitions)}
		f.checker.Add(e)
		client.Produce(context.WithoutCancel(ctx), &kgo.Record{Partition: e.Partition, Key: []byte(identity), Value: []byte(identity)}, func(r *kgo.Record, err error) {
			e := e
			e.Millis, e.Kind, e.Offset = check.Now(), check.Acked, r.Offset
			if err != nil {
				e.Kind, e.Text = check.Failed, err.Error()
				f.counts.errors.Add(1)
			} else {
				f.counts.acked.Add(1)
			}
			f.checker.Add(e)
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	f.checker.Add(check.Event{Kind: check.Stopping, Millis: check.Now(), Client: name})
	if err := client.Flush(context.WithoutCancel(ctx)); err != nil {
		f.fail(name, err)
	}
	f.checker.Add(check.Event{Kind: check.Stopped, Millis: check.Now(), Client: name})
}

// runMember reads as a member of the group and commits by hand what it has read.
func (f *fleet) runMember(ctx context.Context, client *kgo.Client, name string) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		f.digest(fetches, name, group)
		if err := client.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
			f.fail(name, err)
		}
		client.AllowRebalance()
	}
	f.stopped(name, client.CloseAllowingRebalance)
}

func (f *fleet) runReader(ctx context.Context, client *kgo.Client, name string) {
	for ctx.Err() == nil {
		f.digest(client.PollFetches(ctx), name, check.NoGroup)
		f.readersStarted.Store(1)
	}
	f.stopped(name, client.Close)
}

func (f *fleet) stopped(name string, end func()) {
	f.checker.Add(check.Event{Kind: check.Stopping, Millis: check.Now(), Client: name})
	end()
	f.checker.Add(check.Event{Kind: check.Stopped, Millis: check.Now(), Client: name})
}

func (f *fleet) digest(fetches kgo.Fetches, name, group string) {
	fetches.EachError(func(t string, p int32, err error) {
		if !errors.Is(err, context.Canceled) && !errors.Is(err, kgo.ErrClientClosed) {
			f.fail(name, fmt.Errorf("fetch %s-%d: %w", t, p, err))
		}
	})
	now := check.Now()
	fetches.EachRecord(func(r *kgo.Record) {
		producer, seq, err := check.ParseIdentity(r.Value)
		if err != nil {
			f.fail(name, err)
			return
		}
		f.counts.read.Add(1)
		f.checker.Add(check.Event{Kind: check.Read, Millis: now, Client: name, Group: group, Topic: r.Topic, Partition: r.Partition,
			Offset: r.Offset, Producer: producer, Seq: seq})
	})
}

func (f *fleet) fail(name string, err error) {
	f.counts.errors.Add(1)
	f.checker.Add(check.Event{Kind: check.Error, Millis: check.Now(), Client: name, Text: err.Error()})
}

// settled is how long a group must have had its partitions to count as one that will not rebalance by itself.
const settled = 1500 // ms

// waitReading returns once the group has its partitions for good and somebody reads.
func (f *fleet) waitReading(ctx context.Context) error {
	return poll(ctx, "the clients did not begin to read", func() bool {
		return f.assigned.Load() == partitions && check.Now()-f.rebalancedAt.Load() > settled && f.readersStarted.Load() > 0 && f.counts.acked.Load() > 0
	})
}

// finish stops the producers, waits until every reader has read what was acked, and stops them.
func (f *fleet) finish(ctx context.Context) error {
	f.stopProducing()
	f.produce.Wait()
	want := (f.counts.acked.Load() + historyRecords) * int64(1+f.readers)
	err := poll(ctx, "readers did not read all that was acked", func() bool { return f.counts.read.Load() >= want })
	if err != nil && ctx.Err() != nil {
		return err
	}
	f.stopReading()
	f.read.Wait()
	return nil
}

// close ends what is still running.
func (f *fleet) close() {
	f.stopProducing()
	f.stopReading()
	for _, client := range f.clients {
		client.Close()
	}
	f.produce.Wait()
	f.read.Wait()
}

// poll waits until ok, for at most 15 s.
func poll(ctx context.Context, otherwise string, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 15*time.Second, errors.New(otherwise+" within 15 s"))
	defer cancel()
	for !ok() {
		if err := wait(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
