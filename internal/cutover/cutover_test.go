package cutover

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAMoveGoesThroughAllPhasesInOrder(t *testing.T) {
	p := start(t, newDisk())
	st := p.finish(t, p.order(t))
	p.settled(t, st, control.Done)
	var phases []control.Phase
	for _, ph := range st.Cutover.Phases {
		phases = append(phases, ph.Phase)
	}
	if fmt.Sprint(phases) != fmt.Sprint(control.Phases()) {
		t.Errorf("phases %v", phases)
	}
	if st.Cutover.PauseMillis != 123 {
		t.Errorf("pause %d", st.Cutover.PauseMillis)
	}
	want := "fence, load, save Preflight, inspect, save Preparing, warm, drop stale, refresh, prepare, ends, reach, prepare seal, ends, reach, save Holding, hold, " +
		"save Draining, drain, check, save Sealing, refresh, ends, reach, seal, ends, save Translating, "
	if got := p.log(); !strings.HasPrefix(got, want) {
		t.Errorf("calls\n%s\nwant\n%s", got, want)
	}
	rest := "save Committed, save Switching, publish, release, save Reversing, ends, retire, reverse, put topics, save Done"
	if got := p.log(); !strings.HasSuffix(got, rest) {
		t.Errorf("calls\n%s\nwant at the end\n%s", got, rest)
	}
}

// operations lists what a cutover calls, in order, and whether the move is committed by then.
func operations() []struct {
	op        string
	committed bool
} {
	return []struct {
		op        string
		committed bool
	}{
		{"save Preflight", false},
		{"inspect", false}, {"save Preparing", false}, {"warm", false}, {"drop stale", false}, {"prepare", false}, {"save Holding", false},
		{"hold", false}, {"save Draining", false}, {"drain", false}, {"check", false}, {"save Sealing", false}, {"seal", false},
		{"save Translating", false}, {"final offsets", false}, {"settled", false}, {"put groups", false},
		{"save Switching", true}, {"publish", true}, {"save Reversing", true}, {"reverse", true}, {"save Done", true},
	}
}

func endOf(committed bool) control.Phase {
	if committed {
		return control.Done
	}
	return control.Aborted
}

func TestAFailureGoesBackBeforeCommittedAndIsRetriedAfter(t *testing.T) {
	for _, o := range operations() {
		for _, kind := range []string{"fail", "lost"} {
			t.Run(o.op+" "+kind, func(t *testing.T) {
				t.Parallel()
				p := start(t, newDisk()).on(o.op, kind, 2)
				p.settled(t, p.finish(t, p.order(t)), endOf(o.committed))
			})
		}
	}
}

