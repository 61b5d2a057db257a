package lint

// rule says what a package may import of this module.
type rule struct {
	imports []string // by path inside the module; the leaves are always allowed unless the package is one
	leaf    bool     // imports none of ours
	any     bool     // imports whatever it likes
}

// packages is the map: path inside the module → rule. A path that ends in /... stands for all below it.
// Imports go one way: leaves, then journal and control, then proxy and replicator, which never see each other, then
// cutover, which knows those two only by interfaces of its own, then admin; cmd and demo put them together.
func packages() map[string]rule {
	return map[string]rule{
		"translate":       {leaf: true},
		"internal/wire":   {leaf: true},
		"internal/batch":  {leaf: true},
		"internal/obs":    {leaf: true},
		"internal/config": {leaf: true},
		"internal/check":  {leaf: true},
		"internal/mm2":    {leaf: true},
		"internal/lint":   {leaf: true},

		"internal/journal": {},
		"internal/control": {},
		"internal/testkit": {},
		"internal/model":   {imports: []string{"internal/journal"}},

		"proxy":      {imports: []string{"internal/journal", "internal/control"}},
		"replicator": {imports: []string{"internal/journal", "internal/control"}},

		"internal/cutover": {imports: []string{"internal/journal", "internal/control"}},
		"internal/admin":   {imports: []string{"internal/cutover", "internal/control"}},

		// engine puts the parts of one virtual cluster together, for cmd and demo.
		"internal/engine": {any: true},
		"cmd/switchback":  {any: true},
		"internal/demo":   {any: true},
		"test":            {any: true},
		"test/...":        {any: true},
	}
}

// forTests are what the tests of any package but a leaf's may import besides.
func forTests() []string { return []string{"internal/testkit", "internal/check"} }

const (
	maxFileLines     = 800
	maxFunctionLines = 120 // without table literals
)

// mutableGlobals are the package-level variables that are neither error, pattern nor table, each with its reason.
func mutableGlobals() map[string]string {
	return map[string]string{
		"cmd/switchback.version": "set by the linker",
		"cmd/switchback.commit":  "set by the linker",
	}
}

// sleeps are the functions that may call time.Sleep, as package.function, each with its reason.
func sleeps() map[string]string { return map[string]string{} }
