package translate

import "fmt"

// Status says what a translated group offset is worth.
type Status uint8

const (
	NotYet Status = iota // the right answer is not known yet; ask again when the map has grown
	OK                   // exact: the next record is the same on both sides
	None                 // there is no offset
)

func (s Status) String() string {
	switch s {
	case NotYet:
		return "not yet"
	case OK:
		return "ok"
	case None:
		return "none"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// CommitToPhysical translates a committed offset v to the cluster of m, whose log ends at logEnd (exclusive).
//
// logEnd must belong to m: no record of the virtual log lies in [m.PhysicalEnd(), logEnd) unless a native segment is open.
// Read the log end first and take the map of everything below it afterwards. A caller that cannot do so passes
// m.PhysicalEnd(), which is right too, but may lie below trailing markers and then looks like lag. Where the log end does
// not matter, because the cluster takes the commit of a client of its own era, pass MaxOffset with an open segment only.
//
//   - In a segment or before one: the place of the first record at or after v. So 0 is the first record at or after 0.
//   - Nothing known at or after v, and v at most the frontier: the log end. An emptied partition stands there, with lag 0.
//   - Beyond the frontier: NotYet. The offset returned with it is the log end, where the group may stand meanwhile.
//   - Never beyond the data: a result above logEnd becomes logEnd and NotYet.
//   - v < 0: None, and -1.
func CommitToPhysical(m *Map, v Virtual, logEnd Physical) (Physical, Status) {
	if v < 0 {
		return -1, None
	}
	a := m.ToPhysical(v)
	switch {
	case a.Kind == Unknown:
		return logEnd, NotYet
	case a.Physical > logEnd:
		return logEnd, NotYet
	case a.Segment.Records == 0: // nothing follows
		return logEnd, OK
	}
	return a.Physical, OK
}

// CommitToVirtual translates an offset that a group has on the cluster of m: the first record of the virtual log at or
// after p. At or above the physical end, where only markers, strays and orphans can be, it is the frontier: at worst
// records are read again that m does not list yet, never one skipped. p < 0: None, and -1.
func CommitToVirtual(m *Map, p Physical) (Virtual, Status) {
	if p < 0 {
		return -1, None
	}
	return m.ToVirtual(p).Virtual, OK
}

// CommitOrigin says where a group's offset comes from. A higher one has precedence.
type CommitOrigin uint8

const (
	NoCommit         CommitOrigin = iota // nothing is known of the group on this partition
	CheckpointCommit                     // translated by us from a commit on the other cluster
	NativeCommit                         // committed, reset or deleted on the cluster itself
)

// Commit is what one source says of a group's offset on one partition.
type Commit struct {
	Origin     CommitOrigin
	Generation Generation // in which the commit was made; for a checkpoint, that of the commit it translates
	Virtual    Virtual    // -1: deleted, or committed as "no offset"
}

// Prefer returns the commit that counts, of two in the order in which they happened. A commit of a later generation counts
// more, since only the active cluster of a generation takes commits. Within one generation a native commit always beats a
// checkpoint, be it a reset to a lower offset or a deletion. Otherwise the newer one counts: the order of events
// decides, never the higher number.
func Prefer(older, newer Commit) Commit {
	switch {
	case newer.Origin == NoCommit:
		return older
	case older.Origin == NoCommit:
		return newer
	case older.Generation != newer.Generation:
		if older.Generation > newer.Generation {
			return older
		}
	case older.Origin > newer.Origin:
		return older
	}
	return newer
}
