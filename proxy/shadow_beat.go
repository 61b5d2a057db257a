package proxy

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// beatEvery is how often a shadow's heartbeats are sent: often enough for the shortest session, and as clients do otherwise.
func (s *shadowGroup) beatEvery() time.Duration {
	every := 3 * time.Second
	for _, m := range s.members {
		every = min(every, time.Duration(m.timeouts.SessionMillis)*time.Millisecond/4)
	}
	return max(every, 50*time.Millisecond)
}

// longestSession is how long the broker keeps the members without a heartbeat.
func (s *shadowGroup) longestSession() time.Duration {
	var longest int32
	for _, m := range s.members {
		longest = max(longest, m.timeouts.SessionMillis)
	}
	return time.Duration(longest) * time.Millisecond
}

// beat sends the heartbeats of members until all are taken over, ctx ends, or the broker says that the group is not as we
// left it. It is the goroutine of one shadow; dismiss waits for it.
func (s *shadowGroup) beat(ctx context.Context, p *Proxy) {
	defer close(s.finished)
	var conn *brokerConn
	defer func() {
		if conn != nil {
			conn.close()
		}
	}()
	for sleep(ctx, s.beatEvery()) == nil {
		members, done := p.groups.table().toBeat(s)
		if done {
			if p.activeCluster() == s.cluster {
				p.groups.table().takenOver(s)
			}
			return
		}
		if conn == nil {
			var err error
			if conn, err = p.connectCoordinator(ctx, s.cluster, s.group, ownClientID); err != nil {
				continue // the next tick tries again; sessions are longer than several
			}
		}
		for _, m := range members {
			code, err := heartbeat(ctx, conn, s.group, m, s.generation)
			if err != nil || deniesCoordinator(code) {
				p.groups.coordinators().forget(s.cluster, s.group)
				conn.close()
				conn = nil
				break
			}
			p.groups.table().beaten(s, m, code)
		}
	}
}

// heartbeat sends one heartbeat of a shadow member and returns the broker's code.
func heartbeat(ctx context.Context, conn *brokerConn, group string, m *shadowMember, generation int32) (int16, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = heartbeatVersion, group, m.real, m.instanceID
	req.Generation = generation
	r, err := conn.ask(ctx, req)
	if err != nil {
		return 0, err
	}
	return r.(*kmsg.HeartbeatResponse).ErrorCode, nil
}

// toBeat returns the members that nobody else speaks for; done when there will be none any more.
func (t *groupTable) toBeat(s *shadowGroup) (members []*shadowMember, done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.broken || !s.until.IsZero() && time.Now().After(s.until) {
		return nil, true
	}
	for _, m := range s.members {
		if !m.taken {
			members = append(members, m)
		}
	}
	return members, len(members) == 0
}

// beaten takes note of what the broker said to a heartbeat. A rebalance is the client's business once it has taken over; a
// member that has not is told by its own first heartbeat.
func (t *groupTable) beaten(s *shadowGroup, m *shadowMember, code int16) {
	switch code {
	case 0, kerr.CoordinatorLoadInProgress.Code:
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !m.taken {
		s.broken = true
	}
}
