package control

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

func startKafka(t *testing.T, name string) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	cluster, err := testkit.StartKafka(1, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RetryTimeout(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return cluster, client
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// pair is two clusters with the log of one virtual cluster each.
type pair struct {
	clusters map[string]*kfake.Cluster
	clients  map[string]*kgo.Client
}

func startPair(t *testing.T) pair {
	t.Helper()
	p := pair{map[string]*kfake.Cluster{}, map[string]*kgo.Client{}}
	for _, name := range []string{"blue", "green"} {
		p.clusters[name], p.clients[name] = startKafka(t, name)
	}
	return p
}

func (p pair) store() *Store {
	logs := map[string]*Log{}
	for name, client := range p.clients {
		logs[name] = NewLog(Config{Client: client, Cluster: name, VirtualCluster: "main", Names: []string{"main"}})
	}
	return NewStore("main", logs)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	if snap, err := s.Load(ctx); err != nil || snap.State.Generation != 0 {
		t.Fatalf("before the first record: %+v, %v", snap.State, err)
	}
	must(t, s.Fence(ctx))
	must(t, s.Save(ctx, sampleState(1, "blue", "green", Idle)))
	must(t, s.PutTopics(ctx, "green", []Topic{sampleTopic()}))
	must(t, s.PutGroups(ctx, "green", []Group{sampleGroup()}))
	snap, err := p.store().Load(ctx)
	must(t, err)
	if snap.State.Generation != 1 || len(snap.Topics) != 0 || len(snap.Groups) != 0 {
		t.Fatalf("records of the target count before the move is committed: %+v", snap)
	}
	must(t, s.Save(ctx, sampleState(2, "green", "blue", Committed)))
	snap, err = p.store().Load(ctx)
	must(t, err)
	if snap.State.Active != "green" || len(snap.Topics["orders"].Partitions[0]) != 2 || len(snap.Groups) != 1 || snap.Assumed != "" {
		t.Fatalf("after Committed: %+v", snap)
	}
}

func TestTheControlTopicIsCompactedAndStampedByTheBroker(t *testing.T) {
	ctx := testContext(t)
	_, client := startKafka(t, "blue")
	_, err := Open(ctx, Config{Client: client, Cluster: "blue", VirtualCluster: "main", Partition: 2})
	must(t, err)
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, topicName)
	must(t, err)
	got := map[string]string{}
	for _, c := range configs[0].Configs {
		got[c.Key] = c.MaybeValue()
	}
	if got["cleanup.policy"] != "compact" || got["message.timestamp.type"] != "LogAppendTime" {
		t.Errorf("configs %v", got)
	}
	_, err = Open(ctx, Config{Client: client, Cluster: "blue", VirtualCluster: "main", Partition: 4})
	must(t, err)
	topics, err := kadm.NewClient(client).ListTopics(ctx, topicName)
	must(t, err)
	if n := len(topics[topicName].Partitions); n != 5 {
		t.Errorf("%d partitions after it had to grow to 5", n)
	}
}

func TestAnOlderDriverIsFenced(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	first, second := p.store(), p.store()
	must(t, first.Fence(ctx))
	must(t, first.Save(ctx, sampleState(1, "blue", "green", Idle)))
	must(t, second.Fence(ctx))
	if err := first.Save(ctx, sampleState(1, "blue", "green", Preparing)); !errors.Is(err, ErrFenced) {
		t.Fatalf("the older driver's record: %v", err)
	}
	if err := first.PutGroups(ctx, "blue", []Group{sampleGroup()}); !errors.Is(err, ErrFenced) {
		t.Fatalf("the older driver's second record: %v", err)
	}
	must(t, second.Save(ctx, sampleState(1, "blue", "green", Holding)))
	snap, err := p.store().Load(ctx)
	must(t, err)
	if snap.State.Phase != Holding {
		t.Errorf("phase %s", snap.State.Phase)
	}
}

func TestAFenceOfOursDoesNotFailOurOtherWrites(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	done := make(chan error)
	go func() {
		for i := range 30 {
			g := sampleGroup()
			g.Name = fmt.Sprint("g", i)
			if err := s.PutGroups(ctx, "blue", []Group{g}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range 5 {
		must(t, s.Fence(ctx))
	}
	must(t, <-done)
	snap, err := s.logs["blue"].Read(ctx)
	must(t, err)
	if len(snap.Groups) != 30 {
		t.Errorf("%d of 30 groups", len(snap.Groups))
	}
}

func TestALostAckIsResentWithTheSameBytes(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	var lost atomic.Int32
	p.clusters["blue"].ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		p.clusters["blue"].KeepControl()
		if lost.Add(1) != 2 {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = topicName
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.ErrorCode = kerr.RequestTimedOut.Code
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	for i := range 3 {
		st := sampleState(1, "blue", "green", Preparing)
		st.Cutover.PauseMillis = int64(i)
		must(t, s.Save(ctx, st))
	}
	f, err := s.logs["blue"].read(ctx)
	must(t, err)
	snap, err := f.snapshot("main")
	must(t, err)
	if f.ignored != 0 || snap.State.Cutover.PauseMillis != 2 {
		t.Errorf("ignored %d batches, pause %d", f.ignored, snap.State.Cutover.PauseMillis)
	}
}

func TestWhatMayHaveLandedIsSentAgainBeforeAnythingElse(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	var refuse atomic.Bool
	refuse.Store(true)
	p.clusters["blue"].ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.clusters["blue"].KeepControl()
		if refuse.Load() {
			return nil, errors.New("closed"), true
		}
		return nil, nil, false
	})
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := s.PutGroups(short, "blue", []Group{{Name: "first"}}); err == nil || errors.Is(err, ErrFenced) {
		t.Fatalf("an unknown outcome is reported as %v", err)
	}
	refuse.Store(false)
	must(t, s.PutGroups(ctx, "blue", []Group{{Name: "second"}}))
	snap, err := s.logs["blue"].Read(ctx)
	must(t, err)
	if len(snap.Groups) != 2 {
		t.Errorf("groups %v", snap.Groups)
	}
}

func TestARefusedRecordTakesANewFence(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	var refusals atomic.Int32
	p.clusters["blue"].ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		refusals.Add(1)
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		rt := kmsg.NewProduceResponseTopic()
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.ErrorCode = kerr.PolicyViolation.Code
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	must(t, s.PutGroups(ctx, "blue", []Group{{Name: "g"}}))
	if refusals.Load() != 1 {
		t.Errorf("%d refusals", refusals.Load())
	}
}

func TestManyAndLargeRecordsAreWrittenInSeveralBatches(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	large := Topic{Name: "large", IDs: map[string][16]byte{}}
	for range 2000 {
		var eras []Era
		for g := range 8 {
			eras = append(eras, Era{Generation: translate.Generation(g + 1), Cluster: "blue", Virtual: translate.Virtual(g) << 40})
		}
		large.Partitions = append(large.Partitions, eras)
	}
	topics := []Topic{large}
	for i := range 3000 {
		topics = append(topics, Topic{Name: fmt.Sprint("t", i), Partitions: [][]Era{{{Generation: 1, Cluster: "blue"}}}})
	}
	must(t, s.PutTopics(ctx, "blue", topics))
	must(t, s.Save(ctx, sampleState(9, "blue", "green", Idle)))
	snap, err := s.Load(ctx)
	must(t, err)
	if len(snap.Topics) != 3001 || len(snap.Topics["large"].Partitions) != 2000 {
		t.Errorf("%d topics", len(snap.Topics))
	}
}

func TestVirtualClustersKeepTheirPartitions(t *testing.T) {
	ctx := testContext(t)
	_, client := startKafka(t, "blue")
	open := func(vc string, names ...string) *Log {
		l, err := Open(ctx, Config{Client: client, Cluster: "blue", VirtualCluster: vc, Names: names})
		must(t, err)
		return l
	}
	l := open("main", "main")
	w, err := l.Fence(ctx)
	must(t, err)
	st, err := StateRecord(sampleState(1, "blue", "green", Idle))
	must(t, err)
	must(t, w.Put(ctx, st))
	if p := open("main", "archive", "main").partition; p != 0 {
		t.Errorf("main moved to partition %d", p)
	}
	if p := open("archive", "archive", "main").partition; p != 1 {
		t.Errorf("archive is at partition %d", p)
	}
}

func TestALogThatIsDownIsNamed(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	must(t, s.Save(ctx, sampleState(1, "blue", "green", Idle)))
	p.clusters["green"].Close()
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	snap, err := p.store().Load(short)
	must(t, err)
	if len(snap.Unread) != 1 || snap.Unread[0] != "green" || !strings.Contains(snap.Assumed, "green") || snap.State.Active != "blue" {
		t.Errorf("%+v", snap)
	}
}

func TestTheTwoLogsDecideTogether(t *testing.T) {
	down := errors.New("down")
	read := func(cluster string, st State) reading {
		return reading{cluster: cluster, snap: Snapshot{State: st, Topics: map[string]Topic{"from-" + cluster: sampleTopic()}}}
	}
	unfenced := func(r reading) reading { r.unfenced = down; return r }
	none := State{}
	cases := map[string]struct {
		blue, green reading
		generation  translate.Generation
		topics      string // whose
		assumed     bool
		err         error
	}{
		"nothing yet":                     {read("blue", none), read("green", none), 0, "", false, nil},
		"the first generation":            {read("blue", sampleState(1, "blue", "green", Idle)), read("green", none), 1, "from-blue", false, nil},
		"committed, not copied":           {read("blue", sampleState(1, "blue", "green", Translating)), read("green", sampleState(2, "green", "blue", Committed)), 2, "from-green", false, nil},
		"the active's log of equal ones":  {read("blue", sampleState(2, "green", "blue", Done)), read("green", sampleState(2, "green", "blue", Holding)), 2, "from-green", false, nil},
		"standby down":                    {read("blue", sampleState(1, "blue", "green", Idle)), reading{cluster: "green", err: down}, 1, "from-blue", true, nil},
		"target down, may go back":        {read("blue", sampleState(1, "blue", "green", Sealing)), reading{cluster: "green", err: down}, 1, "from-blue", true, nil},
		"target down, may be committed":   {read("blue", sampleState(1, "blue", "green", Translating)), reading{cluster: "green", err: down}, 1, "", false, ErrUndecided},
		"active down, copy on standby":    {read("blue", sampleState(2, "green", "blue", Done)), reading{cluster: "green", err: down}, 2, "from-blue", true, nil},
		"active down, nothing on standby": {reading{cluster: "blue", err: down}, read("green", none), 0, "", true, nil},
		"both down":                       {reading{cluster: "blue", err: down}, reading{cluster: "green", err: down}, 0, "", false, down},

		"standby not fenced":                   {read("blue", sampleState(1, "blue", "green", Idle)), unfenced(read("green", none)), 1, "from-blue", true, nil},
		"target not fenced, may go back":       {read("blue", sampleState(1, "blue", "green", Sealing)), unfenced(read("green", none)), 1, "from-blue", true, nil},
		"target not fenced, may be committed":  {read("blue", sampleState(1, "blue", "green", Translating)), unfenced(read("green", none)), 1, "", false, ErrUndecided},
		"target not fenced, is committed":      {read("blue", sampleState(1, "blue", "green", Translating)), unfenced(read("green", sampleState(2, "green", "blue", Committed))), 2, "from-green", true, nil},
		"active not fenced, the target is":     {unfenced(read("blue", sampleState(1, "blue", "green", Translating))), read("green", none), 1, "from-blue", true, nil},
		"active not fenced, copy on standby":   {read("blue", sampleState(2, "green", "blue", Done)), unfenced(read("green", sampleState(2, "green", "blue", Done))), 2, "from-green", true, nil},
		"active not fenced, nothing on either": {unfenced(read("blue", none)), read("green", none), 0, "", true, nil},
		"neither fenced":                       {unfenced(read("blue", sampleState(1, "blue", "green", Idle))), unfenced(read("green", none)), 0, "", false, down},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := decide([]reading{c.blue, c.green})
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			_, has := got.Topics[c.topics]
			if got.State.Generation != c.generation || (c.topics != "") != has || (got.Assumed != "") != c.assumed {
				t.Errorf("generation %d, topics %v, assumed %q", got.State.Generation, got.Topics, got.Assumed)
			}
			if want := c.topics != "" && c.topics != "from-"+got.State.Active; got.FromCopy != want {
				t.Errorf("from a copy: %v, of %s", got.FromCopy, c.topics)
			}
		})
	}
}

func TestErasOfAMoveThatWentBackAndOfTopicsThatAreGoneAreTakenOut(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	created := Topic{Name: "created", Partitions: [][]Era{{{Generation: 2, Cluster: "green"}}}}
	old := Topic{Name: "old", Partitions: [][]Era{{{Generation: 1, Cluster: "blue"}}}, IDs: map[string][16]byte{}}
	deleted := old
	deleted.Name = "deleted"
	must(t, s.PutTopics(ctx, "green", []Topic{sampleTopic(), created, old, deleted}))
	must(t, s.DropStale(ctx, "green", 1, func(_ context.Context, topics []string) ([]string, error) {
		if fmt.Sprint(topics) != "[created deleted old orders]" {
			t.Errorf("asked whether %v are there", topics)
		}
		return []string{"deleted"}, nil
	}))
	must(t, s.Save(ctx, sampleState(2, "green", "blue", Committed)))
	snap, err := s.Load(ctx)
	must(t, err)
	if len(snap.Topics) != 2 || len(snap.Topics["orders"].Partitions[0]) != 1 || !reflect.DeepEqual(snap.Topics["old"], old) {
		t.Errorf("left: %+v", snap.Topics)
	}
}
