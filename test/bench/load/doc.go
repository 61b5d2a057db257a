// Package load is a Kafka client that costs next to nothing, so that on a small machine the proxy under test and not the client
// sets the pace. It speaks raw frames: a consumer reads the headers of a Fetch answer and throws the record bytes away; a producer
// sends frames that were built once, with sequences and checksums patched in.
//
//	result, err := load.Run(ctx, load.Job{Work: load.Consume, Bootstrap: addr, Topic: "t", Clients: 1, Window: 3 * time.Second}, nil)
//
// It behaves as a Java client with default settings does where that matters to a proxy: one connection per client and broker, one
// Fetch in flight of at most 1 MiB per partition and 50 MiB in all, incremental fetch sessions, five Produce requests in flight of
// at most 1 MiB, idempotent batches of 16 KiB, acks=all.
//
// What it does not do: groups, retries, metadata refresh. An error ends the run.
package load
