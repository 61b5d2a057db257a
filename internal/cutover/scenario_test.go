package cutover

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

// teller runs one story of testdata/scenarios.txt.
type teller struct {
	t    *testing.T
	disk *disk
	p    *process
	id   string
	last control.State
}

func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("testdata/scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "\nstory: ")[1:] {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		t.Run(lines[0], func(t *testing.T) {
			t.Parallel()
			d := newDisk()
			s := &teller{t: t, disk: d, p: start(t, d)}
			for _, line := range lines[1:] {
				s.tell(line, strings.Fields(line))
			}
		})
	}
}

func (s *teller) tell(line string, words []string) {
	s.t.Helper()
	switch words[0] {
	case "fault":
		s.fault(words[1:])
	case "cutover", "dry-run":
		s.order(Order{DryRun: words[0] == "dry-run"})
	case "pause":
		s.order(Order{MaxPause: time.Duration(s.number(words, 1)) * time.Millisecond})
	case "await":
		s.p.await(s.t, operation(words[1]))
	case "abort":
		if err := s.p.driver.Abort(s.id); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	case "crash":
		s.p.driver.Close()
		s.p = start(s.t, s.disk)
	case "write":
		s.write(TP{words[1], int32(s.number(words, 2))}, translate.Virtual(s.number(words, 3)))
	case "end":
		s.last = s.p.finish(s.t, s.id)
	case "expect":
		if got := s.see(words[1]); got != words[2] {
			s.t.Errorf("%s: it is %s; error %+v; calls: %s", line, got, s.last.Cutover.Error, s.p.log())
		}
	default:
		s.t.Fatalf("unknown command: %s", line)
	}
}

// operation is the name of a call of the fakes.
func operation(word string) string { return strings.ReplaceAll(word, "-", " ") }

func (s *teller) fault(words []string) {
	times, after := 1, 0
	if len(words) > 2 {
		times = s.number(words, 2)
	}
	if len(words) > 3 {
		after = s.number(words, 3)
	}
	op := operation(words[0])
	s.p.on(op, words[1], times)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.faults[op].after = after
}

func (s *teller) order(o Order) {
	s.t.Helper()
	o.To = s.p.driver.State().Standby
	id, err := s.p.driver.Start(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.id = id
}

// write lets a stranger write n records at each seal; 0: he is gone.
func (s *teller) write(tp TP, n translate.Virtual) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.onSeal = func() {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		e := s.disk.ends[tp]
		e.HighWatermark, e.LastStableOffset = e.HighWatermark+n, e.LastStableOffset+n
		s.disk.ends[tp] = e
	}
}

func (s *teller) number(words []string, i int) int {
	s.t.Helper()
	n, err := strconv.Atoi(words[i])
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *teller) see(key string) string {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	either := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	switch key {
	case "phase":
		return string(s.last.Phase)
	case "code":
		if s.last.Cutover.Error == nil {
			return "none"
		}
		return s.last.Cutover.Error.Code
	case "active":
		return s.disk.state.Active
	case "generation":
		return fmt.Sprint(s.disk.state.Generation)
	case "gate":
		return either(s.p.shut, "shut", "open")
	case "flow":
		return s.p.flow
	case "shadows":
		return either(s.p.shadows, "left", "none")
	case "route":
		return fmt.Sprint(s.p.route)
	}
	return "unknown key " + key
}
