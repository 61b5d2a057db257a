// Package testkit holds what tests and the demo share: embedded Kafka clusters and waiting with a deadline.
package testkit

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FirstProducerID is where every embedded cluster starts to number its producers: two clusters hand out the same ids, as
// two real ones do, so a test in which ids of different clusters meet cannot pass by luck.
const FirstProducerID = 1000

// StartKafka starts an embedded cluster of n brokers on loopback. The caller closes it.
//
// Its producer ids are small and count up, as a broker's do; kfake's own are random 63-bit numbers, for which switchback's
// id scheme (40 bits) has no room. Rebalances start at once, sessions may be short.
func StartKafka(n int, clusterID string, opts ...kfake.Opt) (*kfake.Cluster, error) {
	opts = append([]kfake.Opt{
		kfake.NumBrokers(n),
		kfake.ClusterID(clusterID),
		kfake.SleepOutOfOrder(),
	}, opts...)
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	next.Store(FirstProducerID)
	cluster.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.InitProducerIDRequest)
		if req.TransactionalID != nil || req.ProducerID >= 0 {
			return nil, nil, false
		}
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ProducerID = next.Add(1) - 1
		return resp, nil, true
	})
	return cluster, nil
}
