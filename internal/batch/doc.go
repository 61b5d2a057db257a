// Package batch reads and changes Kafka record batches where they lie.
//
// A batch is a []byte; [Header] is a view of its first 61 bytes. What the proxy and the replicator need on their main
// paths touches only that header, never the records:
//
//	it := batch.Iter(records)              // the records field of a Fetch answer
//	for it.Next() {
//		b := it.Batch()                // a view, valid as long as records is
//		batch.Patch(b, virtual, epoch) // the 12 bytes outside the CRC
//	}
//	if err := it.Err(); err != nil { … }   // garbage; a cut off last batch is it.Truncated(), not an error
//
//	batch.Rewrite(b, 0, batch.Producer{ID: id, Epoch: 3, FirstSequence: seq})
//
// What has to look at records goes through [Codecs], which owns the decompressors and the bound on what they may
// produce: Decode, Encode, SplitHoles, ToCreateTime, Coalesce, DecodeLegacy, Upgrade.
//
// Ownership: a function that takes a batch never keeps it. Setters, Patch, SetProducer and Rewrite write into the given
// bytes; everything else leaves its input alone. Each function that returns bytes says whether they are a view.
//
// Not done here: conversion of offsets (a base offset is a bare int64 here, its side is the caller's), down conversion
// to formats 0 and 1, writing of any legacy format.
package batch
