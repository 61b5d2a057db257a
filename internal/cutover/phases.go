package cutover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/translate"
)

const (
	// lastGeneration is the last one that the id scheme of producers has room for.
	lastGeneration = 2047
	// catchUpRounds bounds how often Preparing lets the flow catch up with what was written meanwhile.
	catchUpRounds = 20
	// lateLook bounds the last look at the old active's ends.
	lateLook = 2 * time.Second
)

// step does the work of the phase of st and returns the state to record next.
func (r *run) step(ctx context.Context, st control.State) (control.State, error) {
	var facts Facts
	var err error
	next := st.Clone()
	switch st.Phase {
	case control.Preflight:
		facts, err = r.preflight(ctx, st)
		next.Phase = control.Preparing
		if r.dryRun {
			next.Phase = control.Done
		}
	case control.Preparing:
		facts, err = r.prepare(ctx, st)
		next.Phase = control.Holding
	case control.Holding:
		facts, err = r.hold(ctx)
		next.Phase = control.Draining
	case control.Draining:
		facts, err = r.drain(ctx)
		next.Phase = control.Sealing
	case control.Sealing:
		facts, err = r.seal(ctx, st)
		next.Phase = control.Translating
	case control.Translating:
		facts, err = r.translate(ctx, st)
		next.Phase, next.Generation, next.Active, next.Standby = control.Committed, st.Generation+1, st.Standby, st.Active
	case control.Committed:
		facts = Facts{"generation": int64(st.Generation)}
		next.Phase = control.Switching
	case control.Switching:
		facts, err = r.switchOver(ctx, st, &next)
		next.Phase = control.Reversing
	case control.Reversing:
		facts, err = r.reverse(ctx, st, &next)
		next.Phase = control.Done
	default:
		return st, fmt.Errorf("there is no step for phase %s", st.Phase)
	}
	if err != nil {
		return st, err
	}
	if ctx.Err() != nil && st.Phase.BeforeCommitted() { // an abort must not be overlooked by a step that did not notice it
		return st, context.Cause(ctx)
	}
	next.Cutover.Error = nil
	closePhase(&next, time.Since(r.started), facts)
	next.Cutover.Phases = append(next.Cutover.Phases, control.PhaseRecord{Phase: next.Phase, StartedAt: time.Now().UTC()})
	return next, nil
}

// closePhase notes what the last phase of st took; facts, if any, take the place of what it had told before.
func closePhase(st *control.State, took time.Duration, facts Facts) {
	p := &st.Cutover.Phases[len(st.Cutover.Phases)-1]
	p.Millis = took.Milliseconds()
	if facts != nil {
		p.Facts = facts
	}
}

// tell shows facts of a phase that is still running.
func (r *run) tell(st control.State, facts Facts) {
	st = st.Clone()
	st.Cutover.Phases[len(st.Cutover.Phases)-1].Facts = facts
	r.d.publish(st)
}

// preflight only reads.
func (r *run) preflight(ctx context.Context, st control.State) (Facts, error) {
	if st.Generation >= lastGeneration {
		return nil, &Error{
			Code:    CodeGenerations,
			Message: fmt.Sprintf("generation %d is the last one", st.Generation),
			Hint:    "producer ids have room for 2,047 moves: stop all clients and begin anew with an empty control topic",
		}
	}
	return r.d.cfg.Site.Inspect(ctx, st.Active, st.Standby)
}

// prepare does all that is slow while clients run, and returns when the standby is so close behind that the rest fits
// into the pause.
func (r *run) prepare(ctx context.Context, st control.State) (Facts, error) {
	facts, err := r.d.cfg.Site.Warm(ctx, st.Standby)
	if err != nil {
		return nil, err
	}
	if err := r.d.cfg.Archive.DropStale(ctx, st.Standby, st.Generation, r.d.cfg.Site.Gone); err != nil {
		return nil, fmt.Errorf("clear the control log of %s: %w", st.Standby, err)
	}
	if err := r.d.cfg.Flow.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("find all topics: %w", err)
	}
	r.prepared = true
	groups, err := r.d.cfg.Groups.Prepare(ctx, st.Standby)
	if err != nil {
		return nil, fmt.Errorf("prepare the groups: %w", err)
	}
	facts = merge(facts, groups)
	before, err := r.catchUp(ctx, st)
	if err != nil {
		return nil, err
	}
	r.stopped = true
	if err := r.d.cfg.Flow.PrepareSeal(ctx); err != nil {
		return nil, fmt.Errorf("prepare the seal: %w", err)
	}
	after, err := r.catchUp(ctx, st) // what has come meanwhile
	return merge(facts, Facts{"catch_up_rounds": int64(before + after)}), err
}

