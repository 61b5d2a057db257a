package journal

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/switchback-proxy/switchback/translate"
)

var tp = TP{"orders", 0}

// log is a log of one partition under construction: what a broker has, in order.
type log struct {
	next    translate.Physical
	batches []Batch
	records [][]Record
}

func (l *log) marker(o Owner) {
	l.batches = append(l.batches, Batch{Base: l.next, Next: l.next + 1, Owner: o, Sequence: -1, Marker: true})
	l.records = append(l.records, nil)
	l.next++
}

func (l *log) data(o Owner, sequence int32, n int, records ...Record) {
	l.batches = append(l.batches, Batch{Base: l.next, Next: l.next + translate.Physical(n), Owner: o, Sequence: sequence})
	l.records = append(l.records, records)
	l.next += translate.Physical(n)
}

func claim(o Owner, sequence int32, v translate.Virtual, n int32) Record {
	c := &Claim{Virtual: v, Records: n, Reach: v + translate.Virtual(n), Owner: o, Sequence: sequence, Predicted: -1,
		ConfirmedSequence: -1, ConfirmedOffset: -1}
	return Record{Key{KindClaim, tp, 0}.Encode(), c.Encode(nil)}
}

// recovered folds a journal and judges a data log, from what is known before.
func recovered(t *testing.T, journal, data *log) (*Fold, *Partition) {
	t.Helper()
	f := NewFold()
	for i, b := range journal.batches {
		if err := f.Journal(b, journal.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := f.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	p := parts[tp]
	if p == nil {
		p = NewPartition(tp, 0)
	}
	for _, b := range data.batches {
		p.Judge(b, f.Ours)
	}
	p.Finish()
	return f, p
}

func segments(p *Partition) []translate.Segment {
	var out []translate.Segment
	for s := range p.Map.Segments() {
		out = append(out, s)
	}
	return out
}

func wantRuns(t *testing.T, p *Partition, want ...translate.Segment) {
	t.Helper()
	if got := segments(p); !reflect.DeepEqual(got, want) {
		t.Fatalf("map %v, want %v", got, want)
	}
}

func run(v translate.Virtual, at translate.Physical, n int64) translate.Segment {
	return translate.Segment{Kind: translate.Mirrored, Virtual: v, Physical: at, Records: n}
}

var one, two = Owner{7, 1}, Owner{7, 2}

// PROTOCOL §3, A1.
func TestASecondMarkerMovesNothingButTheData(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	data.marker(one)
	data.marker(one) // the coordinator wrote it again
	data.data(one, 0, 3)
	data.marker(two)
	journal.marker(two)
	_, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 2, 3))
}

func TestWhatAZombieWroteBehindTheMarkerIsAStray(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	journal.marker(two)
	journal.data(two, 0, 1, claim(two, 0, 0, 3))
	journal.data(one, 1, 1, claim(one, 3, 3, 3)) // a zombie's claim
	data.marker(one)
	data.marker(two)
	data.data(one, 0, 3) // a zombie's data
	data.data(two, 0, 3)
	f, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 5, 3))
	if len(p.Strays) != 1 || p.Strays[0].Base != 2 || f.Refused != 1 {
		t.Fatalf("strays %v, refused %d", p.Strays, f.Refused)
	}
}

func TestDataWithoutAClaimIsAStrayAndTheNextBatchCounts(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 3, 0, 2))
	data.marker(one)
	data.data(one, 0, 3)
	data.data(one, 3, 2)
	_, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 4, 2))
	if len(p.Strays) != 1 {
		t.Fatalf("strays %v", p.Strays)
	}
}

func TestTheNewestOfTwoClaimsWins(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	journal.data(one, 1, 1, claim(one, 0, 10, 3))
	data.marker(one)
	data.data(one, 0, 3)
	_, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(10, 1, 3))
}

func TestAClaimThatNeverLandedIsCopiedAgain(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	journal.data(one, 1, 1, claim(one, 3, 3, 4))
	data.marker(one)
	data.data(one, 0, 3)
	_, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 1, 3))
	if p.Frontier() != 3 {
		t.Fatalf("frontier %d", p.Frontier())
	}
}

func TestAHoleInTheJournalIsAcceptedAndAHoleInTheSequenceAloneIsNot(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.next += 5 // the cleaner removed five records
	journal.data(one, 5, 1, claim(one, 0, 0, 3))
	journal.data(one, 8, 1, claim(one, 3, 3, 3)) // no hole in the offsets
	data.marker(one)
	data.data(one, 0, 3)
	data.data(one, 3, 3)
	f, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 1, 3))
	if f.Refused != 1 || len(p.Strays) != 1 {
		t.Fatalf("refused %d, strays %v", f.Refused, p.Strays)
	}
}

