package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

// bounded makes a stage whose sessions may hold so much together, and each.
func bounded(t testing.TB, total, connection int) *stage {
	x := newStage(t, func(c *Config) {
		c.Memory = NewMemory(total, nil)
		c.Limits.ConnectionBytes = connection
	})
	t.Cleanup(func() { x.nothingHeld() })
	return x
}

// nothingHeld waits until all loans are given back.
func (x *stage) nothingHeld() {
	x.t.Helper()
	testkit.Eventually(x.t, 5*time.Second, "nothing is held", func() bool {
		m := x.p.memory
		return m.used.Load() == 0 && m.beyond.Load() == 0 && m.waiting.Load() == 0 && !m.isAhead()
	})
}

func (m *Memory) isAhead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead
}

// filled is records of one batch of n bytes and somewhat more.
func filled(n int) []byte { return batchAt(0, -1, 0, 0, 1, string(make([]byte, n))) }

// heldTo is a request of n bytes that is not streamed: it has many batches.
func heldTo(topic string, n int) *kmsg.ProduceRequest {
	const batches = 8
	req := produceTo(topic, 1, nil)
	req.Topics[0].Partitions = nil
	for i := range int32(batches) {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = i, filled(n/batches)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	return req
}

func TestAConnectionHoldsNoMoreThanItMay(t *testing.T) {
	x := bounded(t, 1<<20, 100<<10)
	c := x.connect()
	req := produceTo("orders", 1, filled(40<<10))
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		for range 3 {
			c.send(req)
		}
	}()
	first, second := x.brokers["blue"].next(kmsg.Produce), x.brokers["blue"].next(kmsg.Produce)
	x.brokers["blue"].quiet()
	if held := x.p.memory.Held(); held > 100<<10 {
		t.Errorf("%d bytes are held", held)
	}
	<-wrote // what is beyond lies in the sockets
	first.answer(t, produced("orders", 0, 0))
	third := x.brokers["blue"].next(kmsg.Produce)
	second.answer(t, produced("orders", 1, 0))
	third.answer(t, produced("orders", 2, 0))
	for i := range int32(3) {
		c.receive(req, i+1)
	}
	x.nothingHeld()
}

func TestAFrameLargerThanAConnectionMayHoldIsRefused(t *testing.T) {
	x := bounded(t, 1<<20, 100<<10)
	c := x.connect()
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], 100<<10+1)
	if _, err := c.conn.Write(size[:]); err != nil {
		t.Fatal(err)
	}
	c.closed(5 * time.Second)
}

// Sessions that hold nothing pass with small frames; others wait in the order in which they came.
func TestSessionsWaitForRoomInOrder(t *testing.T) {
	x := bounded(t, 100<<10, 100<<10)
	large := heldTo("orders", 80<<10)
	var clients []*rawClient
	for i := range 4 {
		c := x.connect()
		go func() { _, _ = c.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, large, int32(i))) }()
		testkit.Eventually(t, 5*time.Second, "the first is in, the others wait", func() bool {
			return x.p.memory.used.Load() > 80<<10 && x.p.memory.waiting.Load() == int32(i)
		})
		clients = append(clients, c)
	}
	small := x.connect()
	ask := listOffsets("orders")
	id := small.send(ask)
	first := x.brokers["blue"].next(kmsg.Produce)
	x.brokers["blue"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 7))
	small.receive(ask, id)
	x.brokers["blue"].quiet()
	first.answer(t, produced("orders", 0, 0))
	clients[0].receive(large, 0)
	for i := int32(1); i < 4; i++ {
		a := x.brokers["blue"].next(kmsg.Produce)
		if a.correlation != i {
			t.Errorf("%d came in before %d", a.correlation, i)
		}
		a.answer(t, produced("orders", int64(i), 0))
		clients[i].receive(large, i)
	}
	x.nothingHeld()
}

func TestWhoLeavesWhileItWaitsLeavesNothing(t *testing.T) {
	x := bounded(t, 100<<10, 100<<10)
	holds, waits := x.connect(), x.connect()
	large := heldTo("orders", 80<<10)
	holds.send(large)
	a := x.brokers["blue"].next(kmsg.Produce)
	go func() { _, _ = waits.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, large, 1)) }()
	testkit.Eventually(t, 5*time.Second, "the other waits", func() bool { return x.p.memory.waiting.Load() == 1 })
	if err := x.p.Hold(x.ctx); err != nil { // what is let in is not passed on
		t.Fatal(err)
	}
	_ = waits.conn.Close()
	a.answer(t, produced("orders", 0, 0))
	holds.receive(large, 1)
	testkit.Eventually(t, 5*time.Second, "it was let in", func() bool { return x.p.gate.standing.Load() == 1 })
	x.p.Release()
	_ = holds.conn.Close()
	x.nothingHeld()
}

