package translate

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesAreABijection(t *testing.T) {
	rename, err := RenameNames(map[string]string{"a": "b", "x": "y", "y": "x"})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"", "a", "b", "c", "x", "y", "blue.", "blue.a", "blue.blue.a", "__consumer_offsets"}
	for name, n := range map[string]Names{"identity": IdentityNames(), "prefix": PrefixNames("blue."), "rename": rename, "zero": {}} {
		var seen []string
		for _, v := range all {
			p := n.Physical(v)
			if p == "" {
				continue
			}
			if slices.Contains(seen, p) {
				t.Errorf("%s: two virtual names are %q", name, p)
			}
			seen = append(seen, p)
			if back, ok := n.Virtual(p); !ok || back != v {
				t.Errorf("%s: %q is %q, which is %q, %v", name, v, p, back, ok)
			}
		}
		for _, p := range all {
			if v, ok := n.Virtual(p); ok && n.Physical(v) != p {
				t.Errorf("%s: physical %q is %q, which is %q", name, p, v, n.Physical(v))
			}
		}
	}
}

func TestNamesThatClientsMayNotSee(t *testing.T) {
	rename, _ := RenameNames(map[string]string{"a": "b"})
	for _, c := range []struct {
		names    Names
		physical string
	}{
		{PrefixNames("blue."), "orders"}, {PrefixNames("blue."), "blue."}, {rename, "a"}, {IdentityNames(), ""},
	} {
		if v, ok := c.names.Virtual(c.physical); ok {
			t.Errorf("%q is visible as %q", c.physical, v)
		}
	}
	if p := rename.Physical("b"); p != "" {
		t.Errorf("b, which clients see as a, is reached as %q too", p)
	}
	if IdentityNames().IsIdentity() != true || rename.IsIdentity() || PrefixNames("p").IsIdentity() {
		t.Error("IsIdentity")
	}
}

func TestRenamesThatAreNoBijectionAreRefused(t *testing.T) {
	_, err := RenameNames(map[string]string{"a": "c", "b": "c", "d": "", "": "e"})
	for _, want := range []string{`"b" to "c"`, `"d" to ""`, `"" to "e"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestFiltersMatchWholeNames(t *testing.T) {
	f, err := NewFilter([]string{"orders", "pay.*|bill"}, []string{"payroll", ".*-tmp"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"orders": true, "orders2": false, "my-orders": false, "payments": true, "payroll": false,
		"bill": true, "billing": false, "pay-tmp": false, "payroll2": true, "": false, "orders\n": false} {
		if f.Match(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	if !(Filter{}).Match("anything") {
		t.Error("the zero filter does not match")
	}
	if only, _ := NewFilter(nil, []string{"x"}); !only.Match("y") || only.Match("x") {
		t.Error("exclude alone")
	}
	_, err = NewFilter([]string{"a)(b", "["}, []string{"*"})
	for _, want := range []string{`include pattern "a)(b"`, `include pattern "["`, `exclude pattern "*"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

func TestInternalNames(t *testing.T) {
	for name, want := range map[string]bool{"switchback.control": true, "switchback.blue.green.journal": true, "blue.checkpoints.internal": true,
		".checkpoints.internal": false, "checkpoints.internal": false, "__consumer_offsets": false, "switchback": false, "orders": false} {
		if IsInternal(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
