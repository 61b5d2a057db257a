package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// pair is two clusters and a proxy that is driven by hand: calls run through the rows of the table, without sockets
// towards clients.
type pair struct {
	t        testing.TB
	ctx      context.Context
	p        *Proxy
	clusters map[string]*kfake.Cluster
	clients  map[string]*kgo.Client
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// pairConfig starts two clusters of three brokers, with the topics "orders" and "payments" under each cluster's names.
func pairConfig(t testing.TB, names map[string]translate.Names) (Config, map[string]*kfake.Cluster) {
	t.Helper()
	cfg := Config{VirtualCluster: "main", AdvertisedHost: "localhost", BrokerPortStart: 19093, BrokerPortCount: 3,
		Clusters: map[string]Cluster{}, Log: zerolog.Nop()}
	clusters := map[string]*kfake.Cluster{}
	for _, name := range []string{"blue", "green"} {
		c, err := testkit.StartKafka(3, name, kfake.GroupMinSessionTimeout(50*time.Millisecond),
			kfake.SeedTopics(4, names[name].Physical("orders"), names[name].Physical("payments")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		client, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		clusters[name] = c
		cfg.Clusters[name] = Cluster{Client: client, Dial: dialTCP, Names: names[name]}
	}
	return cfg, clusters
}

func pairRoute(generation translate.Generation, active, standby string) Route {
	return Route{Generation: generation, Active: active, Standby: standby, Identity: control.Identity{
		ClusterID: "main", Nodes: map[string][]int32{"blue": {0, 1, 2}, "green": {0, 1, 2}},
	}}
}

func newPair(t testing.TB, names map[string]translate.Names) *pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	cfg, clusters := pairConfig(t, names)
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	x := &pair{t: t, ctx: ctx, p: p, clusters: clusters, clients: map[string]*kgo.Client{}}
	for name, c := range cfg.Clusters {
		x.clients[name] = c.Client
	}
	x.publish(pairRoute(1, "blue", "green"))
	p.groups.start(p)
	t.Cleanup(func() { p.groups.close() })
	return x
}

// publish swaps the route without the sessions.
func (x *pair) publish(r Route) {
	x.p.route.Store(r.prepare(x.p.cfg.Clusters[r.Active].Names))
}

// move is a whole move as a cutover drives it, without the data.
func (x *pair) move(generation translate.Generation, from, to string) GroupFacts {
	x.t.Helper()
	if _, err := x.p.PrepareGroups(x.ctx, to); err != nil {
		x.t.Fatal(err)
	}
	facts, err := x.p.CheckGroups(x.ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	x.publish(pairRoute(generation, to, from))
	x.p.RetireGroups(x.ctx, from)
	return facts
}

// send runs one call of a client through its row, and to the broker that it is for.
func (x *pair) send(clientID string, req kmsg.Request) kmsg.Response {
	x.t.Helper()
	resp, err := x.trySend(x.ctx, clientID, req)
	if err != nil {
		x.t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp
}

func (x *pair) trySend(ctx context.Context, clientID string, req kmsg.Request) (kmsg.Response, error) {
	return x.trySendTo(ctx, 0, clientID, req)
}

// trySendTo sends a call to one virtual node.
func (x *pair) trySendTo(ctx context.Context, node int32, clientID string, req kmsg.Request) (kmsg.Response, error) {
	const header = 2 + 2 + 4 + 2
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID)).AppendRequest(nil, req, 1)[4:]
	bodyAt := header + len(clientID)
	if req.IsFlexible() {
		bodyAt++
	}
	for again := 0; ; again++ {
		c := &call{s: &session{p: x.p, node: node}, route: x.p.route.Load(), row: &x.p.apis[req.Key()], key: req.Key(),
			version: req.GetVersion(), frame: frame, bodyAt: bodyAt, again: again}
		decoded := kmsg.RequestForKey(req.Key())
		decoded.SetVersion(req.GetVersion())
		if err := decoded.ReadFrom(frame[bodyAt:]); err != nil {
			return nil, err
		}
		if err := c.row.request(c, decoded); err != nil {
			return nil, err
		}
		if c.later != nil {
			return c.later(ctx)
		}
		if c.local != nil {
			return c.local, nil
		}
		resp, err := x.forward(ctx, c, clientID, decoded)
		if err != nil {
			return nil, err
		}
		if err := c.row.response(c, resp); errors.Is(err, errReissue) {
			continue
		} else if err != nil {
			return nil, err
		}
		return resp, nil
	}
}

func (x *pair) forward(ctx context.Context, c *call, clientID string, req kmsg.Request) (kmsg.Response, error) {
	if c.row.to == toCoordinator {
		at, err := x.p.groups.coordinators().find(ctx, c.route.Active, x.clients[c.route.Active], c.group)
		if err != nil {
			return nil, err
		}
		return x.p.askBroker(ctx, c.route.Active, at.addr, clientID, req)
	}
	addr := x.clusters[c.route.Active].ListenAddrs()[max(c.s.node, 0)]
	return x.p.askBroker(ctx, c.route.Active, addr, clientID, req)
}

// rawMember is a member of a group that speaks the protocol itself, so that every number can be looked at.
type rawMember struct {
	x          *pair
	clientID   string
	group      string
	id         string
	instanceID *string
	generation int32
	topics     []string
	assigned   []byte
	leads      bool
	leader     string
	session    int32
	older      int16 // how many versions below the newest its requests are, as far as there are such
}

// version is the member's version of an API.
func (m *rawMember) version(oldest, newest int16) int16 { return max(oldest, newest-m.older) }

func (x *pair) member(group, clientID string, topics ...string) *rawMember {
	return &rawMember{x: x, group: group, clientID: clientID, topics: topics, session: 6000, generation: -1}
}

func (m *rawMember) joinRequest() *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID = m.version(0, 9), m.group, m.id, m.instanceID
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = m.session, 10_000, consumerProtocol
	for _, name := range []string{"range", "sticky"} {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, subscriptionOf(3, m.topics...)
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// joined is what one JoinGroup call told a member.
type joined struct {
	m    *rawMember
	resp *kmsg.JoinGroupResponse
	err  error
}

// join sends JoinGroup until the member has an id, and waits for the rest of the group.
func (m *rawMember) join(ctx context.Context) joined {
	for {
		r, err := m.x.trySend(ctx, m.clientID, m.joinRequest())
		if err != nil {
			return joined{m, nil, err}
		}
		resp := r.(*kmsg.JoinGroupResponse)
		if resp.ErrorCode != kerr.MemberIDRequired.Code {
			return joined{m, resp, kerr.ErrorForCode(resp.ErrorCode)}
		}
		m.id = resp.MemberID
	}
}

// gather makes a stable group of members, each of which acts as a client does: it rejoins when it is told to, and the leader
// when it misses some. The first is the leader of a new group. Member i gets partition i.
func gather(x *pair, members ...*rawMember) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, 10*time.Second)
	defer cancel()
	g := &gathering{x: x, members: members, index: map[string]int32{}}
	errs := make(chan error, len(members))
	for i, m := range members {
		if i == 1 {
			testkit.Eventually(x.t, 5*time.Second, "the first member is in", func() bool { return x.listed(members[0]) })
		}
		go func() { errs <- g.member(ctx, m, int32(i)) }()
	}
	for range members {
		if err := <-errs; err != nil {
			x.t.Fatalf("gather %s: %v", members[0].group, err)
		}
	}
}

type gathering struct {
	x       *pair
	members []*rawMember

	mu         sync.Mutex // guards all below
	index      map[string]int32
	generation int32 // in which the leader is done
}

func (g *gathering) member(ctx context.Context, m *rawMember, i int32) error {
	for ; ; _ = sleep(ctx, time.Millisecond) {
		a := m.join(ctx)
		if errors.Is(a.err, kerr.RebalanceInProgress) {
			continue
		}
		if a.err != nil {
			return fmt.Errorf("join as %s: %w", m.clientID, a.err)
		}
		m.took(a.resp)
		g.mu.Lock()
		g.index[m.id] = i
		g.mu.Unlock()
		if m.leads && len(a.resp.Members) != len(g.members) {
			continue
		}
		code, err := g.sync(ctx, m, a.resp)
		switch {
		case err != nil:
			return err
		case code == 0:
			if g.settled(ctx, m) {
				return nil
			}
		case code != kerr.RebalanceInProgress.Code && code != kerr.IllegalGeneration.Code:
			return fmt.Errorf("sync as %s: %w", m.clientID, kerr.ErrorForCode(code))
		}
	}
}

// settled waits until the leader is done with the member's generation; false: the member is to rejoin.
func (g *gathering) settled(ctx context.Context, m *rawMember) bool {
	for ; ctx.Err() == nil; _ = sleep(ctx, time.Millisecond) {
		g.mu.Lock()
		if m.leads {
			g.generation = m.generation
		}
		done := g.generation == m.generation
		g.mu.Unlock()
		if done {
			return true
		}
		if m.heartbeat() != nil {
			return false
		}
	}
	return true
}

func (g *gathering) sync(ctx context.Context, m *rawMember, joined *kmsg.JoinGroupResponse) (int16, error) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = m.version(0, 5), m.group, m.id, m.instanceID, m.generation
	protocolType := consumerProtocol
	req.ProtocolType, req.Protocol = &protocolType, joined.Protocol
	for _, other := range joined.Members {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
			MemberID: other.MemberID, MemberAssignment: assignmentFor("orders", g.indexOf(ctx, other.MemberID)),
		})
	}
	r, err := g.x.trySend(ctx, m.clientID, req)
	if err != nil {
		return 0, err
	}
	resp := r.(*kmsg.SyncGroupResponse)
	m.assigned = resp.MemberAssignment
	return resp.ErrorCode, nil
}