func TestBatchesThatRetentionRemovedLandByTheirConfirmation(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	c := &Claim{Virtual: 3, Records: 2, Reach: 6, Owner: one, Sequence: 3, Predicted: -1, ConfirmedSequence: 0, ConfirmedOffset: 1}
	journal.data(one, 1, 1, Record{Key{KindClaim, tp, 1}.Encode(), c.Encode(nil)})
	data.next = 4 // the log starts here: the marker at 0 and the batch at 1 are gone
	data.data(one, 3, 2)
	_, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 1, 5))
	if p.Frontier() != 6 {
		t.Fatalf("frontier %d", p.Frontier())
	}
}

func TestOnlyReachAdvancesOverAKnownGap(t *testing.T) {
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	gap := &Claim{Virtual: 3, Reach: 9, Owner: one, Sequence: 3, Predicted: -1, ConfirmedSequence: -1, ConfirmedOffset: -1}
	journal.data(one, 1, 1, Record{Key{KindClaim, tp, 1}.Encode(), gap.Encode(nil)})
	data.marker(one)
	data.data(one, 0, 3)
	_, p := recovered(t, &journal, &data)
	if p.Frontier() != 9 {
		t.Fatalf("frontier %d", p.Frontier())
	}
	// If what lies before it did not land, the gap is not known either.
	var short log
	short.marker(one)
	_, p = recovered(t, &journal, &short)
	if p.Frontier() != 0 {
		t.Fatalf("frontier %d", p.Frontier())
	}
}

func TestAnotherProducerIDTakesOver(t *testing.T) {
	other := Owner{99, 0}
	var journal, data log
	journal.marker(one)
	journal.data(one, 0, 1, claim(one, 0, 0, 3))
	journal.marker(other)
	journal.data(other, 0, 1, claim(other, 0, 3, 2))
	data.marker(one)
	data.data(one, 0, 3)
	data.marker(other)
	data.data(other, 0, 2)
	data.data(one, 3, 1) // the old id is not fenced
	_, p := recovered(t, &journal, &data)
	wantRuns(t, p, run(0, 1, 3), run(3, 5, 2))
	if len(p.Strays) != 1 {
		t.Fatalf("strays %v", p.Strays)
	}
}

func TestASettledRecordRoundTripsAndKeepsClaimsThatMayLand(t *testing.T) {
	p := NewPartition(tp, 5)
	o := one
	p.Judge(Batch{Base: 0, Next: 1, Owner: o, Sequence: -1, Marker: true}, func(int64) bool { return true })
	var sequence int32
	var journal log
	journal.marker(one)
	n := int32(0)
	write := func(r Record) { journal.data(one, n, 1, r); n++ }
	v := translate.Virtual(5)
	for i := range 5000 {
		c := &Claim{Virtual: v, Records: 2, Reach: v + 3, Owner: o, Sequence: sequence, ConfirmedSequence: -1, ConfirmedOffset: -1, AtMillis: 1,
			Sources: []Source{{v, 2, 1<<40 | int64(i%5), 0, int32(i / 5 * 2)}},
			Epochs:  []translate.EpochStart{{Epoch: translate.Epoch(i), Start: v}}}
		p.Claim(c)
		if err := p.Acked(c, p.PhysicalEnd, 3); err != nil {
			t.Fatal(err)
		}
		sequence, v = NextSequence(sequence, 2), v+3
		if value, number, record := p.Settle(); value != nil {
			if p.chunks != number {
				t.Fatalf("chunk %d is counted before it is written", number)
			}
			write(Record{Key{KindChunk, tp, number}.Encode(), value})
			p.Sealed()
			if !bytes.Equal(record, p.EncodeSettled(nil)) {
				t.Fatal("the settled record does not name its chunk")
			}
		}
	}
	p.SourceTopicID, p.TargetTopicID = [16]byte{1}, [16]byte{2}
	p.Strays = append(p.Strays, Stray{tp, 3, 4, two})
	write(claim(o, sequence-2, v-3, 2)) // landed already
	late := claim(o, sequence, v, 2)
	write(late)
	write(Record{Key{Kind: KindSettled, TP: tp}.Encode(), p.EncodeSettled(nil)})

	f := NewFold()
	for i, b := range journal.batches {
		if err := f.Journal(b, journal.records[i]); err != nil {
			t.Fatal(err)
		}
	}
	parts, err := f.Partitions()
	if err != nil {
		t.Fatal(err)
	}
	got := parts[tp]
	if len(got.pending) != 1 || got.pending[0].Sequence != sequence {
		t.Fatalf("pending %v", got.pending)
	}
	if !reflect.DeepEqual(segments(got), segments(p)) || got.Frontier() != p.Frontier() || p.chunks == 0 {
		t.Fatal("another map")
	}
	got.pending = nil
	if !reflect.DeepEqual(got.EncodeSettled(nil), p.EncodeSettled(nil)) {
		t.Fatal("encodes differently")
	}
	if at, verdict := got.Producers.Lookup(1<<40, 0, 1998, 1999); verdict != Known || at != 5+4995*3 {
		t.Fatalf("%v at %d", verdict, at)
	}
}

