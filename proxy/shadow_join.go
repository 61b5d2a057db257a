package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
)

// How shadow members come into a group on the standby. Each has a connection of its own while it joins, because a broker
// answers JoinGroup and SyncGroup only when the others are there. The leader's join is seen in the group before any other is
// sent, so that the broker makes the same member the leader. A leader that is answered with fewer members than there are
// rejoins; a member that is told to rejoin does. The leader's SyncGroup then says the assignment of the active cluster.

// The versions of our own requests: every broker from 2.3 to 4.x takes them, and they are not flexible.
const (
	joinVersion      = 5
	syncVersion      = 3
	heartbeatVersion = 3
	leaveVersion     = 3
	describeVersion  = 4
)

// rejoinPause lies between two tries of a member: others need a moment to arrive, or the coordinator to load.
const rejoinPause = 5 * time.Millisecond

// Defaults of the Java client, for members whose JoinGroup nobody remembers.
const (
	defaultSessionMillis   = 45_000
	defaultRebalanceMillis = 300_000
)

var (
	errForeignMember = errors.New("a member that is not ours is in the group")
	errLostLeader    = errors.New("the broker made another member the leader")
)

// shadowMember is one member that we keep on the standby. Its fields are written while it joins, by one goroutine, and read
// afterwards; taken is guarded by groupTable.mu.
type shadowMember struct {
	shown      string // id as the client knows it
	old        string // real id on the cluster it comes from
	real       string // real id on the standby; "" until the broker gave one
	clientID   string
	instanceID *string
	timeouts   control.MemberTimeouts
	protocols  []kmsg.JoinGroupRequestProtocol // the standby's topic names; the protocol in use is the first
	assignment []byte                          // the standby's topic names
	described  []byte                          // the assignment, as the cluster that it comes from has it
	taken      bool                            // the client has made a call on this cluster
}

// joining is one attempt to bring a group's members in.
type joining struct {
	p            *Proxy
	cluster      string
	group        string
	protocolType string
	members      []*shadowMember // the leader is the first

	mu        sync.Mutex // guards ids
	ids       map[string]*shadowMember
	leaderIn  chan struct{} // closed when the group has the leader
	leaderWas sync.Once
	settled   atomic.Int32 // the generation that the leader has finished; 0: none yet
}

// run returns when all members are in one stable generation, which it returns, with the protocol that the broker chose.
func (j *joining) run(ctx context.Context) (generation int32, protocol string, err error) {
	j.ids, j.leaderIn = map[string]*shadowMember{}, make(chan struct{})
	for _, m := range j.members {
		if m.real != "" {
			j.ids[m.real] = m
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		generation int32
		protocol   string
		err        error
	}
	results := make(chan result)
	for i, m := range j.members {
		go func() {
			g, protocol, err := j.member(ctx, m, i == 0)
			results <- result{g, protocol, err}
		}()
	}
	for range j.members {
		r := <-results
		if r.err != nil {
			cancel(r.err) // the others would wait for this one
			if err == nil {
				err = r.err
			}
			continue
		}
		generation, protocol = max(generation, r.generation), r.protocol
	}
	return generation, protocol, err
}

// member brings one member in, over and over until a generation is stable with it.
func (j *joining) member(ctx context.Context, m *shadowMember, leads bool) (int32, string, error) {
	if !leads {
		select {
		case <-j.leaderIn:
		case <-ctx.Done():
			return 0, "", context.Cause(ctx)
		}
	}
	conn, err := j.connect(ctx, m)
	if err != nil {
		return 0, "", err
	}
	defer conn.close()
	if leads {
		watch, cancel := context.WithCancel(ctx)
		watched := make(chan struct{})
		go func() { defer close(watched); j.watchLeader(watch, m) }()
		defer func() { cancel(); <-watched }()
	}
	for {
		generation, protocol, err := j.once(ctx, conn, m, leads)
		if err == nil {
			err = j.awaitLeader(ctx, conn, m, generation, leads)
		}
		if err == nil {
			return generation, protocol, nil
		}
		if !errors.Is(err, errRejoin) {
			return 0, "", err
		}
		if err := sleep(ctx, rejoinPause); err != nil {
			return 0, "", err
		}
	}
}

// awaitLeader returns when the leader has finished the generation that the member is in. A member that rejoins a stable
// group is told what it had before, and has to rejoin with the leader.
func (j *joining) awaitLeader(ctx context.Context, conn *brokerConn, m *shadowMember, generation int32, leads bool) error {
	if leads {
		j.settled.Store(generation)
		return nil
	}
	for j.settled.Load() != generation {
		if j.settled.Load() > generation {
			return errRejoin
		}
		code, err := heartbeat(ctx, conn, j.group, m, generation)
		if err != nil {
			return err
		}
		if err := j.judge(code, m); err != nil {
			return err
		}
		if err := sleep(ctx, rejoinPause); err != nil {
			return err
		}
	}
	return nil
}

// errRejoin: the member has to join once more.
var errRejoin = errors.New("join once more")

// once is one JoinGroup and, if it went well, one SyncGroup.
func (j *joining) once(ctx context.Context, conn *brokerConn, m *shadowMember, leads bool) (int32, string, error) {
	joined, err := j.join(ctx, conn, m)
	if err != nil {
		return 0, "", err
	}
	var assignments []kmsg.SyncGroupRequestGroupAssignment
	if leads {
		j.leaderWas.Do(func() { close(j.leaderIn) })
		if joined.LeaderID != joined.MemberID {
			return 0, "", errLostLeader
		}
		if assignments, err = j.assignments(joined); err != nil {
			return 0, "", err
		}
	}
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = syncVersion, j.group, m.real, m.instanceID
	req.Generation, req.GroupAssignment = joined.Generation, assignments
	r, err := conn.ask(ctx, req)
	if err != nil {
		return 0, "", err
	}
	if err := j.judge(r.(*kmsg.SyncGroupResponse).ErrorCode, m); err != nil {
		return 0, "", fmt.Errorf("sync the group on %s: %w", j.cluster, err)
	}
	protocol := ""
	if joined.Protocol != nil {
		protocol = *joined.Protocol
	}
	return joined.Generation, protocol, nil
}

func (j *joining) join(ctx context.Context, conn *brokerConn, m *shadowMember) (*kmsg.JoinGroupResponse, error) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = joinVersion, j.group, m.real, m.instanceID
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = m.timeouts.SessionMillis, m.timeouts.RebalanceMillis
	req.ProtocolType, req.Protocols = j.protocolType, m.protocols
	r, err := conn.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := r.(*kmsg.JoinGroupResponse)
	if resp.ErrorCode == 0 || resp.ErrorCode == kerr.MemberIDRequired.Code {
		j.gave(m, resp.MemberID)
	}
	if err := j.judge(resp.ErrorCode, m); err != nil {
		return nil, fmt.Errorf("join the group on %s: %w", j.cluster, err)
	}
	return resp, nil
}

