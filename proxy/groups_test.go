package proxy

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/switchback-proxy/switchback/internal/control"
)

// oracle is the dumbest account of who is who: one list of pairs.
type oracle struct {
	pairs [][2]string // shown, real
	shift int32
}

func (o *oracle) real(shown string) string {
	for _, p := range o.pairs {
		if p[0] == shown {
			return p[1]
		}
	}
	return shown
}

func (o *oracle) shown(real string) string {
	for _, p := range o.pairs {
		if p[1] == real {
			return p[0]
		}
	}
	return real
}

func TestMappingIsABijectionWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 6).Draw(t, "members")
		o := &oracle{shift: rapid.Int32Range(-50, 50).Draw(t, "shift")}
		toReal := map[string]string{}
		for i := range n {
			shown, real := fmt.Sprintf("shown-%d", i), fmt.Sprintf("real-%d", i)
			o.pairs = append(o.pairs, [2]string{shown, real})
			toReal[shown] = real
		}
		m := newGroupMap(o.shift, toReal)
		for len(o.pairs) > 0 && rapid.Bool().Draw(t, "leave") {
			i := rapid.IntRange(0, len(o.pairs)-1).Draw(t, "who")
			m = m.without(o.pairs[i][0])
			o.pairs = slices.Delete(o.pairs, i, i+1)
		}
		for i := range n + 1 {
			shown, real := fmt.Sprintf("shown-%d", i), fmt.Sprintf("real-%d", i)
			if got, want := m.real(shown), o.real(shown); got != want {
				t.Fatalf("real(%s) = %s, want %s", shown, got, want)
			}
			if got, want := m.shown(real), o.shown(real); got != want {
				t.Fatalf("shown(%s) = %s, want %s", real, got, want)
			}
			if back := m.shown(m.real(shown)); back != shown {
				t.Fatalf("%s comes back as %s", shown, back)
			}
		}
		g := rapid.Int32Range(60, 1000).Draw(t, "generation")
		if shown := m.shownGeneration(g); shown != g+o.shift || m.realGeneration(shown) != g {
			t.Fatalf("generation %d, shift %d: shown %d, back %d", g, o.shift, shown, m.realGeneration(shown))
		}
		for _, none := range []int32{-1} {
			if m.shownGeneration(none) != none || m.realGeneration(none) != none {
				t.Fatalf("generation %d means no member and must stay", none)
			}
		}
		if old := m.realGeneration(0); o.shift > 0 && old < 0 {
			t.Fatalf("generation 0 became %d, which means no member", old)
		}
	})
}

// joinAnswer is a JoinGroup answer for the leader of the given members.
func joinAnswer(generation int32, member, leader string, members ...string) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version, resp.Generation, resp.MemberID, resp.LeaderID = 9, generation, member, leader
	for _, id := range members {
		resp.Members = append(resp.Members, kmsg.JoinGroupResponseMember{MemberID: id})
	}
	return resp
}

func TestJoinAnswerKeepsTheIdsThatClientsKnow(t *testing.T) {
	table := newGroupTable()
	table.joined("blue", "g", memberInfo{}, consumerProtocol, joinAnswer(7, "a", "a", "a", "b"))
	table.publish(&shadowGroup{group: "g", cluster: "green", generation: 2,
		members: []*shadowMember{{shown: "a", real: "x"}, {shown: "b", real: "y"}}}, 7)

	resp := joinAnswer(3, "x", "x", "x", "y", "z")
	table.joined("green", "g", memberInfo{}, consumerProtocol, resp)
	if resp.MemberID != "a" || resp.LeaderID != "a" || resp.Generation != 8 {
		t.Fatalf("shown: member %s, leader %s, generation %d", resp.MemberID, resp.LeaderID, resp.Generation)
	}
	var ids []string
	for _, m := range resp.Members {
		ids = append(ids, m.MemberID)
	}
	if want := []string{"a", "b", "z"}; !slices.Equal(ids, want) {
		t.Fatalf("members %v, want %v: a new member is shown by its own id", ids, want)
	}
	if got := table.generation("g"); got != 8 {
		t.Fatalf("remembered generation %d", got)
	}
}