func TestALostTailIsCutOff(t *testing.T) {
	p := NewPartition(tp, 0)
	if err := p.PutNative([]Native{{Virtual: 0, End: 10, Physical: 0}}); err != nil {
		t.Fatal(err)
	}
	p.Judge(Batch{Base: 10, Next: 11, Owner: one, Sequence: -1, Marker: true}, func(int64) bool { return true })
	for i := range int32(3) {
		c := &Claim{Virtual: translate.Virtual(10 + 5*i), Records: 4, Reach: translate.Virtual(15 + 5*i), Owner: one, Sequence: 4 * i, ConfirmedSequence: -1}
		p.Claim(c)
		if err := p.Acked(c, p.PhysicalEnd, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.CutAt(17); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, p, translate.Segment{Kind: translate.Native, Records: 10}, run(10, 11, 4), run(15, 15, 2))
	if p.Frontier() != 17 || p.PhysicalEnd != 17 {
		t.Fatalf("frontier %d, physical end %d", p.Frontier(), p.PhysicalEnd)
	}
}

func TestProducersJudgeAsABrokerDoes(t *testing.T) {
	p := NewProducers()
	const last = 1<<31 - 1
	for i := range int32(7) {
		first := (last - 19 + 10*i) & last // wraps
		p.Add(1, 3, first, NextSequence(first, 9), translate.Virtual(100*i), 1)
	}
	at := func(i int32) int32 { return (last - 19 + 10*i) & last }
	for _, c := range []struct {
		epoch       int16
		first, last int32
		want        Verdict
		virtual     translate.Virtual
	}{
		{3, at(6), NextSequence(at(6), 9), Known, 600},
		{3, at(2), NextSequence(at(2), 9), Known, 200},
		{3, at(1), NextSequence(at(1), 9), Older, -1},
		{3, at(7), NextSequence(at(7), 9), Next, -1},
		{3, at(8), NextSequence(at(8), 9), Ahead, -1},
		{3, at(6), NextSequence(at(6), 4), Overlap, -1},
		{3, NextSequence(at(6), 5), NextSequence(at(7), 5), Overlap, -1},
		{2, 0, 5, OldEpoch, -1},
		{4, 0, 5, NewEpoch, -1},
	} {
		if v, got := p.Lookup(1, c.epoch, c.first, c.last); got != c.want || v != c.virtual {
			t.Errorf("%+v: %v at %d", c, got, v)
		}
	}
	if _, got := p.Lookup(2, 0, 0, 0); got != Unknown {
		t.Error(got)
	}
}

func TestAMarkerWrittenAgainWhereItWasLostIsAnotherOne(t *testing.T) {
	o := Owner{7, 2}
	marker := Batch{Base: 2, Next: 3, Owner: o, Sequence: -1, Marker: true, Epoch: 1}
	data := Batch{Base: 2, Next: 3, Owner: o, Sequence: 4, Epoch: 2}
	for name, c := range map[string]struct {
		b    Batch
		m    Mark
		want bool
	}{
		"the marker that was read":                   {marker, Mark{o, -1, 1}, true},
		"the marker again, under a later epoch":      {marker, Mark{o, -1, 0}, false},
		"a marker of which no epoch is known":        {marker, Mark{o, -1, -1}, true},
		"the data that was read":                     {data, Mark{o, 4, 2}, true},
		"acked under an epoch that was not seen yet": {data, Mark{o, 4, 1}, true},
		"other data":                         {data, Mark{o, 3, 2}, false},
		"data under an epoch that had ended": {data, Mark{o, 4, 3}, false},
		"an owner of another epoch":          {data, Mark{Owner{7, 1}, 4, 2}, false},
	} {
		if got := c.b.Is(c.m); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What lies between the end of the journal and a native run would be a gap to whoever reads the map.
func TestANativeRunAboveTheJournalIsRefused(t *testing.T) {
	p := NewPartition(tp, 0)
	if err := p.PutNative([]Native{{Virtual: 1, End: 10, Physical: 7}}); err == nil {
		t.Fatalf("a run at 1 was put behind 0: %v", segments(p))
	}
	if p.Frontier() != 0 || p.PhysicalEnd != 0 {
		t.Fatalf("a refused run changed the partition: %d, %d", p.Frontier(), p.PhysicalEnd)
	}
}
