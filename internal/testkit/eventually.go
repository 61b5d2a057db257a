package testkit

import (
	"testing"
	"time"
)

// Eventually waits until ok says true, and fails the test with what ok last said when the deadline passes first.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}
