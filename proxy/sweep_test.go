package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// world is what the fields of a message are filled with: as clients see it, or as the cluster has it.
type world struct {
	topic   string
	id      [16]byte
	node    int32
	host    string
	port    int32
	offset  int64
	epoch   int32
	member  string
	cluster string
	nodes   int // brokers of the cluster, numbered from node on

	happened string // text of errors
}

// The virtual and the physical world of the leak sweep share no value.
func virtualWorld() world {
	return world{topic: "virtname", id: [16]byte{0xaa, 0xab, 0xac, 0xad}, node: 0, host: "front.example", port: 20000,
		offset: 0x6b6b6b0000, epoch: 0x4c4c40, member: "shown-member", cluster: "virtual-cluster", nodes: 3}
}

func physicalWorld() world {
	return world{topic: "PHYSNAME", id: [16]byte{0xee, 0xef, 0xea, 0xeb}, node: 0x0d0e0f00, host: "REALHOST", port: 0x0a0b0c,
		offset: 0x7a7a7a0000, epoch: 0x5b5b5b, member: "REALMEMBER", cluster: "REALCLUSTER", nodes: 3}
}

// sample is a batch at the world's offset.
func (w world) sample() []byte {
	b := batch.GapMarker(nil, w.offset, w.offset+1, w.epoch)
	h := batch.Header(b)
	h.SetAttributes(0)
	h.SetProducerID(-1)
	return b
}

// fill sets every field that version has, and some that it has not, which encoding leaves out.
func (w world) fill(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct {
			w.fill(v.Elem(), path)
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		w.fill(v.Elem(), path)
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if name == "Version" || name == "UnknownTags" || !v.Field(i).CanSet() {
				continue
			}
			w.fill(v.Field(i), path+"."+name)
		}
	case reflect.Slice:
		w.fillSlice(v, path)
	case reflect.String:
		v.SetString(w.text(path))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 && strings.HasSuffix(path, "TopicID") {
			v.Set(reflect.ValueOf(w.id))
		}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(w.number(path, v.Kind()))
	case reflect.Float64:
		v.SetFloat(1.5)
	}
}

func (w world) fillSlice(v reflect.Value, path string) {
	field := path[strings.LastIndex(path, ".")+1:]
	if v.Type().Elem().Kind() == reflect.Uint8 {
		switch field {
		case "Records": // a producer's batches say 0 and −1
			v.SetBytes(world{epoch: -1}.sample())
		case "RecordBatches":
			v.SetBytes(w.sample())
		case "Metadata", "ProtocolMetadata":
			m := kmsg.NewConsumerMemberMetadata()
			m.Version, m.Topics = 1, []string{w.topic}
			v.SetBytes(m.AppendTo(nil))
		case "MemberAssignment":
			m := kmsg.NewConsumerMemberAssignment()
			m.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: w.topic, Partitions: []int32{0}}}
			v.SetBytes(m.AppendTo(nil))
		}
		return
	}
	n := 1
	if field == "Brokers" {
		n = w.nodes
	}
	v.Set(reflect.MakeSlice(v.Type(), n, n))
	for i := range n {
		one := w
		one.node, one.port = w.node+int32(i), w.port+int32(i)
		if d := v.Index(i).Addr().MethodByName("Default"); d.IsValid() {
			d.Call(nil)
		}
		one.fill(v.Index(i), path)
	}
}

func (w world) text(path string) string {
	field := path[strings.LastIndex(path, ".")+1:]
	switch field {
	case "Topic", "TopicNames", "ResourceName":
		return w.topic
	case "Host", "ClientHost":
		return w.host
	case "ErrorMessage":
		return w.happened
	case "MemberID", "LeaderID":
		return w.member
	case "ClusterID":
		return w.cluster
	case "ProtocolType":
		return "consumer"
	case "Group", "CoordinatorKeys", "CoordinatorKey", "Key", "Groups":
		return sweepGroup
	}
	return "text-" + field
}

