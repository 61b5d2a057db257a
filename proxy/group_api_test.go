package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

// Physical and virtual are never equal in mappedRoute: 50 records at 100 for virtual 0, a gap [50, 60), and from virtual 60
// on the native segment at 160. The epochs of the current era are shown 20 higher.
func mappedRoute(t testing.TB, x *pair, active string) Route {
	t.Helper()
	m := translate.NewMap(0)
	var err error
	if m, err = m.AppendMirrored(0, 100, 50); err == nil {
		m, err = m.OpenNative(60, 160)
	}
	mustNoError(t, "map", err)
	r := pairRoute(2, active, "green")
	eras := []control.Era{{Generation: 1, Cluster: "green"}, {Generation: 2, Cluster: active, Virtual: 60, Physical: 160, Shift: 20, FirstEpoch: 20}}
	closed := translate.NewMap(0) // nothing is known from 50 on
	closed, err = closed.AppendMirrored(0, 100, 50)
	mustNoError(t, "map", err)
	r.Topics = map[string]*Topic{"orders": {
		Name: "orders", VirtualID: [16]byte{0xff, 1}, PhysicalID: topicIDs(t, x, active)["orders"],
		Partitions: []Partition{{Eras: eras, Map: m}, {Eras: eras, Map: closed}},
	}}
	return r
}

// storedOffset is what the broker has for a group.
func (x *pair) storedOffset(cluster, group string, partition int32) (offset int64, epoch int32) {
	x.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	req.Groups = append(req.Groups, g)
	req.Group = group
	resp, err := req.RequestWith(x.ctx, x.clients[cluster])
	mustNoError(x.t, "fetch offsets", err)
	for _, topic := range resp.Groups[0].Topics {
		for _, p := range topic.Partitions {
			if p.Partition == partition {
				return p.Offset, p.LeaderEpoch
			}
		}
	}
	x.t.Fatalf("no offset of partition %d: %+v", partition, resp.Groups[0])
	return 0, 0
}

func commitRequest(version int16, group string, id [16]byte, partition int32, offset int64, epoch int32) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = version, group, -1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = partition, offset, epoch
	metadata := "kept"
	p.Metadata = &metadata
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = "orders", id, []kmsg.OffsetCommitRequestTopicPartition{p}
	req.Topics = append(req.Topics, topic)
	return req
}

func TestCommittedOffsetsAreVirtualToClientsAndPhysicalOnTheCluster(t *testing.T) {
	x := newPair(t, nil)
	r := mappedRoute(t, x, "blue")
	x.publish(r)
	for version := int16(2); version <= 10; version++ {
		for _, c := range []struct{ virtual, physical, back int64 }{{0, 100, 0}, {49, 149, 49}, {50, 160, 60}, {60, 160, 60}, {75, 175, 75}} {
			group := fmt.Sprintf("g%d-%d", version, c.virtual)
			req := commitRequest(version, group, r.Topics["orders"].VirtualID, 0, c.virtual, 23)
			resp := x.send("c", req).(*kmsg.OffsetCommitResponse)
			one := resp.Topics[0]
			if one.Partitions[0].ErrorCode != 0 || version < 10 && one.Topic != "orders" || version >= 10 && one.TopicID != r.Topics["orders"].VirtualID {
				t.Fatalf("v%d: %+v", version, one)
			}
			if at, epoch := x.storedOffset("blue", group, 0); at != c.physical || version >= 6 && epoch != 3 {
				t.Fatalf("v%d: %d is stored as %d with epoch %d, want %d and 3", version, c.virtual, at, epoch, c.physical)
			}
			x.checkFetch(version, group, r.Topics["orders"].VirtualID, c.back)
		}
	}
}

