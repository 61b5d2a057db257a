package proxy

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/translate"
)

func TestTheTableHasARowForEveryKey(t *testing.T) {
	rows := apis()
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if int(key) >= len(rows) || rows[key].key != key {
			t.Fatalf("no row for %d, %s", key, kmsg.NameForKey(key))
		}
		r := rows[key]
		req := kmsg.RequestForKey(key)
		switch {
		case r.gate == refuse && (r.note == "" || r.request != nil || r.response != nil || r.max != 0):
			t.Errorf("%s: a hidden key has a note and nothing else", r.name)
		case r.gate != refuse && (r.min > r.max || r.max > req.MaxVersion()):
			t.Errorf("%s: versions %d to %d, the protocol has %d", r.name, r.min, r.max, req.MaxVersion())
		case r.to == toCoordinator && r.request == nil:
			t.Errorf("%s: nobody finds its group", r.name)
		}
	}
	if len(rows) != kmsg.MaxKey+1 {
		t.Errorf("%d rows for %d keys", len(rows), kmsg.MaxKey+1)
	}
}

// answer runs a request and the broker's answer through the row, both decoded. saw gets the request as it was sent.
func (r *rig) answer(req kmsg.Request, saw func(kmsg.Request), answer kmsg.Response) kmsg.Response {
	r.t.Helper()
	c, err := r.call(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.release()
	if c.isHere() {
		return c.local
	}
	sent := kmsg.RequestForKey(req.Key())
	sent.SetVersion(req.GetVersion())
	if err := sent.ReadFrom(c.message()[c.bodyAt:]); err != nil {
		r.t.Fatal(err)
	}
	if saw != nil {
		saw(sent)
	}
	answer.SetVersion(req.GetVersion())
	got, err := r.receive(c, frameOf(r.p.headers, answer), false)
	if err != nil {
		r.t.Fatal(err)
	}
	t, ok := r.t.(*testing.T)
	if !ok {
		r.t.Fatal("not a test")
	}
	return checkReadable(t, r.p.headers, got, req.Key(), req.GetVersion())
}

func TestOffsetsAreListedInTheVirtualLog(t *testing.T) {
	r := holedRig(t)
	for _, c := range []struct {
		physical      int64
		real          int32
		virtual       int64
		epoch         int32
		what          string
		asked, wanted int32 // current epoch
	}{
		{5, 7, 100, 2, "earliest", 22, 2},
		{0, 7, 100, 2, "earliest, below everything", 4, -1},
		{20, 7, 112, 4, "by time, mirrored", -1, -1},
		{15, 7, 110, 4, "by time, a stray", -1, -1},
		{33, 2, 503, 22, "latest", 20, 0},
		{30, 2, 500, 22, "latest, nothing native yet", 20, 0},
		{-1, -1, -1, -1, "no record is as young", 20, 0},
	} {
		req := listOffsets("orders")
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = c.asked
		resp := listedOffsets("orders", c.physical)
		resp.Topics[0].Partitions[0].LeaderEpoch = c.real
		got := r.answer(req, func(sent kmsg.Request) {
			if e := sent.(*kmsg.ListOffsetsRequest).Topics[0].Partitions[0].CurrentLeaderEpoch; e != c.wanted {
				t.Errorf("%s: current epoch %d was sent as %d, not %d", c.what, c.asked, e, c.wanted)
			}
		}, resp).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if got.Offset != c.virtual || got.LeaderEpoch != c.epoch {
			t.Errorf("%s: offset %d epoch %d, want %d and %d", c.what, got.Offset, got.LeaderEpoch, c.virtual, c.epoch)
		}
	}
}

// C27
func TestTheEndOfAnEraIsTheStartOfTheNext(t *testing.T) {
	r := holedRig(t)
	ask := func(epoch, realEpoch int32, realEnd int64) kmsg.OffsetForLeaderEpochResponseTopicPartition {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 4
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.LeaderEpoch, p.CurrentLeaderEpoch = epoch, 22
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
		resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
		resp.Topics = []kmsg.OffsetForLeaderEpochResponseTopic{{Topic: "orders", Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{epochAnswer(0, 0, realEpoch, realEnd)}}}
		return r.answer(req, func(sent kmsg.Request) {
			if e := sent.(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0].LeaderEpoch; e != epoch-20 {
				t.Errorf("epoch %d was asked as %d", epoch, e)
			}
		}, resp).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
	}
	for _, c := range []struct {
		epoch, realEpoch, shown int32
		realEnd, end            int64
	}{
		{2, -1, 2, -1, 110},  // mirrored, from the history
		{3, -1, 2, -1, 110},  // no record has it
		{4, -1, 4, -1, 500},  // the last one of its era: over the hole
		{9, -1, 4, -1, 500},  // shown before the move, no record has it
		{22, 2, 22, 35, 505}, // of this era
		{21, 0, 20, 33, 503}, // the broker has an older one of this era
	} {
		if got := ask(c.epoch, c.realEpoch, c.realEnd); got.LeaderEpoch != c.shown || got.EndOffset != c.end || got.ErrorCode != 0 {
			t.Errorf("epoch %d ends with %d at %d, want %d at %d", c.epoch, got.LeaderEpoch, got.EndOffset, c.shown, c.end)
		}
	}
}

func metadataOf(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

// C17, C19
func TestMetadataShowsTheVirtualCluster(t *testing.T) {
	route := identityRoute()
	route.Generation, route.Active = 2, "green"
	route.Identity.Nodes["green"] = []int32{11, 12}
	route.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: []Partition{holedPartition(t)}}}
	r := newRig(t, route, translate.PrefixNames("eu."), world{host: "front", port: 9000})
	topic := func(name string, id byte, partitions ...kmsg.MetadataResponseTopicPartition) kmsg.MetadataResponseTopic {
		x := kmsg.NewMetadataResponseTopic()
		x.Topic, x.TopicID, x.Partitions = &name, [16]byte{id}, partitions
		return x
	}
	resp := kmsg.NewPtrMetadataResponse()
	resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 11, Host: "real", Port: 1}, {NodeID: 12, Host: "real", Port: 2}, {NodeID: 13, Host: "real", Port: 3}}
	resp.ControllerID = 12
	resp.Topics = []kmsg.MetadataResponseTopic{
		topic("eu.orders", 2, kmsg.MetadataResponseTopicPartition{Leader: 12, LeaderEpoch: 5, Replicas: []int32{12, 13, 11}, ISR: []int32{12}},
			kmsg.MetadataResponseTopicPartition{Partition: 1, Leader: 13, LeaderEpoch: 1}),
		topic("other", 9), topic("switchback.control", 8), topic("switchback.blue.green.journal", 7),
	}
	all := metadataOf()
	all.Topics = nil
	got := r.answer(all, nil, resp).(*kmsg.MetadataResponse)
	if len(got.Brokers) != 3 || got.Brokers[2].Host != "front" || got.Brokers[2].Port != 9002 || got.ControllerID != 1 || *got.ClusterID != "virtual-cluster" {
		t.Errorf("brokers %+v, controller %d", got.Brokers, got.ControllerID)
	}
	if len(got.Topics) != 1 || *got.Topics[0].Topic != "orders" || got.Topics[0].TopicID != ([16]byte{1}) {
		t.Fatalf("topics %+v", got.Topics)
	}
	p := got.Topics[0].Partitions
	if p[0].Leader != 1 || p[0].LeaderEpoch != 25 || !reflect.DeepEqual(p[0].Replicas, []int32{1, 0}) || p[0].ErrorCode != 0 {
		t.Errorf("partition %+v", p[0])
	}
	if p[1].Leader != -1 || p[1].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("a partition led by a broker that is no node yet: %+v", p[1])
	}
	if addr, ok := r.p.cluster("green").get(13); !ok || addr != "real:3" {
		t.Errorf("broker 13 is at %q", addr)
	}
	ours := r.answer(metadataOf("orders", "switchback.control"), func(sent kmsg.Request) {
		if topics := sent.(*kmsg.MetadataRequest).Topics; len(topics) != 2 { // by a prefix no name of ours can be asked for
			t.Errorf("asked for %+v", topics)
		}
	}, resp).(*kmsg.MetadataResponse)
	if len(ours.Topics) != 1 {
		t.Errorf("topics %+v", ours.Topics)
	}
}

