package config

import "testing"

// FuzzParse: no panic, no environment and no file beyond what it is given, and what is accepted passes Validate again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{full, small, "", "a: [", "a: &a [*a]", "clusters: {a: {bootstrap: [':1']}}", "virtual_clusters: [{}, {topics: {naming: {rename: {a: b}}}}]", "admin: {token: file:x}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, problems := parse(data, closed())
		err := problems.err()
		if len(problems.list) > maxProblems {
			t.Fatalf("%d problems", len(problems.list))
		}
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		if again := c.Validate(); again != nil {
			t.Fatalf("accepted, then refused: %v", again)
		}
	})
}
