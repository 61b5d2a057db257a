// Package control keeps the control topic, switchback.control: who is active, which generation, in which phase a cutover
// is, and what each cutover left behind per topic and per group.
//
//	blue, _ := control.Open(ctx, control.Config{Client: client, Cluster: "blue", VirtualCluster: "main", Names: []string{"main"}})
//	store := control.NewStore("main", map[string]*control.Log{"blue": blue, "green": green})
//	snapshot, err := store.Load(ctx) // of both logs; the highest generation wins
//	if err := store.Fence(ctx); err != nil { … } // from here on nobody else's records count
//	if err := store.Save(ctx, state); errors.Is(err, control.ErrFenced) { … } // somebody else drives
//
// The topic is compacted, LogAppendTime, with one partition per virtual cluster, and lies on both clusters of a virtual
// cluster. Keys:
//
//	state/<virtual cluster>            State
//	topic/<virtual cluster>/<topic>    Topic, the topic as clients see it
//	group/<virtual cluster>/<group>    Group
//	lease/…                            not of this package; no fence holds for it, and the fold leaves it out
//
// Values are JSON objects, see encode.go; a null value removes the key.
//
// Data path: Log.Read → reader (raw batches, from the log start to the high watermark) → fold (which records count) →
// decode → Snapshot. Log.Fence → InitProducerId, AddPartitionsToTxn, EndTxn(abort) → read until our own marker → Writer.
// Writer.Put → batches under our id, epoch and sequence, one in flight.
//
// # One writer
//
// On a compacted topic "append, then read back" is no compare-and-set: the loser stands later under the same key, and the
// cleaner removes the winner. So a writer fences by its transactional id: after it has read its own abort marker, brokers
// refuse what an older one sends, and readers count a record only if it is of the newest marker's producer id and epoch
// and next in sequence. A record is written when its ack is in; if the ack is lost, the same bytes are sent again before
// anything else; a sequence never means two batches.
//
// # Two logs
//
// One of them decides at a time: before Committed that of the active cluster, Committed itself is decided by the record
// on the target's log, which thereby becomes the active's. The other log gets a copy. A log that can be read but not be
// fenced counts for what it says and not for what it lacks: what was sent to it may still land.
//
// What it does not do: it holds no lease and drives no cutover.
package control
