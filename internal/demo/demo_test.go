package demo

import (
	"context"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
)

// The fleet runs against blue itself, without switchback between: what is tested is that its clients' events are whole,
// and that a fault in them is not passed over.
func TestFleetIsJudgedByItsOwnEvents(t *testing.T) {
	faults := map[string]*check.Event{
		"clean": nil,
		"a record twice in the log": {Kind: check.Read, Client: readerName(0), Group: check.NoGroup, Topic: topic, Partition: 0,
			Offset: 1 << 40, Producer: "producer-1", Seq: 0},
		"an error in an application": {Kind: check.Error, Client: "producer-1", Text: "injected"},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			fleet := runFleet(t)
			if fault != nil {
				fleet.checker.Add(*fault)
			}
			report := fleet.checker.Report()
			if report.OK() != (fault == nil) {
				t.Errorf("verdict %v\n%s", report.OK(), report.String())
			}
			if report.AckedRecords <= historyRecords {
				t.Errorf("only %d records acked", report.AckedRecords)
			}
		})
	}
}

func runFleet(t *testing.T) *fleet {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pair, err := startClusters()
	if err != nil {
		t.Fatal(err)
	}
	defer pair.close()
	if err := pair.writeHistory(ctx); err != nil {
		t.Fatal(err)
	}
	fleet := newFleet(pair.blue.ListenAddrs()[0], 3)
	for _, e := range pair.history {
		fleet.checker.Add(e)
	}
	if err := fleet.start(ctx); err != nil {
		t.Fatal(err)
	}
	defer fleet.close()
	if err := fleet.waitReading(ctx); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{check.MarkStart, check.MarkEnd} {
		fleet.checker.Add(check.Event{Kind: check.Mark, Millis: check.Now(), Text: text})
	}
	if err := fleet.finish(ctx); err != nil {
		t.Fatal(err)
	}
	return fleet
}
