// Package config reads the one YAML file of switchback: strictly, with its secrets, and with every mistake at once.
//
//	cfg, err := config.Load("/etc/switchback/switchback.yaml")
//	if err != nil {
//		fmt.Fprintln(os.Stderr, err) // one line per mistake: file, line, path, what is wrong, what to do
//		os.Exit(2)
//	}
//
// Data path: [Load] → [Parse] → decoder (YAML nodes onto structs, unknown keys refused, ${ENV} and file: resolved) →
// derive (defaults that depend on other values) → [Config.Validate] → [Config.CheckFiles].
//
// The defaults are all in defaults.go. A value that is written in the file is never replaced by a default, so an
// explicit 0 is judged as 0. A [Config] is plain data: nothing here opens a connection or starts a goroutine, and
// nothing here is shared with the packages that do the work; cmd fills their own config structs from it.
package config
