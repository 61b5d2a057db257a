package replicator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/batch"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// virtualLog is what clients wrote, by virtual offset: the oracle of all generations.
type virtualLog map[translate.Virtual]string

// Forward, seal, reverse, seal, forward again: the map of each side is exact over all eras.
func TestMapsStayExactOverThreeGenerations(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	eras := map[int32][]control.Era{}
	truth := map[int32]virtualLog{0: {}, 1: {}}
	for n := range int32(2) {
		eras[n] = []control.Era{{Generation: 1, Cluster: "blue"}}
	}
	config := func(g int, from, to *side) Config {
		cfg := p.config(from, to)
		cfg.Generation = translate.Generation(g)
		snapshot := maps.Clone(eras)
		cfg.Eras = func(string, int) [][]control.Era { return [][]control.Era{snapshot[0], snapshot[1]} }
		return cfg
	}
	sides := []*side{p.blue, p.green}
	value := 0
	for g := 1; g <= 5; g++ {
		active, standby := sides[(g-1)%2], sides[g%2]
		r := p.start(config(g, active, standby))
		for range 10 {
			for n := range int32(2) {
				p.native(t, truth[n], eras[n], active, n, value)
				value += 5
			}
		}
		p.copied(r)
		ends, err := r.Ends(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := r.Seal(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := range int32(2) {
			tp := journal.TP{Topic: "orders", Partition: n}
			s := sealed[tp]
			if s.Frontier != ends[tp].High || s.Physical != translate.Physical(standby.kafka.PartitionInfo("orders", n).HighWatermark) {
				t.Fatalf("generation %d, %v: sealed %+v, end %+v", g, tp, s, ends[tp])
			}
			m, _ := r.Map(tp)
			p.check(t, g, truth[n], m, standby, n)
			part, _ := r.Partition(tp)
			shift := translate.ShiftFor(part.History.Last(), s.TargetEpoch)
			eras[n] = append(eras[n][:len(eras[n]):len(eras[n])], control.Era{
				Generation: translate.Generation(g + 1), Cluster: standby.name, Virtual: s.Frontier, Physical: s.Physical,
				Shift: shift, FirstEpoch: shift.Show(s.TargetEpoch),
			})
		}
		if err := r.Settled(p.ctx); err != nil {
			t.Fatal(err)
		}
		r.stop()
	}
}

// native writes five records as a client of the active cluster, and notes where they are in the virtual log.
func (p *pair) native(t *testing.T, truth virtualLog, eras []control.Era, active *side, partition int32, value int) {
	era := eras[len(eras)-1]
	base := translate.Physical(active.kafka.PartitionInfo("orders", partition).HighWatermark)
	active.produce(t, "orders", partition, value, 5, time.Now())
	records := active.read(t, "orders", partition)
	for _, w := range records {
		if at := translate.Physical(w.offset); at >= base {
			truth[translate.Virtual(at-era.Physical)+era.Virtual] = w.value
		}
	}
}

func (p *pair) check(t *testing.T, g int, truth virtualLog, m *translate.Map, on *side, partition int32) {
	t.Helper()
	at := map[translate.Physical]string{}
	for _, w := range on.read(t, "orders", partition) {
		at[translate.Physical(w.offset)] = w.value
	}
	if len(at) != len(truth) {
		t.Fatalf("generation %d: %d records on %s, %d in the virtual log", g, len(at), on.name, len(truth))
	}
	for v, want := range truth {
		a := m.ToPhysical(v)
		if a.Kind != translate.Record || at[a.Physical] != want {
			t.Fatalf("generation %d: virtual %d is %q, the map of %s says %+v with %q", g, v, want, on.name, a, at[a.Physical])
		}
	}
}

func TestASealThatGoesBackCopiesOn(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	r := p.start(p.config(p.blue, p.green))
	for i := range 4 {
		p.blue.produce(t, "orders", 0, 10*i, 3, time.Now())
		p.copied(r)
		if _, err := r.Seal(p.ctx); err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Status() {
			if s.State != StateSealed {
				t.Fatalf("after the seal: %+v", s)
			}
		}
		if i == 2 { // sealed twice in a row
			if _, err := r.Seal(p.ctx); err != nil {
				t.Fatal(err)
			}
		}
		r.Unseal()
	}
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
}

// copiedPair is a pair with a flow that has copied three records.
func copiedPair(t *testing.T) (*pair, *running) {
	t.Helper()
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	r := p.start(p.config(p.blue, p.green))
	p.blue.produce(t, "orders", 0, 0, 3, time.Now())
	p.copied(r)
	return p, r
}

func TestAPreparedSealTakesTheEpochThatWasPrepared(t *testing.T) {
	p, r := copiedPair(t)
	prepared := p.prepareSeal(r)
	if len(prepared) != len(r.slots) {
		t.Fatalf("%d slots of %d are prepared", len(prepared), len(r.slots))
	}
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	for i, s := range r.slots {
		if got := s.ownerNow(); got != prepared[i] {
			t.Errorf("slot %d is sealed by %+v, %+v was prepared", i, got, prepared[i])
		}
	}
	r.Unseal()
	p.blue.produce(t, "orders", 0, 3, 3, time.Now())
	p.copied(r)
	p.exact(r, p.blue, p.green, "orders", 0)
}

// The brokers here refuse the old epoch at once, which Apache Kafka does not: then a prepared seal must not stop the copying.
func TestWhatComesBetweenAPreparedSealAndTheSealIsCopied(t *testing.T) {
	takeOver := func(p *pair, r *running) {
		for _, s := range r.slots {
			if err := (&reign{slot: s, flow: r.Flow}).own(p.ctx); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	for name, between := range map[string]func(*pair, *running){
		"records":        func(p *pair, _ *running) { p.blue.produce(p.t, "orders", 0, 100, 3, time.Now()) },
		"a new topic":    func(p *pair, _ *running) { p.blue.create(p.t, "late", 4, nil) },
		"another owner":  takeOver,
		"prepared again": func(p *pair, r *running) { p.prepareSeal(r) },
		"it goes back":   func(_ *pair, r *running) { r.Unseal() },
		"all of the kind": func(p *pair, r *running) {
			p.blue.create(p.t, "late", 4, nil)
			r.Unseal()
			p.prepareSeal(r)
			takeOver(p, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := copiedPair(t)
			p.prepareSeal(r)
			between(p, r)
			p.copied(r)
			if _, err := r.Seal(p.ctx); err != nil {
				t.Fatal(err)
			}
			p.exact(r, p.blue, p.green, "orders", 0)
			r.Unseal()
			p.blue.produce(t, "orders", 0, 200, 3, time.Now())
			p.copied(r)
			p.exact(r, p.blue, p.green, "orders", 0)
		})
	}
}

// A coordinator that cannot end the slot's last transaction, because a partition of it has no leader, must be found before clients
// wait for it.
func TestASlotThatCannotBeFencedIsFoundBeforeTheSeal(t *testing.T) {
	p, r := copiedPair(t)
	p.green.kafka.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		p.green.kafka.KeepControl()
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp, nil, true
	})
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
	defer cancel()
	if err := r.PrepareSeal(ctx); !errors.Is(err, kerr.ConcurrentTransactions) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
}

// prepareSeal returns the owners that were prepared, of all slots that did not begin a new reign meanwhile.
func (p *pair) prepareSeal(r *running) []journal.Owner {
	p.t.Helper()
	if err := r.PrepareSeal(p.ctx); err != nil {
		p.t.Fatal(err)
	}
	var out []journal.Owner
	for _, s := range r.slots {
		s.mu.Lock()
		if s.ahead != nil {
			out = append(out, s.ahead.owner)
		}
		s.mu.Unlock()
	}
	return out
}

// The states of producers go along from one generation to the next, whichever flow has seen them write: a retry of an earlier
// generation is known, and a producer that skipped one is not held to what it wrote before.
func TestProducerStatesGoAlongOverGenerations(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	writer, _ := translate.Show(1234, 1)
	idle, _ := translate.Show(1235, 1)
	eras := []control.Era{{Generation: 1, Cluster: "blue"}}
	sides := []*side{p.blue, p.green}
	tp := journal.TP{Topic: "orders"}
	var states *journal.Producers
	write := func(s *side, id int64, g translate.Generation, first int32) {
		five := slices.Repeat([]batch.Record{{Value: []byte("v")}}, 5)
		s.raw(t, "orders", 0, five, batch.Params{LeaderEpoch: -1, Producer: &batch.Producer{ID: translate.OnCluster(id, g), FirstSequence: first}})
	}
	for g := translate.Generation(1); g <= 3; g++ {
		active, standby := sides[(g-1)%2], sides[g%2]
		cfg := p.config(active, standby)
		cfg.Generation = g
		snapshot, began := slices.Clone(eras), states
		cfg.Eras = func(string, int) [][]control.Era { return [][]control.Era{snapshot} }
		cfg.Producers = func(journal.TP) *journal.Producers { return began }
		r := p.start(cfg)
		switch g {
		case 1:
			write(active, writer, g, 0)
			write(active, idle, g, 0)
		case 2:
			write(active, writer, g, 5)
		}
		p.copied(r)
		sealed, err := r.Seal(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Settled(p.ctx); err != nil {
			t.Fatal(err)
		}
		part, _ := r.Partition(tp)
		states = part.Producers
		want := map[translate.Generation]int32{1: 5, 2: 10, 3: 10}[g]
		if next, _, ok := states.NextOf(writer); !ok || next != want {
			t.Fatalf("after generation %d the writer's next sequence is %d (%v), not %d", g, next, ok, want)
		}
		if at, verdict := states.Lookup(idle, 0, 0, 4); verdict != journal.Known || at != 5 {
			t.Fatalf("after generation %d a retry of the first one is %v at %d", g, verdict, at)
		}
		s := sealed[tp]
		shift := translate.ShiftFor(part.History.Last(), s.TargetEpoch)
		eras = append(eras, control.Era{
			Generation: g + 1, Cluster: standby.name, Virtual: s.Frontier, Physical: s.Physical, Shift: shift, FirstEpoch: shift.Show(s.TargetEpoch),
		})
		r.stop()
	}
}
