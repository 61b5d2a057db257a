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
	VirtualCluster string               `json:"virtual_cluster"`
	Generation     translate.Generation `json:"generation"` // the first is 1
	Active         string               `json:"active"`
	Standby        string               `json:"standby"`
	Phase          Phase                `json:"phase"`
	Cutover        *Cutover             `json:"cutover,omitempty"` // the running or the last one; nil before the first. Read only: see Clone
	Identity       Identity             `json:"identity"`
}

// Identity is what clients see of the virtual cluster and never changes, but for nodes that are added at the end.
type Identity struct {
	ClusterID string             `json:"cluster_id"` // as clients see it
	Nodes     map[string][]int32 `json:"nodes"`      // by cluster: virtual node i is broker Nodes[cluster][i % len]
	Versions  map[int16][2]int16 `json:"versions"`   // by API key: the lowest and highest version offered (both inclusive)
}

// The modes of a cutover.
const (
	ModePlanned = "planned"
	ModeForced  = "forced"
)

// Cutover is one move, as recorded.
type Cutover struct {
	ID             string        `json:"id"`
	From           string        `json:"from"`
	To             string        `json:"to"`
	Mode           string        `json:"mode"` // ModePlanned or ModeForced
	DryRun         bool          `json:"dry_run,omitempty"`
	StartedAt      time.Time     `json:"started_at"`
	MaxPauseMillis int64         `json:"max_pause_ms"`
	Phases         []PhaseRecord `json:"phases"`          // in the order in which they began; the last one may be running
	PauseMillis    int64         `json:"pause_ms"`        // as clients felt it; 0 until the gate opened again
	Error          *Error        `json:"error,omitempty"` // why it went back, or what it waits for; nil if nothing is wrong
}

// PhaseRecord is what one phase took and saw.
type PhaseRecord struct {
	Phase     Phase          `json:"phase"`
	StartedAt time.Time      `json:"started_at"`
	Millis    int64          `json:"ms"`    // 0 while it runs
	Facts     map[string]any `json:"facts"` // values: numbers and strings; read only
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
	Name     string                    `json:"name"`
	Shift    int32                     `json:"shift"`              // generation shown − real generation
	Members  map[string]string         `json:"members"`            // member id shown → real; one to one
	Leader   string                    `json:"leader"`             // member id shown
	Sessions map[string]MemberTimeouts `json:"sessions,omitempty"` // by member id shown
}

// MemberTimeouts are what a member, by the id shown, asked for when it joined.
type MemberTimeouts struct {
	SessionMillis   int32 `json:"session_ms"`
	RebalanceMillis int32 `json:"rebalance_ms"`
}

// Snapshot is all that the control topic says of one virtual cluster. Eras of a generation above State.Generation are
// left out: they belong to a move that is not committed.
type Snapshot struct {
	State  State            // Generation 0: there is no record yet
	Topics map[string]Topic // by virtual name
	Groups map[string]Group // by name
	// Assumed says what this rests on while a log could not be read to its end; empty if both were.
	Assumed string
	Unread  []string // clusters whose log could not be read, or not be fenced, so that more may follow; sorted
	// FromCopy says that topics and groups are of the standby's log, which lacks what only the active's has.
	FromCopy bool
}

// Clone returns a State whose Cutover and list of phases are its own; facts and identity are shared, and read only.
func (s State) Clone() State {
	if s.Cutover == nil {
		return s
	}
	c := *s.Cutover
	c.Phases = append([]PhaseRecord(nil), c.Phases...)
	s.Cutover = &c
	return s
}

// Eras returns the eras of a topic with at least n partitions: those on record, and for each partition that has none the
// one era of the current generation.
func (s Snapshot) Eras(topic string, n int) [][]Era {
	t := s.Topics[topic]
	out := make([][]Era, max(n, len(t.Partitions)))
	copy(out, t.Partitions)
	for i := range out {
		if len(out[i]) == 0 {
			out[i] = []Era{{Generation: s.State.Generation, Cluster: s.State.Active}}
		}
	}
	return out
}