// checkFetch reads a group's offset in every shape that the version has.
func (x *pair) checkFetch(version int16, group string, id [16]byte, want int64) {
	x.t.Helper()
	for _, all := range []bool{false, true} {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group = version, group
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		if !all {
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: []int32{0}}}
			g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", TopicID: id, Partitions: []int32{0}}}
		}
		req.Groups = []kmsg.OffsetFetchRequestGroup{g}
		resp := x.send("c", req).(*kmsg.OffsetFetchResponse)
		var got int64
		var epoch int32
		var metadata *string
		if version < 8 {
			p := resp.Topics[0].Partitions[0]
			got, epoch, metadata = p.Offset, p.LeaderEpoch, p.Metadata
		} else {
			t := resp.Groups[0].Topics[0]
			if version >= 10 && t.TopicID != id {
				x.t.Fatalf("v%d shows topic id %x", version, t.TopicID)
			}
			got, epoch, metadata = t.Partitions[0].Offset, t.Partitions[0].LeaderEpoch, t.Partitions[0].Metadata
		}
		wantEpoch := int32(-1)
		if version >= 6 && want > 60 {
			wantEpoch = 23
		}
		if got != want || version >= 5 && epoch != wantEpoch || metadata == nil || *metadata != "kept" {
			x.t.Fatalf("v%d, all %v: offset %d, epoch %d, want %d and %d", version, all, got, epoch, want, wantEpoch)
		}
	}
}

func TestOffsetsThatAreNotKnownYetAreRetriable(t *testing.T) {
	x := newPair(t, nil)
	r := mappedRoute(t, x, "blue")
	x.publish(r)
	id := r.Topics["orders"].VirtualID
	for version := int16(2); version <= 10; version++ {
		req := commitRequest(version, "g", id, 1, 70, -1)
		more := req.Topics[0].Partitions[0]
		more.Partition, more.Offset = 0, 61
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, more)
		resp := x.send("c", req).(*kmsg.OffsetCommitResponse)
		codes := map[int32]int16{}
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				codes[p.Partition] = p.ErrorCode
			}
		}
		if len(resp.Topics) != 1 || codes[0] != 0 || codes[1] != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("v%d: %d topics, codes %v", version, len(resp.Topics), codes)
		}
	}
	x.commitDirect("blue", "g", 1, 170) // where the map does not reach
	for version := int16(1); version <= 10; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version, req.Group = version, "g"
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "orders", Partitions: []int32{1}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "orders", TopicID: id, Partitions: []int32{1}}}}}
		resp := x.send("c", req).(*kmsg.OffsetFetchResponse)
		code := resp.ErrorCode
		switch {
		case version < 2:
			code = resp.Topics[0].Partitions[0].ErrorCode
		case version >= 8:
			code = resp.Groups[0].ErrorCode
		}
		if code != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("v%d: code %d", version, code)
		}
	}
}

// commitDirect stores an offset as a client without the proxy would.
func (x *pair) commitDirect(cluster, group string, partition int32, physical int64) {
	x.t.Helper()
	req := commitRequest(0, group, topicIDs(x.t, x, cluster)["orders"], partition, physical, -1)
	resp, err := req.RequestWith(x.ctx, x.clients[cluster])
	mustNoError(x.t, "commit", err)
	mustNoError(x.t, "commit", kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

func TestOddCommitsCostNobodyElseTheirs(t *testing.T) {
	x := newPair(t, nil)
	r := mappedRoute(t, x, "blue")
	x.publish(r)
	req := commitRequest(9, "g", [16]byte{}, 0, -1, -1)
	fine := req.Topics[0].Partitions[0]
	fine.Offset, fine.Partition = 7, 2 // the default era: as it is
	gone := kmsg.NewOffsetCommitRequestTopic()
	gone.Topic, gone.Partitions = "deleted", []kmsg.OffsetCommitRequestTopicPartition{fine}
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, fine)
	req.Topics = append(req.Topics, gone)
	resp := x.send("c", req).(*kmsg.OffsetCommitResponse)
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if want := topic.Topic == "deleted"; (p.ErrorCode != 0) != want {
				t.Fatalf("%s/%d: code %d", topic.Topic, p.Partition, p.ErrorCode)
			}
		}
	}
	m := x.member("g", "c")
	if at, err := m.fetch("orders", 0); err != nil || at != -1 {
		t.Fatalf("committed -1, got %d, %v", at, err)
	}
	if at, err := m.fetch("orders", 2); err != nil || at != 7 {
		t.Fatalf("committed 7, got %d, %v", at, err)
	}
}

