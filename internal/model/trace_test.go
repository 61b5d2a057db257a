package model

import (
	"testing"
)

// begin: an owner's epoch, its markers, its reading back.
func begin(e uint8) []step {
	return []step{{op: takeOver}, {op: writeMarker}, {op: writeMarker, n: 1}, {op: recoverOwner, epoch: e}}
}

// claimed: an owner's next claim is written.
func claimed(e uint8) []step {
	return []step{{op: claimNext, epoch: e, count: 1}, {op: landClaim, epoch: e}}
}

func script(parts ...[]step) []step {
	var out []step
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// play takes the steps and returns the last state, and the first thing that was wrong on the way ("" if nothing).
func (m *model) play(t *testing.T, steps []step) (s state, why string, rest bool) {
	t.Helper()
	s = m.initial()
	for i, p := range steps {
		if !m.take(&s, p) {
			t.Fatalf("step %d, %v, cannot be taken:\n%s", i+1, p, m.trace(steps))
		}
		m.normalise(&s)
		wrong, r := m.check(&s)
		rest = r
		if why == "" && wrong != "" {
			why = wrong
		}
	}
	return s, why, rest
}

// expectFine plays a script under all rules; the newest owner must have record r at offset at[r] in the end (−1: not).
func expectFine(t *testing.T, b bounds, r rules, steps []step, at ...int) state {
	t.Helper()
	m := newModel(b, r)
	s, why, _ := m.play(t, steps)
	if why != "" {
		t.Errorf("%s\n%s", why, m.trace(steps))
	}
	got := s.newest().parts[0].at
	for record, want := range at {
		if int(got[record])-1 != want {
			t.Errorf("record %d is at %d, expected %d\n%s", record, int(got[record])-1, want, m.trace(steps))
		}
	}
	return s
}

func expectWrong(t *testing.T, b bounds, r rules, steps []step) {
	t.Helper()
	m := newModel(b, r)
	if _, why, _ := m.play(t, steps); why == "" {
		t.Errorf("nothing is wrong without the rule:\n%s", m.trace(steps))
	} else {
		t.Logf("without the rule: %s", why)
	}
}

const oneLate = capLate - 1 // where the only late request is

// The coordinator writes the marker a second time, between claim and data: data lands one behind where it was predicted.
func TestTraceSecondMarker(t *testing.T) {
	b := bounds{records: 1, parts: 1, owners: 2, window: 1, largest: 1, left: left{markers: 1}}
	steps := script(
		[]step{{op: takeOver}, {op: writeMarker}, {op: writeMarkerTwice, n: 1}, {op: recoverOwner, epoch: 1}},
		claimed(1),
		[]step{{op: sendData, epoch: 1}, {op: landLate, n: oneLate}, {op: landData, epoch: 1}},
	)
	expectFine(t, b, rules{}, script(steps, begin(2)), 2) // owner 1 fences anew: the base is not the predicted one
	expectWrong(t, b, rules{trustClaims: true}, steps)
}

// A batch of unknown outcome is given up, lands late, and its sequence is used for another record: the broker takes that
// for a duplicate and acks it.
func TestTraceSameSequenceOtherBatch(t *testing.T) {
	b := bounds{records: 2, parts: 1, owners: 1, window: 1, largest: 1, left: left{breaks: 1, retention: 1, abandons: 1}}
	before := script(begin(1), claimed(1), []step{{op: sendData, epoch: 1}, {op: breakData, epoch: 1}})
	lands := []step{{op: landLate, n: oneLate}, {op: retain}}
	send := []step{{op: sendData, epoch: 1}, {op: landData, epoch: 1}}
	expectFine(t, b, rules{}, script(before, lands, send, claimed(1), send), 1, 2)
	expectWrong(t, b, rules{reuseDataSequence: true},
		script(before, []step{{op: abandon, epoch: 1}}, lands, claimed(1), send))
}

// A claim of unknown outcome lands late; another claim under its journal sequence is acked as a duplicate, and its data goes
// out unclaimed.
func TestTraceClaimLostAndClaimedAnewUnderTheSameJournalSequence(t *testing.T) {
	b := bounds{records: 2, parts: 1, owners: 1, window: 1, largest: 1, left: left{breaks: 1, retention: 1, abandons: 1}}
	before := script(begin(1), []step{{op: claimNext, epoch: 1, count: 1}, {op: breakJournal, epoch: 1}})
	lands := []step{{op: landLate, n: oneLate}, {op: retain}}
	send := []step{{op: sendData, epoch: 1}, {op: landData, epoch: 1}}
	expectFine(t, b, rules{},
		script(before, lands, []step{{op: resendClaim, epoch: 1}, {op: landClaim, epoch: 1}}, send, claimed(1), send), 1, 2)
	expectWrong(t, b, rules{reuseClaimSequence: true},
		script(before, []step{{op: abandon, epoch: 1}}, lands, claimed(1), send))
}

// The target loses the new owner's marker, a zombie's late batch takes its place, the new owner's first sequence is accepted
// behind it: all positions look right.
func TestTraceMarkerLostUncleanly(t *testing.T) {
	b := bounds{records: 1, parts: 1, owners: 3, window: 1, largest: 1, left: left{losses: 1}}
	lost := script(
		begin(1), claimed(1), []step{{op: sendData, epoch: 1}},
		begin(2), []step{{op: lose, n: 1, count: 1}, {op: landData, epoch: 1}},
		claimed(2), []step{{op: sendData, epoch: 2}, {op: landData, epoch: 2}},
	)
	expectWrong(t, b, rules{leadersNotWatched: true}, lost)
	s := expectFine(t, b, rules{}, lost, 2) // the owner cannot know better until it looks
	if s.owners[1].phase != running {
		t.Fatalf("the new owner noticed something: phase %d", s.owners[1].phase)
	}
	seen := script(lost, []step{{op: watch, epoch: 2, n: 1}})
	if s := expectFine(t, b, rules{}, seen); s.owners[1].phase != stopped {
		t.Fatalf("the new owner goes on: phase %d", s.owners[1].phase)
	}
	again := script(seen, begin(3))
	s = expectFine(t, b, rules{}, again, 1)
	m := newModel(b, rules{})
	if strays := m.replayAll(&s)[0].strays; strays != 1 {
		t.Errorf("%d strays, expected the batch at 2 alone", strays)
	}
}

// The target loses the end of its log with the new owner's marker, its first batch lands lower, and the coordinator's retry
// writes the marker again exactly where it was. By owner and sequence the last batch that was settled is in its place.
func TestTraceMarkerWrittenAgainWhereItWasLost(t *testing.T) {
	b := bounds{records: 2, parts: 1, owners: 3, window: 1, largest: 1, left: left{losses: 1, markers: 1}}
	send := func(e uint8) []step { return []step{{op: sendData, epoch: e}, {op: landData, epoch: e}} }
	steps := script(
		begin(1), []step{{op: settle, epoch: 1}}, claimed(1), send(1),
		[]step{{op: takeOver}, {op: writeMarker}, {op: writeMarkerTwice, n: 1}, {op: recoverOwner, epoch: 2}, {op: settle, epoch: 2}},
		claimed(2),
		[]step{{op: lose, n: 1, count: 2}}, send(2), []step{{op: landLate, n: oneLate}},
	)
	expectWrong(t, b, rules{settled: true, leaderNotCompared: true}, steps)
	expectFine(t, b, rules{settled: true}, script(steps, begin(3)), -1, -1) // both are copied again
}
