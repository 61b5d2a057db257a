package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// run is a made-up clean run, as events per client: two producers with 60 records each over three partitions, a group of two
// members, and a reader named dump that assigns itself.
type run struct {
	clients map[string][]Event
	order   []string
}

const runPartitions = 3

func cleanRun() *run {
	r := &run{clients: make(map[string][]Event)}
	next := map[int32]int64{0: 137, 1: 148, 2: 159}
	for seq := range int64(60) {
		for _, producer := range []string{"java", "franz"} {
			at := 1000 + seq*10
			partition := int32(seq % runPartitions)
			offset := next[partition]
			next[partition]++
			record := Event{Millis: at, Client: producer, Producer: producer, Seq: seq, Topic: "orders", Partition: partition}
			r.log(producer, record, Sent)
			record.Millis += 3
			record.Offset = offset
			r.log(producer, record, Acked)
			record.Millis += 2
			record.Group = NoGroup
			record.Client = "dump"
			r.log("dump", record, Read)
			record.Group = "billing"
			record.Client = fmt.Sprintf("billing-%d", partition%2)
			r.log(record.Client, record, Read)
		}
	}
	for i, member := range []string{"billing-0", "billing-1"} {
		assigned := Event{Kind: Assigned, Millis: 990, Client: member, Group: "billing", Count: 2 - i}
		r.clients[member] = append([]Event{assigned}, r.clients[member]...)
		r.log(member, Event{Millis: 2000, Client: member, Group: "billing", Topic: "orders", Partition: int32(i), Offset: next[int32(i)]}, Committed)
	}
	for _, client := range slices.Clone(r.order) {
		r.log(client, Event{Millis: 3000, Client: client}, Stopping)
		if strings.HasPrefix(client, "billing") {
			r.log(client, Event{Millis: 3001, Client: client, Group: "billing", Count: 1}, Revoked)
		}
		r.log(client, Event{Millis: 3002, Client: client}, Stopped)
	}
	r.log("marks", Event{Millis: 1000, Text: MarkStart}, Mark)
	r.log("marks", Event{Millis: 1600, Text: MarkEnd}, Mark)
	return r
}

func (r *run) log(client string, e Event, kind Kind) {
	e.Kind = kind
	if _, ok := r.clients[client]; !ok {
		r.order = append(r.order, client)
	}
	r.clients[client] = append(r.clients[client], e)
}

// find returns the index of the only matching event of a client.
func (r *run) find(client string, kind Kind, producer string, seq int64) int {
	return slices.IndexFunc(r.clients[client], func(e Event) bool {
		return e.Kind == kind && e.Producer == producer && e.Seq == seq
	})
}

func (r *run) remove(client string, i int) {
	r.clients[client] = slices.Delete(r.clients[client], i, i+1)
}

func (r *run) insert(client string, i int, e Event) {
	r.clients[client] = slices.Insert(r.clients[client], i, e)
}

// report feeds the logs client by client, through the text format.
func (r *run) report(t *testing.T, config Config) Report {
	t.Helper()
	c := New(config)
	for _, client := range r.order {
		var b bytes.Buffer
		log := NewLog(&b)
		for _, e := range r.clients[client] {
			log.Write(e)
		}
		if err := log.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := c.AddLog(&b); err != nil {
			t.Fatal(err)
		}
	}
	return c.Report()
}

var runConfig = Config{Readers: []Reader{{Name: "dump", Topics: []string{"orders"}}, {Name: "billing", Topics: []string{"orders"}}}}

// faults is the non-zero part of a report.
func faults(r Report) map[string]int64 {
	found := make(map[string]int64)
	for _, line := range r.faults() {
		if line.count != 0 {
			found[line.name] = line.count
		}
	}
	return found
}

func TestCleanRunIsClean(t *testing.T) {
	r := cleanRun().report(t, runConfig)
	if !r.OK() {
		t.Fatalf("a clean run has faults:\n%s", r.String())
	}
	if r.SentRecords != 120 || r.AckedRecords != 120 || r.ReadRecords != 240 {
		t.Fatalf("counts are wrong:\n%s", r.String())
	}
	if r.LongestAckPause.Millis != 10 || r.Producers[0].SlowestAck.Millis != 3 {
		t.Fatalf("pauses are wrong:\n%s", r.String())
	}
}

