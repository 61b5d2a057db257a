package control

import (
	"time"

	"github.com/switchback-proxy/switchback/translate"
)

// Phase is a recorded step of a cutover. Idle and Aborted lie outside the order: nothing runs.
type Phase string

const (
	Idle        Phase = "Idle"
	Preflight   Phase = "Preflight"   // read only
	Preparing   Phase = "Preparing"   // everything slow, while clients run
	Holding     Phase = "Holding"     // gates shut
	Draining    Phase = "Draining"    // answers in flight received, transactions over
	Sealing     Phase = "Sealing"     // ends frozen, reached, forward slots fenced
	Translating Phase = "Translating" // final group offsets
	Committed   Phase = "Committed"   // generation + 1 durable: from here only forward
	Switching   Phase = "Switching"   // route published, held calls go on
	Reversing   Phase = "Reversing"   // reverse flow running
	Done        Phase = "Done"
	Aborted     Phase = "Aborted"
)

// Phases are the phases of a cutover in order, without Idle and Aborted.
func Phases() []Phase {
	return []Phase{Preflight, Preparing, Holding, Draining, Sealing, Translating, Committed, Switching, Reversing, Done}
}

// Rank orders phases: 0 for Idle and Aborted, then from 1 (Preflight) to 10 (Done); -1 for a word that is no phase.
func (p Phase) Rank() int {
	if p == Idle || p == Aborted {
		return 0
	}
	for i, one := range Phases() {
		if p == one {
			return i + 1
		}
	}
	return -1
}

// Running says whether a cutover is under way.
func (p Phase) Running() bool { return p.Rank() > 0 && p != Done }

// BeforeCommitted says whether a running cutover may still go back; after that it only goes forward.
func (p Phase) BeforeCommitted() bool { return p.Running() && p.Rank() < Committed.Rank() }

// State is the control record of one virtual cluster, under the key state/<vc>.
type State struct {
	VirtualCluster  string
	Generation      translate.Generation // the first is 1
	Active, Standby string
	Phase           Phase
	Cutover         *Cutover // the running or the last one; nil before the first. Never changed in place: see Clone
	Identity        Identity
}

// Identity is what clients see of the virtual cluster and never changes, but for nodes that are added at the end.
type Identity struct {
	ClusterID string             // as clients see it
	Nodes     map[string][]int32 // by cluster: virtual node i is broker Nodes[cluster][i % len]
	Versions  map[int16][2]int16 // by API key: the lowest and highest version offered (both inclusive)
}

// Cutover is one move, as recorded.
type Cutover struct {
	ID             string
	From, To       string
	Mode           string // planned or forced
	DryRun         bool
	StartedAt      time.Time
	MaxPauseMillis int64
	Phases         []PhaseRecord // in the order in which they began; the last one may be running
	PauseMillis    int64         // as clients felt it; 0 until the gate opened again
	Error          *Error        // why it went back; nil if it did not
}

// PhaseRecord is what one phase took and saw.
type PhaseRecord struct {
	Phase     Phase
	StartedAt time.Time
	Millis    int64          // 0 while it runs
	Facts     map[string]any // values: numbers and strings
}

// Error is an error as an operator gets it.
type Error struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func (e *Error) Error() string { return e.Message }

// Era is the reign of one cluster in one partition's virtual log: from Virtual on (until the next era's Virtual) clients
// wrote natively on Cluster, starting at Physical. Leader epochs are shown as real + Shift; the first one shown is
// FirstEpoch.
type Era struct {
	Generation translate.Generation
	Cluster    string
	Virtual    translate.Virtual  // inclusive
	Physical   translate.Physical // inclusive
	Shift      translate.Shift
	FirstEpoch translate.Epoch
}

// Topic is the control record of one topic, under the key topic/<vc>/<name>. A topic without a record has one era in
// each partition: that of the current generation, from 0 on.
type Topic struct {
	Name       string // virtual
	VirtualID  [16]byte
	IDs        map[string][16]byte // by cluster
	Partitions [][]Era             // by partition; oldest era first
}

// Group is the control record of one group, under the key group/<vc>/<group>.
type Group struct {
	Name     string
	Shift    int32             // generation shown − real generation
	Members  map[string]string // member id shown → real; one to one
	Leader   string            // member id shown
	Sessions map[string]MemberTimeouts
}

// MemberTimeouts are what a member, by the id shown, asked for when it joined.
type MemberTimeouts struct {
	SessionMillis   int32
	RebalanceMillis int32
}

// Snapshot is all that the control topic says of one virtual cluster. Eras of a generation above State.Generation are
// left out: they belong to a move that is not committed.
type Snapshot struct {
	State  State            // Generation 0: there is no record yet
	Topics map[string]Topic // by virtual name
	Groups map[string]Group // by name
	// Assumed says what this rests on while a log could not be read; empty if both were.
	Assumed string
}
