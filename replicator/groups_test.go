package replicator

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
	"github.com/switchback-proxy/switchback/translate"
)

func (s *side) commit(t *testing.T, p *pair, group, topic string, at map[int32]int64) {
	t.Helper()
	os := kadm.Offsets{}
	for partition, offset := range at {
		os.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1, Metadata: "note"})
	}
	if err := kadm.NewClient(s.client).CommitAllOffsets(p.ctx, group, os); err != nil {
		t.Fatal(err)
	}
}

// committed is −1 where there is no offset.
func (s *side) committed(t *testing.T, p *pair, group, topic string, partition int32) kadm.Offset {
	t.Helper()
	os, err := kadm.NewClient(s.client).FetchOffsets(p.ctx, group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return kadm.Offset{At: -1}
	}
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := os.Lookup(topic, partition); ok {
		return o.Offset
	}
	return kadm.Offset{At: -1}
}

func (p *pair) standsAt(t *testing.T, on *side, group, topic string, partition int32, want int64) {
	t.Helper()
	var got int64
	testkit.Eventually(t, patience, group+" stands where it should", func() bool {
		got = on.committed(t, p, group, topic, partition).At
		return got == want
	})
}

func noMembers(string) (Member, bool) { return Member{}, false }

// C09, C10, C11.
func TestCommittedOffsetsAreTranslated(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 4, nil)
	p.blue.create(t, "gone", 1, nil)
	for partition := range int32(3) {
		for i := range 10 {
			p.blue.produce(t, "orders", partition, 10*i, 10, time.Now())
		}
	}
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 0, 1: 50, 2: 40})
	p.blue.commit(t, p, "g", "gone", map[int32]int64{0: 0})
	p.blue.commit(t, p, "h", "orders", map[int32]int64{2: 100})
	if err := p.blue.kafka.DeleteRecords("orders", 2, 100); err != nil { // emptied
		t.Fatal(err)
	}
	cfg := p.config(p.blue, p.green)
	cfg.Topics, _ = translate.NewFilter(nil, []string{"gone"})
	r := p.start(cfg)
	p.copied(r)
	at := func(partition int32, v translate.Virtual) int64 {
		m, _ := r.Map(journal.TP{Topic: "orders", Partition: partition})
		return int64(m.ToPhysical(v).Physical)
	}
	p.standsAt(t, p.green, "g", "orders", 0, at(0, 0))
	p.standsAt(t, p.green, "g", "orders", 1, at(1, 50))
	end := p.green.kafka.PartitionInfo("orders", 2).HighWatermark
	p.standsAt(t, p.green, "g", "orders", 2, end)
	p.standsAt(t, p.green, "h", "orders", 2, end)
	if o := p.green.committed(t, p, "g", "orders", 3); o.At != -1 {
		t.Fatalf("an offset that nobody committed: %+v", o)
	}
	if o := p.green.committed(t, p, "g", "orders", 1); o.Metadata != "note" {
		t.Fatalf("metadata %q", o.Metadata)
	}
	testkit.Eventually(t, patience, "both groups are followed", func() bool {
		all := r.GroupStatus()
		return len(all) == 2 && !slices.ContainsFunc(all, func(s GroupStatus) bool { return s.State != GroupOK || s.CheckpointAge < 0 })
	})
}

// C14.
func TestAGroupNeverStandsBeyondTheDataAndFollowsIt(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, map[string]string{"max.message.bytes": "4000000"})
	p.green.create(t, "orders", 1, map[string]string{"max.message.bytes": "3000"})
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	p.blue.produce(t, "orders", 0, 10, 500, time.Now()) // refused
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 510})
	r := p.start(p.config(p.blue, p.green))
	stopsWith(t, r, "orders", "refuses")
	p.standsAt(t, p.green, "g", "orders", 0, p.green.kafka.PartitionInfo("orders", 0).HighWatermark)
	_, err := kadm.NewClient(p.green.client).AlterTopicConfigs(p.ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("4000000")}}, "orders")
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "copied", func() bool { return statusOf(r, "orders", 0).Frontier == 510 })
	p.standsAt(t, p.green, "g", "orders", 0, p.green.kafka.PartitionInfo("orders", 0).HighWatermark)
}

