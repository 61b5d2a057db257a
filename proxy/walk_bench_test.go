package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// Benchmarks of what is done to one message, without sockets, and of a whole call with them.

// looped is a connection on which the same frame comes again and again; what is written is thrown away.
type looped struct {
	net.Conn
	frame []byte
	at    int
}

func (l *looped) Read(p []byte) (int, error) {
	n := copy(p, l.frame[l.at:])
	l.at = (l.at + n) % len(l.frame)
	return n, nil
}
func (l *looped) Write(p []byte) (int, error)      { return len(p), nil }
func (l *looped) Close() error                     { return nil }
func (l *looped) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (l *looped) SetReadDeadline(time.Time) error  { return nil }
func (l *looped) SetWriteDeadline(time.Time) error { return nil }

// desk is a session without connections, in a generation of its own.
type desk struct {
	p *Proxy
	s *session
}

func newDesk(b testing.TB, generation translate.Generation, parts []Partition) *desk {
	b.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	dial := func(context.Context, string) (net.Conn, error) { return nil, io.EOF }
	p, err := New(Config{VirtualCluster: "main", AdvertisedHost: "127.0.0.1", BrokerPortStart: 9000, BrokerPortCount: 3,
		Clusters: map[string]Cluster{"blue": {Client: client, Dial: dial}}, Metrics: obs.NewMetrics(obs.Build{}), Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	r := Route{Generation: generation, Active: "blue", Identity: control.Identity{ClusterID: "main", Nodes: map[string][]int32{"blue": {0, 1, 2}}}}
	if parts != nil {
		r.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: parts}}
	}
	p.publish(r, false)
	return &desk{p: p, s: newSession(p, &looped{}, 0)}
}

// call is one of a request, as it is when it has passed the gate.
func (d *desk) call(req kmsg.Request) *call {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)[4:]
	h, err := d.p.headers.ParseRequest(frame)
	if err != nil {
		panic(err)
	}
	return &call{s: d.s, route: d.p.route.Load(), row: &d.p.apis[h.Key], key: h.Key, version: h.Version, correlation: 1, frame: frame, bodyAt: h.BodyOffset}
}

