package replicator

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

func (s *side) remove(t *testing.T, topic string) {
	t.Helper()
	if err := s.kafka.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
}

// partitions that the status has of a topic.
func partitions(r *running, topic string) (n int) {
	for _, s := range r.Status() {
		if s.Topic == topic {
			n++
		}
	}
	return n
}

// twoTopics copies a topic that goes and one that stays.
func twoTopics(t *testing.T) (*pair, *running) {
	p := newPair(t)
	for _, topic := range []string{"old", "stays"} {
		p.blue.create(t, topic, 2, nil)
		for partition := range int32(2) {
			p.blue.produce(t, topic, partition, 0, 10, time.Now())
		}
	}
	r := p.start(p.config(p.blue, p.green))
	p.copied(r)
	return p, r
}

func (p *pair) goOn(t *testing.T, r *running, topic string) {
	t.Helper()
	for partition := range int32(2) {
		p.blue.produce(t, topic, partition, 10, 10, time.Now())
	}
	p.copiedTopic(r, topic)
	for partition := range int32(2) {
		p.exact(r, p.blue, p.green, topic, partition)
	}
}

func TestATopicThatNeitherClusterHasIsNotCopiedAnyMore(t *testing.T) {
	p, r := twoTopics(t)
	p.blue.remove(t, "old")
	stopsWith(t, r, "old", "not on the source any more")
	p.green.remove(t, "old")
	testkit.Eventually(t, patience, "nothing is left of the topic", func() bool { return partitions(r, "old") == 0 })
	p.goOn(t, r, "stays")
	p.copied(r)
	if sealed, err := r.Seal(p.ctx); err != nil || len(sealed) != 2 {
		t.Fatalf("sealed %+v, %v", sealed, err)
	}
}

// Whoever deletes a topic on both clusters and makes it anew has begun anew. What became of the old one in between was seen, or not.
func TestATopicThatIsMadeAnewOnBothClustersIsCopiedFromItsBeginning(t *testing.T) {
	for name, between := range map[string]func(*pair, *running){
		"seen to be gone": func(p *pair, r *running) {
			p.blue.remove(t, "old")
			p.green.remove(t, "old")
			testkit.Eventually(t, patience, "nothing is left of the topic", func() bool { return partitions(r, "old") == 0 })
			p.blue.create(t, "old", 2, nil)
		},
		"on one after the other": func(p *pair, r *running) {
			p.blue.remove(t, "old")
			p.blue.create(t, "old", 2, nil)
			stopsWith(t, r, "old", "the source topic was deleted and made again")
			p.green.remove(t, "old")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := twoTopics(t)
			between(p, r)
			p.blue.produce(t, "old", 0, 100, 3, time.Now())
			testkit.Eventually(t, patience, "it is copied", func() bool { return statusOf(r, "old", 0).Frontier == 3 })
			p.goOn(t, r, "old")
			p.goOn(t, r, "stays")
			r.stop()
			r = p.start(p.config(p.blue, p.green)) // and it stays so
			p.copied(r)
			p.exact(r, p.blue, p.green, "old", 0)
			p.exact(r, p.blue, p.green, "old", 1)
		})
	}
}

// Brokers drop the offsets of a topic with it. Those in the new one may be the same.
func TestOffsetsInATopicThatIsMadeAnewAreStoredAgain(t *testing.T) {
	p := newPair(t)
	p.blue.create(t, "old", 1, nil)
	cfg := p.config(p.blue, p.green)
	cfg.CheckpointInterval = time.Hour
	r := p.start(cfg)
	store := func() {
		t.Helper()
		p.blue.produce(t, "old", 0, 0, 10, time.Now())
		p.copied(r)
		p.exact(r, p.blue, p.green, "old", 0)
		p.blue.commit(t, p, "g", "old", map[int32]int64{0: 3})
		if err := r.groups.poll(p.ctx); err != nil {
			t.Fatal(err)
		}
		m, _ := r.Map(journal.TP{Topic: "old"})
		p.standsAt(t, p.green, "g", "old", 0, int64(m.ToPhysical(3).Physical))
	}
	store()
	p.blue.remove(t, "old")
	p.green.remove(t, "old")
	testkit.Eventually(t, patience, "nothing is left of the topic", func() bool { return len(r.Status()) == 0 })
	p.blue.create(t, "old", 1, nil)
	testkit.Eventually(t, patience, "the new topic is there", func() bool { return len(r.Status()) == 1 })
	store()
}

// hide lets both clusters answer for a topic with an error when they are asked for it by name, and leave it out of the list of
// all topics. There are as many such answers, of each, when it returns.
func (p *pair) hide(t *testing.T, topic string, err *kerr.Error, answers int) (show func()) {
	t.Helper()
	var all []*kfake.FaultHandle
	for _, side := range []*side{p.blue, p.green} {
		all = append(all, side.kafka.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: err, Count: -1}))
	}
	for _, one := range all {
		if err := one.Wait(p.ctx, answers); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, one := range all {
			one.Remove()
		}
	}
}

func TestATopicThatBothClustersOnlyHideIsNotTakenForGone(t *testing.T) {
	p, r := twoTopics(t)
	show := p.hide(t, "old", kerr.TopicAuthorizationFailed, 10)
	stopsWith(t, r, "old", "not on the source any more")
	if n := partitions(r, "old"); n != 2 {
		t.Fatalf("%d partitions are left", n)
	}
	show()
	p.goOn(t, r, "old")
}

func TestATopicThatBothClustersDeniedIsCopiedOnFromWhereItStood(t *testing.T) {
	p, r := twoTopics(t)
	show := p.hide(t, "old", kerr.UnknownTopicOrPartition, 1)
	testkit.Eventually(t, patience, "nothing is left of the topic", func() bool { return partitions(r, "old") == 0 })
	show()
	testkit.Eventually(t, patience, "the topic is there again", func() bool { return partitions(r, "old") == 2 })
	p.goOn(t, r, "old")
	p.goOn(t, r, "stays")
}

func TestATopicThatGoesWhileTheFlowIsSealedStaysUntilItIsUnsealed(t *testing.T) {
	p, r := twoTopics(t)
	before, err := r.Seal(p.ctx)
	if err != nil {
		t.Fatal(err)
	}
	p.hide(t, "old", kerr.UnknownTopicOrPartition, 10)
	if n := partitions(r, "old"); n != 2 {
		t.Fatalf("%d partitions are left", n)
	}
	for tp, at := range before {
		if now, _ := r.Partition(tp); now.PhysicalEnd != at.Physical {
			t.Errorf("%v ends at %d, sealed was %d", tp, now.PhysicalEnd, at.Physical)
		}
	}
	r.Unseal()
	testkit.Eventually(t, patience, "nothing is left of the topic", func() bool { return partitions(r, "old") == 0 })
}