func TestTopicsThatWereDeletedAreNotShownWhileNoBrokerAnswers(t *testing.T) {
	r := newRig(t, identityRoute(), translate.IdentityNames(), world{host: "front", port: 9000})
	all := metadataOf()
	all.Topics = nil
	for _, c := range []struct{ listed, known []string }{
		{[]string{"orders", "payments"}, []string{"orders", "payments"}},
		{[]string{"orders", "refunds"}, []string{"orders", "refunds"}},
		{nil, []string{"orders", "refunds"}}, // of a broker that has just started
	} {
		resp := kmsg.NewPtrMetadataResponse()
		for _, name := range c.listed {
			resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{Topic: kmsg.StringPtr(name)})
		}
		r.answer(all, nil, resp)
		offline, err := r.call(all)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, topic := range offline.offline(false).(*kmsg.MetadataResponse).Topics {
			got = append(got, *topic.Topic)
		}
		offline.release()
		if slices.Sort(got); !slices.Equal(got, c.known) {
			t.Errorf("after %v: %v", c.listed, got)
		}
	}
}

func TestTopicsOfOursDoNotExistForClients(t *testing.T) {
	r := newRig(t, identityRoute(), translate.IdentityNames(), world{host: "front", port: 9000})
	resp := kmsg.NewPtrMetadataResponse()
	got := r.answer(metadataOf("switchback.control"), func(sent kmsg.Request) {
		if topics := sent.(*kmsg.MetadataRequest).Topics; topics == nil || len(topics) != 0 {
			t.Errorf("asked for %+v", topics)
		}
	}, resp).(*kmsg.MetadataResponse)
	if len(got.Topics) != 1 || got.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("topics %+v", got.Topics)
	}
	produce := produceTo("switchback.control", -1, sampleBatch(-1, 0, 0))
	if p := r.answer(produce, nil, nil).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("produced with code %d", p.ErrorCode)
	}
	if p := r.answer(fetchFrom("switchback.control", 0), nil, nil).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("fetched with code %d", p.ErrorCode)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic = "switchback.blue.green.journal"
	create.Topics = append(create.Topics, one)
	if got := r.answer(create, nil, kmsg.NewPtrCreateTopicsResponse()).(*kmsg.CreateTopicsResponse); len(got.Topics) != 1 || got.Topics[0].ErrorCode != kerr.InvalidTopicException.Code {
		t.Errorf("created %+v", got.Topics)
	}
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TopicNames = 5, []string{"switchback.control"}
	if got := r.answer(del, nil, kmsg.NewPtrDeleteTopicsResponse()).(*kmsg.DeleteTopicsResponse); len(got.Topics) != 1 || got.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
		t.Errorf("deleted %+v", got.Topics)
	}
}

