package proxy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// liveMember is a franz-go client in a group, with an account of what the library told the application.
type liveMember struct {
	client *kgo.Client
	mu     sync.Mutex // guards all below
	calls  int        // of the callbacks
	has    map[string][]int32
}

func (x *live) liveMember(group, topic string, opts ...kgo.Opt) *liveMember {
	x.t.Helper()
	m := &liveMember{has: map[string][]int32{}}
	change := func(by func(topic string, partitions []int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.calls++
			for topic, partitions := range parts {
				by(topic, partitions)
			}
		}
	}
	lose := change(func(topic string, partitions []int32) {
		m.has[topic] = slices.DeleteFunc(m.has[topic], func(p int32) bool { return slices.Contains(partitions, p) })
	})
	m.client = x.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(50 * time.Millisecond), kgo.SessionTimeout(2 * time.Second), kgo.RebalanceTimeout(5 * time.Second),
		kgo.OnPartitionsAssigned(change(func(topic string, partitions []int32) { m.has[topic] = append(m.has[topic], partitions...) })),
		kgo.OnPartitionsRevoked(lose), kgo.OnPartitionsLost(lose),
	}, opts...)...)
	polled := make(chan struct{})
	ctx, cancel := context.WithCancel(x.ctx)
	go func() {
		defer close(polled)
		for ctx.Err() == nil {
			m.client.PollFetches(ctx)
		}
	}()
	x.t.Cleanup(func() { cancel(); <-polled })
	return m
}

// told is what the application knows of its membership.
func (m *liveMember) told() (id string, generation int32, calls int, partitions []int32) {
	id, generation = m.client.GroupMetadata()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, list := range m.has {
		partitions = append(partitions, list...)
	}
	slices.Sort(partitions)
	return id, generation, m.calls, partitions
}

// settled waits until members share n partitions, each has some, all are in one generation, and no callback has come for a
// while: the library sets the generation before it makes the last one.
func (x *live) settled(n int, members ...*liveMember) {
	x.t.Helper()
	const quiet = 40 // looks in a row without a change
	before, same := "", 0
	testkit.Eventually(x.t, 15*time.Second, "the group is stable", func() bool {
		var all []int32
		generations := map[int32]bool{}
		now := ""
		for _, m := range members {
			_, generation, calls, partitions := m.told()
			if len(partitions) == 0 {
				return false
			}
			all = append(all, partitions...)
			generations[generation] = true
			now += fmt.Sprint(generation, calls, partitions)
		}
		if now != before {
			before, same = now, 0
		}
		same++
		slices.Sort(all)
		return len(all) == n && len(slices.Compact(all)) == n && len(generations) == 1 && same >= quiet
	})
}

// emptyRoute is a route of topics without records: offsets are the same everywhere, topic ids are blue's.
func (x *live) emptyRoute(generation translate.Generation, active, standby string) Route {
	r := Route{Generation: generation, Active: active, Standby: standby, Identity: x.identity, Topics: map[string]*Topic{}}
	for _, name := range []string{"orders", "payments"} {
		topic := &Topic{Name: name, VirtualID: blueIDs(x.t, x, "blue", name), PhysicalID: blueIDs(x.t, x, active, name)}
		for range 4 {
			topic.Partitions = append(topic.Partitions, Partition{Eras: []control.Era{{Generation: generation, Cluster: active}}})
		}
		r.Topics[name] = topic
	}
	return r
}

// moveGroups is a move as a cutover drives it, but for the data.
func (x *live) moveGroups(generation translate.Generation, from, to string) GroupFacts {
	x.t.Helper()
	_, err := x.p.PrepareGroups(x.ctx, to)
	mustNoError(x.t, "prepare", err)
	mustNoError(x.t, "hold", x.p.Hold(x.ctx))
	mustNoError(x.t, "drain", x.p.Drain(x.ctx))
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(x.t, "check", err)
	x.p.Publish(x.emptyRoute(generation, to, from))
	x.p.Release()
	x.p.RetireGroups(x.ctx, from)
	return facts
}

// takenOver waits until every client speaks for itself.
func (x *live) takenOver(cluster string) {
	x.t.Helper()
	testkit.Eventually(x.t, 5*time.Second, "clients take over their members", func() bool {
		return len(x.p.groups.table().shadowsOn(cluster)) == 0
	})
}