func TestAnOperatorsAbortGoesBackFromEveryPhaseBeforeCommitted(t *testing.T) {
	for _, o := range operations() {
		t.Run(o.op, func(t *testing.T) {
			t.Parallel()
			for _, kind := range []string{"block", "slow"} {
				p := start(t, newDisk()).on(o.op, kind, 1)
				id := p.order(t)
				p.await(t, o.op)
				err := p.driver.Abort(id)
				if o.committed {
					var e *Error
					if !errors.As(err, &e) || e.Code != CodeTooLate {
						t.Fatalf("an abort after Committed: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				st := p.finish(t, id)
				p.settled(t, st, control.Aborted)
				if st.Cutover.Error.Code != CodeAborted {
					t.Errorf("code %s", st.Cutover.Error.Code)
				}
			}
		})
	}
}

func TestThePauseIsBounded(t *testing.T) {
	for _, op := range []string{"hold", "drain", "check", "seal", "settled", "final offsets"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			p := start(t, newDisk()).on(op, "block", 1)
			id, err := p.driver.Start(Order{To: "green", MaxPause: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			st := p.finish(t, id)
			p.settled(t, st, control.Aborted)
			if st.Cutover.Error.Code != CodeMaxPause || st.Cutover.PauseMillis != 123 {
				t.Errorf("error %+v, pause %d", st.Cutover.Error, st.Cutover.PauseMillis)
			}
		})
	}
}

// The refusal says to allow a longer pause, so that has to help.
func TestALongerPauseLetsASlowStandbyDo(t *testing.T) {
	for _, c := range []struct {
		round          int
		maxPause, want time.Duration
	}{
		{1, 2 * time.Second, 500 * time.Millisecond},
		{1, time.Minute, time.Second},
		{catchUpRounds - 1, time.Minute, time.Second},
		{catchUpRounds, time.Minute, 15 * time.Second},
		{catchUpRounds, 2 * time.Second, 500 * time.Millisecond},
	} {
		if got := longestRound(c.round, c.maxPause); got != c.want {
			t.Errorf("round %d, at most %v: %v, want %v", c.round, c.maxPause, got, c.want)
		}
	}
}

func TestACrashAnywhereIsResumedByTheRecord(t *testing.T) {
	ops := append(operations(), struct {
		op        string
		committed bool
	}{"save Committed", false})
	for _, o := range ops {
		t.Run(o.op, func(t *testing.T) {
			t.Parallel()
			d := newDisk()
			first := start(t, d).on(o.op, "crash", 1)
			id := first.order(t)
			first.await(t, o.op)
			first.driver.Close()

			second := start(t, d)
			if o.op == "save Preflight" { // nothing was recorded
				if _, err := second.driver.Get(id); err == nil {
					t.Error("a cutover that was not recorded is known")
				}
				return
			}
			st := second.finish(t, id)
			second.settled(t, st, endOf(o.committed))
			if !o.committed && st.Cutover.Error.Code != CodeDriverLost {
				t.Errorf("code %s", st.Cutover.Error.Code)
			}
		})
	}
}

func TestTheEndOfTheProcessGoesBackOrIsResumed(t *testing.T) {
	for _, o := range operations() {
		t.Run(o.op, func(t *testing.T) {
			t.Parallel()
			d := newDisk()
			first := start(t, d).on(o.op, "block", 1)
			id := first.order(t)
			first.await(t, o.op)
			first.driver.Close()
			if o.committed {
				second := start(t, d)
				second.settled(t, second.finish(t, id), control.Done)
				return
			}
			st, err := first.driver.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			first.settled(t, st, control.Aborted)
			if st.Cutover.Error.Code != CodeShutdown {
				t.Errorf("code %s", st.Cutover.Error.Code)
			}
		})
	}
}

func TestOnlyTheRecordSaysWhetherCommittedWasWritten(t *testing.T) {
	for kind, want := range map[string]control.Phase{"lost": control.Done, "fail": control.Aborted} {
		t.Run(kind, func(t *testing.T) {
			p := start(t, newDisk()).on("save Committed", kind, 1)
			p.settled(t, p.finish(t, p.order(t)), want)
		})
	}
}

func TestTheGateStaysShutWhileTheOutcomeIsUnknown(t *testing.T) {
	for kind, want := range map[string]control.Phase{"lost": control.Done, "fail": control.Aborted} {
		t.Run(kind, func(t *testing.T) {
			p := start(t, newDisk()).on("save Committed", kind, 1).on("load", "fail", 3)
			p.faults["load"].after = 1 // of the start
			id := p.order(t)
			shutWhileUnknown(t, p, id)
			p.settled(t, p.finish(t, id), want)
		})
	}
}

// A log that cannot be fenced is one that was not read, and may come to hold Committed after the gate was opened.
func TestTheGateStaysShutWhileTheTargetsLogCannotBeFenced(t *testing.T) {
	for kind, want := range map[string]control.Phase{"lost": control.Done, "fail": control.Aborted} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk()
			p := start(t, d).on("save Committed", kind, 1)
			unread := func(clusters ...string) {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.unread = clusters
			}
			p.onSeal = func() { unread("green") }
			id := p.order(t)
			shutWhileUnknown(t, p, id)
			unread()
			p.settled(t, p.finish(t, id), want)
		})
	}
}

// shutWhileUnknown waits until the driver says that it does not know, and checks the gate.
func shutWhileUnknown(t *testing.T, p *process, id string) {
	t.Helper()
	states, stop, err := p.driver.Subscribe(id)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	for st := range states {
		if e := st.Cutover.Error; e != nil && e.Code == CodeUndecided {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.shut {
				t.Error("the gate is open")
			}
			if err := p.driver.Abort(id); err == nil {
				t.Error("an abort was accepted")
			}
			return
		}
	}
	t.Error("it was never said that the outcome is unknown")
}

