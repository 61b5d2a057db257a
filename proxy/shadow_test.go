package proxy

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

func mustNoError(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// state is what a cluster says of a group.
func (x *pair) state(cluster, group string) describedGroup {
	x.t.Helper()
	groups, err := x.p.describe(x.ctx, cluster, []string{group})
	if err != nil {
		x.t.Fatal(err)
	}
	return groups[group]
}

func TestMovedGroupGoesOnWithoutARebalance(t *testing.T) {
	x := newPair(t, nil)
	a, b, c := x.member("g", "a", "orders"), x.member("g", "b", "orders"), x.member("g", "c", "orders")
	gather(x, a, b, c)
	mustNoError(t, "commit before the move", a.commit("orders", 0, 5))
	before := []rawMember{*a, *b, *c}

	facts := x.move(2, "blue", "green")
	if facts.Moved != 1 || facts.Barrier != 0 || facts.Members != 3 {
		t.Fatalf("facts %+v", facts)
	}
	for i, m := range []*rawMember{a, b, c} {
		mustNoError(t, "heartbeat after the move", m.heartbeat())
		mustNoError(t, "commit after the move", m.commit("orders", int32(i), 10+int64(i)))
		if m.id != before[i].id || m.generation != before[i].generation {
			t.Fatalf("member %s became %s, generation %d became %d", before[i].id, m.id, before[i].generation, m.generation)
		}
		at, err := m.fetch("orders", int32(i))
		mustNoError(t, "fetch the offset", err)
		if at != 10+int64(i) {
			t.Fatalf("offset %d", at)
		}
	}
	g := x.state("green", "g")
	if g.State != stateStable || len(g.Members) != 3 {
		t.Fatalf("on green: %s with %d members", g.State, len(g.Members))
	}
	for _, d := range g.Members {
		for i, m := range []*rawMember{a, b, c} {
			if d.ClientID == m.clientID && !bytes.Equal(d.MemberAssignment, assignmentFor("orders", int32(i))) {
				t.Fatalf("%s has another assignment on green", m.clientID)
			}
		}
	}
	if old := x.state("blue", "g"); len(old.Members) != 0 {
		t.Fatalf("blue still has %d members", len(old.Members))
	}
}

func TestLaterRebalanceKeepsIdsLeaderAndGrowingGenerations(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	x.move(2, "blue", "green")
	shown, generation, leader := a.id, a.generation, a.leader
	mustNoError(t, "heartbeat", a.heartbeat())
	mustNoError(t, "heartbeat", b.heartbeat())

	c := x.member("g", "c", "orders")
	gather(x, a, b, c)
	if a.id != shown || a.leader != leader || b.leader != leader || c.leader != leader {
		t.Fatalf("id %s (was %s), leaders %s %s %s (was %s)", a.id, shown, a.leader, b.leader, c.leader, leader)
	}
	if a.generation <= generation {
		t.Fatalf("generation went from %d to %d", generation, a.generation)
	}
	for _, m := range []*rawMember{a, b, c} {
		mustNoError(t, "heartbeat after the rebalance", m.heartbeat())
	}
}

func TestGroupMovesThereAndBackAndThereAgain(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	ids, generation := [2]string{a.id, b.id}, a.generation
	from, to := "blue", "green"
	for g := translate.Generation(2); g <= 5; g++ {
		if facts := x.move(g, from, to); facts.Moved != 1 {
			t.Fatalf("move %d: %+v", g, facts)
		}
		for _, m := range []*rawMember{a, b} {
			mustNoError(t, "heartbeat", m.heartbeat())
			mustNoError(t, "commit", m.commit("orders", 0, int64(g)))
		}
		if [2]string{a.id, b.id} != ids || a.generation != generation {
			t.Fatalf("move %d: ids or generation changed", g)
		}
		from, to = to, from
	}
	gather(x, a, b)
	if a.generation <= generation || a.id != ids[0] {
		t.Fatalf("generation %d after %d, id %s after %s", a.generation, generation, a.id, ids[0])
	}
	mustNoError(t, "leave", b.leave())
}

func TestClientsOfEveryAgeMove(t *testing.T) {
	for older := range int16(9) { // v0 has no rebalance timeout, which the embedded broker takes for none at all
		t.Run(fmt.Sprintf("JoinGroup v%d", 9-older), func(t *testing.T) {
			x := newPair(t, nil)
			a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
			a.older, b.older = older, older
			gather(x, a, b)
			id, generation := a.id, a.generation
			if facts := x.move(2, "blue", "green"); facts.Moved != 1 {
				t.Fatalf("facts %+v", facts)
			}
			mustNoError(t, "heartbeat", a.heartbeat())
			mustNoError(t, "commit", b.commit("orders", 1, 4))
			gather(x, a, b)
			if a.id != id || a.generation <= generation || !bytes.Equal(b.assigned, assignmentFor("orders", 1)) {
				t.Fatalf("id %s after %s, generation %d after %d, assignment %q", a.id, id, a.generation, generation, b.assigned)
			}
			mustNoError(t, "leave", a.leave())
			if g := x.state("green", "g"); len(g.Members) != 1 {
				t.Fatalf("%d members after one of two has left", len(g.Members))
			}
		})
	}
}

func TestManyGroupsMoveAtOnceAndNothingIsLeftRunning(t *testing.T) {
	x := newPair(t, nil)
	const n = 40
	var all []*rawMember
	var gathered sync.WaitGroup
	for i := range n {
		a, b := x.member(fmt.Sprintf("g%d", i), "a", "orders"), x.member(fmt.Sprintf("g%d", i), "b", "orders")
		all = append(all, a, b)
		gathered.Go(func() { gather(x, a, b) })
	}
	gathered.Wait()
	running := goleak.IgnoreCurrent()
	if facts := x.move(2, "blue", "green"); facts.Moved != n || facts.Members != 2*n {
		t.Fatalf("facts %+v", facts)
	}
	for _, m := range all {
		mustNoError(t, "heartbeat", m.heartbeat())
	}
	x.p.groups.close()
	for _, c := range x.clients {
		c.Close()
	}
	for _, c := range x.clusters {
		c.Close()
	}
	goleak.VerifyNone(t, running)
}

func TestStaticMembersMove(t *testing.T) {
	x := newPair(t, nil)
	one, two := "one", "two"
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	a.instanceID, b.instanceID = &one, &two
	gather(x, a, b)
	if facts := x.move(2, "blue", "green"); facts.Moved != 1 {
		t.Fatalf("facts %+v", facts)
	}
	for _, m := range []*rawMember{a, b} {
		mustNoError(t, "heartbeat", m.heartbeat())
		mustNoError(t, "commit", m.commit("orders", 0, 3))
	}
	// A restart of a static member: no rebalance, and the old id is fenced.
	again := x.member("g", "a", "orders")
	again.instanceID = &one
	got := again.join(x.ctx)
	mustNoError(t, "rejoin by instance id", got.err)
	if got.resp.Generation != a.generation {
		t.Fatalf("generation %d, want %d", got.resp.Generation, a.generation)
	}
	if err := a.heartbeat(); err != kerr.FencedInstanceID {
		t.Fatalf("the old member of the instance gets %v", err)
	}
	again.took(got.resp)
	mustNoError(t, "heartbeat of the restarted member", again.heartbeat())
}

func TestShadowsLiveUntilClientsTakeOver(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	a.session, b.session = 400, 400
	gather(x, a, b)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	idle := time.NewTimer(1200 * time.Millisecond) // three sessions
	defer idle.Stop()
	for beating := true; beating; {
		select {
		case <-idle.C:
			beating = false
		case <-time.After(50 * time.Millisecond):
			mustNoError(t, "heartbeat on blue", a.heartbeat())
			mustNoError(t, "heartbeat on blue", b.heartbeat())
		}
	}
	if g := x.state("green", "g"); g.State != stateStable || len(g.Members) != 2 {
		t.Fatalf("the shadows are gone: %s, %d members", g.State, len(g.Members))
	}
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if facts.Moved != 1 {
		t.Fatalf("facts %+v", facts)
	}
	x.publish(pairRoute(2, "green", "blue"))
	x.p.RetireGroups(x.ctx, "blue")
	mustNoError(t, "heartbeat on green", a.heartbeat())
	// b never comes: its shadow is given up after a session, and the broker throws it out after another.
	testkit.Eventually(t, 5*time.Second, "the member that does not come is out", func() bool {
		_ = a.heartbeat()
		return len(x.state("green", "g").Members) < 2
	})
}

func TestChangedGroupIsMadeAnewAtTheGate(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	gather(x, a, b)
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if facts.Moved != 1 {
		t.Fatalf("facts %+v", facts)
	}
	x.publish(pairRoute(2, "green", "blue"))
	x.p.RetireGroups(x.ctx, "blue")
	mustNoError(t, "heartbeat", a.heartbeat())
	mustNoError(t, "heartbeat", b.heartbeat())
}

// Clients wait at the gate meanwhile.
func TestAStandbyThatDoesNotAnswerHoldsUpNoCheck(t *testing.T) {
	x := newPair(t, nil)
	var hangs atomic.Bool
	green := x.p.cfg.Clusters["green"]
	green.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		if !hangs.Load() {
			return dialTCP(ctx, addr)
		}
		here, there := net.Pipe() // nobody reads
		t.Cleanup(func() { there.Close() })
		return here, nil
	}
	x.p.cfg.Clusters["green"] = green
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	gather(x, a, b)
	hangs.Store(true)
	began := time.Now()
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if facts.Barrier != 1 {
		t.Errorf("facts %+v", facts)
	}
	if took := time.Since(began); took >= leaveTime {
		t.Errorf("it took %v", took)
	}
}

