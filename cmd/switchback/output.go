package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

func printJSON(w io.Writer, body any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(body)
}

// isTerminal says whether people look at w, who have not asked for plain text.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// painter colours text on a terminal and leaves it alone elsewhere.
type painter struct{ on bool }

func (p painter) paint(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p painter) red(text string) string    { return p.paint("31", text) }
func (p painter) green(text string) string  { return p.paint("32", text) }
func (p painter) yellow(text string) string { return p.paint("33", text) }
func (p painter) bold(text string) string   { return p.paint("1", text) }
func (p painter) soft(text string) string   { return p.paint("2", text) }

// health colours a health by its own name.
func (p painter) health(h string) string {
	switch h {
	case "green":
		return p.green(h)
	case "yellow":
		return p.yellow(h)
	}
	return p.red(h)
}

// state colours a state of a partition or group.
func (p painter) state(s string) string {
	switch s {
	case "CaughtUp", "ok", "Sealed":
		return p.green(s)
	case "Stopped", "blocked":
		return p.red(s)
	}
	return p.yellow(s)
}

// table prints columns that are as wide as they need to be. Cells may be coloured; right says which columns are numbers.
type table struct {
	head  []string
	right []bool
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print(w io.Writer, p painter, indent string) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], visible(cell))
		}
	}
	head := make([]string, len(t.head))
	for i, h := range t.head {
		head[i] = p.soft(h)
	}
	for _, row := range append([][]string{head}, t.rows...) {
		line := indent
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-visible(cell))
			if t.right[i] {
				line += pad + cell + "  "
			} else {
				line += cell + pad + "  "
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// visible is the width of text without its colours.
func visible(text string) int {
	n := utf8.RuneCountInString(text)
	for rest := text; ; {
		i := strings.IndexByte(rest, '\x1b')
		if i < 0 {
			return n
		}
		end := strings.IndexByte(rest[i:], 'm')
		if end < 0 {
			return n
		}
		n -= end + 1
		rest = rest[i+end+1:]
	}
}

// millis shows a duration as people say it.
func millis(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", ms)
	case d < 2*time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// number groups thousands.
func number(n int64) string {
	if n < 0 {
		return "-" + number(-n)
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