func TestMembersThatTheLeaderDoesNotSeeAnyMoreAreForgotten(t *testing.T) {
	table := newGroupTable()
	table.publish(&shadowGroup{group: "g", cluster: "green", generation: 1,
		members: []*shadowMember{{shown: "a", real: "x"}, {shown: "b", real: "y"}}}, 4)
	table.joined("green", "g", memberInfo{}, consumerProtocol, joinAnswer(2, "x", "x", "x"))
	m := table.mapOf("green", "g")
	if m.real("a") != "x" || m.real("b") != "b" {
		t.Fatalf("a → %s, b → %s", m.real("a"), m.real("b"))
	}
}

func TestNegativeShiftEndsWhenTheBrokerCountsAnew(t *testing.T) {
	table := newGroupTable()
	table.publish(&shadowGroup{group: "g", cluster: "green", generation: 9,
		members: []*shadowMember{{shown: "a", real: "x"}}}, 5)
	resp := joinAnswer(10, "x", "x", "x")
	table.joined("green", "g", memberInfo{}, consumerProtocol, resp)
	if resp.Generation != 6 {
		t.Fatalf("generation 10 is shown as %d, want 6", resp.Generation)
	}
	resp = joinAnswer(1, "n", "n", "n")
	table.joined("green", "g", memberInfo{}, consumerProtocol, resp)
	if resp.Generation != 1 || table.generation("g") != 1 {
		t.Fatalf("a new group on the broker shows %d, remembered %d", resp.Generation, table.generation("g"))
	}
}

func TestGroupIsForgottenWithItsLastMember(t *testing.T) {
	table := newGroupTable()
	instance := "i"
	table.joined("blue", "g", memberInfo{}, consumerProtocol, joinAnswer(1, "a", "a", "a", "s"))
	table.joined("blue", "g", memberInfo{instanceID: &instance}, consumerProtocol, joinAnswer(1, "s", "a"))
	table.left("blue", "g", "a", nil)
	table.left("blue", "g", "", &instance)
	if len(table.byName) != 0 {
		t.Fatalf("still there: %v", slices.Collect(maps.Keys(table.byName)))
	}
	if records := table.takeDirty("blue"); len(records) != 1 || len(records[0].Members) != 0 || len(records[0].Sessions) != 0 {
		t.Fatalf("the record must say that nothing is left: %+v", records)
	}
}

func TestRecordsBringTheMappingBackAfterARestart(t *testing.T) {
	before := newGroupTable()
	info := memberInfo{timeouts: control.MemberTimeouts{SessionMillis: 6000, RebalanceMillis: 60000}}
	before.joined("blue", "g", info, consumerProtocol, joinAnswer(7, "a", "a", "a"))
	before.publish(&shadowGroup{group: "g", cluster: "green", generation: 2, members: []*shadowMember{{shown: "a", real: "x"}}}, 7)

	records := map[string]control.Group{}
	for _, rec := range before.records("green") {
		records[rec.Name] = rec
	}
	after := newGroupTable()
	after.restore(records)
	after.bind("green")
	view := after.enter("green", "g", "a")
	if view.real("a") != "x" || view.realGeneration(7) != 2 || view.barred {
		t.Fatalf("a → %s, 7 → %d, barred %v", view.real("a"), view.realGeneration(7), view.barred)
	}
	known, leader := after.known("g")
	if leader != "a" || known["a"].timeouts != info.timeouts {
		t.Fatalf("leader %q, timeouts %+v", leader, known["a"].timeouts)
	}
	if got := after.records("green"); len(got) != 1 || !maps.Equal(got[0].Members, records["g"].Members) || got[0].Shift != records["g"].Shift {
		t.Fatalf("records changed: %+v", got)
	}
}