func (w world) number(path string, kind reflect.Kind) int64 {
	field := path[strings.LastIndex(path, ".")+1:]
	switch field {
	case "ErrorCode", "Partition", "Partitions", "PartitionIndexes", "IsolationLevel", "ThrottleMillis", "SessionID", "SessionEpoch", "MaxNumOffsets", "RelativeOffset", "OldStyleOffsets", "CoordinatorType":
		return 0
	case "ReplicaID":
		return -1
	case "Acks":
		return -1
	case "NodeID", "Leader", "LeaderID", "ControllerID", "Replicas", "ISR", "OfflineReplicas", "PreferredReadReplica":
		return int64(w.node)
	case "Port":
		return int64(w.port)
	case "LeaderEpoch", "CurrentLeaderEpoch", "LastFetchedEpoch":
		return int64(w.epoch)
	case "ResourceType":
		return int64(kmsg.ConfigResourceTypeTopic)
	case "EndpointType":
		return endpointBrokers
	}
	if strings.HasSuffix(field, "Offset") || strings.HasSuffix(field, "Watermark") || field == "LastStableOffset" {
		return w.offset
	}
	if kind == reflect.Int8 {
		return 1
	}
	return 5
}

// sweepGroup is a group whose coordinator is shown as node 0 of three.
const sweepGroup = "readers-1"

// rig is one call's surroundings without sockets.
type rig struct {
	t testing.TB
	p *Proxy
	s *session
}

func newRig(t testing.TB, route Route, names translate.Names, w world) *rig {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	one := Cluster{Client: client, Dial: dialTCP, Names: names}
	p, err := New(Config{VirtualCluster: "main", AdvertisedHost: w.host, BrokerPortStart: int(w.port), BrokerPortCount: 3,
		Clusters: map[string]Cluster{"blue": one, "green": one}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	p.route.Store(route.prepare(names))
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	s := newSession(p, here, 0)
	t.Cleanup(func() { s.cancel(nil) })
	return &rig{t: t, p: p, s: s}
}

// call makes a prepared call from a request.
func (r *rig) call(req kmsg.Request) (*call, error) {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("me")).AppendRequest(nil, req, 77)[4:]
	header, err := r.p.headers.ParseRequest(frame)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &call{s: r.s, route: r.p.route.Load(), row: &r.p.apis[req.Key()], key: req.Key(), version: req.GetVersion(),
		correlation: 77, bodyAt: header.BodyOffset, request: r.p.pool.Get()}
	c.request.B = append(c.request.B, frame...)
	c.frame = c.request.B
	return c, c.prepare(context.Background())
}

// frameOf is a broker's answer as it comes.
func frameOf(h *wire.Headers, resp kmsg.Response) []byte {
	b := make([]byte, 4)
	b = h.AppendResponseHeader(b, resp.Key(), resp.GetVersion(), 77)
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// receive passes a broker's answer through the call, in pieces of one byte if slow.
func (r *rig) receive(c *call, frame []byte, slow bool) ([]byte, error) {
	var src io.Reader = bytes.NewReader(frame)
	if slow {
		src = oneByte{src}
	}
	c.link = &link{in: wire.NewReader(src, &r.p.pool)}
	defer c.link.in.Close()
	size, err := c.link.in.Next(1 << 30)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := wire.NewWriter(&out, &r.p.pool)
	defer w.Close()
	if err := c.receive(size, w); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if left := c.link.in.Remaining(); left != 0 {
		return nil, fmt.Errorf("%d bytes of the answer are left", left)
	}
	return out.Bytes(), nil
}

type oneByte struct{ io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.Reader.Read(p[:1]) }

// eachVersion runs f for every key and version that is offered.
func eachVersion(t *testing.T, f func(t *testing.T, key, version int16)) {
	for _, row := range apis() {
		if row.gate == refuse || row.key == int16(kmsg.ApiVersions) {
			continue
		}
		for v := row.min; v <= row.max; v++ {
			if row.key == int16(kmsg.Produce) && v < 3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/v%d", row.name, v), func(t *testing.T) { f(t, row.key, v) })
		}
	}
}

func filledRequest(key, version int16, w world) kmsg.Request {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	w.fill(reflect.ValueOf(req), "")
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		r.TransactionID = nil
	case *kmsg.InitProducerIDRequest:
		r.TransactionalID, r.ProducerID, r.ProducerEpoch = nil, -1, -1
	case *kmsg.FetchRequest: // fields of brokers are not passed on
		r.ClusterID = nil
		r.ReplicaState.Default()
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				p := &r.Topics[i].Partitions[j]
				p.ReplicaDirectoryID, p.LogStartOffset, p.HighWatermark = [16]byte{}, -1, 1<<63-1
			}
		}
	case *kmsg.MetadataRequest:
		if r.Version >= 10 {
			r.Topics[0].TopicID = [16]byte{}
		}
	case *kmsg.DeleteTopicsRequest:
		for i := range r.Topics {
			r.Topics[i].TopicID = [16]byte{}
		}
	}
	return req
}