func TestGroupThatOnlyCountedOnKeepsItsShadows(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	shadow := x.p.groups.table().shadowOf("g", "green")
	gather(x, a, b)
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if facts.Moved != 1 || x.p.groups.table().shadowOf("g", "green") != shadow {
		t.Fatalf("facts %+v", facts)
	}
	x.publish(pairRoute(2, "green", "blue"))
	mustNoError(t, "heartbeat", a.heartbeat())
	mustNoError(t, "heartbeat", b.heartbeat())
}

func TestNewAssignmentIsBroughtToTheShadowsThatAreThere(t *testing.T) {
	x := newPair(t, nil)
	a, b, c := x.member("g", "a", "orders"), x.member("g", "b", "orders"), x.member("g", "c", "orders")
	gather(x, a, b, c)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	gather(x, c, a, b) // each has another partition now
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if facts.Moved != 1 || facts.Millis > 900 {
		t.Fatalf("facts %+v", facts)
	}
	x.publish(pairRoute(2, "green", "blue"))
	for _, d := range x.state("green", "g").Members {
		for i, m := range []*rawMember{c, a, b} {
			if d.ClientID == m.clientID && !bytes.Equal(d.MemberAssignment, assignmentFor("orders", int32(i))) {
				t.Fatalf("%s has its former assignment on green", m.clientID)
			}
		}
	}
	for _, m := range []*rawMember{a, b, c} {
		mustNoError(t, "heartbeat", m.heartbeat())
	}
}