func TestTopicsThatAreMadeAnewBeginAnew(t *testing.T) {
	for name, gone := range map[string]func(r *rig){
		"deleted": func(r *rig) {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.Version, req.TopicNames = 5, []string{"orders"}
			resp := kmsg.NewPtrDeleteTopicsResponse()
			resp.Topics = []kmsg.DeleteTopicsResponseTopic{{Topic: kmsg.StringPtr("orders")}}
			r.answer(req, nil, resp)
		},
		"seen with another id": func(r *rig) {
			resp := kmsg.NewPtrMetadataResponse()
			resp.Topics = []kmsg.MetadataResponseTopic{{Topic: kmsg.StringPtr("orders"), TopicID: [16]byte{3},
				Partitions: []kmsg.MetadataResponseTopicPartition{{LeaderEpoch: 1}}}}
			got := r.answer(metadataOf("orders"), nil, resp).(*kmsg.MetadataResponse)
			if got.Topics[0].TopicID != ([16]byte{3}) || got.Topics[0].Partitions[0].LeaderEpoch != 1 {
				t.Errorf("shown as %+v", got.Topics[0])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := holedRig(t)
			before := *r.p.route.Load()
			gone(r)
			r.p.Publish(before) // one that does not know it yet
			got := r.answer(listOffsets("orders"), nil, listedOffsets("orders", 3)).(*kmsg.ListOffsetsResponse)
			if o := got.Topics[0].Partitions[0].Offset; o != 3 {
				t.Errorf("offset %d", o)
			}
			before.Generation++
			r.p.Publish(before)
			if r.p.route.Load().topic("orders") == nil {
				t.Error("forgotten over a move")
			}
		})
	}
}