func TestCoordinatorIsAVirtualNodeThatNoMoveChanges(t *testing.T) {
	x := newPair(t, nil)
	want := map[string]int32{}
	for generation, active := range []string{"blue", "green", "blue"} {
		x.publish(pairRoute(translate.Generation(generation+1), active, ""))
		for version := int16(0); version <= 6; version++ {
			for _, group := range []string{"g", "h", "another group"} {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.Version, req.CoordinatorKey, req.CoordinatorKeys = version, group, []string{group}
				resp := x.send("c", req).(*kmsg.FindCoordinatorResponse)
				code, node, host, port := resp.ErrorCode, resp.NodeID, resp.Host, resp.Port
				if version >= 4 {
					one := resp.Coordinators[0]
					code, node, host, port = one.ErrorCode, one.NodeID, one.Host, one.Port
				}
				if before, seen := want[group]; seen && before != node {
					t.Fatalf("%s moved from node %d to %d", group, before, node)
				}
				want[group] = node
				if code != 0 || node < 0 || node > 2 || host != "localhost" || port != 19093+node {
					t.Fatalf("v%d: code %d, node %d at %s:%d", version, code, node, host, port)
				}
			}
		}
	}
}

func TestCoordinatorsAreRefusedKeyByKey(t *testing.T) {
	x := newPair(t, nil)
	var err error
	x.p.cfg.Groups, err = translate.NewFilter([]string{"g.*"}, nil)
	mustNoError(t, "filter", err)
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{"other", "g1", "switchback.blue.green", "g2"}
	got := map[string]int16{}
	for _, one := range x.send("c", req).(*kmsg.FindCoordinatorResponse).Coordinators {
		got[one.Key] = one.ErrorCode
	}
	denied := kerr.GroupAuthorizationFailed.Code
	if len(got) != 4 || got["g1"] != 0 || got["g2"] != 0 || got["other"] != denied || got["switchback.blue.green"] != denied {
		t.Fatalf("codes %v", got)
	}
	for version := int16(1); version <= 6; version++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = version, transactionKey, "g1", []string{"g1"}
		resp := x.send("c", req).(*kmsg.FindCoordinatorResponse)
		code, why := resp.ErrorCode, resp.ErrorMessage
		if version >= 4 {
			code, why = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].ErrorMessage
		}
		if code != kerr.TransactionalIDAuthorizationFailed.Code || why == nil || *why == "" {
			t.Fatalf("v%d: code %d", version, code)
		}
	}
}