func filledResponse(key, version int16, w world) kmsg.Response {
	w.happened = "what happened to " + w.topic
	if key == int16(kmsg.FindCoordinator) || key == int16(kmsg.DescribeCluster) {
		w.happened = "what happened" // nothing of these is about topics
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	w.fill(reflect.ValueOf(resp), "")
	return resp
}

func identityRoute() Route {
	return Route{Generation: 1, Active: "blue", Standby: "green", Identity: control.Identity{
		ClusterID: "virtual-cluster", Nodes: map[string][]int32{"blue": {0, 1, 2}, "green": {0, 1, 2}}}}
}

// With a route that changes nothing, every byte passes as it is.
func TestIdentityRouteLeavesBytesAsTheyAre(t *testing.T) {
	w := virtualWorld()
	r := newRig(t, identityRoute(), translate.IdentityNames(), w)
	eachVersion(t, func(t *testing.T, key, version int16) {
		req := filledRequest(key, version, w)
		c, err := r.call(req)
		if err != nil {
			t.Fatal(err)
		}
		defer c.release()
		if c.isHere() {
			t.Skip("answered here")
		}
		if sent := c.message(); !bytes.Equal(sent, c.frame) {
			t.Errorf("request\n%s\nwas sent as\n%s", hex.Dump(c.frame), hex.Dump(sent))
		}
		if key == int16(kmsg.InitProducerID) {
			return // its id is always shown with a generation
		}
		resp := filledResponse(key, version, w)
		if m, ok := resp.(*kmsg.MetadataResponse); ok {
			for i := range m.Brokers {
				m.Brokers[i].Rack = nil
			}
		}
		if d, ok := resp.(*kmsg.DescribeClusterResponse); ok {
			for i := range d.Brokers {
				d.Brokers[i].Rack, d.Brokers[i].IsFenced = nil, false
			}
		}
		noRacks(resp)
		frame := frameOf(r.p.headers, resp)
		for _, slow := range []bool{false, true} {
			got, err := r.receive(c, frame, slow)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, frame) {
				t.Fatalf("answer\n%s\nwas shown as\n%s", hex.Dump(frame), hex.Dump(got))
			}
		}
	})
}

// noRacks takes the racks from leader hints, which show none.
func noRacks(resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for i := range r.Brokers {
			r.Brokers[i].Rack = nil
		}
	case *kmsg.FetchResponse:
		r.Topics[0].Partitions[0].SnapshotID.Default() // a controller's
		for i := range r.Brokers {
			r.Brokers[i].Rack = nil
		}
	}
}

