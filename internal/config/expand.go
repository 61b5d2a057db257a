package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand resolves every ${NAME} in text; $${ stands for ${ itself. Any other $ is left alone. What a variable holds is
// not looked at again.
func (d *decoder) expand(text, path string) (string, bool) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			out.WriteString(text)
			return out.String(), true
		}
		if escaped, ok := strings.CutSuffix(before, "$"); ok {
			out.WriteString(escaped + "${")
			text = rest
			continue
		}
		out.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !envName.MatchString(name) {
			d.problems.add(path, "write ${NAME}, or $${ for the two characters themselves", "a ${ begins no name of an environment variable")
			return "", false
		}
		value, set := d.around.lookupEnv(name)
		if !set || value == "" {
			d.problems.add(path, "export it before switchback starts", "the environment variable %s is not set or empty", name)
			return "", false
		}
		out.WriteString(value)
		text = after
	}
}

// nearest returns the candidate that a slip of the pen most likely meant, or empty if none is near.
func nearest(word string, candidates []string) string {
	best, bestDistance := "", 1+max(2, len(word)/2)
	for _, candidate := range candidates {
		if distance := editDistance(word, candidate, bestDistance); distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	return best
}

// editDistance counts single-character insertions, deletions and replacements from a to b; limit if there are that
// many or more. Words that differ by limit in length are not compared, which bounds the work for an absurd key.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return min(row[len(b)], limit)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
