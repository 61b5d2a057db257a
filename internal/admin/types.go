package admin

import (
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
)

// Status is the answer to GET /v1/status.
type Status struct {
	Version         string                 `json:"version"`
	VirtualClusters []VirtualClusterStatus `json:"virtual_clusters"`
}

// The health of a virtual cluster.
const (
	Green  = "green"
	Yellow = "yellow" // clients are served, a move would not go well
	Red    = "red"    // somebody has to look
)

// VirtualClusterStatus is one virtual cluster.
type VirtualClusterStatus struct {
	Name       string      `json:"name"`
	Active     string      `json:"active"`
	Standby    string      `json:"standby"`
	Generation int64       `json:"generation"`
	Offsets    string      `json:"offsets"`
	Health     string      `json:"health"`
	Phase      string      `json:"phase"` // Idle if no cutover runs
	Reason     string      `json:"reason"`
	Hint       string      `json:"hint"`
	Assumed    string      `json:"assumed"` // what this rests on while a control log cannot be read
	Partitions []Partition `json:"partitions"`
	Groups     []GroupLine `json:"groups"`
	Cutover    *Cutover    `json:"cutover"` // the running or the last one
	Strays     int         `json:"strays"`
}

// Partition is the copying of one partition.
type Partition struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	State      string `json:"state"`
	LagRecords int64  `json:"lag_records"`
	LagMillis  int64  `json:"lag_ms"`
	Reason     string `json:"reason"`
	Hint       string `json:"hint"`
}

// GroupLine is the following of one group's offsets.
type GroupLine struct {
	Group               string `json:"group"`
	CheckpointAgeMillis int64  `json:"checkpoint_age_ms"` // −1: never
	State               string `json:"state"`             // ok, stale or blocked
	Reason              string `json:"reason"`
	Hint                string `json:"hint"`
}

// Cutover is one move.
type Cutover struct {
	ID             string         `json:"id"`
	VirtualCluster string         `json:"virtual_cluster"`
	From           string         `json:"from"`
	To             string         `json:"to"`
	Mode           string         `json:"mode"`
	DryRun         bool           `json:"dry_run"`
	Phase          string         `json:"phase"`
	StartedAt      time.Time      `json:"started_at"`
	MaxPauseMillis int64          `json:"max_pause_ms"`
	PauseMillis    int64          `json:"pause_ms"`
	Phases         []Phase        `json:"phases"`
	Lost           Lost           `json:"lost"`
	Error          *cutover.Error `json:"error"`
}

// Over says whether the cutover has ended.
func (c Cutover) Over() bool { return !control.Phase(c.Phase).Running() }

// Phase is one phase of a move.
type Phase struct {
	Phase     string         `json:"phase"`
	StartedAt time.Time      `json:"started_at"`
	Millis    int64          `json:"ms"`
	Facts     map[string]any `json:"facts"`
}

// Lost is what a move could not bring over. A planned move loses nothing, since it waits.
type Lost struct {
	Records    int64           `json:"records"`
	Exact      bool            `json:"exact"`
	Partitions []LostPartition `json:"partitions"`
}

// LostPartition is a range of virtual offsets, [From, To).
type LostPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Records   int64  `json:"records"`
}

// CutoverOrder is the body of POST /v1/cutovers.
type CutoverOrder struct {
	VirtualCluster    string `json:"virtual_cluster"` // may be empty where there is one
	To                string `json:"to"`
	Mode              string `json:"mode"` // planned (default) or forced
	DryRun            bool   `json:"dry_run"`
	MaxPause          string `json:"max_pause"` // such as 30s; empty: the configured one
	AcceptUnknownLoss bool   `json:"accept_unknown_loss"`
}

// CutoverID is the answer to POST /v1/cutovers.
type CutoverID struct {
	ID string `json:"id"`
}

// TranslateQuery asks for one offset; as query parameters of the same names.
type TranslateQuery struct {
	VirtualCluster string // may be empty where there is one
	Topic          string // virtual
	Partition      int32
	Offset         int64  // virtual, unless From is set
	From           string // cluster on which Offset is physical
	To             string // cluster that the answer is about; empty: the active one, or From
}

// Translation is the answer to GET /v1/translate.
type Translation struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Cluster   string   `json:"cluster"`
	Virtual   int64    `json:"virtual"`  // −1: not known
	Physical  int64    `json:"physical"` // −1: not known
	Kind      string   `json:"kind"`     // record, gap, end or unknown
	Segment   *Segment `json:"segment"`  // that decides; null if none does
}

// Segment is a run where virtual − physical is constant.
type Segment struct {
	Kind     string `json:"kind"` // mirrored or native
	Virtual  int64  `json:"virtual"`
	Physical int64  `json:"physical"`
	Records  int64  `json:"records"` // −1: still open
}

// Group is the answer to GET /v1/groups/{group}.
type Group struct {
	Group      string           `json:"group"`
	Type       string           `json:"type"`
	Partitions []GroupPartition `json:"partitions"`
}

// GroupPartition is where a group stands in one partition. Committed is physical, by cluster; a cluster where nothing is
// committed, or that cannot be asked, is left out. Virtual is null if it is not known.
type GroupPartition struct {
	Topic               string           `json:"topic"`
	Partition           int32            `json:"partition"`
	Virtual             *int64           `json:"virtual"`
	Committed           map[string]int64 `json:"committed"`
	CheckpointAgeMillis int64            `json:"checkpoint_age_ms"`
	State               string           `json:"state"`
	Reason              string           `json:"reason"`
	Hint                string           `json:"hint"`
}

// Orphans is the answer to GET /v1/orphans. Orphans are records of clients that are in no virtual log, strays are copies of
// ours that no map has.
type Orphans struct {
	Orphans []Orphan `json:"orphans"`
	Strays  []Orphan `json:"strays"`
}

// Reseeded is the answer to POST /v1/topics/{topic}/reseed.
type Reseeded struct {
	Topic string `json:"topic"`
}

// Orphan is a range of physical offsets, [From, To).
type Orphan struct {
	Cluster   string `json:"cluster"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Records   int64  `json:"records"`
}

// Failure is the body of every answer that is not a success.
type Failure struct {
	Error *cutover.Error `json:"error"`
}

// ShowCutover is the JSON shape of a cutover; st.Cutover is not nil.
func ShowCutover(st control.State) Cutover {
	c := st.Cutover
	out := Cutover{
		ID: c.ID, VirtualCluster: st.VirtualCluster, From: c.From, To: c.To, Mode: c.Mode, DryRun: c.DryRun, Phase: string(st.Phase),
		StartedAt: c.StartedAt, MaxPauseMillis: c.MaxPauseMillis, PauseMillis: c.PauseMillis, Phases: make([]Phase, len(c.Phases)),
		Lost: Lost{Exact: true, Partitions: []LostPartition{}},
	}
	if c.Error != nil {
		shown := *c.Error
		shown.Message = oneLine(shown.Message)
		out.Error = &shown
	}
	for i, p := range c.Phases {
		out.Phases[i] = Phase{Phase: string(p.Phase), StartedAt: p.StartedAt, Millis: p.Millis, Facts: p.Facts}
		if p.Facts == nil {
			out.Phases[i].Facts = map[string]any{}
		}
	}
	return out
}

// ShowPhase is the phase that a status shows: Idle if nothing runs.
func ShowPhase(p control.Phase) string {
	if !p.Running() {
		return string(control.Idle)
	}
	return string(p)
}