func TestEachFaultIsCaughtOnceAndAlone(t *testing.T) {
	tests := []struct {
		name   string
		inject func(r *run)
		want   map[string]int64
	}{
		{"loss: the log lacks an acked record", func(r *run) {
			r.remove("dump", r.find("dump", Read, "java", 17))
			r.remove("billing-0", r.find("billing-0", Read, "java", 17))
		}, map[string]int64{"lost": 1}},
		{"loss: a group skips a record", func(r *run) {
			r.remove("billing-1", r.find("billing-1", Read, "franz", 19))
		}, map[string]int64{"lost": 1}},
		{"loss: a record read by one and not by another, never acked", func(r *run) {
			r.clients["java"][r.find("java", Acked, "java", 17)].Kind = Failed
			r.remove("dump", r.find("dump", Read, "java", 17))
		}, map[string]int64{"lost": 1, "application errors": 1}},
		{"duplicate in the log", func(r *run) {
			r.copyOf("dump", "java", 57, 400)
			r.copyOf("billing-0", "java", 57, 400)
		}, map[string]int64{"duplicates in the log": 1}},
		{"reorder by sequence", func(r *run) {
			for _, client := range []string{"dump", "billing-0"} {
				r.swapRecords(client, "java", 21, 24)
			}
			a, b := r.find("java", Acked, "java", 21), r.find("java", Acked, "java", 24)
			log := r.clients["java"]
			log[a].Offset, log[b].Offset = log[b].Offset, log[a].Offset
		}, map[string]int64{"out of order": 2}}, // once for each reader
		{"reorder by offset, one reader", func(r *run) {
			r.swapEvents("dump", "java", 22, 25)
		}, map[string]int64{"out of order": 2}}, // 25 before what franz wrote between, then 22 after it
		{"reorder of neighbours, one reader", func(r *run) {
			a, b := r.find("dump", Read, "java", 22), r.find("dump", Read, "franz", 22)
			log := r.clients["dump"]
			log[a], log[b] = log[b], log[a]
		}, map[string]int64{"out of order": 1}},
		{"re-read by the same member", func(r *run) {
			i := r.find("billing-0", Read, "java", 30)
			r.insert("billing-0", i+1, r.clients["billing-0"][i])
		}, map[string]int64{"re-read": 1}},
		{"re-read by another member", func(r *run) {
			e := r.clients["billing-0"][r.find("billing-0", Read, "java", 30)]
			e.Client = "billing-1"
			r.insert("billing-1", 1, e)
		}, map[string]int64{"re-read": 1}},
		{"re-read at another offset", func(r *run) {
			i := r.find("billing-0", Read, "java", 57)
			e := r.clients["billing-0"][i]
			e.Offset += 100
			e.Client = "billing-1"
			r.insert("billing-1", len(r.clients["billing-1"])-3, e)
		}, map[string]int64{"re-read": 1}},
		{"the producer was told another offset", func(r *run) {
			r.clients["java"][r.find("java", Acked, "java", 8)].Offset += 1000
		}, map[string]int64{"offset mismatches": 1}},
		{"two consumers differ", func(r *run) {
			r.clients["dump"][r.find("dump", Read, "franz", 59)].Offset += 1000
		}, map[string]int64{"offset mismatches": 1}},
		{"another partition than acked", func(r *run) {
			r.clients["java"][r.find("java", Acked, "java", 8)].Partition = 0
		}, map[string]int64{"offset mismatches": 1}},
		{"failed delivery", func(r *run) {
			r.insert("java", 5, Event{Kind: Failed, Producer: "java", Seq: 2, Topic: "orders", Partition: 2, Text: "timed out"})
		}, map[string]int64{"application errors": 1}},
		{"error in an application", func(r *run) {
			r.insert("billing-0", 5, Event{Kind: Error, Millis: 1100, Client: "billing-0", Text: "CommitFailedException:\nrebalanced"})
		}, map[string]int64{"application errors": 1}},
		{"rebalance, cooperative", func(r *run) {
			r.insert("billing-0", 5, Event{Kind: Assigned, Millis: 1100, Client: "billing-0", Group: "billing"})
		}, map[string]int64{"rebalances": 1}},
		{"rebalance, eager", func(r *run) {
			r.insert("billing-0", 5, Event{Kind: Assigned, Millis: 1100, Client: "billing-0", Group: "billing", Count: 2})
			r.insert("billing-0", 5, Event{Kind: Revoked, Millis: 1090, Client: "billing-0", Group: "billing", Count: 2})
		}, map[string]int64{"rebalances": 1}},
		{"partitions lost", func(r *run) {
			r.insert("billing-0", 5, Event{Kind: Lost, Millis: 1090, Client: "billing-0", Group: "billing", Count: 2})
		}, map[string]int64{"rebalances": 1}},
		{"record that no one sent", func(r *run) {
			r.remove("java", r.find("java", Sent, "java", 40))
		}, map[string]int64{"unknown records": 1}},
		{"ack that never came", func(r *run) {
			r.remove("java", r.find("java", Acked, "java", 40))
		}, map[string]int64{"unanswered records": 1}},
		{"second ack", func(r *run) {
			i := r.find("java", Acked, "java", 40)
			r.insert("java", i, r.clients["java"][i])
		}, map[string]int64{"application errors": 1}},
		{"commit goes back", func(r *run) {
			i := len(r.clients["billing-0"]) - 4
			e := r.clients["billing-0"][i]
			e.Offset--
			r.insert("billing-0", i+1, e)
		}, map[string]int64{"commits that went back": 1}},
		{"client without orderly end", func(r *run) {
			r.remove("billing-1", len(r.clients["billing-1"])-1)
		}, map[string]int64{"clients without orderly end": 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := cleanRun()
			tt.inject(r)
			report := r.report(t, runConfig)
			got := faults(report)
			if len(got) != len(tt.want) {
				t.Fatalf("faults %v, want %v\n%s", got, tt.want, report.String())
			}
			for name, count := range tt.want {
				if got[name] != count {
					t.Fatalf("faults %v, want %v\n%s", got, tt.want, report.String())
				}
			}
			if report.OK() {
				t.Fatal("OK in spite of the fault")
			}
		})
	}
}