func TestAWriterThatBypassesTheProxyIsFound(t *testing.T) {
	d := newDisk()
	p := start(t, d)
	p.onSeal = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ends[TP{"bills", 0}] = End{HighWatermark: 9, LastStableOffset: 9, TopicID: [16]byte{2}}
	}
	st := p.finish(t, p.order(t))
	p.settled(t, st, control.Aborted)
	if e := st.Cutover.Error; e.Code != CodeLogMoved || !strings.Contains(e.Message, "partition 0 of topic bills grew from offset 7 to 9") {
		t.Errorf("error %+v", e)
	}
	p.onSeal = nil
	p.settled(t, p.finish(t, p.order(t)), control.Done)
}

func TestATopicThatAppearsBehindTheGateIsFound(t *testing.T) {
	d := newDisk()
	p := start(t, d)
	p.onSeal = func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ends[TP{"new", 0}] = End{HighWatermark: 1, LastStableOffset: 1}
	}
	if st := p.finish(t, p.order(t)); st.Cutover.Error == nil || st.Cutover.Error.Code != CodeLogMoved {
		t.Errorf("%+v", st.Cutover.Error)
	}
}

func TestAnOpenTransactionGoesBack(t *testing.T) {
	d := newDisk()
	d.ends[TP{"bills", 0}] = End{HighWatermark: 7, LastStableOffset: 5}
	p := start(t, d)
	st := p.finish(t, p.order(t))
	p.settled(t, st, control.Aborted)
	if e := st.Cutover.Error; e.Code != CodeOpenTransaction || !strings.Contains(e.Message, "topic bills") {
		t.Errorf("error %+v", e)
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	p := start(t, newDisk())
	id, err := p.driver.Start(Order{To: "green", DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	st := p.finish(t, id)
	if st.Phase != control.Done || p.log() != "load, inspect" || p.disk.state.Cutover != nil || p.driver.State().Phase != control.Idle {
		t.Errorf("phase %s, calls %s, record %+v", st.Phase, p.log(), p.disk.state)
	}
	p.on("inspect", "fail", 1)
	if id, err = p.driver.Start(Order{To: "green", DryRun: true}); err != nil {
		t.Fatal(err)
	}
	if st := p.finish(t, id); st.Phase != control.Aborted || st.Cutover.Error.Code != "Preflight_failed" {
		t.Errorf("%s %+v", st.Phase, st.Cutover.Error)
	}
}

func TestOrdersThatCannotBeTaken(t *testing.T) {
	p := start(t, newDisk()).on("drain", "block", 1)
	for code, order := range map[string]Order{
		CodeBadTarget: {To: "blue"}, CodeNotBuilt: {To: "green", Mode: control.ModeForced}, "bad_request": {To: "green", Mode: "gentle"},
	} {
		var e *Error
		if _, err := p.driver.Start(order); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%+v: %v", order, err)
		}
	}
	id := p.order(t)
	p.await(t, "drain")
	var e *Error
	if _, err := p.driver.Start(Order{To: "green"}); !errors.As(err, &e) || e.Code != CodeRunning {
		t.Errorf("a second cutover: %v", err)
	}
	if err := p.driver.Abort("other"); !errors.As(err, &e) || e.Code != CodeNotFound {
		t.Errorf("an unknown cutover: %v", err)
	}
	if err := p.driver.Abort(id); err != nil {
		t.Error(err)
	}
	p.settled(t, p.finish(t, id), control.Aborted)
}

func TestAStandbyThatIsDownIsToldBeforeAnythingHappens(t *testing.T) {
	d := newDisk()
	p := start(t, d)
	d.unread = []string{"green"}
	st := p.finish(t, p.order(t))
	if st.Phase != control.Aborted || st.Cutover.Error.Code != CodeClusterDown || d.state.Cutover != nil {
		t.Errorf("%s %+v, record %+v", st.Phase, st.Cutover.Error, d.state)
	}
}

func TestAnotherDriverIsNotFoughtWith(t *testing.T) {
	p := start(t, newDisk())
	p.on("save Sealing", "fail", 1)
	p.faults["save Sealing"].err = fmt.Errorf("write: %w", control.ErrFenced)
	st := p.finish(t, p.order(t))
	if st.Phase != control.Aborted || st.Cutover.Error.Code != CodeFenced || p.shut {
		t.Errorf("%s %+v", st.Phase, st.Cutover.Error)
	}
}

func TestTheLastGenerationIsNotLeft(t *testing.T) {
	d := newDisk()
	d.state.Generation = lastGeneration
	p := start(t, d)
	if st := p.finish(t, p.order(t)); st.Cutover.Error == nil || st.Cutover.Error.Code != CodeGenerations {
		t.Errorf("%+v", st.Cutover.Error)
	}
}

func TestFailbackAddsAnEra(t *testing.T) {
	d := newDisk()
	p := start(t, d)
	p.settled(t, p.finish(t, p.order(t)), control.Done)
	tp := TP{"orders", 0}
	d.ends[tp] = End{HighWatermark: 25, LastStableOffset: 25, LeaderEpoch: 4, TopicID: [16]byte{9}}
	if st := p.finish(t, p.order(t)); st.Phase != control.Done || st.Generation != 3 || st.Active != "blue" {
		t.Fatalf("%+v", st)
	}
	topic := d.topics["blue"]["orders"]
	eras := topic.Partitions[0]
	if len(eras) != 3 || topic.VirtualID != [16]byte{1} {
		t.Fatalf("%+v", topic)
	}
	for i := 1; i < len(eras); i++ {
		if eras[i].FirstEpoch <= eras[i-1].FirstEpoch || eras[i].Virtual < eras[i-1].Virtual {
			t.Errorf("era %+v behind %+v", eras[i], eras[i-1])
		}
	}
	if got, want := eras[2].Virtual, translate.Virtual(25); got != want || eras[2].Physical != 27 || eras[2].Cluster != "blue" {
		t.Errorf("last era %+v", eras[2])
	}
	if eras[2].FirstEpoch <= eras[1].Shift.Show(4) {
		t.Errorf("epochs shown go down: %+v after %d", eras[2], eras[1].Shift.Show(4))
	}
}

func TestATopicThatIsNotPartOfAMoveKeepsTheRecordItHad(t *testing.T) {
	left := control.Topic{Name: "left", Partitions: [][]control.Era{{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: 4, Physical: 6}}}}
	d := newDisk()
	d.topics["blue"]["left"] = left
	p := start(t, d)
	p.settled(t, p.finish(t, p.order(t)), control.Done)
	if got := p.published.Topics; len(got) != 3 || !reflect.DeepEqual(got["left"], left) {
		t.Errorf("published: %+v", got)
	}
	if _, ok := d.topics["green"]["left"]; ok {
		t.Error("it was given to the target as if it had moved")
	}
}

func TestASlowListenerGetsTheEnd(t *testing.T) {
	p := start(t, newDisk())
	id := p.order(t)
	states, stop, err := p.driver.Subscribe(id)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	p.finish(t, id) // meanwhile nobody reads states
	var last control.State
	for st := range states {
		last = st
	}
	if last.Phase != control.Done {
		t.Errorf("last %s", last.Phase)
	}
	again, _, err := p.driver.Subscribe(id)
	if err != nil {
		t.Fatal(err)
	}
	if st := <-again; st.Phase != control.Done {
		t.Errorf("after the end: %s", st.Phase)
	}
}

func TestAnAmendmentAndAMoveDoNotMeet(t *testing.T) {
	d := newDisk()
	p := start(t, d)
	under, goOn := make(chan struct{}), make(chan struct{})
	amended := make(chan error, 1)
	go func() {
		amended <- p.driver.Amend(t.Context(), func(st *control.State) bool {
			close(under)
			<-goOn
			st.Identity.ClusterID = "seen"
			return true
		})
	}()
	<-under
	started := make(chan string, 1)
	go func() {
		id, err := p.driver.Start(Order{To: "green"})
		if err != nil {
			t.Error(err)
		}
		started <- id
	}()
	close(goOn)
	if err := <-amended; err != nil {
		t.Fatal(err)
	}
	p.settled(t, p.finish(t, <-started), control.Done)
	if d.state.Identity.ClusterID != "seen" {
		t.Errorf("the amendment is lost: %+v", d.state.Identity)
	}
	p.on("inspect", "block", 1)
	id := p.order(t)
	if err := p.driver.Amend(t.Context(), func(*control.State) bool { return true }); err == nil {
		t.Error("the record was changed while a cutover runs")
	}
	if err := p.driver.Abort(id); err != nil {
		t.Fatal(err)
	}
	p.finish(t, id)
}
