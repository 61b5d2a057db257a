package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
)

// The highest versions we use. AddPartitionsToTxn above 3 is for brokers, EndTxn above 4 changes the epoch, so that the
// marker would not carry the one we write with. Produce and Fetch up to these name topics instead of ids.
const (
	maxProduce            = 12
	maxFetch              = 12
	maxInitProducerID     = 4
	maxAddPartitionsToTxn = 3
	maxEndTxn             = 4
)

// pinned is a request that is not sent above a version.
type pinned struct {
	kmsg.Request
	max int16
}

func (p pinned) MaxVersion() int16 { return min(p.max, p.Request.MaxVersion()) }

// again is an error that may be gone on the next try.
type again struct{ err error }

func (a again) Error() string { return a.err.Error() }
func (a again) Unwrap() error { return a.err }

const (
	firstBackoff = 10 * time.Millisecond
	maxBackoff   = time.Second
)

// retry calls try until it succeeds, fails for good or ctx ends; then the error is the last one of try.
func retry(ctx context.Context, try func() error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := try()
		var transient again
		if err == nil || !errors.As(err, &transient) {
			return err
		}
		timer := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (last: %w)", context.Cause(ctx), transient.err)
		case <-timer.C:
		}
	}
}

// checkCode turns a Kafka code into an error: codes of a fenced writer into ErrFenced, transient ones into again.
func checkCode(code int16) error {
	switch code {
	case 0:
		return nil
	case kerr.InvalidProducerEpoch.Code, kerr.ProducerFenced.Code, kerr.InvalidProducerIDMapping.Code, kerr.UnknownProducerID.Code:
		return fmt.Errorf("%w: %w", ErrFenced, kerr.ErrorForCode(code))
	case kerr.UnknownTopicOrPartition.Code, kerr.LeaderNotAvailable.Code, kerr.NotLeaderForPartition.Code, kerr.RequestTimedOut.Code,
		kerr.NetworkException.Code, kerr.NotEnoughReplicas.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.KafkaStorageError.Code,
		kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code,
		kerr.ConcurrentTransactions.Code, kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code, kerr.OffsetNotAvailable.Code,
		kerr.ReplicaNotAvailable.Code, kerr.BrokerNotAvailable.Code:
		return again{kerr.ErrorForCode(code)}
	}
	return kerr.ErrorForCode(code)
}

// request sends req to one broker; an error of the connection may be gone on the next try.
func request[T kmsg.Response](ctx context.Context, b *kgo.Broker, req kmsg.Request, max int16) (T, error) {
	var none T
	resp, err := b.Request(ctx, pinned{req, max})
	if err != nil {
		if ctx.Err() != nil {
			return none, err
		}
		return none, again{err}
	}
	typed, ok := resp.(T)
	if !ok {
		return none, fmt.Errorf("an answer of type %T", resp)
	}
	return typed, nil
}

// leader finds the broker that leads the log's partition.
func (l *Log) leader(ctx context.Context) (*kgo.Broker, error) {
	meta, err := l.metadata(ctx, topicName)
	if err != nil {
		return nil, err
	}
	for _, p := range meta.Partitions {
		if p.Partition != l.partition {
			continue
		}
		if err := checkCode(p.ErrorCode); err != nil {
			return nil, err
		}
		if p.Leader < 0 {
			return nil, again{kerr.LeaderNotAvailable}
		}
		return l.cfg.Client.Broker(int(p.Leader)), nil
	}
	return nil, again{kerr.UnknownTopicOrPartition}
}

// metadata asks for one topic; an error of the topic is an error.
func (l *Log) metadata(ctx context.Context, topic string) (kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, l.cfg.Client)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, again{err}
	}
	if len(resp.Topics) != 1 {
		return kmsg.MetadataResponseTopic{}, again{kerr.UnknownTopicOrPartition}
	}
	return resp.Topics[0], checkCode(resp.Topics[0].ErrorCode)
}

// coordinator finds the broker that coordinates the log's transactional id.
func (l *Log) coordinator(ctx context.Context) (*kgo.Broker, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = 1 // transactions
	req.CoordinatorKey = l.transactionalID()
	req.CoordinatorKeys = []string{l.transactionalID()}
	resp, err := req.RequestWith(ctx, l.cfg.Client)
	if err != nil {
		return nil, again{err}
	}
	node, code := resp.NodeID, resp.ErrorCode
	if len(resp.Coordinators) > 0 {
		node, code = resp.Coordinators[0].NodeID, resp.Coordinators[0].ErrorCode
	}
	if err := checkCode(code); err != nil {
		return nil, err
	}
	return l.cfg.Client.Broker(int(node)), nil
}

// oldFormat says whether the cluster makes topics with a message format that has no producer ids, if it is not told another. No
// fence holds in such a topic. Kafka from 4.0 on has no such config; false if it is not known.
func (l *Log) oldFormat(ctx context.Context) bool {
	admin := kadm.NewClient(l.cfg.Client)
	brokers, err := admin.BrokerMetadata(ctx)
	if err != nil || len(brokers.Brokers) == 0 {
		return false
	}
	configs, err := admin.DescribeBrokerConfigs(ctx, brokers.Brokers[0].NodeID)
	if err != nil {
		return false
	}
	for _, r := range configs {
		for _, c := range r.Configs {
			if c.Key == batch.BrokerFormatConfig && c.Value != nil {
				return batch.OldFormat(*c.Value)
			}
		}
	}
	return false
}
