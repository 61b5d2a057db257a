// Package proxy is the data plane: sessions of clients, links to brokers, and one literal table that says what is done
// with each Kafka API, so that clients see one virtual cluster whichever cluster serves them.
//
//	p, err := proxy.New(proxy.Config{VirtualCluster: "main", Listen: ":9092", …})
//	err = p.Start(ctx, proxy.Route{Generation: 1, Active: "blue", Standby: "green", Identity: identity})
//	…
//	err = p.Hold(ctx)      // a cutover: the gate shuts, clients wait
//	err = p.Drain(ctx)     // every answer of a held class is in
//	p.Publish(next)        // the new route
//	p.Release()            // held calls go to the new cluster
//
// Data path, by function: session.readLoop takes a frame, session.start sends it through the gate, the row of apis rewrites
// it to physical, session.issue writes it to the link of the right broker and puts the call into the queue; session.writeLoop
// takes calls in request order, reads each answer from its link, rewrites it to virtual and writes it to the client.
//
// Ownership: the two goroutines of a session own its buffers; the read side of a link belongs to writeLoop, the write side
// to whoever holds session.sending. A Route and all that it points to is immutable. A call is owned by readLoop until it is
// in the queue, by writeLoop afterwards.
//
// Not done here: transactions (their keys are hidden), KIP-848, share and streams groups, SASL of clients; see apis.go.
package proxy
