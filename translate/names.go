package translate

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Names is the naming policy of one virtual cluster on one cluster: a bijection between virtual topic names and those
// physical names that clients may see. The zero Names is the identity.
type Names struct {
	prefix    string            // physical = prefix + virtual
	toPhys    map[string]string // renames, virtual → physical; nil with a prefix
	toVirtual map[string]string
}

// IdentityNames leaves names as they are.
func IdentityNames() Names { return Names{} }

// PrefixNames puts prefix before every virtual name. Physical names without it are not visible.
func PrefixNames(prefix string) Names { return Names{prefix: prefix} }

// RenameNames renames the keys of virtualToPhysical and leaves other names as they are. Two virtual names with one physical
// name, and empty names, are errors; all of them are reported at once.
func RenameNames(virtualToPhysical map[string]string) (Names, error) {
	n := Names{toPhys: maps.Clone(virtualToPhysical), toVirtual: make(map[string]string, len(virtualToPhysical))}
	var errs []error
	for _, v := range slices.Sorted(maps.Keys(virtualToPhysical)) {
		p := virtualToPhysical[v]
		if v == "" || p == "" {
			errs = append(errs, fmt.Errorf("rename %q to %q: empty name", v, p))
			continue
		}
		if other, taken := n.toVirtual[p]; taken {
			errs = append(errs, fmt.Errorf("rename %q to %q: %q has that name already", v, p, other))
			continue
		}
		n.toVirtual[p] = v
	}
	if err := errors.Join(errs...); err != nil {
		return Names{}, err
	}
	return n, nil
}

// Physical is the name on the cluster. It is "" for a name that has none there: a physical name that another virtual name
// was renamed to (with a renamed to b, clients find b under the name a, and no topic under the name b). No cluster has a
// topic of an empty name, so a caller that passes it on is refused and reaches no topic of someone else.
func (n Names) Physical(virtual string) string {
	if p, ok := n.toPhys[virtual]; ok {
		return p
	}
	if _, taken := n.toVirtual[virtual]; taken || virtual == "" {
		return ""
	}
	return n.prefix + virtual
}

// Virtual is the name that clients see. ok is false for a name that is not visible to them: without the prefix, or taken by
// a rename (with a renamed to b, the physical name a).
func (n Names) Virtual(physical string) (virtual string, ok bool) {
	if v, ok := n.toVirtual[physical]; ok {
		return v, true
	}
	if _, renamed := n.toPhys[physical]; renamed {
		return "", false
	}
	virtual, ok = strings.CutPrefix(physical, n.prefix)
	if !ok || virtual == "" {
		return "", false
	}
	return virtual, true
}

// IsIdentity says whether no name is changed or hidden.
func (n Names) IsIdentity() bool { return n.prefix == "" && len(n.toPhys) == 0 }

// Filter selects names by regular expressions that match the whole name. The zero Filter selects every name.
type Filter struct {
	include, exclude []*regexp.Regexp
}

// NewFilter compiles a filter: a name is selected if one of include matches it, or include is empty, and none of exclude
// does. All mistakes are reported at once.
func NewFilter(include, exclude []string) (Filter, error) {
	in, inErr := compileWhole("include", include)
	ex, exErr := compileWhole("exclude", exclude)
	if err := errors.Join(inErr, exErr); err != nil {
		return Filter{}, err
	}
	return Filter{include: in, exclude: ex}, nil
}

func compileWhole(what string, patterns []string) ([]*regexp.Regexp, error) {
	var out []*regexp.Regexp
	var errs []error
	for _, p := range patterns {
		// Compiled alone first: "a)(b" is a mistake that the brackets would hide.
		if _, err := regexp.Compile(p); err != nil {
			errs = append(errs, fmt.Errorf("%s pattern %q: %w", what, p, err))
			continue
		}
		re, err := regexp.Compile(`\A(?:` + p + `)\z`)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s pattern %q: %w", what, p, err))
			continue
		}
		out = append(out, re)
	}
	return out, errors.Join(errs...)
}

// Match says whether name is selected.
func (f Filter) Match(name string) bool {
	matches := func(re *regexp.Regexp) bool { return re.MatchString(name) }
	return (len(f.include) == 0 || slices.ContainsFunc(f.include, matches)) && !slices.ContainsFunc(f.exclude, matches)
}

// IsInternal says whether a physical topic name is one of ours, which clients never see: journals, control, checkpoints.
// Kafka's own internal topics are not.
func IsInternal(name string) bool {
	source, isCheckpoints := strings.CutSuffix(name, ".checkpoints.internal")
	return strings.HasPrefix(name, "switchback.") || isCheckpoints && source != ""
}