func TestFranzGoGroupsCrossMovesWithoutARebalance(t *testing.T) {
	x := startLive(t, map[string]translate.Names{"blue": {}, "green": {}}, nil)
	static := func(id string) kgo.Opt { return kgo.InstanceID(id) }
	eager := kgo.Balancers(kgo.RangeBalancer())
	groups := map[string][]*liveMember{
		"cooperative": {x.liveMember("cooperative", "orders"), x.liveMember("cooperative", "orders"), x.liveMember("cooperative", "orders")},
		"eager":       {x.liveMember("eager", "payments", eager), x.liveMember("eager", "payments", eager)},
		"static":      {x.liveMember("static", "orders", static("one")), x.liveMember("static", "orders", static("two"))},
	}
	type account struct {
		id         string
		generation int32
		calls      int
		partitions string
	}
	see := func(m *liveMember) account {
		id, generation, calls, partitions := m.told()
		return account{id, generation, calls, fmt.Sprint(partitions)}
	}
	before := map[*liveMember]account{}
	for _, members := range groups {
		x.settled(4, members...)
		for _, m := range members {
			before[m] = see(m)
		}
	}
	from, to := "blue", "green"
	for generation := translate.Generation(2); generation <= 4; generation++ {
		if facts := x.moveGroups(generation, from, to); facts.Moved != 3 || facts.Barrier != 0 {
			t.Fatalf("move %d: %+v", generation, facts)
		}
		x.takenOver(to)
		for group, members := range groups {
			for i, m := range members {
				if now := see(m); now != before[m] {
					t.Errorf("move %d, %s %d: was %+v, is %+v", generation, group, i, before[m], now)
				}
				x.commitAll(m, int64(generation)*10+int64(i))
			}
		}
		from, to = to, from
	}
	for group, members := range groups {
		was := before[members[1]]
		members[0].client.LeaveGroup()
		if group == "static" {
			continue // it leaves when its session ends
		}
		x.settled(4, members[1:]...)
		now := see(members[1])
		if now.id != was.id || now.generation <= was.generation {
			t.Errorf("%s after a real rebalance: was %+v, is %+v", group, was, now)
		}
	}
}

// commitAll commits an offset for all that a member has.
func (x *live) commitAll(m *liveMember, offset int64) {
	x.t.Helper()
	m.mu.Lock()
	has := maps.Clone(m.has)
	m.mu.Unlock()
	commit := map[string]map[int32]kgo.EpochOffset{}
	for topic, partitions := range has {
		commit[topic] = map[int32]kgo.EpochOffset{}
		for _, p := range partitions {
			commit[topic][p] = kgo.EpochOffset{Epoch: -1, Offset: offset}
		}
	}
	if len(commit) == 0 {
		return
	}
	var failed error
	m.client.CommitOffsetsSync(x.ctx, commit, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if resp != nil {
			for _, topic := range resp.Topics {
				for _, p := range topic.Partitions {
					if p.ErrorCode != 0 {
						failed = fmt.Errorf("partition %d: code %d", p.Partition, p.ErrorCode)
					}
				}
			}
		}
	})
	mustNoError(x.t, "commit", failed)
}

func TestGroupThatRebalancesAtTheGateComesBackByTheBarrier(t *testing.T) {
	x := startLive(t, map[string]translate.Names{"blue": {}, "green": {}}, nil)
	members := []*liveMember{x.liveMember("g", "orders"), x.liveMember("g", "orders")}
	x.settled(4, members...)
	_, generation, _, _ := members[0].told()
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	mustNoError(t, "hold", x.p.Hold(x.ctx))
	mustNoError(t, "drain", x.p.Drain(x.ctx))
	x.p.groups.move.mu.Lock()
	a := arranging{p: x.p, from: "blue", to: "green"}
	for _, s := range x.p.groups.table().shadowsOn("green") { // as CheckGroups does with a group that is not stable
		a.dismiss(x.ctx, s)
		x.p.groups.table().raise("green", s.group)
	}
	x.p.groups.move.mu.Unlock()
	x.p.Publish(x.emptyRoute(2, "green", "blue"))
	x.p.Release()
	x.p.RetireGroups(x.ctx, "blue")
	testkit.Eventually(t, 10*time.Second, "the members rejoin", func() bool {
		_, now, _, _ := members[0].told()
		return now > generation
	})
	x.settled(4, members...)
	for i, m := range members {
		x.commitAll(m, int64(100+i))
	}
}