// catchUp reaches the ends again and again, until one round is short.
func (r *run) catchUp(ctx context.Context, st control.State) (rounds int, err error) {
	for rounds = 1; rounds <= catchUpRounds; rounds++ {
		began := time.Now()
		ends, err := r.d.cfg.Flow.Ends(ctx)
		if err != nil {
			return rounds, fmt.Errorf("read the ends: %w", err)
		}
		if err := r.reach(ctx, st, ends, Facts{"catch_up_rounds": int64(rounds)}); err != nil {
			return rounds, err
		}
		if time.Since(began) <= longestRound(rounds, r.maxPause) {
			return rounds, nil
		}
	}
	return rounds, &Error{
		Code:    CodeLag,
		Message: fmt.Sprintf("after %d rounds the standby is still more than %v behind", catchUpRounds, longestRound(catchUpRounds, r.maxPause)),
		Hint:    "slow the producers down, or allow a longer --max-pause",
	}
}

// longestRound is how long a round may have taken to be the last. A second is aimed at; what fits into the pause will do once
// that was tried often enough.
func longestRound(round int, maxPause time.Duration) time.Duration {
	fits := maxPause / 4
	if round < catchUpRounds {
		return min(time.Second, fits)
	}
	return fits
}

func (r *run) reach(ctx context.Context, st control.State, ends map[TP]End, facts Facts) error {
	positions := make(map[TP]translate.Virtual, len(ends))
	for tp, e := range ends {
		positions[tp] = e.HighWatermark
	}
	err := r.d.cfg.Flow.Reach(ctx, positions, func(done, total int) {
		r.tell(st, merge(facts, Facts{"reached": int64(done), "partitions": int64(total)}))
	})
	if err != nil {
		return fmt.Errorf("reach the ends: %w", err)
	}
	return nil
}

func merge(all ...Facts) Facts {
	out := Facts{}
	for _, facts := range all {
		for k, v := range facts {
			out[k] = v
		}
	}
	return out
}

// laps are what the parts of a phase take; each is a fact.
type laps struct {
	last  time.Time
	facts Facts
}

func newLaps() *laps { return &laps{time.Now(), Facts{}} }

func (l *laps) lap(name string) {
	now := time.Now()
	l.facts[name] = now.Sub(l.last).Milliseconds()
	l.last = now
}

func (r *run) hold(ctx context.Context) (Facts, error) {
	if err := r.d.cfg.Gate.Hold(ctx); err != nil {
		return nil, fmt.Errorf("shut the gate: %w", err)
	}
	return Facts{}, nil
}

func (r *run) drain(ctx context.Context) (Facts, error) {
	took := newLaps()
	if err := r.d.cfg.Gate.Drain(ctx); err != nil {
		return nil, fmt.Errorf("wait for answers in flight: %w", err)
	}
	took.lap("answers_ms")
	groups, err := r.d.cfg.Groups.Check(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the groups: %w", err)
	}
	took.lap("groups_ms")
	return merge(groups, took.facts), nil
}

// seal freezes the ends: all copied, the flow fenced, and then the ends are looked at again.
func (r *run) seal(ctx context.Context, st control.State) (Facts, error) {
	flow, took := r.d.cfg.Flow, newLaps()
	if err := flow.Refresh(ctx); err != nil {
		return nil, fmt.Errorf("find all topics: %w", err)
	}
	ends, err := flow.Ends(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ends: %w", err)
	}
	took.lap("ends_ms")
	if err := openTransaction(ends); err != nil {
		return nil, err
	}
	if err := r.reach(ctx, st, ends, nil); err != nil {
		return nil, err
	}
	took.lap("reached_ms")
	sealed, err := flow.Seal(ctx)
	if err != nil {
		return nil, fmt.Errorf("seal the flow: %w", err)
	}
	took.lap("sealed_ms")
	again, err := flow.Ends(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ends again: %w", err)
	}
	if err := errors.Join(compareEnds(ends, again), allCopied(ends, sealed)); err != nil {
		return nil, err
	}
	r.ends, r.sealed = ends, sealed
	took.lap("ends_again_ms")
	return merge(took.facts, Facts{"partitions": int64(len(ends))}), nil
}

