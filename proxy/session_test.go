package proxy

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"math/big"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
)

func TestAnswersComeInTheOrderOfRequests(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	var ids []int32
	var reqs []kmsg.Request
	for i := range 20 {
		var req kmsg.Request = listOffsets(fmt.Sprint(i))
		if i%3 == 1 {
			req = kmsg.NewPtrApiVersionsRequest() // answered at once, and yet in its turn
		}
		reqs, ids = append(reqs, req), append(ids, c.send(req))
	}
	for i := range 20 {
		if i%3 != 1 {
			a := x.brokers["blue"].next(kmsg.ListOffsets)
			if a.correlation != ids[i] {
				t.Fatalf("request %d came to the broker as %d", ids[i], a.correlation)
			}
			a.answer(t, listedOffsets(fmt.Sprint(i), int64(i)))
		}
	}
	for i := range 20 {
		resp := c.receive(reqs[i], ids[i])
		if l, ok := resp.(*kmsg.ListOffsetsResponse); ok && l.Topics[0].Partitions[0].Offset != int64(i) {
			t.Fatalf("request %d got the answer of %d", i, l.Topics[0].Partitions[0].Offset)
		}
	}
}

// C18
func TestNothingIsAnsweredWithoutAcks(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	const n = 500
	for range n {
		c.send(produceTo("orders", 0, sampleBatch(-1, 0, 0)))
	}
	probe := listOffsets("orders")
	id := c.send(probe)
	for range n {
		x.brokers["blue"].next(kmsg.Produce)
	}
	x.brokers["blue"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 3))
	c.receive(probe, id)
	testkit.Eventually(t, time.Second, "the calls have left the gate", func() bool { return x.p.gate.inside.Load() == 0 })

	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 0)))
	x.brokers["blue"].next(kmsg.Produce)
	x.p.gate.hold()
	drained := make(chan error, 1)
	go func() { drained <- x.p.Drain(x.ctx) }()
	own := x.brokers["blue"].next(kmsg.ApiVersions) // asked by the proxy, to know that the batch has arrived
	select {
	case err := <-drained:
		t.Fatalf("drained before the broker said that it got the batch: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	own.answer(t, kmsg.NewPtrApiVersionsResponse())
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	c.send(produceTo("orders", 0, sampleBatch(-1, 0, 0)))
	x.brokers["blue"].quiet()
	x.p.Release()
	x.brokers["blue"].next(kmsg.Produce)
	x.brokers["blue"].quiet()
}

func TestPendingFetchIsAnsweredAtAMove(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	fetch, offsets, join := fetchFrom("orders", 7), listOffsets("orders"), kmsg.NewPtrJoinGroupRequest()
	first := c.send(fetch)
	x.brokers["blue"].next(kmsg.Fetch)
	second := c.send(offsets)
	x.brokers["blue"].next(kmsg.ListOffsets)
	_ = join
	x.p.Publish(x.route(2, "green"))
	resp := c.receive(fetch, first).(*kmsg.FetchResponse)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.HighWatermark != 8 || len(p.RecordBatches) != 0 {
		t.Fatalf("answer %+v", p)
	}
	x.brokers["green"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 9))
	if got := c.receive(offsets, second).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset; got != 9 {
		t.Fatalf("offset %d is not the new cluster's", got)
	}
	third := c.send(fetch)
	x.brokers["green"].next(kmsg.Fetch).answer(t, fetched("orders", 8, nil))
	if p := c.receive(fetch, third).(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.HighWatermark != 8 {
		t.Fatalf("answer %+v", p)
	}
}

// It is put together when its turn comes, which may be after the move.
func TestAGroupIsNotAskedOfTheClusterThatWasLeft(t *testing.T) {
	x := newStage(t, nil)
	for cluster, b := range x.brokers {
		at := b.listener.Addr().(*net.TCPAddr)
		x.p.groups.coordinators().learn(cluster, "readers", 0, at.IP.String(), int32(at.Port))
	}
	c := x.connect()
	fetch, describe := fetchFrom("orders", 7), kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"readers"}
	first := c.send(fetch)
	x.brokers["blue"].next(kmsg.Fetch)
	second := c.send(describe)
	testkit.Eventually(t, 5*time.Second, "the call waits for its turn", func() bool { return x.p.openSessions()[0].pending.Load() == 2 })
	x.p.Publish(x.route(2, "green"))
	c.receive(fetch, first)
	resp := kmsg.NewPtrDescribeGroupsResponse()
	resp.Groups = []kmsg.DescribeGroupsResponseGroup{{Group: "readers", State: "Stable"}}
	x.brokers["green"].next(kmsg.DescribeGroups).answer(t, resp)
	if g := c.receive(describe, second).(*kmsg.DescribeGroupsResponse).Groups[0]; g.State != "Stable" {
		t.Errorf("described as %+v", g)
	}
	x.brokers["blue"].quiet()
}