// leakRoute shows nothing as the cluster has it.
func leakRoute(t testing.TB) (Route, translate.Names) {
	t.Helper()
	v, p := virtualWorld(), physicalWorld()
	names, err := translate.RenameNames(map[string]string{v.topic: p.topic})
	if err != nil {
		t.Fatal(err)
	}
	m, err := translate.NewMap(0).OpenNative(translate.Virtual(v.offset&^0xff), translate.Physical(p.offset&^0xff))
	if err != nil {
		t.Fatal(err)
	}
	shift := translate.Shift(0x10000)
	part := Partition{Map: m, Producers: journal.NewProducers(), History: translate.History{}.Append(0, 0),
		Eras: []control.Era{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: m.Frontier(), Shift: shift, FirstEpoch: translate.Epoch(shift)}}}
	part.Eras[1].Virtual = translate.Virtual(v.offset &^ 0xff)
	topic := &Topic{Name: v.topic, VirtualID: v.id, PhysicalID: p.id, Partitions: []Partition{part}}
	return Route{Generation: 2, Active: "green", Standby: "blue", Topics: map[string]*Topic{v.topic: topic}, Identity: control.Identity{
		ClusterID: v.cluster, Nodes: map[string][]int32{"blue": {0, 1, 2}, "green": {p.node, p.node + 1, p.node + 2}}}}, names
}

// traces are the bytes by which a world is recognised.
func (w world) traces() map[string][]byte {
	out := map[string][]byte{
		"name": []byte(w.topic), "id": w.id[:4], "member": []byte(w.member),
		"offset": binary.BigEndian.AppendUint64(nil, uint64(w.offset))[3:6],
		"epoch":  binary.BigEndian.AppendUint32(nil, uint32(w.epoch)),
	}
	if w.node > 0 {
		out["node"] = binary.BigEndian.AppendUint32(nil, uint32(w.node))[:3]
		out["host"] = []byte(w.host)
		out["port"] = binary.BigEndian.AppendUint32(nil, uint32(w.port))[1:]
		out["cluster"] = []byte(w.cluster)
	}
	return out
}

func checkTraces(t *testing.T, what string, b []byte, w world) {
	t.Helper()
	for name, trace := range w.traces() {
		if at := bytes.Index(b, trace); at >= 0 {
			t.Errorf("%s: %s survives at byte %d\n%s", what, name, at, hex.Dump(b))
		}
	}
}

// Nothing of the cluster reaches a client, and nothing of the client's numbers reaches the cluster.
func TestNothingPhysicalSurvives(t *testing.T) {
	route, names := leakRoute(t)
	v, p := virtualWorld(), physicalWorld()
	r := newRig(t, route, names, v)
	eachVersion(t, func(t *testing.T, key, version int16) {
		for _, slow := range []bool{false, true} {
			st := r.p.groups.table()
			st.mu.Lock()
			st.state(sweepGroup).maps["green"] = newGroupMap(0, map[string]string{v.member: p.member})
			st.mu.Unlock()
			r.p.gone = nil
			r.p.route.Store(route.prepare(names)) // a topic that was deleted is forgotten
			c, err := r.call(filledRequest(key, version, v))
			if err != nil {
				t.Fatal(err)
			}
			if c.isHere() {
				t.Skip("answered here, or asked of several brokers")
			}
			checkTraces(t, "request", c.message(), v)
			got, err := r.receive(c, frameOf(r.p.headers, filledResponse(key, version, p)), slow)
			if err != nil {
				t.Fatal(err)
			}
			checkTraces(t, "answer", got[4:], p)
			checkReadable(t, r.p.headers, got, key, version)
			c.release()
		}
	})
}

// checkReadable: the frame has the length it says, and clients can read it.
func checkReadable(t *testing.T, h *wire.Headers, frame []byte, key, version int16) kmsg.Response {
	t.Helper()
	if n := int(binary.BigEndian.Uint32(frame)); n != len(frame)-4 {
		t.Errorf("the frame says %d bytes and has %d", n, len(frame)-4)
	}
	resp := kmsg.ResponseForKey(key)
	resp.SetVersion(version)
	header, err := h.ParseResponse(frame[4:], key, version)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.ReadFrom(frame[4+header.BodyOffset:]); err != nil {
		t.Errorf("the answer cannot be read: %v", err)
	}
	return resp
}