func TestBrokersErrorForOneKeyKeepsItsText(t *testing.T) {
	x := newPair(t, nil)
	for _, c := range []*kfake.Cluster{x.clusters["blue"]} {
		c.ControlKey(int16(kmsg.FindCoordinator), func(r kmsg.Request) (kmsg.Response, error, bool) {
			resp := r.ResponseKind().(*kmsg.FindCoordinatorResponse)
			why := "not today"
			resp.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{
				{Key: "g", NodeID: 1, Host: "real.example", Port: 9},
				{Key: "h", NodeID: 4711, Host: "real.example", Port: 9, ErrorCode: kerr.CoordinatorNotAvailable.Code, ErrorMessage: &why},
			}
			return resp, nil, true
		})
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 6, []string{"g", "h"}
	resp := x.send("c", req).(*kmsg.FindCoordinatorResponse)
	h := resp.Coordinators[1]
	if resp.Coordinators[0].ErrorCode != 0 || h.ErrorCode != kerr.CoordinatorNotAvailable.Code || *h.ErrorMessage != "not today" {
		t.Fatalf("%+v", resp.Coordinators)
	}
	if bytes.Contains(resp.AppendTo(nil), []byte("real.example")) || h.NodeID == 4711 {
		t.Fatal("a real address is shown")
	}
}

func TestCallFindsTheCoordinatorThatMoved(t *testing.T) {
	x := newPair(t, nil)
	a := x.member("g", "a", "orders")
	gather(x, a)
	for range 5 { // some of them change the broker
		x.clusters["blue"].RehashCoordinators()
		mustNoError(t, "heartbeat", a.heartbeat())
		mustNoError(t, "commit", a.commit("orders", 0, 1))
	}
}

func TestGroupsThatAreNotIncludedAreRefusedEverywhere(t *testing.T) {
	x := newPair(t, nil)
	var err error
	x.p.cfg.Groups, err = translate.NewFilter(nil, []string{"secret"})
	mustNoError(t, "filter", err)
	m := x.member("secret", "c", "orders")
	denied := kerr.GroupAuthorizationFailed
	if got := m.join(x.ctx); got.err != denied {
		t.Errorf("JoinGroup: %v", got.err)
	}
	if err := m.heartbeat(); err != denied {
		t.Errorf("Heartbeat: %v", err)
	}
	if err := m.commit("orders", 0, 1); err != denied {
		t.Errorf("OffsetCommit: %v", err)
	}
	if _, err := m.fetch("orders", 0); err != denied {
		t.Errorf("OffsetFetch: %v", err)
	}
	if err := m.leave(); err != denied {
		t.Errorf("LeaveGroup: %v", err)
	}
	x.commitDirect("blue", "secret", 0, 1)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"secret"}
	if code := x.send("c", describe).(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode; code != denied.Code {
		t.Errorf("DescribeGroups: %d", code)
	}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"secret"}
	if code := x.send("c", remove).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code != denied.Code {
		t.Errorf("DeleteGroups: %d", code)
	}
	if got := x.listGroups(3); len(got) != 0 {
		t.Errorf("ListGroups: %v", got)
	}
}

// listGroups asks every virtual node, as clients do.
func (x *pair) listGroups(nodes int32) []string {
	x.t.Helper()
	var out []string
	for node := range nodes {
		req := kmsg.NewPtrListGroupsRequest()
		req.Version = 4
		r, err := x.trySendTo(x.ctx, node, "c", req)
		mustNoError(x.t, "list groups", err)
		for _, g := range r.(*kmsg.ListGroupsResponse).Groups {
			out = append(out, g.Group)
		}
	}
	slices.Sort(out)
	return out
}

func TestGroupsAreListedDescribedAndDeletedWhereverTheirCoordinatorsAre(t *testing.T) {
	x := newPair(t, nil)
	var groups []string
	for i := range 9 {
		groups = append(groups, fmt.Sprintf("g%d", i))
		x.commitDirect("blue", groups[i], 0, int64(i))
	}
	a := x.member("g3", "a", "orders")
	gather(x, a)
	if got := x.listGroups(5); !slices.Equal(got, groups) { // two virtual nodes more than real brokers
		t.Fatalf("listed %v", got)
	}
	for version := int16(0); version <= 6; version++ {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = version, groups
		resp := x.send("c", req).(*kmsg.DescribeGroupsResponse)
		for i, g := range resp.Groups {
			want := stateEmpty
			if i == 3 {
				want = stateStable
			}
			if g.Group != groups[i] || g.ErrorCode != 0 || g.State != want {
				t.Fatalf("v%d: %s is %s, code %d", version, g.Group, g.State, g.ErrorCode)
			}
		}
	}
	x.clusters["blue"].RehashCoordinators()
	for version := int16(8); version <= 10; version++ {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = version
		for _, g := range groups {
			req.Groups = append(req.Groups, kmsg.OffsetFetchRequestGroup{Group: g, MemberEpoch: -1})
		}
		for i, g := range x.send("c", req).(*kmsg.OffsetFetchResponse).Groups {
			if g.Group != groups[i] || g.ErrorCode != 0 || g.Topics[0].Partitions[0].Offset != int64(i) {
				t.Fatalf("v%d: %+v", version, g)
			}
		}
	}
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = groups
	for i, g := range x.send("c", req).(*kmsg.DeleteGroupsResponse).Groups {
		if g.Group != groups[i] || (g.ErrorCode != 0) != (i == 3) {
			t.Fatalf("delete %s: %d", g.Group, g.ErrorCode)
		}
	}
	if got := x.listGroups(3); !slices.Equal(got, []string{"g3"}) {
		t.Fatalf("left: %v", got)
	}
}