// answers measures how an answer is passed on.
func (d *desk) answers(b *testing.B, c *call, resp kmsg.Response) {
	frame := asked{key: c.key, ver: c.version, correlation: 1}.frame(resp)
	conn := &looped{frame: frame}
	c.link = &link{conn: conn, in: wire.NewReader(conn, &d.p.pool), out: wire.NewWriter(conn, &d.p.pool)}
	once := func() {
		size, err := c.link.in.Next(100 << 20)
		if err == nil {
			err = c.receive(size, d.s.out)
		}
		if err == nil {
			err = d.s.out.Flush()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	once()
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}

// moved is a partition of generation 2 whose records come 990 lower than they are shown.
func moved(b testing.TB) []Partition {
	m, err := translate.NewMap(0).OpenNative(1000, 10)
	if err != nil {
		b.Fatal(err)
	}
	return []Partition{{Map: m, Eras: []control.Era{{Generation: 2, Cluster: "blue", Virtual: 1000, Physical: 10, Shift: 3, FirstEpoch: 3}}}}
}

func batches(n, size int) (records []byte) {
	for i := range n {
		records = append(records, batchAt(int64(10+i), -1, 0, 0, 1, string(make([]byte, size)))...)
	}
	return records
}

func BenchmarkFetchAnswer(b *testing.B) {
	sizes := map[string][]byte{"64 x 16 KiB": batches(64, 16<<10), "100 x 1 KiB": batches(100, 1<<10), "empty": nil}
	for name, records := range sizes {
		for state, parts := range map[string][]Partition{"as it is": nil, "renumbered": moved(b)} {
			b.Run(name+"/"+state, func(b *testing.B) {
				d := newDesk(b, 2, parts)
				c := d.call(fetchFrom("orders", 1000))
				c.fetch = &fetchCall{}
				d.answers(b, c, fetched("orders", 500, records))
			})
		}
	}
	b.Run("600 partitions/renumbered", func(b *testing.B) {
		d := newDesk(b, 2, moved(b))
		c := d.call(fetchFrom("orders", 1000))
		c.fetch = &fetchCall{}
		resp := fetched("orders", 500, batches(1, 100))
		for range 599 {
			resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, resp.Topics[0].Partitions[0])
		}
		d.answers(b, c, resp)
	})
}

func BenchmarkFetchRequest(b *testing.B) {
	for state, parts := range map[string][]Partition{"as it is": nil, "renumbered": moved(b)} {
		for _, n := range []int{1, 600} {
			b.Run(fmt.Sprintf("%d partitions/%s", n, state), func(b *testing.B) {
				d := newDesk(b, 2, parts)
				req := fetchFrom("orders", 1000)
				for range n - 1 {
					req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
				}
				d.requests(b, d.call(req))
			})
		}
	}
}

// requests measures how a request is made physical. What is changed where it lies is laid out anew each time.
func (d *desk) requests(b *testing.B, c *call) {
	pristine := append([]byte(nil), c.frame...)
	ctx := context.Background()
	b.SetBytes(int64(len(c.frame)))
	b.ReportAllocs()
	for b.Loop() {
		copy(c.frame, pristine)
		if err := c.prepare(ctx); err != nil {
			b.Fatal(err)
		}
	}
	c.release()
}

func BenchmarkProduceRequest(b *testing.B) {
	const id = 7 | 1<<40 // shown, issued in generation 1
	for _, size := range []int{100, 16 << 10, 1 << 20} {
		for state, generation := range map[string]translate.Generation{"generation 1": 1, "guard confirmed": 2, "tagged id": 3} {
			b.Run(fmt.Sprintf("%d bytes/%s", size, state), func(b *testing.B) {
				d := newDesk(b, generation, nil)
				c := d.call(produceTo("orders", 1, batchAt(0, id, 0, 0, 1, string(make([]byte, size)))))
				d.confirm(b, c)
				d.requests(b, c)
			})
		}
	}
	b.Run("100 partitions/tagged id", func(b *testing.B) {
		d := newDesk(b, 3, nil)
		req := produceTo("orders", 1, batchAt(0, id, 0, 0, 1, "value"))
		for i := range 99 {
			p := req.Topics[0].Partitions[0]
			p.Partition = int32(i + 1)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
		}
		c := d.call(req)
		d.confirm(b, c)
		d.requests(b, c)
	})
}

// confirm lets the guard know of all batches of a call.
func (d *desk) confirm(b *testing.B, c *call) {
	pristine := append([]byte(nil), c.frame...)
	if err := c.prepare(context.Background()); err != nil {
		b.Fatal(err)
	}
	for i := range c.produce.parts {
		if p := c.produce.parts[i].producer; p != nil {
			d.p.route.Load().seam.told(p, acked)
			c.produce.parts[i].producer = nil
		}
	}
	copy(c.frame, pristine)
}

func BenchmarkProduceAnswer(b *testing.B) {
	d := newDesk(b, 2, moved(b))
	c := d.call(produceTo("orders", 1, batchAt(0, -1, 0, 0, 1, "value")))
	if err := c.prepare(context.Background()); err != nil {
		b.Fatal(err)
	}
	d.answers(b, c, produced("orders", 5, 0))
}

func BenchmarkMetadata(b *testing.B) {
	d := newDesk(b, 2, moved(b))
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	resp := kmsg.NewPtrMetadataResponse()
	resp.ClusterID = kmsg.StringPtr("real")
	for i := range int32(3) {
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: i, Host: "10.0.0.1", Port: 9092 + i})
	}
	for i := range 100 {
		t := kmsg.NewMetadataResponseTopic()
		t.Topic = kmsg.StringPtr(fmt.Sprintf("topic-%d", i))
		for j := range int32(6) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.Replicas, p.ISR = j, j%3, []int32{0, 1, 2}, []int32{0, 1, 2}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	c := d.call(req)
	if err := c.prepare(context.Background()); err != nil {
		b.Fatal(err)
	}
	d.answers(b, c, resp)
}

// echo answers every request with the same frame, under its correlation id.
func echo(b testing.TB, frame []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in, out := make([]byte, 4<<20), append([]byte(nil), frame...)
				for {
					if _, err := io.ReadFull(conn, in[:4]); err != nil {
						return
					}
					if _, err := io.ReadFull(conn, in[4:4+binary.BigEndian.Uint32(in)]); err != nil {
						return
					}
					copy(out[4:8], in[8:12])
					if _, err := conn.Write(out); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// BenchmarkCall is a whole call over loopback: the client and the broker of the benchmark are in its time.
func BenchmarkCall(b *testing.B) {
	empty := fetchFrom("orders", 1000)
	for _, one := range []struct {
		name string
		req  kmsg.Request
		resp kmsg.Response
	}{
		{"Fetch, empty", empty, fetched("orders", 500, nil)},
		{"Produce, 100 bytes", produceTo("orders", 1, batchAt(0, 7, 0, 0, 1, string(make([]byte, 100)))), produced("orders", 5, 0)},
		{"Produce, 1 MiB", produceTo("orders", 1, batchAt(0, 7, 0, 0, 1, string(make([]byte, 1<<20)))), produced("orders", 5, 0)},
		{"ListOffsets", listOffsets("orders"), listedOffsets("orders", 7)},
	} {
		b.Run(one.name, func(b *testing.B) {
			x := newStage(b, func(c *Config) { c.Log = zerolog.Nop() })
			addr := echo(b, asked{key: one.req.Key(), ver: one.req.GetVersion()}.frame(one.resp))
			x.p.cluster("blue").known = map[int32]string{0: addr}
			c := x.connect()
			ask := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, one.req, 1)
			in := make([]byte, 64<<10)
			once := func() {
				if _, err := c.conn.Write(ask); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, in[:4]); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c.conn, in[4:4+binary.BigEndian.Uint32(in)]); err != nil {
					b.Fatal(err)
				}
			}
			once()
			b.SetBytes(int64(len(ask)))
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
		})
	}
}
