// Package engine puts the parts of switchback together: for each virtual cluster one Engine, with its proxy, its flow, its
// control logs and the driver of its cutovers; and Serve, which runs a whole configuration with the admin interface.
//
//	err := engine.Serve(ctx, cfg, engine.Options{Version: "1.0", Log: log}) // until ctx ends
//
// Data path of a start: Serve → connect (a client per cluster) → Engine.Run → load (the control record; the first time it
// is made, identity.go) → buildRoute (route.go) → proxy.Start → startFlow (flow.go) → Driver.Resume → watch.
// Of a cutover: the driver calls back by the adapters in seams.go; Publish builds the next route from the live flow,
// Reverse turns the flow round.
//
// Ownership: Run owns the proxy, the flow and the driver, and ends them in the order that clients notice least. What the
// admin interface reads is an immutable view behind Engine.mu.
package engine