func TestShadowsOfAGroupThatIsGoneAreTakenOut(t *testing.T) {
	x := newPair(t, nil)
	a := x.member("g", "a", "orders")
	gather(x, a)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	mustNoError(t, "leave", a.leave())
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{"g"}
	if code := x.send("c", req).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code != 0 {
		t.Fatalf("delete: %d", code)
	}
	facts, err := x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	if g := x.state("green", "g"); facts.Groups != 0 || len(g.Members) != 0 {
		t.Fatalf("facts %+v, %d members on green", facts, len(g.Members))
	}
}

func TestRebalancingGroupStandsAtTheBarrier(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	generation, id := a.generation, a.id
	ctx, cancel := context.WithCancel(x.ctx)
	waiting := make(chan joined, 1)
	go func() { waiting <- a.join(ctx) }() // b does not follow: the group rebalances
	testkit.Eventually(t, 5*time.Second, "the group rebalances", func() bool { return x.state("blue", "g").State != stateStable })

	facts := x.move(2, "blue", "green")
	if facts.Barrier != 1 || facts.Reasons["g"] == "" {
		t.Fatalf("facts %+v", facts)
	}
	cancel()
	<-waiting
	if err := a.heartbeat(); err != kerr.RebalanceInProgress {
		t.Fatalf("heartbeat at the barrier: %v", err)
	}
	mustNoError(t, "commit at the barrier", a.commit("orders", 0, 77))
	gather(x, a, b)
	if a.generation <= generation {
		t.Fatalf("generation went from %d to %d", generation, a.generation)
	}
	if a.id == id {
		t.Fatal("the id of the old cluster is still used")
	}
	for _, m := range []*rawMember{a, b} {
		mustNoError(t, "heartbeat after the rejoin", m.heartbeat())
	}
	at, err := a.fetch("orders", 0)
	mustNoError(t, "fetch", err)
	if at != 77 {
		t.Fatalf("offset %d", at)
	}
	late := &rawMember{x: x, group: "g", clientID: "late", id: id, generation: generation}
	if err := late.commit("orders", 0, 1); err != kerr.RebalanceInProgress {
		t.Fatalf("commit of a member that has not rejoined: %v", err)
	}
}