func TestDeletedOffsetsAreGone(t *testing.T) {
	names := map[string]translate.Names{"blue": translate.PrefixNames("p."), "green": translate.IdentityNames()}
	x := newPair(t, names)
	m := x.member("g", "c")
	mustNoError(t, "commit", m.commit("orders", 0, 5))
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = "g"
	req.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	resp := x.send("c", req).(*kmsg.OffsetDeleteResponse)
	if resp.ErrorCode != 0 || resp.Topics[0].Topic != "orders" || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
	if at, err := m.fetch("orders", 0); err != nil || at != -1 {
		t.Fatalf("after the deletion: %d, %v", at, err)
	}
}

// fill sets every field that tells a cluster's own ids, names and generations.
func fill(v reflect.Value, member string, generation int32, topic string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), member, generation, topic)
		}
	case reflect.Slice:
		if v.Len() == 0 && v.Type().Elem().Kind() == reflect.Struct {
			one := reflect.New(v.Type().Elem())
			if d, ok := one.Interface().(interface{ Default() }); ok {
				d.Default()
			}
			v.Set(reflect.Append(v, one.Elem()))
		}
		for i := range v.Len() {
			fill(v.Index(i), member, generation, topic)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillField(v.Type().Field(i).Name, v.Field(i), member, generation, topic)
		}
	}
}

func fillField(name string, f reflect.Value, member string, generation int32, topic string) {
	if name == "UnknownTags" || name == "Version" {
		return
	}
	switch name {
	case "MemberID", "LeaderID":
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.ValueOf(&member))
		} else {
			f.SetString(member)
		}
	case "Generation", "MemberEpoch":
		f.SetInt(int64(generation))
	case "Topic":
		f.SetString(topic)
	case "Group":
		f.SetString("g")
	case "ProtocolType":
		protocolType := consumerProtocol
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.ValueOf(&protocolType))
		} else {
			f.SetString(protocolType)
		}
	case "Metadata", "ProtocolMetadata":
		if f.Kind() == reflect.Slice {
			f.SetBytes(subscriptionOf(3, topic))
		}
	case "MemberAssignment":
		f.SetBytes(assignmentFor(topic, 0))
	default:
		fill(f, member, generation, topic)
	}
}

