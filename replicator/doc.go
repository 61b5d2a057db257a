// Package replicator copies the topics of one cluster to another, exactly once, and knows for each record where it landed.
//
//	flow := replicator.New(replicator.Config{From: "blue", To: "green", Source: blue, Target: green, Generation: 1})
//	go flow.Run(ctx)                                  // until ctx ends
//	err := flow.Refresh(ctx)                          // every partition of the source has a pump now
//	ends, err := flow.Ends(ctx)
//	err = flow.Reach(ctx, ends, nil)                  // every pump has passed its end
//	sealed, err := flow.Seal(ctx)                     // nothing of this flow is written any more
//	m, ok := flow.Map(journal.TP{Topic: "orders"})
//
// Data path: fetcher.run → feed → pump.run: take (check, rewrite), claim, produce, publish. slot.run owns the slot that the
// pump belongs to: own → fence → replay → recover → run pumps → lose.
//
// Ownership: one goroutine runs a slot and, while it owns it, one runs each of its pumps, which alone changes the pump's
// journal.Partition. A fetcher per source broker fills feeds; a sender per target broker gathers what pumps and appenders
// have ready into produce requests. One request per partition is in flight.
//
// Not done here: deciding which direction a flow has, and when it ends (internal/cutover).
package replicator
