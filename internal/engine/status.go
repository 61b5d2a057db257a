package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/replicator"
)

// unreachableAfter is how long the active cluster may fail to answer before we say that we are not ready.
const unreachableAfter = 10 * time.Second

// hintRefused is what an operator can do about a topic whose record does not fit.
const hintRefused = "it was not part of the last move, so it is not known how clients have seen its offsets; delete it on both clusters and make it anew, or exclude it"

// Name is that of the virtual cluster.
func (e *Engine) Name() string { return e.cfg.Name }

// Cutovers is the driver.
func (e *Engine) Cutovers() *cutover.Driver { return e.driver }

// Ready says why clients cannot be served; nil if they can.
func (e *Engine) Ready() error {
	e.mu.Lock()
	problem, active := e.problem, e.snapshot.State.Active
	e.mu.Unlock()
	if problem != nil {
		return problem
	}
	if err := e.proxy.Ready(); err != nil {
		return err
	}
	if since, err := e.clusters[active].health(); err != nil && time.Since(since) > unreachableAfter {
		return fmt.Errorf("the active cluster %s cannot be reached: %w", active, err)
	}
	return nil
}

// Status is what an operator sees of the virtual cluster.
func (e *Engine) Status() admin.VirtualClusterStatus {
	st, assumed := e.driver.State(), e.current().Assumed
	if st.Generation == 0 { // not served yet
		e.mu.Lock()
		st, assumed = e.found.State, e.found.Assumed
		e.mu.Unlock()
	}
	out := admin.VirtualClusterStatus{
		Name: e.cfg.Name, Active: cmp.Or(st.Active, e.cfg.Active), Standby: cmp.Or(st.Standby, e.cfg.Standby), Generation: int64(st.Generation),
		Offsets: e.cfg.Offsets, Phase: admin.ShowPhase(st.Phase), Assumed: assumed,
		Partitions: []admin.Partition{}, Groups: []admin.GroupLine{},
	}
	if st.Cutover != nil {
		c := admin.ShowCutover(st)
		out.Cutover = &c
	}
	_, flow := e.currentFlow()
	if flow != nil {
		for _, p := range flow.Status() {
			out.Partitions = append(out.Partitions, admin.Partition{
				Topic: p.Topic, Partition: p.Partition, State: string(p.State), LagRecords: p.LagRecords, LagMillis: p.LagMillis, Reason: p.Reason, Hint: p.Hint,
			})
		}
		out.Groups = groupLines(flow)
		out.Strays = len(flow.Strays())
	}
	slices.SortFunc(out.Partitions, func(a, b admin.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	slices.SortFunc(out.Groups, func(a, b admin.GroupLine) int { return cmp.Compare(a.Group, b.Group) })
	out.Health, out.Reason, out.Hint = e.health(out, flow)
	return out
}

// health judges a status: red if somebody has to look, yellow if a move would not go well.
func (e *Engine) health(s admin.VirtualClusterStatus, flow *replicator.Flow) (health, reason, hint string) {
	if err := e.Ready(); err != nil {
		return admin.Red, err.Error(), "clients are not served"
	}
	if err := distinct(e.clusters[e.cfg.Active], e.clusters[e.cfg.Standby]); err != nil {
		return admin.Red, err.Error(), "correct the bootstrap addresses"
	}
	if t := e.refused(); t != nil {
		return admin.Red, fmt.Sprintf("topic %s is not served: %v", t.Name, t.Refused), hintRefused
	}
	stopped := 0
	for _, p := range s.Partitions {
		if p.State == string(replicator.StateStopped) {
			stopped++
			reason, hint = fmt.Sprintf("partition %d of topic %s is not copied: %s", p.Partition, p.Topic, p.Reason), p.Hint
		}
	}
	if stopped > 1 {
		reason = fmt.Sprintf("%d partitions are not copied; the last: %s", stopped, reason)
	}
	if stopped > 0 {
		return admin.Red, reason, hint
	}
	if err := e.standbyProblem(flow); err != nil {
		return admin.Yellow, fmt.Sprintf("the standby gets no copies: %v", err), "clients are served; a move has to wait"
	}
	for _, g := range s.Groups {
		if g.State == "blocked" {
			return admin.Yellow, fmt.Sprintf("offsets of group %s are not followed: %s", g.Group, g.Reason), g.Hint
		}
	}
	if reason, hint := probing(s.Partitions); reason != "" {
		return admin.Yellow, reason, hint
	}
	if err := e.incompleteNow(); err != nil {
		return admin.Yellow, err.Error(), "clients cannot reach partitions that such brokers lead; if there is no room for them, raise broker_ports.count and restart"
	}
	if st := e.current().State; len(st.Identity.Nodes[st.Standby]) == 0 {
		return admin.Yellow, fmt.Sprintf("the brokers and versions of %s are not known yet", st.Standby), "they are asked for as soon as it answers; a move has to wait"
	}
	return admin.Green, "", ""
}

// probing tells of partitions that are not recovered, or that do not come on; one that has a reason before others.
func probing(partitions []admin.Partition) (reason, hint string) {
	for _, p := range partitions {
		switch {
		case p.State == string(replicator.StateCopying) && p.Reason == "", p.State != string(replicator.StateCopying) && p.State != string(replicator.StateProbing):
		case p.Reason != "":
			return fmt.Sprintf("partition %d of topic %s is not copied now: %s", p.Partition, p.Topic, p.Reason), p.Hint
		default:
			reason, hint = "some partitions are not copied yet", "they are being recovered"
		}
	}
	return reason, hint
}

func (e *Engine) standbyProblem(flow *replicator.Flow) error {
	if flow == nil {
		return errNoFlow
	}
	standby := e.current().State.Standby
	_, down := e.clusters[standby].health()
	return errors.Join(e.flowProblemNow(), flow.Err(), down)
}

func (e *Engine) incompleteNow() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.incomplete
}
