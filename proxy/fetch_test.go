package proxy

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/wire"
	"github.com/switchback-proxy/switchback/translate"
)

// holedPartition: mirrored [100, 110) at 5, hole 15–17, mirrored [110, 120) at 18, virtual gap [120, 500) and hole 28–29, native
// from 500 at 30.
func holedPartition(t testing.TB) Partition {
	t.Helper()
	m, err := translate.NewMap(100).AppendMirrored(100, 5, 10)
	if err == nil {
		m, err = m.AppendMirrored(110, 18, 10)
	}
	if err == nil {
		m, err = m.OpenNative(500, 30)
	}
	if err != nil {
		t.Fatal(err)
	}
	return Partition{Map: m, History: translate.History{}.Append(2, 0).Append(4, 110), Eras: []control.Era{
		{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: 500, Physical: 30, Shift: 20, FirstEpoch: 20}}}
}

func holedRig(t testing.TB) *rig {
	t.Helper()
	r := identityRoute()
	r.Generation, r.Active = 2, "green"
	r.Topics = map[string]*Topic{"orders": {Name: "orders", VirtualID: [16]byte{1}, PhysicalID: [16]byte{2}, Partitions: []Partition{holedPartition(t)}}}
	return newRig(t, r, translate.IdentityNames(), world{host: "h", port: 9000})
}

// epochAt gives a batch the epoch that the cluster has for it.
func epochAt(b []byte, epoch int32) []byte {
	batch.Header(b).SetLeaderEpoch(epoch)
	return b
}

func asControl(b []byte) []byte {
	h := batch.Header(b)
	h.SetAttributes(0x30)
	h.SetLastOffsetDelta(0)
	return b
}

