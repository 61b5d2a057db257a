package proxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// scripted is a broker whose every answer the test gives.
type scripted struct {
	t        testing.TB
	listener net.Listener
	requests chan asked
	wg       sync.WaitGroup

	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// asked is a request that a scripted broker got.
type asked struct {
	conn        net.Conn
	key, ver    int16
	correlation int32
	req         kmsg.Request
}

func startScripted(t testing.TB) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &scripted{t: t, listener: l, requests: make(chan asked, 10_000)}
	b.wg.Add(1)
	go b.accept()
	t.Cleanup(b.stop)
	return b
}

func (b *scripted) stop() {
	b.listener.Close()
	b.cut()
	b.wg.Wait()
}

// cut breaks all connections.
func (b *scripted) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

func (b *scripted) accept() {
	defer b.wg.Done()
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns = append(b.conns, conn)
		b.mu.Unlock()
		b.wg.Add(1)
		go b.serve(conn)
	}
}

func (b *scripted) serve(conn net.Conn) {
	defer b.wg.Done()
	h := wire.NewHeaders()
	for {
		frame, err := readFrame(conn)
		if err != nil {
			return
		}
		header, err := h.ParseRequest(frame)
		if err != nil {
			b.t.Errorf("the broker got %x: %v", frame, err)
			return
		}
		req := kmsg.RequestForKey(header.Key)
		req.SetVersion(header.Version)
		if err := req.ReadFrom(frame[header.BodyOffset:]); err != nil {
			b.t.Errorf("the broker got key %d v%d: %v", header.Key, header.Version, err)
			return
		}
		b.requests <- asked{conn, header.Key, header.Version, header.CorrelationID, req}
	}
}

// next is the next request, which must be of that key.
func (b *scripted) next(key kmsg.Key) asked {
	b.t.Helper()
	select {
	case a := <-b.requests:
		if a.key != int16(key) {
			b.t.Fatalf("the broker got %s, not %s", kmsg.NameForKey(a.key), key.Name())
		}
		return a
	case <-time.After(5 * time.Second):
		b.t.Fatalf("the broker got no %s", key.Name())
		return asked{}
	}
}

// quiet fails if something comes within a moment.
func (b *scripted) quiet() {
	b.t.Helper()
	select {
	case a := <-b.requests:
		b.t.Fatalf("the broker got %s", kmsg.NameForKey(a.key))
	case <-time.After(30 * time.Millisecond):
	}
}

func (a asked) frame(resp kmsg.Response) []byte {
	resp.SetVersion(a.ver)
	b := make([]byte, 4)
	b = wire.NewHeaders().AppendResponseHeader(b, a.key, a.ver, a.correlation)
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (a asked) answer(t testing.TB, resp kmsg.Response) {
	t.Helper()
	if _, err := a.conn.Write(a.frame(resp)); err != nil {
		t.Fatal(err)
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// stage is a proxy between raw clients and scripted brokers, one per cluster.
type stage struct {
	t       testing.TB
	ctx     context.Context
	p       *Proxy
	brokers map[string]*scripted
}

func newStage(t testing.TB, change func(*Config)) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	base := freePorts(t, 2)
	cfg := Config{VirtualCluster: "main", Listen: fmt.Sprintf("127.0.0.1:%d", base), AdvertisedHost: "127.0.0.1",
		BrokerPortStart: base + 1, BrokerPortCount: 1, Clusters: map[string]Cluster{}, Log: zerolog.New(zerolog.NewTestWriter(t)), DrainTimeout: 5 * time.Second}
	x := &stage{t: t, ctx: ctx, brokers: map[string]*scripted{}}
	for _, name := range []string{"blue", "green"} {
		x.brokers[name] = startScripted(t)
		client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.RequestRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		cfg.Clusters[name] = Cluster{Client: client, Dial: dialTCP}
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if x.p, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	for name, b := range x.brokers {
		x.p.cluster(name).known = map[int32]string{0: b.listener.Addr().String()}
	}
	if err := x.p.Start(ctx, x.route(1, "blue")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := x.p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return x
}

func (x *stage) route(generation translate.Generation, active string) Route {
	return Route{Generation: generation, Active: active, Identity: control.Identity{ClusterID: "main",
		Nodes: map[string][]int32{"blue": {0}, "green": {0}}}}
}

// rawClient speaks the protocol by hand.
type rawClient struct {
	t    testing.TB
	conn net.Conn
	next int32
}

func (x *stage) connect() *rawClient {
	x.t.Helper()
	conn, err := net.Dial("tcp", x.p.ports[1].listener.Addr().String())
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { conn.Close() })
	return &rawClient{t: x.t, conn: conn}
}

func (c *rawClient) send(req kmsg.Request) (correlation int32) {
	c.t.Helper()
	c.next++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, c.next)
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	return c.next
}

// receive reads the answer to req, which must come next.
func (c *rawClient) receive(req kmsg.Request, correlation int32) kmsg.Response {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	frame, err := readFrame(c.conn)
	if err != nil {
		c.t.Fatalf("no answer to %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	h, err := wire.NewHeaders().ParseResponse(frame, req.Key(), req.GetVersion())
	if err != nil {
		c.t.Fatal(err)
	}
	if h.CorrelationID != correlation {
		c.t.Fatalf("answer %d came where %d was due", h.CorrelationID, correlation)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(frame[h.BodyOffset:]); err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// closedBy waits until the proxy closes the connection.
func (c *rawClient) closed(within time.Duration) {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(within))
	var ne net.Error
	if _, err := c.conn.Read(make([]byte, 1)); err == nil || errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatalf("the connection is still open: %v", err)
	}
}

func listOffsets(topic string) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version = 7
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	return req
}

func listedOffsets(topic string, offset int64) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	p := kmsg.NewListOffsetsResponseTopicPartition()
	p.Offset = offset
	resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
	return resp
}

func fetchFrom(topic string, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxWaitMillis, req.SessionEpoch = 12, 60_000, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	return req
}

func produceTo(topic string, acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 9, acks
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	return req
}

func produced(topic string, base int64, code int16) *kmsg.ProduceResponse {
	resp := kmsg.NewPtrProduceResponse()
	p := kmsg.NewProduceResponseTopicPartition()
	p.BaseOffset, p.ErrorCode = base, code
	resp.Topics = []kmsg.ProduceResponseTopic{{Topic: topic, Partitions: []kmsg.ProduceResponseTopicPartition{p}}}
	return resp
}