// C13.
func TestADeletedGroupAndADeletedOffsetDoNotComeBack(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 2, nil)
	p.blue.produce(t, "orders", 0, 0, 10, time.Now())
	p.blue.produce(t, "orders", 1, 0, 10, time.Now())
	for _, g := range []string{"g", "h"} {
		p.blue.commit(t, p, g, "orders", map[int32]int64{0: 5, 1: 5})
	}
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	p.standsAt(t, p.green, "g", "orders", 0, 6)
	p.standsAt(t, p.green, "h", "orders", 1, 6)
	adm := kadm.NewClient(p.blue.client)
	if _, err := adm.DeleteGroup(p.ctx, "g"); err != nil {
		t.Fatal(err)
	}
	var gone kadm.TopicsSet
	gone.Add("orders", 1)
	if _, err := adm.DeleteOffsets(p.ctx, "h", gone); err != nil {
		t.Fatal(err)
	}
	p.blue.commit(t, p, "h", "orders", map[int32]int64{0: 2}) // a reset to a lower offset is one like any other
	p.standsAt(t, p.green, "g", "orders", 0, -1)
	p.standsAt(t, p.green, "h", "orders", 1, -1)
	p.standsAt(t, p.green, "h", "orders", 0, 3)
}

func TestFinalOffsetsAreStoredAndNothingIsStoredAfterTheSeal(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	p.blue.produce(t, "orders", 0, 0, 100, time.Now())
	cfg := p.config(p.blue, p.green)
	cfg.CheckpointInterval = time.Hour
	r := p.start(cfg)
	p.copied(r)
	p.blue.commit(t, p, "g", "orders", map[int32]int64{0: 70})
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	n, err := r.FinalOffsets(p.ctx, noMembers)
	if err != nil || n != 1 {
		t.Fatalf("%d offsets, %v", n, err)
	}
	p.standsAt(t, p.green, "g", "orders", 0, 71)
	p.green.commit(t, p, "g", "orders", map[int32]int64{0: 90}) // native
	if err := r.groups.poll(p.ctx); err != nil {
		t.Fatal(err)
	}
	if o := p.green.committed(t, p, "g", "orders", 0); o.At != 90 {
		t.Fatalf("dragged back to %d", o.At)
	}
	r.stop()
	// The group is deleted on the new active. What the old one has of the era before must not come back with the failback.
	if _, err := kadm.NewClient(p.green.client).DeleteGroup(p.ctx, "g"); err != nil {
		t.Fatal(err)
	}
	cfg = p.config(p.green, p.blue)
	cfg.Generation = 2
	cfg.Eras = func(string, int) [][]control.Era {
		return [][]control.Era{{{Generation: 1, Cluster: "blue"}, {Generation: 2, Cluster: "green", Virtual: 100, Physical: 102}}}
	}
	r = p.start(cfg)
	p.copied(r)
	if _, err := r.Seal(p.ctx); err != nil {
		t.Fatal(err)
	}
	if n, err := r.FinalOffsets(p.ctx, noMembers); err != nil || n != 0 {
		t.Fatalf("%d offsets, %v", n, err)
	}
	if o := p.blue.committed(t, p, "g", "orders", 0); o.At != -1 {
		t.Fatalf("it came back: %+v", o)
	}
}

func TestAnOffsetOfZeroIsStored(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "orders", 1, nil)
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	zero := offsets{{Topic: "orders"}: {at: 0}}
	if err := r.groups.polling.take(p.ctx); err != nil {
		t.Fatal(err)
	}
	defer r.groups.polling.put()
	if n, err := r.groups.store(p.ctx, "g", zero, Member{Generation: -1}); n != 1 || err != nil {
		t.Fatalf("%d offsets stored, %v", n, err)
	}
	p.standsAt(t, p.green, "g", "orders", 0, 0)
}
