package cutover

import (
	"context"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

// Facts are what a phase saw: numbers and strings by name.
type Facts map[string]any

// TP names a partition by its virtual topic.
type TP struct {
	Topic     string
	Partition int32
}

// End is where the source's log of a partition ends.
type End struct {
	HighWatermark    translate.Virtual // exclusive
	LastStableOffset translate.Virtual // below HighWatermark while a transaction is open
	LeaderEpoch      translate.RealEpoch
	TopicID          [16]byte // of the source
}

// Sealed is where a partition's copy ended.
type Sealed struct {
	Frontier    translate.Virtual  // end of what was copied (exclusive)
	Next        translate.Physical // the offset on the target that the next record gets
	TargetEpoch translate.RealEpoch
	TopicID     [16]byte // of the target
}

// Records is the control record on both logs. Save of a state in which another cluster is active is the decision;
// control.ErrFenced from any of them means that another process drives.
type Records interface {
	Fence(ctx context.Context) error
	Load(ctx context.Context) (control.Snapshot, error)
	Save(ctx context.Context, st control.State) error
}

// Archive keeps what a move leaves behind per topic and group, on the log of one cluster. All are idempotent.
type Archive interface {
	PutTopics(ctx context.Context, cluster string, topics []control.Topic) error
	PutGroups(ctx context.Context, cluster string, groups []control.Group) error
	// DropStale takes back the eras above generation g, which a move that went back has left, and the topics that are gone.
	DropStale(ctx context.Context, cluster string, g translate.Generation, gone func(ctx context.Context, topics []string) ([]string, error)) error
}

// Gate holds the clients' calls. Hold returns once the gate is shut, Drain once every answer of a held class is in. Release
// opens it, and does nothing if it is open. PauseMillis is the longest time that a call stood at the gate since the last
// Hold.
type Gate interface {
	Hold(ctx context.Context) error
	Drain(ctx context.Context) error
	Release()
	PauseMillis() int64
}

// Groups keeps shadow members on the target for the members of consumer groups. All are idempotent; Discard undoes
// Prepare, Retire leaves the groups on the old cluster.
type Groups interface {
	Prepare(ctx context.Context, to string) (Facts, error)
	Check(ctx context.Context) (Facts, error)
	Records() []control.Group
	Discard(ctx context.Context)
	Retire(ctx context.Context, from string)
}

// Follower is the flow from the active cluster to the standby, while it copies. Reach waits until every pump has passed
// its end, or fails if one of them cannot; it calls progress from one goroutine.
type Follower interface {
	Refresh(ctx context.Context) error
	Ends(ctx context.Context) (map[TP]End, error)
	Reach(ctx context.Context, ends map[TP]translate.Virtual, progress func(done, total int)) error
}

// Sealer ends the flow: PrepareSeal does what stops nothing yet, Seal stops and fences it, Unseal takes both back and does
// nothing if there is nothing to take back. Settled waits until the target's journal says all that was copied: the new
// generation is read from there. FinalOffsets stores the offsets of all groups on the target and says how many.
type Sealer interface {
	PrepareSeal(ctx context.Context) error
	Seal(ctx context.Context) (map[TP]Sealed, error)
	Unseal()
	Settled(ctx context.Context) error
	FinalOffsets(ctx context.Context) (stored int, err error)
}

// Flow is both.
type Flow interface {
	Follower
	Sealer
}

// Site looks at the clusters before the gate shuts. Inspect reads only and fails with what stands in the way of a move;
// Warm does all that is slow the first time: coordinators, internal topics, connections of the target. Gone are those topics
// of which both clusters say that they do not have them; one that we may not see, or are not to copy, is not gone.
type Site interface {
	Inspect(ctx context.Context, from, to string) (Facts, error)
	Warm(ctx context.Context, to string) (Facts, error)
	Gone(ctx context.Context, topics []string) ([]string, error)
}

// Router puts a committed move into force. Publish builds the route and gives it to the proxy; Reverse has the reverse flow
// running when it returns. Both are idempotent.
type Router interface {
	Publish(ctx context.Context, s control.Snapshot) error
	Reverse(ctx context.Context, s control.Snapshot) error
}