// C21 (d): answers that have to be held whole are held within the bound, whatever their readers do; and a drain waits for
// none of them.
func TestSlowReadersOfHeldAnswersStayWithinTheBound(t *testing.T) {
	const total, answer, readers = 2 << 20, 512 << 10, 8
	x := newStage(t, func(c *Config) {
		c.Memory = NewMemory(total, nil)
		c.Limits.ConnectionBytes, c.Limits.FrameTimeout = 2<<20, 300*time.Millisecond
	})
	resp := kmsg.NewPtrMetadataResponse()
	for i := range answer / 100 {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic = kmsg.StringPtr(fmt.Sprintf("%090d", i))
		resp.Topics = append(resp.Topics, topic)
	}
	var high int64
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	for range readers {
		c := x.connect()
		for range 16 { // more than sockets buffer
			c.send(req)
		}
	}
	stop := x.brokers["blue"].answering(func(asked) kmsg.Response { return resp })
	testkit.Eventually(t, 15*time.Second, "readers that take nothing are let go", func() bool {
		high = max(high, x.p.memory.Held())
		return len(x.p.openSessions()) == 0
	})
	if high > total+2*answer+readers*smallFrame {
		t.Errorf("%d bytes were held", high)
	}
	if high < answer {
		t.Errorf("only %d bytes were held: nothing is tested", high)
	}
	x.brokers["blue"].cut()
	stop()
	x.nothingHeld()
}

// answering makes the broker answer every request, those of a connection in order, until stop is called.
func (b *scripted) answering(answer func(asked) kmsg.Response) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		conns := make(map[net.Conn]chan []byte)
		for {
			select {
			case a := <-b.requests:
				if conns[a.conn] == nil {
					frames := make(chan []byte, 1000)
					conns[a.conn] = frames
					wg.Go(func() {
						for frame := range frames {
							_, _ = a.conn.Write(frame)
						}
					})
				}
				conns[a.conn] <- a.frame(answer(a))
			case <-ctx.Done():
				for _, frames := range conns {
					close(frames)
				}
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Many sessions, little room: all come to their end. Some break off.
func TestTinyRoomIsSharedByAll(t *testing.T) {
	x := bounded(t, 64<<10, 48<<10)
	stop := x.brokers["blue"].answering(answerTo)
	deadline := time.Now().Add(15 * time.Second)
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() { x.busyClient(t, uint64(i), deadline) })
	}
	clients.Wait()
	stop()
	x.nothingHeld()
}

func answerTo(a asked) kmsg.Response {
	switch kmsg.Key(a.key) {
	case kmsg.Produce:
		return produced("orders", 0, 0)
	case kmsg.Metadata:
		resp := kmsg.NewPtrMetadataResponse()
		for i := range 400 {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = kmsg.StringPtr(fmt.Sprintf("%080d", i))
			resp.Topics = append(resp.Topics, topic)
		}
		return resp
	}
	return listedOffsets("orders", 1)
}

// busyClient sends requests of all sizes ahead of their answers; every third client breaks off.
func (x *stage) busyClient(t *testing.T, seed uint64, deadline time.Time) {
	conn, err := net.Dial("tcp", x.p.ports[1].listener.Addr().String())
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	r := rand.New(rand.NewPCG(seed, 1))
	calls := 12
	if seed%3 == 0 {
		calls = 5
	}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 9
	written := make(chan struct{})
	defer func() { <-written }()
	go func() {
		defer close(written)
		for i := range calls {
			var req kmsg.Request = listOffsets("orders")
			switch r.IntN(3) {
			case 0:
				req = produceTo("orders", 1, filled(r.IntN(40<<10)))
			case 1:
				req = metadata
			}
			if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, int32(i))); err != nil {
				t.Errorf("client %d: %v", seed, err)
				return
			}
		}
	}()
	for i := range calls {
		if seed%3 == 0 && i == 2 {
			<-written
			return
		}
		frame, err := readFrame(conn)
		if err != nil {
			t.Errorf("client %d got no answer %d: %v", seed, i, err)
			return
		}
		if got := int32(binary.BigEndian.Uint32(frame)); got != int32(i) {
			t.Errorf("client %d got answer %d, not %d", seed, got, i)
		}
	}
}

func TestRoomIsTakenWithoutAllocations(t *testing.T) {
	p, err := New(Config{VirtualCluster: "main", AdvertisedHost: "h", BrokerPortCount: 1, Clusters: map[string]Cluster{
		"blue": {Client: new(kgo.Client), Dial: func(context.Context, string) (net.Conn, error) { return nil, io.EOF }}}})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{p: p, holding: newHolding()}
	if n := testing.AllocsPerRun(100, func() {
		l, _, _ := s.roomForRequest(context.Background(), 1000)
		s.giveBack(&l)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A broker that does not know a topic names it in its answer.
func TestNamesThatClientsMakeUpAreNotKept(t *testing.T) {
	r := newRig(t, identityRoute(), translate.IdentityNames(), virtualWorld())
	fetch := func(topic string, hw int64) {
		c, err := r.call(fetchFrom(topic, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer c.release()
		if c.isHere() {
			return
		}
		answer := fetched(topic, hw, nil)
		answer.Version = 12
		if _, err := r.receive(c, frameOf(r.p.headers, answer), false); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", 30_000)
	for i := range 10 {
		fetch(fmt.Sprint("switchback.hidden", i, long), -1)
		fetch(fmt.Sprint("unknown", i, long), -1)
	}
	kept := len(r.p.seen.byName)
	for _, names := range []*names{&r.s.sent, &r.s.shown} {
		kept += len(names.toPhysical) + len(names.toVirtual) + len(names.kept)
	}
	if kept > 0 {
		t.Errorf("%d names are kept", kept)
	}
	fetch("orders", 5)
	if hw := r.p.seen.find([]byte("orders"), [16]byte{}).get(0); hw != 5 {
		t.Errorf("the high watermark of a topic that is there is %d", hw)
	}
}