// indexOf waits until the member has its own answer.
func (g *gathering) indexOf(ctx context.Context, id string) int32 {
	for ctx.Err() == nil {
		g.mu.Lock()
		i, ok := g.index[id]
		g.mu.Unlock()
		if ok {
			return i
		}
		_ = sleep(ctx, time.Millisecond)
	}
	return -1
}

func (m *rawMember) took(resp *kmsg.JoinGroupResponse) {
	m.id, m.leader, m.leads = resp.MemberID, resp.LeaderID, resp.LeaderID == resp.MemberID
	m.generation = resp.Generation
}

// listed says whether the active cluster lists the member, by whatever id.
func (x *pair) listed(m *rawMember) bool {
	active := x.p.activeCluster()
	groups, err := x.p.describe(x.ctx, active, []string{m.group})
	if err != nil {
		return false
	}
	for _, one := range groups[m.group].Members {
		if one.ClientID == m.clientID {
			return true
		}
	}
	return false
}

func assignmentFor(topic string, partition int32) []byte {
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: []int32{partition}}}
	return a.AppendTo(nil)
}

func (m *rawMember) heartbeat() error {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = m.version(0, 4), m.group, m.id, m.instanceID, m.generation
	return kerr.ErrorForCode(m.x.send(m.clientID, req).(*kmsg.HeartbeatResponse).ErrorCode)
}

