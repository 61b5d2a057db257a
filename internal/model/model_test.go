package model

import (
	"strings"
	"testing"
)

// TestModelPassesTheRules explores every state within each of the bounds: with all rules in force nothing is wrong in any.
func TestModelPassesTheRules(t *testing.T) {
	total := 0
	for _, c := range []struct {
		name   string
		bounds bounds
		rules  rules
	}{
		{"broken links, a second marker, retention, three records",
			bounds{records: 3, parts: 1, owners: 2, window: 2, largest: 1, left: left{breaks: 1, markers: 1, retention: 1}}, rules{}},
		{"batches of one and two records, claims given up",
			bounds{records: 2, parts: 1, owners: 2, window: 2, largest: 2, left: left{breaks: 1, retention: 1, abandons: 1}}, rules{}},
		{"two data partitions",
			bounds{records: 1, parts: 2, owners: 2, window: 2, largest: 1, left: left{breaks: 1, markers: 1}}, rules{}},
		{"a second marker, acks taken wherever they are",
			bounds{records: 2, parts: 1, owners: 2, window: 2, largest: 1, left: left{breaks: 1, markers: 1}}, rules{anyBase: true}},
		{"settled records between rounds",
			bounds{records: 2, parts: 1, owners: 2, window: 2, largest: 1, left: left{breaks: 1, markers: 1, settles: 1}}, rules{settled: true}},
		{"a lost tail, three owners",
			bounds{records: 2, parts: 1, owners: 3, window: 1, largest: 1, left: left{losses: 1}}, rules{}},
		{"lost tails of both logs, requests that land late",
			bounds{records: 1, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 2, breaks: 1}}, rules{}},
		{"a lost tail under settled records, a second marker",
			bounds{records: 2, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 1, markers: 1}}, rules{settled: true}},
		{"a lost tail under settled records, three owners",
			bounds{records: 1, parts: 1, owners: 3, window: 1, largest: 1, left: left{losses: 1}}, rules{settled: true}},
		{"a lost tail under a settled record written between rounds",
			bounds{records: 2, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 1, settles: 1}}, rules{settled: true}},
		{"old records, two of them",
			bounds{records: 2, parts: 1, owners: 2, window: 1, largest: 1, left: left{forgets: 1, breaks: 1, retention: 1}}, rules{cautious: true}},
		{"old records, three owners",
			bounds{records: 1, parts: 1, owners: 3, window: 1, largest: 1, left: left{forgets: 1, breaks: 1}}, rules{cautious: true}},
	} {
		m := newModel(c.bounds, c.rules)
		r := m.search(0)
		t.Logf("%s: %d states, %d of them at rest, %d replays, depth %d", c.name, r.states, r.atRest, len(m.replayed), r.depth)
		if r.bad != nil {
			t.Errorf("%s: %s\n%s", c.name, r.bad.why, m.trace(r.bad.steps))
		}
		if r.atRest == 0 {
			t.Errorf("%s: no owner ever reaches the end", c.name)
		}
		total += r.states
	}
	t.Logf("%d states", total)
}

// expectFound asserts that the model finds what goes wrong without a rule, and that nothing does with it.
func expectFound(t *testing.T, b bounds, without rules, why string) {
	t.Helper()
	m := newModel(b, without)
	r := m.search(0)
	if r.bad == nil {
		t.Fatalf("nothing found in %d states", r.states)
	}
	t.Logf("%s, after %d steps, %d states:\n%s", r.bad.why, len(r.bad.steps), r.states, m.trace(r.bad.steps))
	if !strings.Contains(r.bad.why, why) {
		t.Errorf("found %q, expected %q", r.bad.why, why)
	}
}

func small() bounds {
	return bounds{records: 2, parts: 1, owners: 2, window: 2, largest: 1, left: left{breaks: 1, retention: 1, abandons: 1}}
}

func TestModelFindsThatTheOwnMarkerIsNotWaitedFor(t *testing.T) {
	expectFound(t, small(), rules{noMarkerWait: true}, "published")
}

func TestModelFindsThatOnlyTheJournalIsFenced(t *testing.T) {
	expectFound(t, small(), rules{journalFencedOnly: true}, "published")
}

func TestModelFindsDataBeforeItsClaimIsAcked(t *testing.T) {
	expectFound(t, small(), rules{dataBeforeAck: true}, "published")
}

func TestModelFindsThatAllClaimsAreTrusted(t *testing.T) {
	expectFound(t, small(), rules{trustClaims: true}, "where it is not")
}

func TestModelFindsThatTheFirstOfTwoClaimsWins(t *testing.T) {
	expectFound(t, small(), rules{firstClaimWins: true}, "where it is not")
}

func TestModelFindsADataSequenceUsedForOtherContent(t *testing.T) {
	expectFound(t, small(), rules{reuseDataSequence: true}, "where it is not")
}

func TestModelFindsAClaimsSequenceUsedForOtherContent(t *testing.T) {
	expectFound(t, small(), rules{reuseClaimSequence: true}, "where it is not")
}

func TestModelFindsAFailedBatchDroppedWhileLaterOnesGoOn(t *testing.T) {
	expectFound(t, small(), rules{dropFailed: true, anyBase: true}, "the source has record 0, the map does not")
}

// An ack that is not where it was predicted makes the owner fence anew, which finds the batch that was dropped.
func TestModelPassesADroppedBatchIfEveryAckMustBeAsPredicted(t *testing.T) {
	if r := newModel(small(), rules{dropFailed: true}).search(0); r.bad != nil {
		t.Errorf("%s after %d steps", r.bad.why, len(r.bad.steps))
	}
}

func TestModelFindsThatLeaderEpochsAreNotWatched(t *testing.T) {
	expectFound(t, bounds{records: 1, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 1}}, rules{leadersNotWatched: true}, "at rest")
}

func TestModelFindsThatTheJournalsLeaderIsNotWatched(t *testing.T) {
	b := bounds{records: 1, parts: 1, owners: 1, window: 1, largest: 1, left: left{losses: 1}}
	expectFound(t, b, rules{journalNotWatched: true}, "at rest")
}

// An ack under a new leader epoch, before that was looked at, must not replace the epoch that is asked for.
func TestModelFindsThatTheEpochOfTheLastAckIsAsked(t *testing.T) {
	b := bounds{records: 1, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 1}}
	expectFound(t, b, rules{lastAckAsked: true}, "the live map")
}

func TestModelFindsOldRecordsCopiedWithoutCaution(t *testing.T) {
	b := bounds{records: 1, parts: 1, owners: 1, window: 1, largest: 1, left: left{forgets: 1, breaks: 1}}
	expectFound(t, b, rules{anyBase: true}, "published")
}

// A settled record of an owner that has not seen its log lose the tail is found to be wrong by the next one.
func TestModelFindsALostTailBelowASettledRecordNotCut(t *testing.T) {
	b := bounds{records: 1, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 1, settles: 1}}
	expectFound(t, b, rules{settled: true, settledNotChecked: true}, "where it is not")
}

// A marker that was lost comes again at the same place, but what was below it is another record now.
func TestModelFindsALostMarkerThatIsWrittenAgainInItsPlace(t *testing.T) {
	b := bounds{records: 2, parts: 1, owners: 2, window: 1, largest: 1, left: left{losses: 1, markers: 1}}
	expectFound(t, b, rules{settled: true, leaderNotCompared: true}, "where it is not")
}