func TestBarrierBarsOldMembersUntilTheyHaveRejoined(t *testing.T) {
	table := newGroupTable()
	info := memberInfo{timeouts: control.MemberTimeouts{RebalanceMillis: 60000}}
	table.joined("blue", "g", info, consumerProtocol, joinAnswer(7, "a", "a", "a"))
	table.raise("green", "g")
	if table.enter("blue", "g", "a").barred {
		t.Fatal("barred on the cluster that is still active")
	}
	if !table.enter("green", "g", "a").barred {
		t.Fatal("not barred")
	}
	if table.enter("green", "g", "").barred {
		t.Fatal("a call without a member is barred")
	}
	table.newcomer("green", "g", "n")
	if table.enter("green", "g", "n").barred {
		t.Fatal("the member is barred after the cluster gave it an id")
	}
	resp := joinAnswer(1, "n", "n", "n")
	table.joined("green", "g", info, consumerProtocol, resp)
	if resp.Generation != 8 {
		t.Fatalf("generation goes on at %d, want 8", resp.Generation)
	}
	table.lower("green", "g")
	if table.enter("green", "g", "a").barred {
		t.Fatal("barred after the move went back")
	}
}

// A broker gives a static member that starts again a new id without a rebalance, so no leader's answer says who is gone.
func TestAStaticMemberThatStartsAgainIsOneMember(t *testing.T) {
	table := newGroupTable()
	one, other := "i-1", "i-2"
	table.publish(&shadowGroup{group: "g", cluster: "blue", generation: 4,
		members: []*shadowMember{{shown: "leader", real: "x"}, {shown: "one-0", real: "y"}}}, 5)
	join := func(instance *string, id string) string {
		resp := joinAnswer(5, id, "x")
		table.joined("blue", "g", memberInfo{instanceID: instance}, consumerProtocol, resp)
		return resp.MemberID
	}
	table.joined("blue", "g", memberInfo{}, consumerProtocol, joinAnswer(5, "x", "x", "x", "y"))
	join(&one, "y")
	join(&other, "two")
	last := ""
	for i := range 100 {
		last = join(&one, fmt.Sprintf("one-%d", i+1))
	}
	members, _ := table.known("g")
	if got, want := slices.Sorted(maps.Keys(members)), []string{"leader", last, "two"}; !slices.Equal(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	rec := table.records("blue")[0]
	if len(rec.Sessions) != 3 || len(rec.Members) != 1 || rec.Members["leader"] != "x" {
		t.Errorf("record %+v", rec)
	}
}

func TestABarrierThatIsOverHoldsNothing(t *testing.T) {
	for name, call := range map[string]func(*groupTable){
		"a call":     func(t *groupTable) { t.enter("green", "g", "a") },
		"a newcomer": func(t *groupTable) { t.newcomer("green", "g", "n") },
		"a join": func(t *groupTable) {
			t.joined("green", "g", memberInfo{}, consumerProtocol, joinAnswer(1, "n", "n", "n"))
		},
		"a move on": func(t *groupTable) { t.forgetCluster("green") },
	} {
		t.Run(name, func(t *testing.T) {
			table := newGroupTable()
			table.joined("blue", "g", memberInfo{}, consumerProtocol, joinAnswer(7, "a", "a", "a"))
			table.raise("green", "g")
			if !table.enter("green", "g", "a").barred {
				t.Fatal("not barred")
			}
			st := table.byName["g"]
			st.barrier.deadline = time.Now()
			if call(table); st.barrier != nil {
				t.Errorf("the barrier is still there: %+v", st.barrier)
			}
		})
	}
}

func TestAGroupIsForgottenThoughItStoodAtABarrier(t *testing.T) {
	table := newGroupTable()
	table.raise("green", "g")
	table.joined("green", "g", memberInfo{}, consumerProtocol, joinAnswer(1, "n", "n", "n"))
	table.enter("green", "g", "n")
	table.byName["g"].barrier.deadline = time.Now()
	if table.left("green", "g", "n", nil); table.byName["g"] != nil {
		t.Error("the group is still there")
	}
}
