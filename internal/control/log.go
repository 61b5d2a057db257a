package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
)

const topicName = "switchback.control"

// Config says where the log of one virtual cluster lies on one cluster.
type Config struct {
	Client         *kgo.Client // not ours to close
	Cluster        string
	VirtualCluster string
	// Names are all virtual clusters that have a partition in the topic. One that has records there keeps its partition;
	// the others take theirs by their place among the sorted names, or the first that is free.
	// If empty: Partition is taken as it is.
	Names             []string
	Partition         int32
	ReplicationFactor int16 // of the topic, if we create it; 0: min(3, brokers)
	// Reachable says why the cluster need not be asked at all: it is known to be down. If nil, it is always asked.
	Reachable func() error
	Log       zerolog.Logger
}

// Log is the control log of one virtual cluster on one cluster. Methods may be called from any goroutine.
type Log struct {
	cfg Config

	turn      chan struct{} // holds one token; who has it looks the topic up or creates it, and owns opened
	opened    bool
	partition int32 // written before opened is set, read after that

	halfway atomic.Bool // our last fence failed at a step: a newer marker than our writer's may be of that
}

// NewLog returns a log whose topic is looked up, and created if it is not there, at first use.
func NewLog(cfg Config) *Log {
	l := &Log{cfg: cfg, turn: make(chan struct{}, 1), partition: cfg.Partition}
	l.turn <- struct{}{}
	return l
}

// Open is NewLog for a cluster that must answer now.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	l := NewLog(cfg)
	return l, l.open(ctx)
}

func (l *Log) transactionalID() string { return "switchback.control." + l.cfg.VirtualCluster }

// open makes sure that the topic has our partition and that it has a leader.
func (l *Log) open(ctx context.Context) error {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.turn <- struct{}{} }()
	if err := l.reachable(); err != nil {
		return err
	}
	if l.opened {
		return nil
	}
	err := retry(ctx, func() error { return l.ensureTopic(ctx) })
	if err == nil && len(l.cfg.Names) > 0 {
		err = l.assign(ctx)
	}
	if err == nil {
		err = retry(ctx, func() error { _, err := l.leader(ctx); return err })
	}
	if err != nil {
		return fmt.Errorf("open the control topic on %s: %w", l.cfg.Cluster, err)
	}
	l.opened = true
	return nil
}

// reachable fails at once for a cluster that is known to be down.
func (l *Log) reachable() error {
	if l.cfg.Reachable == nil {
		return nil
	}
	if err := l.cfg.Reachable(); err != nil {
		return fmt.Errorf("%s cannot be reached: %w", l.cfg.Cluster, err)
	}
	return nil
}

func (l *Log) wantPartitions() int { return max(len(l.cfg.Names), int(l.cfg.Partition)+1) }

func (l *Log) ensureTopic(ctx context.Context) error {
	meta, err := l.metadata(ctx, topicName)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return l.createTopic(ctx)
	case err != nil:
		return err
	case len(meta.Partitions) < l.wantPartitions():
		return l.grow(ctx, l.wantPartitions())
	}
	return nil
}

func (l *Log) createTopic(ctx context.Context) error {
	admin := kadm.NewClient(l.cfg.Client)
	factor := l.cfg.ReplicationFactor
	if factor == 0 {
		brokers, err := admin.BrokerMetadata(ctx)
		if err != nil {
			return again{err}
		}
		factor = int16(min(3, len(brokers.Brokers)))
	}
	configs := map[string]*string{
		"cleanup.policy":         kmsg.StringPtr("compact"),
		"message.timestamp.type": kmsg.StringPtr("LogAppendTime"), // so that our producer state never ages by old records
		"min.compaction.lag.ms":  kmsg.StringPtr("3600000"),
		"max.message.bytes":      kmsg.StringPtr(fmt.Sprint(maxRecordBytes)),
	}
	if factor >= 3 {
		configs["min.insync.replicas"] = kmsg.StringPtr("2")
	}
	if l.oldFormat(ctx) {
		configs[batch.FormatConfig] = kmsg.StringPtr(batch.FirstFormat)
	}
	resp, err := admin.CreateTopic(ctx, int32(l.wantPartitions()), factor, configs, topicName)
	if err == nil {
		err = resp.Err
	}
	if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
		return nil
	}
	if kerr.IsRetriable(err) || !isKafka(err) {
		return again{err}
	}
	return fmt.Errorf("create topic %s: %w", topicName, err)
}

func isKafka(err error) bool {
	var e *kerr.Error
	return errors.As(err, &e)
}

func (l *Log) grow(ctx context.Context, n int) error {
	resp, err := kadm.NewClient(l.cfg.Client).UpdatePartitions(ctx, n, topicName)
	if err == nil {
		err = resp.Error()
	}
	if err == nil || errors.Is(err, kerr.InvalidPartitions) { // somebody else grew it
		return nil
	}
	return fmt.Errorf("grow topic %s to %d partitions: %w", topicName, n, err)
}