func TestRecordsAreDeletedByVirtualOffset(t *testing.T) {
	r := holedRig(t)
	ask := func(offset int64) *kmsg.DeleteRecordsRequest {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Version = 2
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Offset = offset
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "orders", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{p}}}
		return req
	}
	for virtual, physical := range map[int64]int64{-1: -1, 104: 9, 110: 18, 300: 30, 502: 32} {
		resp := kmsg.NewPtrDeleteRecordsResponse()
		a := kmsg.NewDeleteRecordsResponseTopicPartition()
		a.LowWatermark = 18
		resp.Topics = []kmsg.DeleteRecordsResponseTopic{{Topic: "orders", Partitions: []kmsg.DeleteRecordsResponseTopicPartition{a}}}
		got := r.answer(ask(virtual), func(sent kmsg.Request) {
			if p := sent.(*kmsg.DeleteRecordsRequest).Topics[0].Partitions[0]; p.Offset != physical {
				t.Errorf("virtual %d was sent as %d, not %d", virtual, p.Offset, physical)
			}
		}, resp).(*kmsg.DeleteRecordsResponse)
		if low := got.Topics[0].Partitions[0].LowWatermark; low != 110 {
			t.Errorf("low watermark %d", low)
		}
	}
}

// C16
func TestConfigsTellNothingOfRealBrokers(t *testing.T) {
	route := identityRoute()
	route.Identity.Nodes["blue"] = []int32{101, 102, 103}
	r := newRig(t, route, translate.IdentityNames(), world{host: "front", port: 9000})
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 4
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "0"},
		{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "0"}}
	resp := kmsg.NewPtrDescribeConfigsResponse()
	config := func(name, value string) kmsg.DescribeConfigsResponseResourceConfig {
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value = name, &value
		return c
	}
	resp.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "101",
		Configs: []kmsg.DescribeConfigsResponseResourceConfig{config("broker.id", "101"), config("advertised.listeners", "PLAINTEXT://real:9092"), config("num.partitions", "3")}}}
	got := r.answer(req, func(sent kmsg.Request) {
		if rs := sent.(*kmsg.DescribeConfigsRequest).Resources; len(rs) != 1 || rs[0].ResourceName != "101" {
			t.Errorf("asked for %+v", rs)
		}
	}, resp).(*kmsg.DescribeConfigsResponse)
	if len(got.Resources) != 2 || got.Resources[0].ResourceName != "0" || got.Resources[1].ErrorCode != kerr.InvalidRequest.Code {
		t.Fatalf("resources %+v", got.Resources)
	}
	c := got.Resources[0].Configs
	if *c[0].Value != "0" || c[1].Value != nil || !c[1].IsSensitive || *c[2].Value != "3" {
		t.Errorf("configs %+v", c)
	}
}

func TestTheGateHoldsAndMeasures(t *testing.T) {
	var g gate
	if _, err := g.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.hold()
	g.hold()
	entered := make(chan bool)
	go func() {
		waited, err := g.enter(t.Context())
		entered <- waited && err == nil
	}()
	drained := make(chan error)
	go func() { drained <- g.drain(t.Context()) }()
	for g.standing.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	select {
	case <-drained:
		t.Fatal("drained with a call inside")
	case <-entered:
		t.Fatal("a call passed the shut gate")
	case <-time.After(10 * time.Millisecond):
	}
	g.leave()
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	g.release()
	told := g.pause.Load() // before the call that stood has run
	if !<-entered {
		t.Fatal("the call did not wait")
	}
	if told < 10 || told > 10_000 {
		t.Errorf("pause of %d ms", told)
	}
	if err := g.drain(t.Context()); err != errGateOpen {
		t.Errorf("drain of an open gate: %v", err)
	}
	g.leave()
}