// pass runs one fetched partition through the rig, and returns it as the client reads it.
func (r *rig) pass(version int16, offset int64, records []byte, hw, lso, start int64) kmsg.FetchResponseTopicPartition {
	r.t.Helper()
	req := fetchFrom("orders", offset)
	req.Version = version
	req.Topics[0].TopicID = [16]byte{1}
	c, err := r.call(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if c.isHere() {
		r.t.Fatalf("answered here: %+v", c.local)
	}
	defer c.release()
	resp := fetched("orders", hw, records)
	resp.Version = version
	resp.Topics[0].TopicID = [16]byte{2}
	resp.Topics[0].Partitions[0].LastStableOffset, resp.Topics[0].Partitions[0].LogStartOffset = lso, start
	got, err := r.receive(c, frameOf(r.p.headers, resp), false)
	if err != nil {
		r.t.Fatal(err)
	}
	t, ok := r.t.(*testing.T)
	if !ok {
		r.t.Fatal("not a test")
	}
	shown := checkReadable(t, r.p.headers, got, 1, version).(*kmsg.FetchResponse)
	return shown.Topics[0].Partitions[0]
}

// shownBatches describes batches: offsets, epoch, and c for one that clients skip.
func shownBatches(t *testing.T, records []byte) string {
	t.Helper()
	var out bytes.Buffer
	it := batch.Iter(records)
	for it.Next() {
		h := batch.Header(it.Batch())
		if err := batch.Valid(it.Batch()); err != nil {
			t.Error(err)
		}
		if err := batch.CheckCRC(it.Batch()); err != nil {
			t.Error(err)
		}
		kind := ""
		if h.Control() {
			kind = "c"
		}
		fmt.Fprintf(&out, "%d–%d@%d%s ", h.BaseOffset(), h.NextOffset()-1, h.LeaderEpoch(), kind)
	}
	if it.Truncated() {
		out.WriteString("…")
	}
	return out.String()
}

func TestFetchedBatchesAreShownInTheVirtualLog(t *testing.T) {
	data := func(base int64, n int) []byte { return epochAt(batchAt(base, -1, 0, 0, n, "v"), 7) }
	marker := asControl(data(15, 1))
	fixCRC(marker)
	cleaned := data(15, 3)[:batch.HeaderSize]
	batch.Header(cleaned).SetLength(batch.HeaderSize - 12)
	batch.Header(cleaned).SetNumRecords(0)
	fixCRC(cleaned)
	for name, c := range map[string]struct {
		from    int64
		records [][]byte
		want    string
	}{
		"mirrored":                          {100, [][]byte{data(5, 4), data(9, 6)}, "100–103@2 104–109@2 "},
		"beginning before the position":     {102, [][]byte{data(5, 4), data(9, 6)}, "100–103@2 104–109@2 "},
		"a fence's marker":                  {105, [][]byte{data(9, 6), marker, data(18, 10)}, "104–109@2 110–119@4 …"},
		"a fence's marker first":            {111, [][]byte{marker, data(18, 10)}, "110–119@4 …"},
		"a fence's marker at the end":       {105, [][]byte{data(9, 6), marker}, "104–109@2 …"},
		"a fence's marker and a cut":        {105, [][]byte{data(9, 6), marker, data(18, 10)[:70]}, "104–109@2 …"},
		"a fence's marker and a short cut":  {105, [][]byte{data(9, 6), marker, data(18, 10)[:9]}, "104–109@2 …"},
		"a fence's marker alone":            {105, [][]byte{marker}, "109–109@4c "},
		"strays":                            {105, [][]byte{data(9, 6), data(15, 3), data(18, 10)}, "104–109@2 110–119@4 …"},
		"strays alone":                      {105, [][]byte{data(15, 2), data(17, 1)}, "109–109@4c "},
		"a stray that the cleaner emptied":  {105, [][]byte{data(9, 6), cleaned, data(18, 10)}, "104–109@2 110–119@4 …"},
		"such a stray alone":                {105, [][]byte{cleaned}, "109–109@4c "},
		"a stray and its end cut off":       {105, [][]byte{data(9, 6), data(15, 3)[:70]}, "104–109@2 …"},
		"mirrored, what is between, native": {112, [][]byte{data(18, 10), data(28, 2), data(30, 3)}, "110–119@4 500–502@27 …"},
		"native":                            {503, [][]byte{data(33, 2), data(35, 1)[:20]}, "503–504@27 …"},
		"a header cut off":                  {503, [][]byte{data(33, 2), data(35, 1)[:9]}, "503–504@27 …"},
	} {
		for _, version := range []int16{4, 11, 12, 13, 18} {
			t.Run(fmt.Sprintf("%s/v%d", name, version), func(t *testing.T) {
				p := holedRig(t).pass(version, c.from, bytes.Join(c.records, nil), 40, 33, 6)
				if got := shownBatches(t, p.RecordBatches); got != c.want {
					t.Errorf("shown as %q, want %q", got, c.want)
				}
				if p.HighWatermark != 510 || p.LastStableOffset != 503 || version >= 5 && p.LogStartOffset != 101 {
					t.Errorf("high watermark %d, last stable %d, start %d", p.HighWatermark, p.LastStableOffset, p.LogStartOffset)
				}
			})
		}
	}
}

func TestPositionsAreAskedOfTheBrokerInItsNumbers(t *testing.T) {
	r := holedRig(t)
	for v, want := range map[int64]int64{0: 5, 100: 5, 109: 14, 110: 18, 119: 27, 500: 30, 777: 307} {
		req := fetchFrom("orders", v)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch, req.Topics[0].Partitions[0].LastFetchedEpoch = 22, 4
		c, err := r.call(req)
		if err != nil {
			t.Fatal(err)
		}
		sent := kmsg.NewPtrFetchRequest()
		sent.Version = 12
		if err := sent.ReadFrom(c.message()[c.bodyAt:]); err != nil {
			t.Fatal(err)
		}
		p := sent.Topics[0].Partitions[0]
		if p.FetchOffset != want || p.CurrentLeaderEpoch != 2 || p.LastFetchedEpoch != -1 {
			t.Errorf("virtual %d was asked as %d, current epoch %d, last %d", v, p.FetchOffset, p.CurrentLeaderEpoch, p.LastFetchedEpoch)
		}
		c.release()
	}
	req := fetchFrom("orders", 500) // an epoch of the era before
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 4
	c, err := r.call(req)
	if err != nil {
		t.Fatal(err)
	}
	sent := kmsg.NewPtrFetchRequest()
	sent.Version = 12
	if err := sent.ReadFrom(c.message()[c.bodyAt:]); err != nil {
		t.Fatal(err)
	}
	if e := sent.Topics[0].Partitions[0].CurrentLeaderEpoch; e != -1 {
		t.Errorf("an epoch of an earlier era was passed on as %d", e)
	}
}

func TestTerminalGapIsShownAsAMarker(t *testing.T) {
	r := holedRig(t)
	c, err := r.call(fetchFrom("orders", 120))
	if err != nil {
		t.Fatal(err)
	}
	p := c.local.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	it := batch.Iter(p.RecordBatches)
	if !it.Next() || !batch.IsGapMarker(it.Batch()) || batch.Header(it.Batch()).BaseOffset() != 120 || batch.Header(it.Batch()).NextOffset() != 500 {
		t.Fatalf("answer %+v", p)
	}
	if p.ErrorCode != 0 || p.HighWatermark < 500 || p.LastStableOffset < 500 {
		t.Fatalf("answer %+v", p)
	}
}

// What is known of the end may be of another reader, and of hours ago.
func TestAnAnswerWithoutTheBrokerIsNoEnd(t *testing.T) {
	holed := holedPartition(t)
	for _, c := range []struct {
		part   *Partition
		at, hw int64 // hw 0: none was shown
		next   int64 // where the client goes on
	}{
		{nil, 0, 0, 0}, {nil, 100, 50, 100}, {nil, 100, 100, 100}, {nil, 100, 200, 100},
		{&holed, 0, 0, 0}, {&holed, 120, 0, 500}, {&holed, 120, 500, 500}, {&holed, 500, 500, 500}, {&holed, 700, 500, 700},
	} {
		p := c.part.fetchedHere(c.at, c.hw)
		if p.HighWatermark <= c.next || p.HighWatermark < c.hw || p.LastStableOffset != p.HighWatermark {
			t.Errorf("at %d, with %d shown last: high watermark %d, last stable %d", c.at, c.hw, p.HighWatermark, p.LastStableOffset)
		}
	}
}

func TestWhatIsNotKnownYetIsNeverOutOfRange(t *testing.T) {
	r := identityRoute()
	m, err := translate.NewMap(0).AppendMirrored(0, 3, 10)
	if err != nil {
		t.Fatal(err)
	}
	r.Topics = map[string]*Topic{"orders": {Name: "orders", Partitions: []Partition{{Map: m, Eras: []control.Era{{Generation: 1}}}}}}
	rig := newRig(t, r, translate.IdentityNames(), world{host: "h", port: 9000})
	c, err := rig.call(fetchFrom("orders", 11))
	if err != nil {
		t.Fatal(err)
	}
	if p := c.local.(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != kerr.NotLeaderForPartition.Code {
		t.Fatalf("answer %+v", p)
	}
}

func TestSessionsOfAnotherGenerationAreNotFound(t *testing.T) {
	r := holedRig(t)
	ask := func(id, epoch int32) *call {
		req := fetchFrom("orders", 100)
		req.SessionID, req.SessionEpoch = id, epoch
		c, err := r.call(req)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := ask(5, 3); c.local == nil || c.local.(*kmsg.FetchResponse).ErrorCode != kerr.FetchSessionIDNotFound.Code {
		t.Errorf("answer %+v", c.local)
	}
	c := ask(5, 0) // a new one, in place of 5
	sent := kmsg.NewPtrFetchRequest()
	sent.Version = 12
	if err := sent.ReadFrom(c.message()[c.bodyAt:]); err != nil || sent.SessionID != 0 {
		t.Errorf("sent with session %d: %v", sent.SessionID, err)
	}
	resp := fetched("orders", 30, nil)
	resp.Version, resp.SessionID = 12, 5
	if _, err := r.receive(c, frameOf(r.p.headers, resp), false); err != nil {
		t.Fatal(err)
	}
	if c := ask(5, 1); c.isHere() {
		t.Errorf("answer %+v", c.local)
	}
}

// What takes the place of batches that are left out has their length, and is no whole batch.
func TestWhatIsLeftOutEndsTheAnswerAsABatchCutOff(t *testing.T) {
	for size := batch.HeaderSize; size < 20_000; size++ {
		if size > 300 && size%97 != 0 {
			continue
		}
		var out bytes.Buffer
		pool := &wire.Pool{}
		w := wire.NewWriter(&out, pool)
		writeCutOff(w, nil, size, 41, 3)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		it := batch.Iter(out.Bytes())
		if out.Len() != size || it.Next() || !it.Truncated() || batch.Header(out.Bytes()).Magic() != 2 {
			t.Fatalf("%d bytes became %d, cut off: %v", size, out.Len(), it.Truncated())
		}
	}
}

// Every size that a batch can have is masked by something that all clients skip.
func TestMasksAreControlBatchesOfAnySize(t *testing.T) {
	for size := 68; size < 20_000; size++ {
		if size > 300 && size%97 != 0 && (size < 8250 || size > 8300) {
			continue
		}
		var out bytes.Buffer
		pool := &wire.Pool{}
		w := wire.NewWriter(&out, pool)
		writeMask(w, nil, size, 41, 3)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		b := out.Bytes()
		if len(b) != size {
			t.Fatalf("a mask of %d bytes has %d", size, len(b))
		}
		if err := batch.Valid(b); err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		if err := batch.CheckCRC(b); err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		var raw kmsg.Record
		h := batch.Header(b)
		body := b[batch.HeaderSize:]
		if err := raw.ReadFrom(body); err != nil {
			t.Fatalf("%d: %v", size, err)
		}
		if !h.Control() || h.BaseOffset() != 41 || h.NextOffset() != 42 || h.NumRecords() != 1 {
			t.Fatalf("%d: %v", size, h)
		}
		if size >= 72 {
			if kind, _, err := batch.ControlType(append(bytes.Clone(b), 0)[:size]); kind != batch.Abort && err == nil {
				t.Fatalf("%d: kind %v", size, kind)
			}
		}
	}
}

// An answer keeps its length although virtual addresses are longer or shorter than real ones.
func TestHintsFitTheirPlace(t *testing.T) {
	for _, host := range []string{"a", "a-real-host.of.a.cluster.example", string(bytes.Repeat([]byte("x"), 150))} {
		for _, ours := range []string{"b", "kafka.example.com", string(bytes.Repeat([]byte("y"), 200))} {
			r := identityRoute()
			rig := newRig(t, r, translate.IdentityNames(), world{host: ours, port: 9000})
			req := fetchFrom("orders", 0)
			req.Version = 16
			c, err := rig.call(req)
			if err != nil {
				t.Fatal(err)
			}
			resp := fetched("orders", 0, nil)
			resp.Version = 16
			resp.Topics[0].Partitions[0].ErrorCode = kerr.NotLeaderForPartition.Code
			resp.Topics[0].Partitions[0].CurrentLeader.LeaderID, resp.Topics[0].Partitions[0].CurrentLeader.LeaderEpoch = 2, 8
			node := kmsg.NewFetchResponseBroker()
			node.NodeID, node.Host, node.Port = 2, host, 1
			resp.Brokers = append(resp.Brokers, node)
			got, err := rig.receive(c, frameOf(rig.p.headers, resp), false)
			if err != nil {
				t.Fatalf("%d for %d: %v", len(ours), len(host), err)
			}
			shown := checkReadable(t, rig.p.headers, got, 1, 16).(*kmsg.FetchResponse)
			if bytes.Contains(got, []byte(host)) && len(host) > 1 {
				t.Errorf("%q survives", host)
			}
			for _, b := range shown.Brokers {
				if b.Host != ours || b.NodeID != 2 || b.Port != 9002 {
					t.Errorf("node %+v", b)
				}
			}
			if l := shown.Topics[0].Partitions[0].CurrentLeader; l.LeaderID != 2 || l.LeaderEpoch != 8 {
				t.Errorf("leader %+v", l)
			}
		}
	}
}

func TestFillersHaveEverySize(t *testing.T) {
	for n := 2; n < 20_000; n++ {
		if got := filler(n); len(got) != n {
			t.Fatalf("filler of %d bytes has %d", n, len(got))
		}
	}
}

func TestWalkersAllocateNothingPerPartition(t *testing.T) {
	r := holedRig(t)
	measure := func(partitions int) (request, answer float64) {
		req := fetchFrom("orders", 100)
		req.Topics[0].Partitions = nil
		resp := fetched("orders", 40, nil)
		resp.Version = 12
		resp.Topics[0].Partitions = nil
		for range partitions {
			p := kmsg.NewFetchRequestTopicPartition()
			p.FetchOffset = 100
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
			a := kmsg.NewFetchResponseTopicPartition()
			a.HighWatermark, a.RecordBatches = 40, append(batchAt(5, -1, 0, 0, 4, "v"), batchAt(9, -1, 0, 0, 6, "v")...)
			resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, a)
		}
		c, err := r.call(req)
		if err != nil {
			t.Fatal(err)
		}
		frame := frameOf(r.p.headers, resp)
		request = testing.AllocsPerRun(50, func() {
			if err := c.prepare(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
		answer = testing.AllocsPerRun(50, func() {
			if _, err := r.receive(c, frame, false); err != nil {
				t.Fatal(err)
			}
		})
		return request, answer
	}
	measure(200) // buffers have grown
	fewRequest, fewAnswer := measure(1)
	manyRequest, manyAnswer := measure(100)
	if manyRequest > fewRequest+10 || manyAnswer > fewAnswer+10 { // a pool may lose a buffer
		t.Errorf("allocations for 1 and for 100 partitions: request %v and %v, answer %v and %v", fewRequest, manyRequest, fewAnswer, manyAnswer)
	}
}