func TestARouteOfAnEarlierGenerationIsNotPublished(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	x.p.Publish(x.route(2, "green"))
	x.p.Publish(x.route(1, "blue"))
	req := listOffsets("orders")
	id := c.send(req)
	x.brokers["green"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 9))
	c.receive(req, id)
}

func fetched(topic string, hw int64, records []byte) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LastStableOffset, p.RecordBatches = hw, hw, records
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: topic, Partitions: []kmsg.FetchResponseTopicPartition{p}}}
	return resp
}

func TestAnAnswerThatHasBegunIsFinished(t *testing.T) {
	for _, begun := range []int{2, 30} { // inside the length, inside the body
		t.Run(fmt.Sprint(begun), func(t *testing.T) {
			x := newStage(t, nil)
			c := x.connect()
			fetch := fetchFrom("orders", 0)
			id := c.send(fetch)
			a := x.brokers["blue"].next(kmsg.Fetch)
			records := bytes.Repeat([]byte{7}, 300_000)
			frame := a.frame(fetched("orders", 5, records))
			if _, err := a.conn.Write(frame[:begun]); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, time.Second, "the answer has begun", func() bool { return x.linkBuffered() || begun > 4 })
			x.p.Publish(x.route(2, "green"))
			if _, err := a.conn.Write(frame[begun:]); err != nil {
				t.Fatal(err)
			}
			got := c.receive(fetch, id).(*kmsg.FetchResponse)
			if !bytes.Equal(got.Topics[0].Partitions[0].RecordBatches, records) {
				t.Fatal("the records are not those of the broker")
			}
		})
	}
}

// linkBuffered is a moment for bytes to arrive; what the link's reader holds is its owner's business.
func (x *stage) linkBuffered() bool {
	<-time.After(20 * time.Millisecond)
	return true
}

func TestAnswersAreWaitedForWhenTheClientIsGone(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	c.send(fetchFrom("orders", 0)) // a call of no interest is in front
	c.send(produceTo("orders", -1, sampleBatch(-1, 0, 0)))
	before := x.brokers["blue"].next(kmsg.Fetch)
	a := x.brokers["blue"].next(kmsg.Produce)
	c.conn.Close()
	x.p.gate.hold()
	short, cancel := context.WithTimeout(x.ctx, 50*time.Millisecond)
	defer cancel()
	if err := x.p.Drain(short); err == nil {
		t.Fatal("drained while an answer was under way")
	}
	before.answer(t, fetched("orders", 0, nil))
	a.answer(t, produced("orders", 1, 0))
	if err := x.p.Drain(x.ctx); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Second, "the session ends", func() bool { return len(x.p.openSessions()) == 0 })
}

func TestHeldCallsOfAGoneClientAreDropped(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	x.p.gate.hold()
	c.send(produceTo("orders", -1, sampleBatch(-1, 0, 0)))
	testkit.Eventually(t, time.Second, "the call is held", func() bool { return x.p.gate.standing.Load() == 1 })
	c.conn.Close()
	<-time.After(20 * time.Millisecond) // for the FIN
	x.p.Publish(x.route(2, "green"))
	x.p.Release()
	testkit.Eventually(t, time.Second, "the session ends", func() bool { return len(x.p.openSessions()) == 0 })
	x.brokers["green"].quiet()
	x.brokers["blue"].quiet()
}