// copyOf makes a client read a record once more, further on in the log by shift offsets, at its end.
func (r *run) copyOf(client, producer string, seq, shift int64) {
	e := r.clients[client][r.find(client, Read, producer, seq)]
	e.Offset += shift
	last := 0
	for i, other := range r.clients[client] {
		if other.Kind == Read {
			last = i
		}
	}
	r.insert(client, last+1, e)
}

// swapRecords exchanges two records of one producer and partition, as if the log held them in the other order.
func (r *run) swapRecords(client, producer string, a, b int64) {
	i, j := r.find(client, Read, producer, a), r.find(client, Read, producer, b)
	log := r.clients[client]
	log[i].Seq, log[j].Seq = b, a
}

// swapEvents exchanges the times at which a client read two records.
func (r *run) swapEvents(client, producer string, a, b int64) {
	i, j := r.find(client, Read, producer, a), r.find(client, Read, producer, b)
	log := r.clients[client]
	log[i], log[j] = log[j], log[i]
}

func TestReaderThatNeverCameMissedEverything(t *testing.T) {
	config := runConfig
	config.Readers = append(slices.Clone(config.Readers), Reader{Name: "audit", Topics: []string{"orders"}})
	r := cleanRun().report(t, config)
	if got := faults(r); got["lost"] != 120 || len(got) != 1 {
		t.Fatalf("faults %v, want 120 lost", got)
	}
}

func TestPartialReaderNeedNotReadAll(t *testing.T) {
	r := cleanRun()
	r.remove("billing-0", r.find("billing-0", Read, "java", 0))
	config := runConfig
	config.Partial = []string{"billing"}
	if report := r.report(t, config); !report.OK() {
		t.Fatalf("faults:\n%s", report.String())
	}
}

func TestDirectClientIsJudgedByIdentityAlone(t *testing.T) {
	direct := func() *run {
		r := cleanRun()
		i := r.find("billing-0", Read, "java", 57)
		e := r.clients["billing-0"][i]
		r.remove("billing-0", i)
		e.Client, e.Offset = "direct", 3
		r.log("direct", e, Read)
		r.log("direct", Event{Millis: 4000, Client: "direct"}, Stopped)
		return r
	}
	config := runConfig
	config.Direct = []string{"direct"}
	if report := direct().report(t, config); !report.OK() {
		t.Fatalf("faults:\n%s", report.String())
	}
	r := direct()
	again := r.clients["billing-0"][r.find("billing-0", Read, "java", 30)]
	again.Client, again.Offset = "direct", 2
	r.insert("direct", 0, again)
	if got := faults(r.report(t, config)); got["re-read"] != 1 || len(got) != 1 {
		t.Fatalf("faults %v, want one re-read", got)
	}
}

func TestPauseInsideTheWindowIsMeasured(t *testing.T) {
	r := cleanRun()
	for client, log := range r.clients {
		if client == "marks" {
			log[1].Millis += 5000
			continue
		}
		for i := range log {
			if log[i].Millis >= 1300 {
				log[i].Millis += 5000
			}
		}
	}
	report := r.report(t, runConfig)
	if !report.OK() {
		t.Fatalf("faults:\n%s", report.String())
	}
	for _, p := range []Pause{report.LongestAckPause, report.LongestReadPause, report.Producers[0].LongestPause} {
		if p.Millis != 5010 || p.At < 1290 || p.At > 1300 {
			t.Fatalf("pause %+v, want 5010 ms from about 1295", p)
		}
	}
}

func TestProducerThatFallsSilentHasAPauseToTheEndOfTheWindow(t *testing.T) {
	r := cleanRun()
	r.clients["marks"][1].Millis = 61_593
	if report := r.report(t, runConfig); report.LongestAckPause.Millis != 60_000 {
		t.Fatalf("pause %+v, want 60000 ms", report.LongestAckPause)
	}
}

