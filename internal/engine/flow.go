package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/replicator"
	"github.com/switchback-proxy/switchback/translate"
)

const (
	flowRestart = time.Second // between two tries to run a flow
	tellAgain   = time.Minute // between two log lines about a flow that cannot run
)

// flowRun is a flow and the goroutine that runs it.
type flowRun struct {
	from, to string
	flow     *replicator.Flow
	cancel   context.CancelFunc
	done     chan struct{} // closed when all of it has ended
}

// newFlow makes the flow from the active cluster to the standby of a snapshot.
func (e *Engine) newFlow(s control.Snapshot, route *proxy.Route) *replicator.Flow {
	st := s.State
	return replicator.New(replicator.Config{
		From: st.Active, To: st.Standby, Source: e.clusters[st.Active].client, Target: e.clusters[st.Standby].client,
		VirtualCluster: e.cfg.Name, SourceNames: e.names[st.Active], TargetNames: e.names[st.Standby],
		Topics: e.topics, Groups: e.groups, Generation: st.Generation, Eras: s.Eras,
		SourceMap: func(tp journal.TP) *translate.Map { return mapOf(route, tp) },
		Producers: func(tp journal.TP) *journal.Producers { return partitionOf(route, tp).Producers },
		TargetID: func(topic string) ([16]byte, bool) {
			id, ok := s.Topics[topic].IDs[st.Standby]
			return id, ok && id != [16]byte{}
		},
		OnLostRange: e.opts.Replication.OnLostRange, CheckpointInterval: e.opts.Replication.CheckpointInterval,
		ReplicationFactor: int16(e.opts.Replication.InternalReplicationFactor), Metrics: e.opts.Metrics, Log: e.log,
	})
}

// mapOf is the whole map of the active cluster for a partition.
func mapOf(route *proxy.Route, tp journal.TP) *translate.Map {
	if m := partitionOf(route, tp).Map; m != nil {
		return m
	}
	return translate.Identity()
}

// partitionOf is what a route has of a partition; nothing if that is in its first era.
func partitionOf(route *proxy.Route, tp journal.TP) proxy.Partition {
	if t := route.Topics[tp.Topic]; t != nil && int(tp.Partition) < len(t.Partitions) {
		return t.Partitions[tp.Partition]
	}
	return proxy.Partition{}
}

// startFlow runs the flow of a snapshot until stopFlow or the end of the engine. No other flow runs.
func (e *Engine) startFlow(s control.Snapshot, route *proxy.Route) *flowRun {
	ctx, cancel := context.WithCancel(e.running)
	r := &flowRun{from: s.State.Active, to: s.State.Standby, flow: e.newFlow(s, route), cancel: cancel, done: make(chan struct{})}
	e.mu.Lock()
	e.flow = r
	e.mu.Unlock()
	go e.runFlow(ctx, r, s, route)
	return r
}

// runFlow keeps a flow running; one that ends by itself is made anew. It waits first until both clusters are known to be two.
func (e *Engine) runFlow(ctx context.Context, r *flowRun, s control.Snapshot, route *proxy.Route) {
	defer close(r.done)
	for ctx.Err() == nil {
		err := e.canFlow(ctx, r)
		e.setFlowProblem(r, err)
		if err == nil {
			e.mu.Lock()
			flow := r.flow
			e.mu.Unlock()
			err = flow.Run(ctx)
			if ctx.Err() != nil {
				return
			}
			e.log.Error().Err(err).Str(obs.KeyFlow, r.from+"."+r.to).Msg("flow ended")
			e.mu.Lock()
			r.flow = e.newFlow(s, route)
			e.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(flowRestart):
		}
	}
}

// canFlow fails while it is not known that the two clusters are two, or that the target has not become active.
func (e *Engine) canFlow(ctx context.Context, r *flowRun) error {
	a, b := e.clusters[r.from], e.clusters[r.to]
	for _, u := range []*upstream{a, b} {
		if u.clusterID() == "" {
			if err := u.ping(ctx); err != nil {
				return err
			}
		}
	}
	if err := distinct(a, b); err != nil {
		return err
	}
	if assumed := e.current().Assumed; assumed != "" {
		return errors.New(assumed)
	}
	return nil
}

// stopFlow ends the flow that runs and waits for it.
func (e *Engine) stopFlow() {
	e.mu.Lock()
	r := e.flow
	e.flow = nil
	e.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
}

// currentFlow is the flow now running.
func (e *Engine) currentFlow() (*flowRun, *replicator.Flow) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flow == nil {
		return nil, nil
	}
	return e.flow, e.flow.flow
}

var errNoFlow = errors.New("no flow runs")

// needFlow is the flow in the direction asked for.
func (e *Engine) needFlow() (*replicator.Flow, error) {
	_, flow := e.currentFlow()
	if flow == nil {
		return nil, errNoFlow
	}
	e.mu.Lock()
	problem := e.flowProblem
	e.mu.Unlock()
	if problem != nil {
		return nil, fmt.Errorf("the flow cannot run: %w", problem)
	}
	return flow, nil
}

// Reseed lets a topic be copied anew. No cutover begins meanwhile: what a slot was sealed with must not change.
func (e *Engine) Reseed(ctx context.Context, topic string) error {
	flow, err := e.needFlow()
	if err != nil {
		return &cutover.Error{Code: cutover.CodeClusterDown, Message: err.Error(), Hint: "try again when the standby gets copies"}
	}
	partitions := slices.DeleteFunc(flow.Status(), func(p replicator.PartitionStatus) bool { return p.Topic != topic })
	switch {
	case len(partitions) == 0:
		return &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("no topic that is copied has the name %q", topic), Hint: "topics are named as clients see them"}
	case !slices.ContainsFunc(partitions, func(p replicator.PartitionStatus) bool { return p.State == replicator.StateStopped }):
		return &cutover.Error{Code: cutover.CodeNotReseeded, Message: fmt.Sprintf("topic %s is copied: none of its partitions is stopped", topic), Hint: "what happened to a topic is seen within seconds"}
	}
	var refused error
	err = e.driver.Amend(ctx, func(*control.State) bool {
		refused = flow.Reseed(ctx, topic)
		return false
	})
	if refused != nil {
		return &cutover.Error{Code: cutover.CodeNotReseeded, Message: refused.Error(), Hint: "delete it on both clusters: what is made of that name then is copied from its beginning; or exclude it"}
	}
	return err
}

// setFlowProblem tells of a change in the log. A reason that changes all the time, such as the address of the broker that was asked,
// is told now and then.
func (e *Engine) setFlowProblem(r *flowRun, err error) {
	e.mu.Lock()
	before, told := e.flowProblem, time.Since(e.flowProblemTold) < tellAgain
	e.flowProblem = err
	changed := (err == nil) != (before == nil) || err != nil && err.Error() != before.Error() && !told
	if changed {
		e.flowProblemTold = time.Now()
	}
	e.mu.Unlock()
	switch {
	case changed && err != nil:
		e.log.Warn().Err(err).Str(obs.KeyFlow, r.from+"."+r.to).Msg("the standby gets no copies")
	case changed:
		e.log.Info().Str(obs.KeyFlow, r.from+"."+r.to).Msg("copying can go on")
	}
}