// gave notes the id that the broker gave to a member.
func (j *joining) gave(m *shadowMember, real string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.ids, m.real)
	m.real = real
	if real != "" {
		j.ids[real] = m
	}
}

// judge sorts the broker's codes: go on, join once more, or give up.
func (j *joining) judge(code int16, m *shadowMember) error {
	switch code {
	case 0:
		return nil
	case kerr.MemberIDRequired.Code, kerr.RebalanceInProgress.Code, kerr.IllegalGeneration.Code,
		kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code:
		return errRejoin
	case kerr.UnknownMemberID.Code:
		j.gave(m, "")
		return errRejoin
	}
	return kerr.ErrorForCode(code)
}

// assignments gives each member in the leader's answer what it has on the active cluster. Members still missing: rejoin.
func (j *joining) assignments(joined *kmsg.JoinGroupResponse) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	byInstance := map[string]*shadowMember{}
	for _, m := range j.members {
		if m.instanceID != nil {
			byInstance[*m.instanceID] = m
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []kmsg.SyncGroupRequestGroupAssignment
	for _, one := range joined.Members {
		m := j.ids[one.MemberID]
		if m == nil && one.InstanceID != nil {
			m = byInstance[*one.InstanceID] // its own answer is still on the way
		}
		if m == nil {
			return nil, fmt.Errorf("%w: %s on %s", errForeignMember, one.MemberID, j.cluster)
		}
		out = append(out, kmsg.SyncGroupRequestGroupAssignment{MemberID: one.MemberID, MemberAssignment: m.assignment})
	}
	if len(out) < len(j.members) {
		return nil, errRejoin
	}
	return out, nil
}

// watchLeader lets the others join as soon as the group lists the leader, whose own answer may wait for them.
func (j *joining) watchLeader(ctx context.Context, m *shadowMember) {
	for pause := rejoinPause; sleep(ctx, pause) == nil; pause = min(2*pause, 100*time.Millisecond) {
		groups, err := j.p.describe(ctx, j.cluster, []string{j.group})
		if err != nil {
			continue
		}
		for _, one := range groups[j.group].Members {
			j.mu.Lock()
			is := one.MemberID == m.real || m.instanceID != nil && one.InstanceID != nil && *one.InstanceID == *m.instanceID
			j.mu.Unlock()
			if is {
				j.leaderWas.Do(func() { close(j.leaderIn) })
				return
			}
		}
	}
}

func (j *joining) connect(ctx context.Context, m *shadowMember) (*brokerConn, error) {
	return j.p.connectCoordinator(ctx, j.cluster, j.group, m.clientID)
}

// connectCoordinator connects to a group's coordinator in a client's name. A cluster that does not know its coordinator
// yet (the first group of all makes it create the offsets topic) is asked until ctx ends.
func (p *Proxy) connectCoordinator(ctx context.Context, cluster, group, clientID string) (*brokerConn, error) {
	for {
		at, err := p.groups.coordinators().find(ctx, cluster, p.cfg.Clusters[cluster].Client, group)
		if err == nil {
			conn, err := p.cfg.Clusters[cluster].Dial(ctx, at.addr)
			if err != nil {
				p.groups.coordinators().forget(cluster, group)
				return nil, fmt.Errorf("connect to the coordinator of group %q on %s: %w", group, cluster, err)
			}
			return newBrokerConn(conn, clientID), nil
		}
		if !kerr.IsRetriable(rootCode(err)) {
			return nil, err
		}
		if sleep(ctx, 20*rejoinPause) != nil {
			return nil, err
		}
	}
}

// rootCode is the code of the cluster in err, nil if there is none.
func rootCode(err error) error {
	var said *kerr.Error
	if errors.As(err, &said) {
		return said
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