func TestRebalanceOutsideTheWindowDoesNotCount(t *testing.T) {
	r := cleanRun()
	r.insert("billing-0", 5, Event{Kind: Assigned, Millis: 1600, Client: "billing-0", Group: "billing", Count: 1})
	if report := r.report(t, runConfig); !report.OK() {
		t.Fatalf("faults:\n%s", report.String())
	}
}

func TestReadAgainBeforeTheWindowDoesNotCount(t *testing.T) {
	const start = 1100
	for _, at := range []int64{start - 1, start} {
		r := cleanRun()
		r.order = append([]string{"marks"}, r.order[:len(r.order)-1]...)
		r.clients["marks"][0].Millis = start
		again := r.clients["billing-0"][r.find("billing-0", Read, "java", 0)]
		again.Millis = at
		r.insert("billing-0", 10, again)
		if found := faults(r.report(t, runConfig)); (found["re-read"] == 0) != (at < start) {
			t.Errorf("read again at %d, the window begins at %d: faults %v", at, start, found)
		}
	}
}

func TestReportIsReadableTwiceAndAsJSON(t *testing.T) {
	r := cleanRun()
	r.remove("billing-1", r.find("billing-1", Read, "franz", 19))
	c := New(runConfig)
	for _, client := range r.order {
		for _, e := range r.clients[client] {
			c.Add(e)
		}
	}
	first, second := c.Report(), c.Report()
	if first.String() != second.String() {
		t.Fatalf("reports differ:\n%s\n%s", first.String(), second.String())
	}
	var back Report
	if err := json.Unmarshal(first.JSON(), &back); err != nil || back.LostRecords != 1 || back.String() != first.String() {
		t.Fatalf("JSON does not come back: %v\n%s", err, first.JSON())
	}
}

func TestIdentityComesBack(t *testing.T) {
	producer, seq, err := ParseIdentity([]byte(Identity("java/1", 42) + " padding"))
	if err != nil || producer != "java/1" || seq != 42 {
		t.Fatalf("got %q, %d, %v", producer, seq, err)
	}
	for _, bad := range []string{"", "x", "/1", "a/", "a/-1", "a/1x", "a/99999999999999"} {
		if _, _, err := ParseIdentity([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestDamagedLinesAreRefused(t *testing.T) {
	var p Parser
	var e Event
	for _, line := range []string{
		"", "sent", "bogus 1 a", "sent x a 1 t 0", "sent 1 a 1 t", "sent 1 a 1 t 0 9", "sent 1 a -1 t 0", "sent 1 a 1099511627776 t 0",
		"read 1 c g t 0 5 p", "acked 1 a 1 t 0 99999999999999999999", "mark 1 middle", "sent 1  1 t 0", "acked 1 a 1 t 4294967296 0",
	} {
		if err := p.Parse([]byte(line), &e); err == nil {
			t.Errorf("%q was taken as %+v", line, e)
		}
	}
}

func TestUnfinishedLastLineIsIgnored(t *testing.T) {
	c := New(Config{})
	if err := c.AddLog(strings.NewReader("sent 1 a 1 t 0\nacked 2 a 1 t 0 5\nsent 3 a")); err != nil {
		t.Fatal(err)
	}
	if r := c.Report(); r.SentRecords != 1 || r.AckedRecords != 1 {
		t.Fatalf("got\n%s", r.String())
	}
}

// FuzzParse: no panic, and what is taken is written back as it was read.
func FuzzParse(f *testing.F) {
	for _, events := range cleanRun().clients {
		f.Add(string(bytes.TrimSuffix(events[0].AppendLine(nil), []byte("\n"))))
	}
	f.Add("error 12 client some text")
	f.Add("failed 12 p 3 t 0 timed out")
	f.Fuzz(func(t *testing.T, line string) {
		var p Parser
		var first, second Event
		if p.Parse([]byte(line), &first) != nil {
			return
		}
		again := bytes.TrimSuffix(first.AppendLine(nil), []byte("\n"))
		if err := p.Parse(again, &second); err != nil || first != second {
			t.Fatalf("%q became %q: %+v, %+v, %v", line, again, first, second, err)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	c := New(Config{})
	b.ReportAllocs()
	for i := range b.N {
		e := Event{Kind: Sent, Millis: int64(i / 100), Client: "p", Producer: "p", Seq: int64(i), Topic: "t", Partition: int32(i % 30), Offset: int64(i / 30)}
		c.Add(e)
		e.Kind = Acked
		c.Add(e)
		e.Kind, e.Client, e.Group = Read, "c", "g"
		c.Add(e)
	}
}
