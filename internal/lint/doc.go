// Package lint holds the rules that the code of this module keeps, as a test: which package may import which, how long
// files and functions may be, and a few things that do not occur. It reads every Go file of the module whatever its
// build tags. A package that is not in the map (packages.go) fails the test: put it there, with what it may import.
package lint
