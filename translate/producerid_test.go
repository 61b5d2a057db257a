package translate

import (
	"math/rand/v2"
	"testing"
)

func TestProducerIDsOverGenerations(t *testing.T) {
	shown, err := Show(7, 3)
	if err != nil || shown != 7|3<<40 {
		t.Fatalf("%#x, %v", shown, err)
	}
	for current, want := range map[Generation]int64{2: shown, 3: shown, 4: shown, 5: shown | 5<<51, 6: shown | 6<<51, 2047: shown | 2047<<51} {
		got := OnCluster(shown, current)
		if got != want || got < 0 || got >= GapMarkerID {
			t.Errorf("generation %d: %#x, want %#x", current, got, want)
		}
		if StripTag(got) != shown {
			t.Errorf("generation %d: %#x was shown as %#x", current, got, StripTag(got))
		}
	}
}

func TestIDsThatWeDidNotIssuePassUnchanged(t *testing.T) {
	for _, id := range []int64{-1, -2, 0, 7, 1<<40 - 1, GapMarkerID, GapMarkerID | 5<<40, 9 << 51} {
		if OnCluster(id, 100) != id || StripTag(id) != id {
			t.Errorf("%#x became %#x and %#x", id, OnCluster(id, 100), StripTag(id))
		}
	}
	if tagged := int64(7 | 3<<40 | 9<<51); OnCluster(tagged, 100) != tagged {
		t.Error("an id that no client was shown got a second tag")
	}
}

func TestIDsThatDoNotFitAreRefused(t *testing.T) {
	for _, c := range []struct {
		id int64
		g  Generation
	}{{1 << 40, 1}, {7, 0}, {7, -1}, {7, 2048}} {
		if shown, err := Show(c.id, c.g); err == nil {
			t.Errorf("%d in generation %d is shown as %#x", c.id, c.g, shown)
		}
	}
	if shown, err := Show(-1, 5); shown != -1 || err != nil {
		t.Errorf("no id: %d, %v", shown, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("generation 2048 does not panic")
		}
	}()
	OnCluster(7|3<<40, 2048)
}

func TestNoTwoProducersShareAnIDOnACluster(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type producer struct{ shown, era int64 }
	seen := map[int64]producer{}
	for range 20_000 {
		g := Generation(1 + r.IntN(6))
		shown, _ := Show(int64(r.IntN(5)), g)
		current := g + Generation(r.IntN(5))
		id := OnCluster(shown, current)
		era := int64(0) // one id on a cluster belongs to one stay of one producer
		if current > g+1 {
			era = int64(current)
		}
		if was, ok := seen[id]; ok && was != (producer{shown, era}) {
			t.Fatalf("%#x is %v and %v", id, was, producer{shown, era})
		}
		seen[id] = producer{shown, era}
	}
}
