package journal

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
)

// Records decodes the records of a batch of the journal.
func Records(codecs *batch.Codecs, raw []byte) ([]Record, error) {
	if err := batch.CheckCRC(raw); err != nil {
		return nil, err
	}
	records, err := codecs.Decode(raw)
	if err != nil {
		return nil, err
	}
	out := make([]Record, len(records))
	for i, r := range records {
		out[i] = Record{r.Key, r.Value}
	}
	return out, nil
}

// Load reads what is settled of a flow, from → to, on the target, for one who only reads. No journal: an empty result. What
// landed since the last settled records is missing, and nothing keeps an owner from writing on: who needs the end fences
// the slots.
func Load(ctx context.Context, client *kgo.Client, from, to string) (map[TP]*Partition, error) {
	topic := Topic(from, to)
	id, slots, err := Describe(ctx, client, topic)
	if err != nil || slots == 0 {
		return nil, err
	}
	cursors, folds := make([]*Cursor, slots), make([]*Fold, slots)
	for i := range slots {
		cursors[i] = &Cursor{Topic: topic, ID: id, Partition: int32(i)}
		folds[i] = NewFold()
	}
	codecs := batch.NewCodecs(0)
	err = Read(ctx, client, cursors, func(c *Cursor, b Batch, raw []byte) error {
		if raw == nil {
			c.Done = c.Next >= c.End
			return nil
		}
		return folds[c.Partition].visit(codecs, b, raw)
	})
	if err != nil {
		return nil, fmt.Errorf("load journal %s: %w", topic, err)
	}
	out := map[TP]*Partition{}
	var errs []error
	for _, f := range folds {
		parts, err := f.Partitions()
		errs = append(errs, err)
		for tp, p := range parts {
			if f.parts[tp].settled != nil {
				p.pending = nil
				out[tp] = p
			}
		}
	}
	return out, errors.Join(errs...)
}

// visit hands a raw batch of the slot's journal partition to the fold.
func (f *Fold) visit(codecs *batch.Codecs, b Batch, raw []byte) error {
	if b.Marker {
		return f.Journal(b, nil)
	}
	records, err := Records(codecs, raw)
	if err != nil {
		return err
	}
	return f.Journal(b, records)
}

// Replay reads the slot's journal partition into f, from f's position up to the marker of own, which it waits for. If what is
// there before f's position is not what f says it is, the error is ErrTailLost. leader of the partition, as far as known; −1: not.
func (f *Fold) Replay(ctx context.Context, client *kgo.Client, topic string, id [16]byte, slot, leader int32, own Owner) error {
	codecs := batch.NewCodecs(0)
	from := f.position
	c := &Cursor{Topic: topic, ID: id, Partition: slot, Next: max(0, from-1)}
	if leader >= 0 {
		c.LedBy(leader)
	}
	err := Read(ctx, client, []*Cursor{c}, func(c *Cursor, b Batch, raw []byte) error {
		if raw == nil {
			return nil
		}
		if b.Base < from {
			c.Beyond = b.Next != from || !b.Is(f.last)
			c.Done = c.Beyond
			return nil
		}
		c.Done = b.Marker && b.Owner == own
		return f.visit(codecs, b, raw)
	})
	if err == nil && c.Beyond {
		err = ErrTailLost
	}
	if err != nil {
		return fmt.Errorf("replay slot %d of %s: %w", slot, topic, err)
	}
	return nil
}

// ErrTailLost says that a log ends below what was known of it.
var ErrTailLost = errors.New("the log lost its tail")

// Describe returns the id and the number of partitions of a topic; 0 partitions: it does not exist.
func Describe(ctx context.Context, client *kgo.Client, topic string) (id [16]byte, partitions int, err error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return id, 0, fmt.Errorf("describe %s: %w", topic, err)
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != topic {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			return id, 0, nil
		case err != nil:
			return id, 0, fmt.Errorf("describe %s: %w", topic, err)
		}
		return t.TopicID, len(t.Partitions), nil
	}
	return id, 0, nil
}

// TopicConfigs are the configs of a journal. LogAppendTime, because a broker forgets a producer by the timestamps of its
// records; the compaction lag, because replay needs what follows the newest settled record unbroken.
func TopicConfigs() map[string]string {
	return map[string]string{
		"cleanup.policy":         "compact",
		"message.timestamp.type": "LogAppendTime",
		"min.compaction.lag.ms":  strconv.Itoa(3600 * 1000),
		"segment.bytes":          strconv.Itoa(64 << 20), // the newest segment is not compacted, and is replayed as a whole
		"max.message.bytes":      strconv.Itoa(8 << 20),
		"compression.type":       "producer",
	}
}

// Create makes the journal of a flow on the target if it is not there, and returns its id. A journal with another number of
// slots is refused: partitions would belong to other slots. oldFormat: the target makes topics with a message format that has
// no producer ids, if it is not told another.
func Create(ctx context.Context, client *kgo.Client, from, to string, slots int32, replication int16, oldFormat bool) ([16]byte, error) {
	topic := Topic(from, to)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, slots, replication
	configs := TopicConfigs()
	if oldFormat {
		configs[batch.FormatConfig] = batch.FirstFormat
	}
	for k, v := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, kmsg.StringPtr(v)
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	for {
		id, n, err := Describe(ctx, client, topic)
		switch {
		case err != nil && !kerr.IsRetriable(errors.Unwrap(err)):
			return id, Cause(ctx, err)
		case n == int(slots):
			return id, nil
		case n > 0:
			return id, fmt.Errorf("journal %s has %d partitions, configured are %d slots", topic, n, slots)
		}
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return id, Cause(ctx, fmt.Errorf("create %s: %w", topic, err))
		}
		for _, t := range resp.Topics {
			err := kerr.ErrorForCode(t.ErrorCode)
			if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) && !kerr.IsRetriable(err) {
				return id, fmt.Errorf("create %s: %w", topic, err)
			}
		}
		if err := pause(ctx, readRetry); err != nil {
			return id, err
		}
	}
}
