package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// fuzzCall makes a call of any bytes.
func (r *rig) fuzzCall(key, version int16, body []byte) *call {
	c := &call{s: r.s, route: r.p.route.Load(), row: &r.p.apis[key], key: key, version: version, correlation: 77,
		bodyAt: 10, request: r.p.pool.Get()}
	c.request.B = append(c.request.B, 0, 0, 0, 0, 0, 0, 0, 77, 0xff, 0xff)
	c.request.B = append(c.request.B, body...)
	c.frame = c.request.B
	return c
}

func fuzzRig(f *testing.F) *rig {
	f.Helper()
	route := identityRoute()
	route.Generation, route.Active = 2, "green"
	route.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: []Partition{holedPartition(f)}}}
	return newRig(f, route, translate.IdentityNames(), world{host: "h", port: 9000})
}

func FuzzRequest(f *testing.F) {
	r := fuzzRig(f)
	for version := int16(4); version <= 18; version++ {
		req := fetchFrom("orders", 105)
		req.Version = version
		req.Topics[0].TopicID = [16]byte{1}
		f.Add(true, version, req.AppendTo(nil))
	}
	for version := int16(0); version <= 13; version++ {
		req := produceTo("orders", -1, sampleBatch(-1, 3, 5))
		req.Version = version
		req.Topics[0].TopicID = [16]byte{1}
		f.Add(false, version, req.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, fetch bool, version int16, body []byte) {
		key := int16(0)
		if fetch {
			key = 1
		}
		row := r.p.apis[key]
		if version < row.min || version > row.max {
			return
		}
		c := r.fuzzCall(key, version, body)
		defer c.release()
		if err := c.prepare(context.Background()); err != nil || c.isHere() {
			return
		}
		if n := len(c.message()); n > 64*len(c.frame)+1024 {
			t.Fatalf("%d bytes became %d", len(c.frame), n)
		}
		if !fetch {
			r.streamedTheSame(t, version, body, c)
		}
		sent := kmsg.RequestForKey(key)
		sent.SetVersion(version)
		if err := sent.ReadFrom(c.message()[c.bodyAt:]); err != nil {
			asked := kmsg.RequestForKey(key)
			asked.SetVersion(version)
			if asked.ReadFrom(body) == nil {
				t.Fatalf("a request that could be read is sent as one that cannot: %v", err)
			}
		}
	})
}

// streamedTheSame: a Produce request whose records are not read becomes the same message as one that is held.
func (r *rig) streamedTheSame(t *testing.T, version int16, body []byte, held *call) {
	want := bytes.Clone(held.message())
	held.produce.giveUp()
	c := r.fuzzCall(held.key, version, body)
	defer c.release()
	whole := bytes.Clone(c.frame)
	c.s.in = wire.NewBytesReader(whole)
	c.request.B = c.request.B[:0]
	if !c.cut(len(whole)) {
		return
	}
	if err := c.prepare(context.Background()); err != nil || c.isHere() {
		t.Fatalf("held it is sent, streamed it is not: %v", err)
	}
	var got bytes.Buffer
	if err := c.s.writeStreamed(wire.NewWriter(&got, &r.p.pool), c); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes()[4:], want) {
		t.Fatalf("streamed:\n%x\nheld:\n%x", got.Bytes()[4:], want)
	}
}

func FuzzAnswer(f *testing.F) {
	r := fuzzRig(f)
	for version := int16(4); version <= 18; version++ {
		resp := fetched("orders", 40, append(batchAt(9, -1, 0, 0, 6, "v"), batchAt(15, -1, 0, 0, 1, "v")...))
		resp.Version = version
		resp.Topics[0].TopicID = [16]byte{2}
		f.Add(true, version, resp.AppendTo(nil))
	}
	for version := int16(3); version <= 13; version++ {
		resp := produced("orders", 33, 0)
		resp.Version = version
		resp.Topics[0].TopicID = [16]byte{2}
		f.Add(false, version, resp.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, fetch bool, version int16, body []byte) {
		key, least := int16(0), int16(3)
		if fetch {
			key, least = 1, 4
		}
		if version < least || version > r.p.apis[key].max {
			return
		}
		c := r.fuzzCall(key, version, nil)
		defer c.release()
		c.produce, c.fetch = &produceCall{}, &fetchCall{}
		frame := make([]byte, 4)
		frame = r.p.headers.AppendResponseHeader(frame, key, version, 77)
		frame = append(frame, body...)
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		got, err := r.receive(c, frame, false)
		if err == nil && fetch && len(got) != len(frame) {
			t.Fatalf("an answer of %d bytes became one of %d", len(frame), len(got))
		}
	})
}