func TestCallsWaitUntilTheRouteIsKnown(t *testing.T) {
	x := newStage(t, nil)
	unknown := x.route(2, "blue")
	unknown.Unknown = true
	x.p.route.Store(unknown.prepare(x.p.cfg.Clusters["blue"].Names))
	c := x.connect()
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.Topics = 12, []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("orders")}}
	got := c.receive(meta, c.send(meta)).(*kmsg.MetadataResponse)
	if len(got.Brokers) != 1 || got.Topics[0].ErrorCode != kerr.LeaderNotAvailable.Code {
		t.Errorf("without a route: %+v", got)
	}
	fetch := fetchFrom("orders", 7)
	id := c.send(fetch)
	gone := x.connect()
	gone.send(listOffsets("orders"))
	testkit.Eventually(t, 5*time.Second, "both are held", func() bool { return len(x.p.openSessions()) == 2 })
	gone.conn.Close()
	testkit.Eventually(t, 5*time.Second, "who left is let go", func() bool { return len(x.p.openSessions()) == 1 })
	x.brokers["blue"].quiet()
	if err := x.p.Start(x.ctx, x.route(2, "blue")); err != nil {
		t.Fatal(err)
	}
	x.brokers["blue"].next(kmsg.Fetch).answer(t, fetched("orders", 8, nil))
	c.receive(fetch, id)
}

func TestAnotherLinkIsMadeWhenAnIdleOneWasClosed(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	for i := range 3 {
		req := listOffsets("orders")
		id := c.send(req)
		x.brokers["blue"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", int64(i)))
		c.receive(req, id)
		x.brokers["blue"].cut()
	}
}

func TestCallsAreSentAnewWhenALinkBreaks(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	req := listOffsets("orders")
	id := c.send(req)
	x.brokers["blue"].next(kmsg.ListOffsets)
	x.brokers["blue"].cut()
	x.brokers["blue"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 4))
	if got := c.receive(req, id).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset; got != 4 {
		t.Fatalf("offset %d", got)
	}
	// whether a batch was written nobody knows: the client has to find out
	c.send(produceTo("orders", -1, sampleBatch(-1, 0, 0)))
	x.brokers["blue"].next(kmsg.Produce)
	x.brokers["blue"].cut()
	c.closed(5 * time.Second)
	x.brokers["blue"].quiet()
}

func TestVersionsAreAgreedOn(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	tooNew := kmsg.NewPtrApiVersionsRequest()
	tooNew.Version, tooNew.ClientSoftwareName, tooNew.ClientSoftwareVersion = 5, "raw", "1"
	id := c.send(tooNew)
	frame, err := readFrame(c.conn)
	if err != nil {
		t.Fatal(err)
	}
	resp := kmsg.NewPtrApiVersionsResponse() // v0
	if err := resp.ReadFrom(frame[4:]); err != nil || int32(binary.BigEndian.Uint32(frame)) != id {
		t.Fatalf("answer %x: %v", frame, err)
	}
	if resp.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	offered := map[int16]bool{}
	for _, k := range resp.ApiKeys {
		offered[k.ApiKey] = true
	}
	if !offered[0] || !offered[18] || offered[26] || offered[75] {
		t.Fatalf("offered %v", offered)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.Version = 3
	c.send(req)
	c.closed(time.Second)
}

func TestProduceOfOldClientsIsRefusedCleanly(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	req := produceTo("orders", 1, nil)
	req.Version = 0
	id := c.send(req)
	if p := c.receive(req, id).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.UnsupportedVersion.Code {
		t.Fatalf("code %d", p.ErrorCode)
	}
	txn := produceTo("orders", -1, sampleBatch(5, 0, 0))
	txn.TransactionID = kmsg.StringPtr("t")
	id = c.send(txn)
	if p := c.receive(txn, id).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Fatalf("code %d", p.ErrorCode)
	}
}

// C21
func TestBadTrafficBindsNothing(t *testing.T) {
	short := func(c *Config) {
		c.Limits = Limits{FrameTimeout: 100 * time.Millisecond, IdleTimeout: 200 * time.Millisecond, FrameBytes: 1 << 20}
	}
	for name, bytes := range map[string][]byte{
		"TLS hello":          {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"HTTP":               []byte("GET / HTTP/1.1\r\n\r\n"),
		"too large":          {0x00, 0x20, 0, 0},
		"length and silence": {0, 0, 1, 0},
		"half a frame":       {0, 0, 1, 0, 0, 3, 0, 9, 0, 0, 0, 1, 0, 2, 'm', 'e'},
		"silence":            {},
		"unknown key":        {0, 0, 0, 10, 0x7f, 0xff, 0, 0, 0, 0, 0, 1, 0xff, 0xff},
		"garbage":            {0, 0, 0, 12, 0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			x := newStage(t, short)
			c := x.connect()
			if _, err := c.conn.Write(bytes); err != nil {
				t.Fatal(err)
			}
			c.closed(3 * time.Second)
			testkit.Eventually(t, time.Second, "the session ends", func() bool { return len(x.p.openSessions()) == 0 })
			x.brokers["blue"].quiet()
		})
	}
}

