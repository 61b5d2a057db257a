package model

import (
	"fmt"
	"strings"
)

// Sizes of a state. The bounds of a search are smaller.
const (
	capOwners  = 3
	capData    = 2           // data partitions
	capLogs    = capData + 1 // the journal is log 0, data partition n is log n+1
	capRecords = 3           // of the source, by partition
	capLog     = 11          // batches
	capWindow  = 2
	capLate    = 4
)

type kind uint8

const (
	nothing kind = iota
	marker
	claim
	settled
	data
)

// batch is a batch in a log, or in a request. All of it is small numbers, so that a state can be compared and hashed.
type batch struct {
	kind       kind
	epoch, seq uint8
	first      uint8 // claim, data: the records [first, first+count) of the source. settled: high byte of its number
	count      uint8
	part       uint8 // claim: of this data partition
	dataSeq    uint8 // claim: the data's first sequence. settled: low byte of its number
	predicted  uint8 // claim: the expected offset
	leader     uint8 // in a log: the leader epoch under which it was written
}

// width is how many offsets and sequences the batch takes.
func (b batch) width() uint8 {
	if b.kind == data {
		return b.count
	}
	return 1
}

func (b batch) String() string {
	records := fmt.Sprintf("r%d", b.first)
	if b.count > 1 {
		records += fmt.Sprintf("-%d", b.first+b.count-1)
	}
	switch b.kind {
	case marker:
		return fmt.Sprintf("marker:e%d", b.epoch)
	case claim:
		return fmt.Sprintf("claim(p%d %s as %d):e%d/%d", b.part, records, b.dataSeq, b.epoch, b.seq)
	case settled:
		return fmt.Sprintf("settled:e%d/%d", b.epoch, b.seq)
	case data:
		return fmt.Sprintf("%s:e%d/%d", records, b.epoch, b.seq)
	}
	return "-"
}

// log is a partition's log on the target and what its leader knows.
type log struct {
	n           uint8 // batches
	batches     [capLog]batch
	forgot      uint8 // the leader's producer state knows nothing of the batches before this one
	leader      uint8 // leader epoch
	leaderStart uint8 // the offset at which it began
}

func (l *log) all() []batch { return l.batches[:l.n] }

func (l *log) end() uint8 {
	var end uint8
	for _, b := range l.all() {
		end += b.width()
	}
	return end
}

// recordAt returns the record of the source at an offset of the log.
func (l *log) recordAt(offset uint8) (record uint8, ok bool) {
	var base uint8
	for _, b := range l.all() {
		if offset < base+b.width() {
			return b.first + offset - base, b.kind == data
		}
		base += b.width()
	}
	return 0, false
}

func (l *log) String() string {
	var parts []string
	var base uint8
	for _, b := range l.all() {
		parts = append(parts, fmt.Sprintf("%d=%v", base, b))
		base += b.width()
	}
	return "[" + strings.Join(parts, " ") + "]"
}

type phase uint8

const (
	absent    phase = iota
	fenced          // has its epoch; the coordinator writes its markers
	recovered       // has read back; its settled record is not acked yet
	running
	halted  // must fence anew
	stopped // was fenced
)

// request is where the request of a round stands.
type request uint8

const (
	unsent request = iota
	sent
	again // was sent, outcome unknown; to be sent once more
	acked
)

// round is a batch between its claim and its ack. count 0: none.
type round struct {
	part, first, count        uint8
	claimSeq, dataSeq         uint8
	predicted                 uint8
	claimRequest, dataRequest request
}

// place is a physical offset + 1; 0: none.
type place uint8

type places [capRecords]place

// copied is an owner's memory of one data partition.
type copied struct {
	next    uint8 // the record to be claimed next
	nextSeq uint8
	end     uint8  // the log's end by what was acked or read
	live    uint16 // the newest owner's journal.Partition, as a number of m.contents
	leader  uint8  // the leader epoch seen
	fresh   bool   // the last ack was under a leader epoch not looked at yet; only if lastAckAsked
	at      places
}

// owner is the memory of the owner with one epoch.
type owner struct {
	phase         phase
	window        [capWindow]round // in claim order, the used ones first
	nextClaim     uint8            // journal sequence
	journalEnd    uint8
	journalLeader uint8
	settled       batch // to be written first
	parts         [capData]copied
}

func (o *owner) used() uint8 {
	for i := range o.window {
		if o.window[i].count == 0 {
			return uint8(i)
		}
	}
	return capWindow
}

// remove takes round i out of the window.
func (o *owner) remove(i int) {
	copy(o.window[i:], o.window[i+1:])
	o.window[capWindow-1] = round{}
}

func (o *owner) expected(part uint8) uint8 {
	end := o.parts[part].end
	for _, r := range o.window {
		if r.count > 0 && r.part == part {
			end += r.count
		}
	}
	return end
}

// late is a request of a broken link, or a marker on its second way: it lands at any time, or never.
type late struct {
	log uint8
	b   batch
}

func (l late) order() uint64 {
	var n uint64
	for _, x := range []uint8{uint8(l.b.kind), l.log, l.b.epoch, l.b.seq, l.b.first, l.b.count, l.b.dataSeq, l.b.part<<7 | l.b.predicted} {
		n = n<<8 | uint64(x)
	}
	return n
}

type wrong uint8

const (
	fine wrong = iota
	moved
)

// state is one state of the world. It has no pointers: equal states are equal.
type state struct {
	start     [capData]uint8 // log starts of the source
	given     uint8          // the newest epoch given out; the owner with epoch e is owners[e-1]
	unmarked  uint8          // logs, one bit each, into which its marker is still to be written
	logs      [capLogs]log
	owners    [capOwners]owner
	late      [capLate]late // sorted, the used ones last
	published [capData]places
	left      left
	wrong     wrong // set by a step that did what must not be
}

// left is how often what is bounded may still happen.
type left struct {
	breaks, markers, losses, forgets, retention, abandons, settles uint8
}

func (s *state) newest() *owner {
	if s.given == 0 {
		return nil
	}
	return &s.owners[s.given-1]
}

// addLate returns false if there is no room, which ends the path: bounds keep it from happening.
func (s *state) addLate(l late) bool {
	if s.late[0].b.kind != nothing {
		return false
	}
	s.late[0] = l
	sortLate(&s.late)
	return true
}

func sortLate(l *[capLate]late) {
	for i := 1; i < capLate; i++ {
		for j := i; j > 0 && l[j].order() < l[j-1].order(); j-- {
			l[j], l[j-1] = l[j-1], l[j]
		}
	}
}

func (s *state) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "source from %d; journal %v; data %v", s.start[0], &s.logs[0], &s.logs[1])
	if s.logs[2].n > 0 {
		fmt.Fprintf(&b, " and %v", &s.logs[2])
	}
	for _, l := range s.late {
		if l.b.kind != nothing {
			fmt.Fprintf(&b, "; late %v", l.b)
		}
	}
	return b.String()
}
