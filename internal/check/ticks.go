package check

import (
	"maps"
	"math/bits"
	"slices"
)

const (
	tickPageWords = 128
	tickPageTicks = tickPageWords * 64 // one page spans 8,192 ms in 1 KB
)

// ticks is a set of milliseconds. The zero value is empty.
type ticks struct {
	pages map[int64]*[tickPageWords]uint64
}

func (t *ticks) add(millis int64) {
	page, bit := floorDiv(millis, tickPageTicks)
	words := t.pages[page]
	if words == nil {
		if t.pages == nil {
			t.pages = make(map[int64]*[tickPageWords]uint64)
		}
		words = new([tickPageWords]uint64)
		t.pages[page] = words
	}
	words[bit/64] |= 1 << (bit % 64)
}

func (t *ticks) addAll(other *ticks) {
	for page, words := range other.pages {
		mine := t.pages[page]
		if mine == nil {
			if t.pages == nil {
				t.pages = make(map[int64]*[tickPageWords]uint64)
			}
			mine = new([tickPageWords]uint64)
			t.pages[page] = mine
		}
		for i, w := range words {
			mine[i] |= w
		}
	}
}

// each calls f for every member in rising order.
func (t *ticks) each(f func(millis int64)) {
	for _, page := range slices.Sorted(maps.Keys(t.pages)) {
		for i, w := range t.pages[page] {
			for ; w != 0; w &= w - 1 {
				f(page*tickPageTicks + int64(i*64+bits.TrailingZeros64(w)))
			}
		}
	}
}

// window is the half-open span [start, end) of Unix milliseconds in which pauses and rebalances count. An absent bound is
// open: pauses then begin with the first event and end with the last.
type window struct {
	start, end       int64
	hasStart, hasEnd bool
}

func (w window) holds(millis int64) bool {
	return (!w.hasStart || millis >= w.start) && (!w.hasEnd || millis < w.end)
}

// longestPause is the longest span in w without a member of t. A bound of the window counts like a member, so who falls silent
// for good before the end is found.
func (t *ticks) longestPause(w window) Pause {
	var longest Pause
	last, any := w.start, w.hasStart
	step := func(millis int64) {
		if any && millis-last > longest.Millis {
			longest = Pause{Millis: millis - last, At: last}
		}
		last, any = millis, true
	}
	t.each(func(millis int64) {
		if w.holds(millis) {
			step(millis)
		}
	})
	if w.hasEnd {
		step(w.end)
	}
	return longest
}

// floorDiv returns quotient and rest of a/b, the rest in [0, b).
func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		return quotient - 1, rest + b
	}
	return quotient, rest
}
