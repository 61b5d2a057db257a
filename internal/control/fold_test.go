package control

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/translate"
)

// script builds a log of batches.
type script struct {
	t    *testing.T
	next int64
	log  [][]byte
}

func (s *script) marker(id int64, epoch int16) *script {
	b := batch.GapMarker(nil, s.next, s.next+1, 0)
	batch.SetProducer(b, batch.Producer{ID: id, Epoch: epoch, FirstSequence: -1})
	s.log, s.next = append(s.log, b), s.next+1
	return s
}

// data writes one batch with a record key=value per pair.
func (s *script) data(id int64, epoch int16, sequence int32, pairs ...string) *script {
	s.t.Helper()
	var records []batch.Record
	for i := 0; i < len(pairs); i += 2 {
		records = append(records, batch.Record{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	b, err := batch.NewCodecs(1<<20).Encode(records, batch.Params{
		BaseOffset: s.next, Producer: &batch.Producer{ID: id, Epoch: epoch, FirstSequence: sequence},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.log, s.next = append(s.log, b), s.next+int64(len(records))
	return s
}

func (s *script) hole(n int64) *script { s.next += n; return s }

func (s *script) fold() *fold {
	s.t.Helper()
	f := newFold()
	for _, b := range s.log {
		if _, err := f.add(b); err != nil {
			s.t.Fatal(err)
		}
	}
	return f
}

func TestFoldCountsOnlyTheNewestWritersNextRecord(t *testing.T) {
	start := func() *script { return &script{t: t} }
	cases := map[string]struct {
		script *script
		want   map[string]string
	}{
		"a writer after its marker":            {start().marker(7, 0).data(7, 0, 0, "a", "1").data(7, 0, 1, "a", "2"), map[string]string{"a": "2"}},
		"nothing before any marker":            {start().data(7, 0, 0, "a", "1"), map[string]string{}},
		"a zombie behind the new marker":       {start().marker(7, 0).data(7, 0, 0, "a", "1").marker(7, 1).data(7, 0, 1, "a", "zombie").data(7, 1, 0, "b", "1"), map[string]string{"a": "1", "b": "1"}},
		"a sequence too many":                  {start().marker(7, 0).data(7, 0, 1, "a", "1"), map[string]string{}},
		"a sequence twice":                     {start().marker(7, 0).data(7, 0, 0, "a", "1").data(7, 0, 0, "a", "2"), map[string]string{"a": "1"}},
		"the marker written twice":             {start().marker(7, 0).data(7, 0, 0, "a", "1").marker(7, 0).data(7, 0, 1, "a", "2"), map[string]string{"a": "2"}},
		"another producer id":                  {start().marker(7, 5).data(7, 5, 0, "a", "1").marker(8, 0).data(7, 5, 1, "a", "zombie").data(8, 0, 0, "b", "1"), map[string]string{"a": "1", "b": "1"}},
		"an old id never comes back":           {start().marker(7, 5).marker(8, 0).marker(7, 6).data(7, 6, 0, "a", "zombie").data(8, 0, 0, "b", "1"), map[string]string{"b": "1"}},
		"no producer id":                       {start().marker(7, 0).data(-1, -1, -1, "a", "1"), map[string]string{}},
		"the cleaner took batches between":     {start().marker(7, 0).hole(3).data(7, 0, 3, "a", "1").data(7, 0, 4, "b", "1"), map[string]string{"a": "1", "b": "1"}},
		"the cleaner took the first marker":    {start().hole(4).data(7, 0, 3, "a", "1"), map[string]string{"a": "1"}},
		"the cleaner took a later marker":      {start().marker(7, 0).data(7, 0, 0, "a", "1").hole(1).data(7, 2, 0, "a", "2"), map[string]string{"a": "2"}},
		"a zombie behind a hole":               {start().marker(7, 0).data(7, 0, 0, "a", "1").marker(7, 1).hole(2).data(7, 0, 5, "a", "zombie"), map[string]string{"a": "1"}},
		"a batch of several":                   {start().marker(7, 0).data(7, 0, 0, "a", "1", "b", "1").data(7, 0, 2, "c", "1"), map[string]string{"a": "1", "b": "1", "c": "1"}},
		"a higher epoch without its marker":    {start().marker(7, 0).data(7, 1, 0, "a", "1"), map[string]string{}},
		"behind the last possible sequence":    {start().marker(7, 0).hole(1).data(7, 0, 1<<31-1, "a", "1").data(7, 0, 0, "a", "2"), map[string]string{"a": "2"}},
		"the same id and epoch, id superseded": {start().marker(7, 0).marker(8, 0).hole(1).data(7, 0, 0, "a", "zombie"), map[string]string{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for k, v := range c.script.fold().values {
				got[k] = string(v)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestFoldTakesEachBatchOnce(t *testing.T) {
	s := (&script{t: t}).marker(7, 0).data(7, 0, 0, "a", "1")
	f := s.fold()
	for _, b := range s.log { // as a broker answers when asked for an offset inside a batch
		if _, err := f.add(b); err != nil {
			t.Fatal(err)
		}
	}
	if f.ignored != 0 || string(f.values["a"]) != "1" {
		t.Errorf("ignored %d, values %q", f.ignored, f.values)
	}
}

func TestTombstoneRemovesARecord(t *testing.T) {
	s := (&script{t: t}).marker(7, 0).data(7, 0, 0, "a", "1")
	b, err := batch.NewCodecs(1<<20).Encode([]batch.Record{{Key: []byte("a")}}, batch.Params{
		BaseOffset: s.next, Producer: &batch.Producer{ID: 7, FirstSequence: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.log = append(s.log, b)
	if f := s.fold(); len(f.values) != 0 {
		t.Errorf("kept %q", f.values)
	}
}

func sampleState(g translate.Generation, active, standby string, phase Phase) State {
	return State{
		VirtualCluster: "main", Generation: g, Active: active, Standby: standby, Phase: phase,
		Cutover: &Cutover{
			ID: "c1", From: "blue", To: "green", Mode: ModePlanned, StartedAt: time.Unix(1_700_000_000, 0).UTC(), MaxPauseMillis: 30_000,
			Phases: []PhaseRecord{{Phase: Preflight, StartedAt: time.Unix(1_700_000_000, 0).UTC(), Millis: 3, Facts: map[string]any{"partitions": int64(7), "note": "x", "share": 0.5}}},
			Error:  &Error{Code: "x", Message: "y", Hint: "z"},
		},
		Identity: Identity{ClusterID: "id", Nodes: map[string][]int32{"blue": {1, 2}, "green": {1}}, Versions: map[int16][2]int16{0: {3, 11}}},
	}
}

func sampleTopic() Topic {
	return Topic{
		Name: "orders", VirtualID: [16]byte{1}, IDs: map[string][16]byte{"blue": {1}, "green": {2}},
		Partitions: [][]Era{
			{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: 10, Physical: 12, Shift: 3, FirstEpoch: 3}},
			{{Generation: 1, Cluster: "blue"}},
		},
	}
}

func sampleGroup() Group {
	return Group{Name: "a/b", Shift: 3, Members: map[string]string{"shown": "real"}, Leader: "shown", Sessions: map[string]MemberTimeouts{"shown": {45_000, 60_000}}}
}

func TestRecordsRoundTrip(t *testing.T) {
	state, topic, group := sampleState(2, "green", "blue", Done), sampleTopic(), sampleGroup()
	f := newFold()
	for _, make := range []func() (Record, error){
		func() (Record, error) { return StateRecord(state) },
		func() (Record, error) { return TopicRecord("main", topic) },
		func() (Record, error) { return GroupRecord("main", group) },
	} {
		r, err := make()
		if err != nil {
			t.Fatal(err)
		}
		f.values[r.Key] = r.Value
	}
	f.values["lease/main/x"] = []byte("whatever")
	f.values["state/other"] = []byte("of another virtual cluster")
	got, err := f.snapshot("main")
	if err != nil {
		t.Fatal(err)
	}
	want := Snapshot{State: state, Topics: map[string]Topic{"orders": topic}, Groups: map[string]Group{"a/b": group}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestErasOfAnUncommittedMoveAreLeftOut(t *testing.T) {
	s := Snapshot{State: sampleState(1, "blue", "green", Idle), Topics: map[string]Topic{
		"orders": sampleTopic(),
		"new":    {Name: "new", Partitions: [][]Era{{{Generation: 2, Cluster: "green"}}}},
	}}
	s = s.upTo(1)
	if len(s.Topics) != 1 || len(s.Topics["orders"].Partitions[0]) != 1 {
		t.Fatalf("kept %+v", s.Topics)
	}
	if got := s.Eras("other", 2); len(got) != 2 || got[1][0] != (Era{Generation: 1, Cluster: "blue"}) {
		t.Errorf("a topic without a record has eras %+v", got)
	}
	if got := s.Eras("orders", 3); len(got) != 3 || got[2][0] != (Era{Generation: 1, Cluster: "blue"}) {
		t.Errorf("a partition without a record has eras %+v", got)
	}
}

func TestRecordsThatAreNotUnderstoodAreRefused(t *testing.T) {
	good, err := StateRecord(sampleState(1, "blue", "green", Idle))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"an unknown field":  `{"extra":1,` + string(good.Value[1:]),
		"a higher version":  `{"v":2,` + string(good.Value[len(`{"v":1,`):]),
		"something behind":  string(good.Value) + "{}",
		"no version":        `{` + string(good.Value[len(`{"v":1,`):]),
		"no object":         `[]`,
		"nothing":           ``,
		"one cluster twice": `{"v":1,"virtual_cluster":"main","generation":1,"active":"blue","standby":"blue","phase":"Idle","identity":{"cluster_id":"","nodes":{},"versions":{}}}`,
	} {
		if _, err := decodeState([]byte(value)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestInvalidRecordsAreNotWritten(t *testing.T) {
	backwards := sampleTopic()
	backwards.Partitions[0][1].Virtual = -1
	twice := sampleGroup()
	twice.Members["other"] = "real"
	nested := sampleState(1, "blue", "green", Idle)
	nested.Cutover.Phases[0].Facts = map[string]any{"list": []int{1}}
	for name, err := range map[string]error{
		"eras that go back":       errOf(TopicRecord("main", backwards)),
		"a member that is two":    errOf(GroupRecord("main", twice)),
		"a fact that is a list":   errOf(StateRecord(nested)),
		"generation 0":            errOf(StateRecord(sampleState(0, "blue", "green", Idle))),
		"a phase that is unknown": errOf(StateRecord(sampleState(1, "blue", "green", "Napping"))),
		"generation 2048":         errOf(StateRecord(sampleState(2048, "blue", "green", Idle))),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func errOf(_ Record, err error) error { return err }

func TestPhasesAreInOrder(t *testing.T) {
	for i, p := range Phases() {
		if p.Rank() != i+1 {
			t.Errorf("%s has rank %d", p, p.Rank())
		}
	}
	for p, want := range map[Phase][3]bool{ // running, may go back
		Idle: {false, false}, Aborted: {false, false}, Done: {false, false}, Preflight: {true, true}, Translating: {true, true},
		Committed: {true, false}, Switching: {true, false}, Reversing: {true, false},
	} {
		if p.Running() != want[0] || p.BeforeCommitted() != want[1] {
			t.Errorf("%s: running %v, before Committed %v", p, p.Running(), p.BeforeCommitted())
		}
	}
	if Phase("x").Rank() != -1 {
		t.Error("a word that is no phase has a rank")
	}
}

func TestPlaceIsStableWhenNamesAreAdded(t *testing.T) {
	owners := map[string]int32{"b": 0, "c": 1}
	names := []string{"a", "b", "c", "d"}
	want := map[string]int32{"a": 2, "b": 0, "c": 1, "d": 3}
	for name, p := range want {
		if got := place(name, names, owners); got != p {
			t.Errorf("%s is placed at %d, want %d", name, got, p)
		}
	}
	for i, name := range names {
		if got := place(name, names, nil); got != int32(i) {
			t.Errorf("first start: %s is placed at %d", name, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	s, _ := StateRecord(sampleState(2, "green", "blue", Done))
	t, _ := TopicRecord("main", sampleTopic())
	g, _ := GroupRecord("main", sampleGroup())
	for i, r := range []Record{s, t, g} {
		f.Add(uint8(i), r.Value)
	}
	f.Fuzz(func(t *testing.T, kind uint8, value []byte) {
		switch kind % 3 {
		case 0:
			if s, err := decodeState(value); err == nil {
				r, err := StateRecord(s)
				reencodes(t, r, err)
			}
		case 1:
			if s, err := decodeTopic(value); err == nil {
				r, err := TopicRecord("main", s)
				reencodes(t, r, err)
			}
		case 2:
			if s, err := decodeGroup(value); err == nil {
				r, err := GroupRecord("main", s)
				reencodes(t, r, err)
			}
		}
	})
}

func reencodes(t *testing.T, r Record, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	if len(r.Value) == 0 || r.Value[0] != '{' {
		t.Fatalf("written as %q", r.Value)
	}
}

func FuzzFold(f *testing.F) {
	s := (&script{t: &testing.T{}}).marker(7, 0).data(7, 0, 0, "state/main", "{}").marker(7, 1)
	var all []byte
	for _, b := range s.log {
		all = append(all, b...)
	}
	f.Add(all)
	f.Fuzz(func(t *testing.T, records []byte) {
		fold := newFold()
		_, _ = fold.addAll(records, 1<<40, until{})
		_, _ = fold.snapshot("main")
	})
}

func ExamplePhase_Rank() {
	fmt.Println(Sealing.Rank() < Committed.Rank())
	// Output: true
}