// C21 (e)
func TestConnectionsLeaveNothingBehind(t *testing.T) {
	x := newStage(t, nil)
	stop := make(chan struct{})
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		for {
			select {
			case a := <-x.brokers["blue"].requests:
				a.answer(t, listedOffsets("orders", 1))
			case <-stop:
				return
			}
		}
	}()
	round := func() {
		c := x.connect()
		req := listOffsets("orders")
		c.receive(req, c.send(req))
		c.conn.Close()
	}
	round()
	testkit.Eventually(t, time.Second, "the session ends", func() bool { return len(x.p.openSessions()) == 0 })
	before := runtime.NumGoroutine()
	for range 200 {
		round()
	}
	testkit.Eventually(t, 3*time.Second, "goroutines are back", func() bool { return runtime.NumGoroutine() <= before })
	close(stop)
	<-answering
}

func TestConnectionsAreLimited(t *testing.T) {
	x := newStage(t, func(c *Config) { c.Limits.Connections = 1 })
	first := x.connect()
	req := kmsg.NewPtrApiVersionsRequest()
	first.receive(req, first.send(req))
	x.connect().closed(time.Second)
	first.receive(req, first.send(req))
}

func TestLinksOfEarlierGenerationsAreClosed(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	fetch := fetchFrom("orders", 0)
	id := c.send(fetch)
	x.brokers["blue"].next(kmsg.Fetch)
	x.p.Publish(x.route(2, "green"))
	c.receive(fetch, id)
	id = c.send(fetch)
	x.brokers["green"].next(kmsg.Fetch).answer(t, fetched("orders", 1, nil))
	c.receive(fetch, id)
	s := x.p.openSessions()[0]
	testkit.Eventually(t, time.Second, "the old link is closed", func() bool { return len(s.openLinks()) == 1 })
	for range 3 {
		x.brokers["green"].cut()
		req := listOffsets("orders")
		id = c.send(req)
		x.brokers["green"].next(kmsg.ListOffsets).answer(t, listedOffsets("orders", 1))
		c.receive(req, id)
	}
	if n := len(s.openLinks()); n > 2 {
		t.Errorf("%d links", n)
	}
}

func TestTLSIsSpokenOrTheConnectionEnds(t *testing.T) {
	cert := selfSigned(t)
	x := newStage(t, func(c *Config) {
		c.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		c.Limits.HandshakeTimeout = 100 * time.Millisecond
	})
	plain := x.connect()
	plain.closed(2 * time.Second)
	conn, err := tls.Dial("tcp", x.p.ports[1].listener.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := &rawClient{t: t, conn: conn}
	fetch := fetchFrom("orders", 0)
	id := c.send(fetch)
	records := bytes.Repeat([]byte{1}, 300_000)
	x.brokers["blue"].next(kmsg.Fetch).answer(t, fetched("orders", 1, records))
	if got := c.receive(fetch, id).(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches; !bytes.Equal(got, records) {
		t.Error("the records are not those of the broker")
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// C21 (d)
func TestSlowReadersCostNoMemory(t *testing.T) {
	x := newStage(t, func(c *Config) { c.Limits.FrameTimeout = 300 * time.Millisecond })
	c := x.connect()
	c.send(fetchFrom("orders", 0))
	a := x.brokers["blue"].next(kmsg.Fetch)
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		_, _ = a.conn.Write(a.frame(fetched("orders", 1, make([]byte, 32<<20)))) // more than sockets buffer
	}()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	<-time.After(50 * time.Millisecond)
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapInuse) - int64(before.HeapInuse); grown > 100<<20 { // the test's own frame
		t.Errorf("the heap grew by %d bytes", grown)
	}
	testkit.Eventually(t, 5*time.Second, "a reader that takes nothing is let go", func() bool { return len(x.p.openSessions()) == 0 })
	x.brokers["blue"].cut()
	<-wrote
}

func TestCloseWaitsForEverything(t *testing.T) {
	x := newStage(t, nil)
	c := x.connect()
	c.send(fetchFrom("orders", 0))
	x.brokers["blue"].next(kmsg.Fetch)
	began := time.Now()
	if err := x.p.Close(x.ctx); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("it took %v", d)
	}
	c.closed(time.Second)
}
