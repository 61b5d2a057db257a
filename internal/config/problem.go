package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a file.
type Problem struct {
	Path string // YAML path, such as virtual_clusters[0].listen; empty for the file as a whole
	Line int    // from 1; 0 if not known
	Text string // what is wrong
	Hint string // what to do; may be empty
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Path != "" {
		fmt.Fprintf(&b, "%s: ", p.Path)
	}
	b.WriteString(p.Text)
	if p.Hint != "" {
		fmt.Fprintf(&b, " (%s)", p.Hint)
	}
	return b.String()
}

// Problems is the error of this package: every mistake found, in the order of the file. Never empty as an error.
type Problems struct {
	File string // empty if the text did not come from a file
	List []Problem
}

// Error has one line per mistake.
func (p *Problems) Error() string {
	lines := make([]string, len(p.List))
	for i, one := range p.List {
		lines[i] = one.String()
		if p.File != "" {
			lines[i] = p.File + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// collector gathers problems; a path is judged once, so that a value that could not be read is not blamed again.
type collector struct {
	lines  map[string]int
	list   []Problem
	judged map[string]bool // paths that have a problem
}

// maxProblems bounds what a file of nothing but mistakes costs.
const maxProblems = 1000

func (c *collector) add(path, hint, format string, args ...any) {
	if c.judged[path] {
		return
	}
	c.put(Problem{Path: path, Line: c.line(path), Text: fmt.Sprintf(format, args...), Hint: hint})
}

func (c *collector) put(p Problem) {
	if len(c.list) >= maxProblems {
		return
	}
	if c.judged == nil {
		c.judged = make(map[string]bool)
	}
	c.judged[p.Path] = p.Path != ""
	c.list = append(c.list, p)
}

// line is that of the path, or of the nearest thing around it that the file has.
func (c *collector) line(path string) int {
	for path != "" {
		if n, ok := c.lines[path]; ok {
			return n
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// err is nil or *Problems, sorted by line; what has no line comes first.
func (c *collector) err() error {
	if len(c.list) == 0 {
		return nil
	}
	slices.SortStableFunc(c.list, func(a, b Problem) int { return a.Line - b.Line })
	return &Problems{List: c.list}
}