func TestDiscardTakesTheShadowsOutAgain(t *testing.T) {
	x := newPair(t, nil)
	a := x.member("g", "a", "orders")
	gather(x, a)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	if _, _, _, ok := x.p.ShadowMember("g"); !ok {
		t.Fatal("no shadow member")
	}
	x.p.DiscardGroups(x.ctx)
	if g := x.state("green", "g"); len(g.Members) != 0 {
		t.Fatalf("%d members left on green", len(g.Members))
	}
	if _, _, _, ok := x.p.ShadowMember("g"); ok {
		t.Fatal("there is still a shadow member")
	}
	mustNoError(t, "heartbeat", a.heartbeat())
	if facts := x.move(2, "blue", "green"); facts.Moved != 1 {
		t.Fatalf("the next attempt: %+v", facts)
	}
	mustNoError(t, "heartbeat", a.heartbeat())
}

func TestShadowMemberStoresFinalOffsets(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	id, generation, instance, ok := x.p.ShadowMember("g")
	if !ok {
		t.Fatal("no shadow member")
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.InstanceID = "g", id, generation, instance
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 42
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "orders", []kmsg.OffsetCommitRequestTopicPartition{p}
	for _, one := range topicIDs(t, x, "green") {
		topic.TopicID = one
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(x.ctx, x.clients["green"])
	mustNoError(t, "commit", err)
	mustNoError(t, "commit", kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

// topicIDs returns the id of "orders" on a cluster.
func topicIDs(t testing.TB, x *pair, cluster string) map[string][16]byte {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	name := "orders"
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, err := req.RequestWith(x.ctx, x.clients[cluster])
	mustNoError(t, "metadata", err)
	return map[string][16]byte{name: resp.Topics[0].TopicID}
}

func TestRestartedProcessServesMovedGroupsFromTheirRecords(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	_, err = x.p.CheckGroups(x.ctx)
	mustNoError(t, "check", err)
	records := x.p.GroupRecords()

	restarted, err := New(x.p.cfg)
	mustNoError(t, "new", err)
	byName := groupsByName(records)
	restarted.SetGroups(byName)
	old := x.p
	x.p = restarted
	x.publish(pairRoute(2, "green", "blue"))
	restarted.groups.start(restarted)
	defer restarted.groups.close()
	old.groups.close()
	restarted.RetireGroups(x.ctx, "blue")
	for _, m := range []*rawMember{a, b} {
		mustNoError(t, "heartbeat", m.heartbeat())
		mustNoError(t, "commit", m.commit("orders", 0, 3))
	}
	if g := x.state("blue", "g"); len(g.Members) != 0 {
		t.Fatalf("%d members left on blue", len(g.Members))
	}
	if facts := x.move(3, "green", "blue"); facts.Moved != 1 {
		t.Fatalf("facts %+v", facts)
	}
	for _, m := range []*rawMember{a, b} {
		mustNoError(t, "heartbeat after the way back", m.heartbeat())
	}
	generation := a.generation
	gather(x, a, b)
	if a.leader != a.id || a.generation <= generation {
		t.Fatalf("leader %s, want %s; generation %d after %d", a.leader, a.id, a.generation, generation)
	}
}

func TestLeftOverShadowsOfADeadProcessAreReplaced(t *testing.T) {
	x := newPair(t, nil)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	_, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)

	next, err := New(x.p.cfg)
	mustNoError(t, "new", err)
	next.SetGroups(x.p.Groups())
	old := x.p
	x.p = next
	x.publish(pairRoute(1, "blue", "green"))
	next.groups.start(next)
	defer next.groups.close()
	old.groups.close()
	mustNoError(t, "heartbeat", a.heartbeat())
	if facts := x.move(2, "blue", "green"); facts.Moved != 1 {
		t.Fatalf("facts %+v", facts)
	}
	if g := x.state("green", "g"); len(g.Members) != 2 {
		t.Fatalf("%d members on green", len(g.Members))
	}
	mustNoError(t, "heartbeat", a.heartbeat())
	mustNoError(t, "heartbeat", b.heartbeat())
}

func TestForeignMembersOnTheStandbyAreLeftAlone(t *testing.T) {
	x := newPair(t, nil)
	a := x.member("g", "a", "orders")
	gather(x, a)
	x.publish(pairRoute(1, "green", "blue"))
	foreign := x.member("g", "someone else", "orders")
	gather(x, foreign)
	x.publish(pairRoute(1, "blue", "green"))
	mustNoError(t, "heartbeat", a.heartbeat())
	facts, err := x.p.PrepareGroups(x.ctx, "green")
	mustNoError(t, "prepare", err)
	if facts.Barrier != 1 || facts.Moved != 0 {
		t.Fatalf("facts %+v", facts)
	}
	if g := x.state("green", "g"); len(g.Members) != 1 || g.Members[0].ClientID != "someone else" {
		t.Fatalf("members on green: %+v", g.Members)
	}
}

func TestGroupMovesBetweenClustersWithDifferentTopicNames(t *testing.T) {
	names := map[string]translate.Names{"blue": translate.IdentityNames(), "green": translate.PrefixNames("blue.")}
	x := newPair(t, names)
	a, b := x.member("g", "a", "orders"), x.member("g", "b", "orders")
	gather(x, a, b)
	x.move(2, "blue", "green")
	for _, d := range x.state("green", "g").Members {
		if !bytes.Contains(d.ProtocolMetadata, []byte("blue.orders")) || !bytes.Contains(d.MemberAssignment, []byte("blue.orders")) {
			t.Fatalf("on green %q is subscribed to %q and has %q", d.ClientID, d.ProtocolMetadata, d.MemberAssignment)
		}
	}
	mustNoError(t, "heartbeat", a.heartbeat())
	mustNoError(t, "commit", b.commit("orders", 1, 9))
	at, err := b.fetch("orders", 1)
	mustNoError(t, "fetch", err)
	if at != 9 {
		t.Fatalf("offset %d", at)
	}
	gather(x, a, b)
	if !bytes.Equal(b.assigned, assignmentFor("orders", 1)) {
		t.Fatalf("the client sees %q", b.assigned)
	}
	if x.move(3, "green", "blue"); bytes.Contains(x.state("blue", "g").Members[0].MemberAssignment, []byte("blue.orders")) {
		t.Fatal("a name of green is on blue")
	}
	mustNoError(t, "heartbeat", a.heartbeat())
}
