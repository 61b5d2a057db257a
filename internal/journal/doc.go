// Package journal records what landed where: for one flow (from → to) the topic `switchback.<from>.<to>.journal` on the
// target, one partition per slot.
//
//	parts, err := journal.Load(ctx, client, "blue", "green") // settled maps, for one who only reads
//
//	f := journal.NewFold()                                   // an owner of a slot, after its fence
//	for each batch of the slot's journal partition, up to the own marker { f.Journal(batch, records) }
//	for each of f's partitions, for each batch of its log from PhysicalEnd on, up to the own marker { p.Judge(batch) }
//	p.Finish()
//
// Data path: Fold.Journal accepts what the newest fence wrote and keeps claims; Partition.Judge compares the target's log
// with them. Landed = a batch in the log, under the newest marker and next in sequence, with a claim of the same id, epoch,
// sequence and count. Its offset is read from the log, never predicted. Anything else under our ids is a stray. The running
// owner uses the same Partition (Land, Advance), so a map that was built live and one that was replayed are built by the
// same steps.
//
// Fold and Partition are pure: no I/O, no clock. They are not safe for concurrent use; the owner of the slot owns them.
//
// Not done here: deciding who owns a slot, and writing (package replicator).
package journal
