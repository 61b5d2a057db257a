package config

import (
	"fmt"
	"regexp"
	"strings"
)

const (
	maxNameLength  = 64  // of a cluster or virtual cluster: two of them and our own words fit in a topic name
	maxTopicLength = 249 // Kafka's
)

// checkName judges the name of a cluster or virtual cluster. A dot would make flow names ambiguous: a.b.c could be the
// flow from a to b.c, or from a.b to c.
func checkName(p *collector, path, name string) {
	bad := strings.ContainsFunc(name, func(r rune) bool { return !isAlphanumeric(r) && r != '-' && r != '_' })
	if bad || name == "" || len(name) > maxNameLength {
		p.add(path, fmt.Sprintf("use up to %d letters, digits, - and _; it becomes a part of topic names", maxNameLength), "%q cannot be a name", name)
	}
}

func isTopicName(name string) bool {
	bad := strings.ContainsFunc(name, func(r rune) bool { return !isAlphanumeric(r) && !strings.ContainsRune("._-", r) })
	return !bad && name != "" && name != "." && name != ".." && len(name) <= maxTopicLength
}

func validateNaming(p *collector, path string, v VirtualCluster) {
	n := v.Topics.Naming
	if n.Prefix != "" && len(n.Rename) > 0 {
		p.add(path, "use one of them", "there is a prefix and a rename")
		return
	}
	if n.Prefix != "" && !isTopicName(n.ResolvedPrefix(v.Active)+"x") {
		p.add(path+".prefix", "use letters, digits, dots, - and _, and "+SourcePlaceholder+" for the source's name", "%q cannot begin a topic name", n.Prefix)
	}
	taken := make(map[string]string) // on the standby → as clients see it
	for _, seen := range sortedKeys(n.Rename) {
		there := n.Rename[seen]
		at := join(path+".rename", seen)
		for _, name := range []string{seen, there} {
			if !isTopicName(name) {
				p.add(at, fmt.Sprintf("up to %d letters, digits, dots, - and _", maxTopicLength), "%q cannot be a topic name", name)
			}
		}
		if other, double := taken[there]; double {
			p.add(at, "each topic needs a name of its own", "topic %s is renamed to %s too", other, there)
		}
		taken[there] = seen
	}
}

// ResolvedPrefix is the prefix for topics whose first active cluster is source.
func (n Naming) ResolvedPrefix(source string) string {
	return strings.ReplaceAll(n.Prefix, SourcePlaceholder, source)
}

func checkPatterns(p *collector, path string, include, exclude []string) {
	if len(include) == 0 {
		p.add(path+".include", `write include: [".*"] for all`, "nothing is included")
	}
	for key, patterns := range map[string][]string{"include": include, "exclude": exclude} {
		for i, pattern := range patterns {
			if _, err := compileWhole(pattern); err != nil {
				p.add(fmt.Sprintf("%s.%s[%d]", path, key, i), "regular expressions are Go's (RE2)", "%q: %v", pattern, err)
			}
		}
	}
}

func compileWhole(pattern string) (*regexp.Regexp, error) {
	if _, err := regexp.Compile(pattern); err != nil { // alone first: "a)(b" is a mistake that the brackets below would hide
		return nil, err
	}
	return regexp.Compile(`^(?:` + pattern + `)$`)
}
