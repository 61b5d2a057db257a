// Package model explores the replication protocol: breadth first, every state within small bounds, all interleavings.
//
//	m := newModel(bounds{records: 2, owners: 2, breaks: 1}, rules{})
//	r := m.search(0) // r.bad: the shortest trace to a state that must not be; nil: none
//
// What a state is: the source's log starts, the logs of the slot's journal partition and of one or two data partitions, what
// the coordinator gave out, each owner's memory, and requests of broken links that may still arrive. One owner stands for one
// epoch. A crash, a pause and a fence anew are all the same to the model: the next epoch is given out, and the owner before
// goes on as a zombie whenever and as far as it likes. So does a slot whose seal is prepared: it has its next epoch, and writes under
// the old one until the marker.
//
// Brokers (broker_test.go): sequence check, duplicates among the last five batches, epochs fenced by markers and by batches,
// a producer that is not known may begin with any sequence, producer state rebuilt from the log after an election. Owners
// (owner_test.go): the rules for the owner of a slot, each step on its own. Judging (judge_test.go): the logs are encoded,
// decoded and judged by journal.Fold and journal.Partition, which is the code that the product runs.
//
// What may happen, each within its bound: a link breaks with requests on it, which land late or never; the coordinator
// writes a marker twice; retention removes records of the source; an unclean election loses the end of a log, also markers;
// a broker forgets the producer of old records; an owner gives up claims whose data was never sent, or settles.
//
// Checked in every state: what was published is found by a replay, in its place; a replay maps no record to the place of
// another; no stray is in the map; the live map of the newest owner agrees with the replay, once it has seen the newest
// leader epochs. At rest, when the newest owner has reached the end: every record that the source still has is in the map,
// and the live map is the replayed one. Published places never change, except where an election lost them.
//
// Each rule can be switched off (type rules); a test per switch shows that the model finds what the rule is there for.
//
// Not covered: retention and compaction of the target's logs (holes), more than one election per log, a slot that goes on
// from memory after it was sealed, source divergence, foreign writers, more than one slot, another producer id for the slot,
// EndTxn v5, claims without records, sequences that wrap, and that anything happens in time.
package model
