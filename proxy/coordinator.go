package proxy

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Group calls go to the real coordinator of their group, whatever virtual node the client asked: so a client's coordinator
// stays the same node over every move. Look-ups are kept per cluster and group until a broker says that it is not the one.

// coordinator is the broker that answers for a group.
type coordinator struct {
	id   int32
	addr string // host:port, real
}

type coordinatorKey struct{ cluster, group string }

// maxCoordinators bounds the memory that group names of clients can take; the cache starts anew above it.
const maxCoordinators = 1 << 16

// coordinatorTime bounds one look-up: a cluster that is gone is not to keep the caller from the route of another.
const coordinatorTime = 3 * time.Second

// coordinators is the cache of look-ups.
type coordinators struct {
	mu    sync.Mutex // guards known; not held across I/O
	known map[coordinatorKey]coordinator
}

func newCoordinators() *coordinators {
	return &coordinators{known: map[coordinatorKey]coordinator{}}
}

// find returns the coordinator of a group, asking the cluster if need be. An error of the cluster is a *kerr.Error.
func (k *coordinators) find(ctx context.Context, cluster string, client *kgo.Client, group string) (coordinator, error) {
	if c, ok := k.lookUp(cluster, group); ok {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, coordinatorTime)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return coordinator{}, fmt.Errorf("find the coordinator of group %q on %s: %w", group, cluster, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return coordinator{}, fmt.Errorf("find the coordinator of group %q on %s: %w", group, cluster, err)
	}
	return k.learn(cluster, group, resp.NodeID, resp.Host, resp.Port), nil
}

func (k *coordinators) lookUp(cluster, group string) (coordinator, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.known[coordinatorKey{cluster, group}]
	return c, ok
}

// learn keeps what a broker answered.
func (k *coordinators) learn(cluster, group string, id int32, host string, port int32) coordinator {
	c := coordinator{id: id, addr: net.JoinHostPort(host, strconv.Itoa(int(port)))}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.known) >= maxCoordinators {
		clear(k.known)
	}
	k.known[coordinatorKey{cluster, group}] = c
	return c
}

// forget drops a look-up that a broker denied.
func (k *coordinators) forget(cluster, group string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.known, coordinatorKey{cluster, group})
}

// deniesCoordinator says whether a code means that the broker asked is not the group's coordinator, or not any more.
func deniesCoordinator(code int16) bool {
	return code == kerr.NotCoordinator.Code || code == kerr.CoordinatorNotAvailable.Code
}