// translate leaves on the target all that the new generation needs; none of it counts before Committed.
func (r *run) translate(ctx context.Context, st control.State) (Facts, error) {
	topics, err := addEras(r.before, st.Standby, r.ends, r.sealed)
	if err != nil {
		return nil, err
	}
	groups := r.d.cfg.Groups.Records()
	var stored int
	var errs [4]error
	var all sync.WaitGroup
	all.Go(func() { errs[3] = r.d.cfg.Flow.Settled(ctx) })
	all.Go(func() { stored, errs[0] = r.d.cfg.Flow.FinalOffsets(ctx) })
	all.Go(func() { errs[1] = r.d.cfg.Archive.PutTopics(ctx, st.Standby, topics) })
	all.Go(func() { errs[2] = r.d.cfg.Archive.PutGroups(ctx, st.Standby, groups) })
	all.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("hand over to the target: %w", err)
	}
	next := st.Clone()
	next.Generation, next.Active, next.Standby = st.Generation+1, st.Standby, st.Active
	r.after = withTopics(r.before, next, topics, groups)
	return Facts{"topics": int64(len(topics)), "offsets": int64(stored), "groups_mapped": int64(len(groups))}, nil
}

// switchOver publishes the route and opens the gate.
func (r *run) switchOver(ctx context.Context, st control.State, next *control.State) (Facts, error) {
	if err := r.needAfter(ctx, st); err != nil {
		return nil, err
	}
	if err := r.d.cfg.Router.Publish(ctx, r.after); err != nil {
		return nil, fmt.Errorf("publish the route: %w", err)
	}
	r.d.cfg.Gate.Release()
	r.d.cfg.Metrics.SetRoute(int64(st.Generation), st.Active, st.Standby)
	facts := Facts{}
	if !r.heldSince.IsZero() {
		facts["gate_shut_ms"] = time.Since(r.heldSince).Milliseconds()
		r.heldSince = time.Time{}
	}
	next.Cutover.PauseMillis = r.d.cfg.Gate.PauseMillis()
	return facts, nil
}

// needAfter reads the record of the new generation if this process did not write it.
func (r *run) needAfter(ctx context.Context, st control.State) error {
	if r.after.State.Generation == st.Generation {
		r.after.State = st
		return nil
	}
	s, err := r.d.cfg.Records.Load(ctx)
	if err != nil {
		return err
	}
	if s.State.Generation != st.Generation {
		return fmt.Errorf("the record is of generation %d, not %d", s.State.Generation, st.Generation)
	}
	r.after = s
	return nil
}

// reverse leaves the old cluster and has the flow back running.
func (r *run) reverse(ctx context.Context, st control.State, next *control.State) (Facts, error) {
	if err := r.needAfter(ctx, st); err != nil {
		return nil, err
	}
	facts := r.lookAtOldActive(ctx)
	r.d.cfg.Groups.Retire(ctx, st.Standby)
	if err := r.d.cfg.Router.Reverse(ctx, r.after); err != nil {
		return nil, fmt.Errorf("start the flow back: %w", err)
	}
	if err := r.d.cfg.Archive.PutTopics(ctx, st.Standby, topicList(r.after)); err != nil {
		facts["copy_failed"] = err.Error() // a copy: the log of the active cluster has them
	}
	next.Cutover.PauseMillis = max(next.Cutover.PauseMillis, r.d.cfg.Gate.PauseMillis())
	return facts, nil
}

// lookAtOldActive reports what a writer that bypasses the proxy has added since Sealing; it is an orphan now.
func (r *run) lookAtOldActive(ctx context.Context) Facts {
	if r.ends == nil {
		return Facts{}
	}
	ctx, cancel := context.WithTimeout(ctx, lateLook)
	defer cancel()
	ends, err := r.d.cfg.Flow.Ends(ctx)
	if err != nil {
		return Facts{"late_look": err.Error()}
	}
	late := int64(0)
	for tp, e := range ends {
		late += max(int64(e.HighWatermark-r.ends[tp].HighWatermark), 0)
	}
	return Facts{"late_records": late}
}

func topicList(s control.Snapshot) []control.Topic {
	topics := make([]control.Topic, 0, len(s.Topics))
	for _, t := range s.Topics {
		topics = append(topics, t)
	}
	return topics
}
