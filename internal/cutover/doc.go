// Package cutover moves a virtual cluster from its active cluster to its standby, in recorded phases.
//
//	driver := cutover.New(cutover.Config{VirtualCluster: "main", Records: store, Gate: proxy, Flow: flow, …})
//	driver.Resume(snapshot)                                        // what an earlier process left open
//	id, err := driver.Start(ctx, cutover.Order{To: "green", MaxPause: 30 * time.Second})
//	events, stop := driver.Subscribe(id)                           // a State per change, until Done or Aborted
//
// Data path: Driver.Start → run.loop → step (one function per phase, phases.go) → Records.Save → the next phase. The eras
// that a move adds are made in eras.go, which is pure.
//
// The rules:
//   - A phase is recorded before it begins, may be repeated, and ends on what was observed.
//   - Before Committed the only way out is back: an error, an operator's abort, a pause longer than allowed, the end of the
//     process. Going back opens the gate first and has its own deadline.
//   - From Committed on the only way is forward: a step that fails is tried again until it succeeds.
//   - If the outcome of writing Committed is unknown, only the record, read again behind a new fence, says which it is. The
//     gate stays shut until then.
//   - After any end nothing is held.
//
// Ownership: one goroutine drives one cutover, and one cutover runs at a time; what others see of it are copies.
//
// It knows the proxy and the replicator only by the interfaces in seams.go. It does not choose when to move, and it does
// not move by force.
package cutover
