// Package translate converts offsets, leader epochs, topic names, group offsets and producer ids between the virtual world
// that clients see and the physical one of a cluster. Nothing else converts them.
//
// It is pure: no I/O, no clock, no goroutine, no logger, no Kafka client; it imports the standard library alone, so other
// programs can use it to read a journal or to explain an offset.
//
//	m := translate.NewMap(100)                     // the source's log starts at 100
//	m, err := m.AppendMirrored(100, 0, 50)         // virtual [100, 150) landed at physical [0, 50)
//	m, err = m.Advance(152)                        // 150 and 151 are known to hold no record
//	m, err = m.OpenNative(152, 51)                 // the cutover: clients write here from virtual 152 on
//	a := m.ToPhysical(151)                         // Gap: the next record is virtual 152 = physical 51
//
// Files: offset.go has the types, map.go the map, its invariants and how it grows, lookup.go translation both ways, pack.go
// the packed form in memory, encode.go and tail.go the durable forms, epoch.go leader epochs, names.go topic names, commit.go
// group offsets and their precedence, producerid.go producer ids.
//
// Ownership: every value is immutable once returned. A Map that is appended to shares storage with its successor, which
// writes only where the older one cannot see; so one writer and any number of readers need no lock. Functions named
// Append… append to the caller's slice; Decode… and ApplyTail keep nothing of the bytes that they read.
//
// What it does not do: it does not know which cluster, topic id or generation a map belongs to (the journal does), and it
// never guesses. What is not known yet is an answer of its own: Unknown, NotYet, UnknownEpoch.
package translate