func TestGroupRecordsAreSavedAtRebalances(t *testing.T) {
	var mu sync.Mutex
	saved := map[string]control.Group{}
	x := startLive(t, map[string]translate.Names{"blue": {}, "green": {}}, func(cfg *Config) {
		cfg.SaveGroups = func(_ context.Context, groups []control.Group) error {
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(saved, groupsByName(groups))
			return nil
		}
	})
	m := x.liveMember("g", "orders")
	x.settled(4, m)
	id, _, _, _ := m.told()
	isSaved := func(mapped bool) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			rec := saved["g"]
			return rec.Leader == id && (len(rec.Members) > 0) == mapped &&
				rec.Sessions[id] == control.MemberTimeouts{SessionMillis: 2000, RebalanceMillis: 5000}
		}
	}
	testkit.Eventually(t, 5*time.Second, "the record is saved", isSaved(false))
	mu.Lock()
	clear(saved)
	mu.Unlock()
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	markDirty(x.p.groups.table(), "g") // as a rebalance at the last moment does
	x.moveGroups(2, "blue", "green")
	testkit.Eventually(t, 5*time.Second, "the record is saved with the new mapping", isSaved(true))
}

func markDirty(t *groupTable, group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.markDirty(group)
}

// rawLive is a raw connection to the proxy, in a client's name.
func (x *live) rawLive(clientID string) *brokerConn {
	x.t.Helper()
	conn, err := dialTCP(x.ctx, x.p.Addr().String())
	mustNoError(x.t, "connect", err)
	b := newBrokerConn(conn, clientID)
	x.t.Cleanup(b.close)
	return b
}

func rawJoin(id string) *kmsg.JoinGroupRequest {
	m := rawMember{group: "g", id: id, topics: []string{"orders"}, session: 6000}
	return m.joinRequest()
}

// rawJoinID joins until the member has an id.
func (x *live) rawJoinID(conn *brokerConn) string {
	x.t.Helper()
	r, err := conn.ask(x.ctx, rawJoin(""))
	mustNoError(x.t, "join", err)
	resp := r.(*kmsg.JoinGroupResponse)
	if resp.ErrorCode != kerr.MemberIDRequired.Code {
		x.t.Fatalf("code %d", resp.ErrorCode)
	}
	return resp.MemberID
}

func TestJoinsThatArePendingAtTheGateAreAnsweredAndNewOnesWait(t *testing.T) {
	x := startLive(t, map[string]translate.Names{"blue": {}, "green": {}}, nil)
	first, second, third := x.rawLive("a"), x.rawLive("b"), x.rawLive("c")
	id := x.rawJoinID(first)
	_, err := first.ask(x.ctx, rawJoin(id))
	mustNoError(t, "join", err)
	answers := make(chan kmsg.Response, 2)
	errs := make(chan error, 2)
	join := func(conn *brokerConn, id string) {
		resp, err := conn.ask(x.ctx, rawJoin(id))
		errs <- err
		answers <- resp
	}
	pending := x.rawJoinID(second)
	go join(second, pending) // waits for the first to rejoin, which it does not
	testkit.Eventually(t, 5*time.Second, "the group rebalances", func() bool {
		groups, err := x.p.describe(x.ctx, "blue", []string{"g"})
		return err == nil && groups["g"].State == "PreparingRebalance"
	})
	_, err = x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	mustNoError(t, "hold", x.p.Hold(x.ctx))
	ctx, cancel := context.WithTimeout(x.ctx, 2*time.Second)
	defer cancel()
	mustNoError(t, "the drain waits for no JoinGroup", x.p.Drain(ctx))
	go join(third, "") // at the gate
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if facts.Barrier != 1 {
		t.Fatalf("facts %+v", facts)
	}
	x.p.Publish(x.emptyRoute(2, "green", "blue"))
	x.p.Release()
	x.p.RetireGroups(x.ctx, "blue")
	codes := map[int16]bool{}
	for range 2 {
		mustNoError(t, "join", <-errs)
		codes[(<-answers).(*kmsg.JoinGroupResponse).ErrorCode] = true
	}
	if !codes[kerr.NotCoordinator.Code] || !codes[kerr.MemberIDRequired.Code] {
		t.Fatalf("codes %v", codes)
	}
	r, err := second.ask(x.ctx, rawJoin(pending)) // as a client does then, with the id that it has
	mustNoError(t, "join", err)
	resp := r.(*kmsg.JoinGroupResponse)
	if resp.ErrorCode != kerr.MemberIDRequired.Code || resp.MemberID == pending {
		t.Fatalf("code %d, id %s", resp.ErrorCode, resp.MemberID)
	}
	r, err = second.ask(x.ctx, rawJoin(resp.MemberID))
	mustNoError(t, "join", err)
	if resp := r.(*kmsg.JoinGroupResponse); resp.ErrorCode != 0 || resp.LeaderID != resp.MemberID {
		t.Fatalf("%+v", resp)
	}
}