// assign finds our partition. It is a function of what is in the topic and of the names, so all logs of a process agree.
func (l *Log) assign(ctx context.Context) error {
	var meta kmsg.MetadataResponseTopic
	err := retry(ctx, func() (err error) {
		meta, err = l.metadata(ctx, topicName)
		if err == nil && len(meta.Partitions) < l.wantPartitions() {
			err = again{kerr.UnknownTopicOrPartition}
		}
		return err
	})
	if err != nil {
		return err
	}
	owners := make(map[string]int32)
	for p := range int32(len(meta.Partitions)) {
		reader := &Log{cfg: l.cfg, partition: p}
		f := newFold()
		if err := retry(ctx, func() error { return reader.readTo(ctx, f, until{}) }); err != nil {
			return fmt.Errorf("read partition %d: %w", p, err)
		}
		for _, name := range f.owners() {
			owners[name] = p
		}
	}
	l.partition = place(l.cfg.VirtualCluster, l.cfg.Names, owners)
	if int(l.partition) >= len(meta.Partitions) {
		return l.grow(ctx, int(l.partition)+1)
	}
	return nil
}

// owners lists the virtual clusters that have a state in the partition.
func (f *fold) owners() []string {
	var names []string
	for key := range f.values {
		if name, ok := cutPrefix(key, "state/"); ok {
			names = append(names, name)
		}
	}
	return names
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || s[:len(prefix)] != prefix {
		return "", false
	}
	return s[len(prefix):], true
}

// place gives every name without a partition its place among the sorted names, or the first free one if that is taken.
func place(want string, names []string, owners map[string]int32) int32 {
	taken := make(map[int32]bool, len(owners))
	for _, p := range owners {
		taken[p] = true
	}
	names = slices.SortedFunc(slices.Values(append([]string{want}, names...)), cmp.Compare[string])
	names = slices.Compact(names)
	var late []string
	for i, name := range names {
		if _, ok := owners[name]; ok {
			continue
		}
		if taken[int32(i)] {
			late = append(late, name)
			continue
		}
		taken[int32(i)] = true
		if name == want {
			return int32(i)
		}
	}
	if p, ok := owners[want]; ok {
		return p
	}
	free := int32(0)
	for _, name := range late {
		for taken[free] {
			free++
		}
		taken[free] = true
		if name == want {
			return free
		}
	}
	return free
}

// Read folds the log up to its high watermark.
func (l *Log) Read(ctx context.Context) (Snapshot, error) {
	f, err := l.read(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	s, err := f.snapshot(l.cfg.VirtualCluster)
	if err != nil {
		return Snapshot{}, l.failed("read the control log", err)
	}
	return s.upTo(s.State.Generation), nil
}

func (l *Log) read(ctx context.Context) (*fold, error) {
	if err := l.open(ctx); err != nil {
		return nil, err
	}
	f := newFold()
	if err := retry(ctx, func() error { return l.readTo(ctx, f, until{}) }); err != nil {
		return nil, l.failed("read the control log", err)
	}
	return f, nil
}

func (l *Log) failed(what string, err error) error {
	return fmt.Errorf("%s of %s on %s: %w", what, l.cfg.VirtualCluster, l.cfg.Cluster, err)
}

// until says where a reading of the log ends; the zero value: at the high watermark seen first.
type until struct {
	producerID int64
	epoch      int16
	marker     bool // behind the marker of that id and epoch
}

// readTo goes on reading into f from f.end. After an error that may pass it can be called again.
func (l *Log) readTo(ctx context.Context, f *fold, to until) error {
	leader, err := l.leader(ctx)
	if err != nil {
		return err
	}
	target := int64(-1)
	for {
		p, err := l.fetch(ctx, leader, f.end)
		if err != nil {
			return err
		}
		if target < 0 {
			target = p.HighWatermark
		}
		found, err := f.addAll(p.RecordBatches, p.HighWatermark, to)
		switch {
		case err != nil:
			return err
		case to.marker && found, !to.marker && f.end >= target:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// addAll takes the batches of one answer; found says that the marker looked for is among them.
func (f *fold) addAll(records []byte, highWatermark int64, to until) (found bool, err error) {
	it := batch.Iter(records)
	for it.Next() {
		if it.Legacy() {
			return false, errors.New("a batch of an old format in the control topic")
		}
		b := it.Batch()
		if batch.Header(b).BaseOffset() >= highWatermark {
			break
		}
		marker, err := f.add(b)
		if err != nil {
			return false, err
		}
		h := batch.Header(b)
		found = found || marker && h.ProducerID() == to.producerID && h.ProducerEpoch() == to.epoch
	}
	return found, it.Err()
}

func (l *Log) fetch(ctx context.Context, leader *kgo.Broker, offset int64) (kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 100
	req.MinBytes = 1
	req.MaxBytes = 2 * maxRecordBytes
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topicName
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = l.partition, offset, 2*maxRecordBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := request[*kmsg.FetchResponse](ctx, leader, req, maxFetch)
	if err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	if err := checkCode(resp.ErrorCode); err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return kmsg.FetchResponseTopicPartition{}, errors.New("a fetch answer without the partition asked for")
	}
	out := resp.Topics[0].Partitions[0]
	return out, checkCode(out.ErrorCode)
}