func (m *rawMember) commit(topic string, partition int32, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = m.version(2, 9), m.group, m.id, m.instanceID, m.generation
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = partition, offset, -1
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	return kerr.ErrorForCode(m.x.send(m.clientID, req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

func (m *rawMember) fetch(topic string, partition int32) (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version = 8
	req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: m.group, MemberEpoch: -1,
		Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{partition}}}}}
	g := m.x.send(m.clientID, req).(*kmsg.OffsetFetchResponse).Groups[0]
	if g.ErrorCode != 0 {
		return 0, kerr.ErrorForCode(g.ErrorCode)
	}
	p := g.Topics[0].Partitions[0]
	return p.Offset, kerr.ErrorForCode(p.ErrorCode)
}

func (m *rawMember) leave() error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.MemberID = m.version(0, 5), m.group, m.id
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: m.id, InstanceID: m.instanceID}}
	resp := m.x.send(m.clientID, req).(*kmsg.LeaveGroupResponse)
	if resp.ErrorCode != 0 || resp.Version < 3 {
		return kerr.ErrorForCode(resp.ErrorCode)
	}
	return kerr.ErrorForCode(resp.Members[0].ErrorCode)
}

func groupsByName(records []control.Group) map[string]control.Group {
	out := map[string]control.Group{}
	for _, rec := range records {
		out[rec.Name] = rec
	}
	return out
}