// Every key and version: what goes to a cluster has its ids alone, and what goes to clients has theirs alone.
func TestNoIdNameOrGenerationLeaksInAnyVersion(t *testing.T) {
	const shownID, realID = "the-id-shown", "the-id-on-green"
	const shownGeneration, realGeneration = 0x01020304, 0x0a0b0c0d - 0x01020304
	nobody, err := kgo.NewClient() // is never asked
	mustNoError(t, "client", err)
	defer nobody.Close()
	p, err := New(Config{VirtualCluster: "main", AdvertisedHost: "localhost", BrokerPortStart: 19093, BrokerPortCount: 3,
		Clusters: map[string]Cluster{
			"blue":  {Client: nobody, Dial: dialTCP},
			"green": {Client: nobody, Dial: dialTCP, Names: translate.PrefixNames("physical.")},
		}})
	mustNoError(t, "new", err)
	defer p.groups.close()
	r := pairRoute(2, "green", "blue")
	route := r.prepare(p.cfg.Clusters["green"].Names)
	p.route.Store(route)
	for _, key := range []int16{8, 9, 11, 12, 13, 14, 15, 47} {
		row := &p.apis[key]
		for version := row.min; version <= row.max; version++ {
			p.groups.table().publishForTest(shownID, realID, shownGeneration, realGeneration)
			c := &call{s: &session{p: p}, route: route, row: row, key: key, version: version}
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			fill(reflect.ValueOf(req), shownID, shownGeneration, "orders")
			before := req.AppendTo(nil)
			mustNoError(t, row.name, row.request(c, req))
			c.group = "g"
			if c.local != nil {
				t.Fatalf("%s v%d was answered here: %+v", row.name, version, c.local)
			}
			if c.later == nil { // else the request is ours, and has group names alone
				checkRewritten(t, fmt.Sprintf("%s v%d request", row.name, version), before, req.AppendTo(nil),
					shownID, realID, shownGeneration, realGeneration)
			}

			resp := kmsg.ResponseForKey(key)
			resp.SetVersion(version)
			fill(reflect.ValueOf(resp), realID, realGeneration, "physical.orders")
			before = resp.AppendTo(nil)
			mustNoError(t, row.name, row.response(c, resp))
			after := resp.AppendTo(nil)
			checkRewritten(t, fmt.Sprintf("%s v%d response", row.name, version), before, after,
				realID, shownID, realGeneration, shownGeneration)
			if bytes.Contains(after, []byte("physical.")) {
				t.Errorf("%s v%d response shows a physical name: %q", row.name, version, after)
			}
		}
	}
}

// checkRewritten says that what one side knows is in after as the other side knows it, and not at all as it was.
func checkRewritten(t *testing.T, what string, before, after []byte, id, other string, generation, otherGeneration int32) {
	t.Helper()
	bytesOf := func(g int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(g)) }
	for _, pair := range [][2][]byte{{[]byte(id), []byte(other)}, {bytesOf(generation), bytesOf(otherGeneration)}} {
		if bytes.Contains(after, pair[0]) {
			t.Errorf("%s leaks %q: %q", what, pair[0], after)
		}
		if bytes.Contains(before, pair[0]) && !bytes.Contains(after, pair[1]) {
			t.Errorf("%s has no %q: %q", what, pair[1], after)
		}
	}
}

// publishForTest gives the group "g" a mapping on green of one member.
func (t *groupTable) publishForTest(shown, real string, shownGeneration, realGeneration int32) {
	t.publish(&shadowGroup{group: "g", cluster: "green", generation: realGeneration,
		members: []*shadowMember{{shown: shown, real: real}}}, shownGeneration)
	t.synced("g", nil)
}

func TestAnswersThatAMoveHasPassedByAreNotForClients(t *testing.T) {
	x := newPair(t, nil)
	old := x.p.route.Load()
	for _, key := range []kmsg.Key{kmsg.JoinGroup, kmsg.SyncGroup} {
		x.p.route.Store(old)
		row := &x.p.apis[key]
		c := &call{s: &session{p: x.p}, route: old, row: row, key: int16(key), version: row.max}
		req := kmsg.RequestForKey(int16(key))
		req.SetVersion(row.max)
		fill(reflect.ValueOf(req), "a", 3, "orders")
		mustNoError(t, row.name, row.request(c, req))
		x.publish(pairRoute(2, "green", "blue"))
		resp := kmsg.ResponseForKey(int16(key))
		resp.SetVersion(row.max)
		fill(reflect.ValueOf(resp), "a", 4, "orders")
		mustNoError(t, row.name, row.response(c, resp))
		var code int16
		switch resp := resp.(type) {
		case *kmsg.JoinGroupResponse:
			code = resp.ErrorCode
		case *kmsg.SyncGroupResponse:
			code = resp.ErrorCode
		}
		if code != kerr.NotCoordinator.Code {
			t.Errorf("%s: code %d", row.name, code)
		}
	}
	if g := x.p.groups.table().generation("g"); g != unknownGeneration {
		t.Errorf("generation %d of the old cluster was remembered", g)
	}
}
