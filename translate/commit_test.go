package translate

import "testing"

func TestGroupOffsetsToPhysical(t *testing.T) {
	mirrored := must2(must2(NewMap(5).AppendMirrored(5, 1, 10)).AppendMirrored(17, 12, 3)) // gap [15, 17), marker at 11
	withTail := must2(mirrored.Advance(25))
	native := must2(withTail.OpenNative(30, 18))
	for _, c := range []struct {
		name   string
		m      *Map
		v      Virtual
		logEnd Physical
		want   Physical
		status Status
	}{
		{"C11: 0 is the first record at or after 0", mirrored, 0, 16, 1, OK},
		{"C11: -1 is no offset", mirrored, -1, 16, -1, None},
		{"C11: exact", mirrored, 9, 16, 5, OK},
		{"in a gap", mirrored, 16, 16, 12, OK},
		{"at the end: the log end, behind trailing markers", mirrored, 20, 16, 16, OK},
		{"in a tail gap: the log end", withTail, 22, 16, 16, OK},
		{"C14: beyond the data: the log end, and not yet", mirrored, 21, 16, 16, NotYet},
		{"C14: a record that the log does not have yet", mirrored, 19, 13, 13, NotYet},
		{"C14: above an open segment's log end", native, 40, 20, 20, NotYet},
		{"an open segment's log end", native, 32, 20, 20, OK},
		{"a forced jump", native, 25, 18, 18, OK},
		{"C09: emptied by retention, at the end", NewMap(100), 100, 3, 3, OK},
		{"C09: emptied by retention, below the log start", NewMap(100), 40, 3, 3, OK},
		{"C09: beyond", NewMap(100), 101, 3, 3, NotYet},
		{"identity", Identity(), 7, 9, 7, OK},
	} {
		if got, status := CommitToPhysical(c.m, c.v, c.logEnd); got != c.want || status != c.status {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, got, status, c.want, c.status)
		}
	}
}

func TestGroupOffsetsToVirtual(t *testing.T) {
	m := must2(must2(must2(NewMap(5).AppendMirrored(5, 1, 10)).AppendMirrored(17, 12, 3)).Advance(25))
	for _, c := range []struct {
		p      Physical
		want   Virtual
		status Status
	}{{-1, -1, None}, {0, 5, OK}, {1, 5, OK}, {10, 14, OK}, {11, 17, OK}, {14, 19, OK}, {15, 25, OK}, {18, 25, OK}} {
		if got, status := CommitToVirtual(m, c.p); got != c.want || status != c.status {
			t.Errorf("%d: %d, %v; want %d, %v", c.p, got, status, c.want, c.status)
		}
	}
}

// A translated commit names the same next record, on every snapshot of a random history.
func TestATranslatedCommitMeansTheSameNextRecord(t *testing.T) {
	for seed := range uint64(40) {
		pick := seeded(seed)
		h := newHistory(pick)
		for range 40 {
			if err := h.step(pick); err != nil {
				t.Fatal(err)
			}
		}
		logEnd := h.m.PhysicalEnd() + 2
		last := Physical(-1)
		for v := Virtual(0); v < h.o.frontier+5; v++ {
			p, status := CommitToPhysical(h.m, v, logEnd)
			if p > logEnd || p < last {
				t.Fatalf("seed %d: %d became %d, after %d, log end %d", seed, v, p, last, logEnd)
			}
			last = p
			if status != OK {
				continue
			}
			back, _ := CommitToVirtual(h.m, p)
			if back < v || h.m.ToPhysical(back).Kind == Gap || h.m.ToPhysical(back).Virtual != h.m.ToPhysical(v).Virtual && v >= h.o.start {
				t.Fatalf("seed %d: %d became %d and back %d", seed, v, p, back)
			}
		}
	}
}

func TestPrecedenceOfGroupOffsets(t *testing.T) {
	native := func(g Generation, v Virtual) Commit { return Commit{NativeCommit, g, v} }
	checkpoint := func(g Generation, v Virtual) Commit { return Commit{CheckpointCommit, g, v} }
	for _, c := range []struct {
		name         string
		older, newer Commit
		want         Commit
	}{
		{"C13: a late checkpoint of the old era", native(2, 5000), checkpoint(1, 9000), native(2, 5000)},
		{"C13: a reset to 0", native(2, 5000), native(2, 0), native(2, 0)},
		{"C13: a deletion", native(2, 5000), native(2, -1), native(2, -1)},
		{"C13: a checkpoint after a deletion", native(2, -1), checkpoint(1, 3000), native(2, -1)},
		{"native beats checkpoint of the same era", native(1, 10), checkpoint(1, 99), native(1, 10)},
		{"native after checkpoint", checkpoint(1, 99), native(1, 10), native(1, 10)},
		{"the newer checkpoint", checkpoint(1, 99), checkpoint(1, 10), checkpoint(1, 10)},
		{"failback: a checkpoint of the later era", native(1, 10), checkpoint(2, 500), checkpoint(2, 500)},
		{"nothing older", Commit{}, checkpoint(1, 5), checkpoint(1, 5)},
		{"nothing newer", checkpoint(1, 5), Commit{}, checkpoint(1, 5)},
	} {
		if got := Prefer(c.older, c.newer); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
