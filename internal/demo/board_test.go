package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestTheLiveLineFitsIntoEightyColumns(t *testing.T) {
	var out strings.Builder
	b := newBoard(&out, false)
	b.started = time.Now().Add(-999 * time.Second)
	line := b.wording(green, "Translating", 99_999, 99_999, 9_999, 9)
	if n := utf8.RuneCountInString(line); n > 80 {
		t.Errorf("%d columns: %s", n, line)
	}
	b.terminal = true
	b.draw(line)
	if got := out.String(); !strings.HasPrefix(got, clearLine+wrapOff) || !strings.HasSuffix(got, wrapOn) {
		t.Errorf("a line to draw over is not cut by the terminal: %q", got)
	}
}
