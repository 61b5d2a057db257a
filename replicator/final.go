package replicator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
)

// FinalOffsets translates every group's offsets and stores them on the target, after Seal. as says as which member to commit;
// if ok is false, the group has no members there. What fails for a reason that passes is tried until ctx ends. It returns how
// many offsets it committed.
//
// A group that is empty on the source and has members of its own on the target keeps what it has there. One that has members
// on both sides is an error: nobody can say where it stands.
//
// What the source has no more is deleted on the target: of groups that this flow stored, and, if the target was active
// before, of all groups, because then what it has is from an earlier era.
func (f *Flow) FinalOffsets(ctx context.Context, as func(group string) (Member, bool)) (int, error) {
	if err := f.begun(ctx); err != nil {
		return 0, err
	}
	g := f.groups
	if err := g.polling.take(ctx); err != nil {
		return 0, err
	}
	defer g.polling.put()
	var total int
	err := again(ctx, func() error {
		n, err := g.final(ctx, as)
		total += n
		return err
	})
	return total, err
}

// again asks until it works, fails for good, or ctx ends.
func again(ctx context.Context, do func() error) error {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		err := do()
		if err == nil || !passes(err) {
			return err
		}
		if stopped := sleep(ctx, wait); stopped != nil {
			return errors.Join(stopped, err)
		}
	}
}

// passes: the error may be gone when it is tried again.
func passes(err error) bool {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Retriable || errors.Is(err, kerr.RebalanceInProgress)
	}
	return true // a connection
}

func (g *groupSync) final(ctx context.Context, as func(group string) (Member, bool)) (int, error) {
	g.takeLost()
	groups, err := g.read(ctx, g.flow.source)
	if err != nil {
		return 0, err
	}
	if g.flow.cfg.Generation > 1 {
		if err := g.learn(ctx); err != nil {
			return 0, err
		}
	}
	total := 0
	var errs []error
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		member, ok := as(group)
		if !ok {
			member = Member{Generation: -1}
		}
		if g.unsure[group] { // what was stored since may have been overwritten
			g.doubt(group, g.stored[group], nil)
		}
		n, err := g.store(ctx, group, g.translate(group, groups[group]), member)
		total += n
		if !ok && isMembersThere(err) && g.emptyOnSource(ctx, group) {
			_ = g.note(group, err) // it has moved to the target by itself: what it commits there is newer than what we have
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("store the offsets of group %s: %w", group, err))
			continue
		}
		delete(g.unsure, group)
		g.mu.Lock()
		g.state(group).at = time.Now()
		g.mu.Unlock()
	}
	for _, group := range slices.Sorted(maps.Keys(g.stored)) {
		if _, there := groups[group]; !there {
			errs = append(errs, g.remove(ctx, group, g.stored[group]))
		}
	}
	return total, errors.Join(errs...)
}

// emptyOnSource says that a group has no members on the source any more.
func (g *groupSync) emptyOnSource(ctx context.Context, group string) bool {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, g.flow.source.client)
	return err == nil && len(resp.Groups) == 1 && resp.Groups[0].ErrorCode == 0 && resp.Groups[0].State == "Empty"
}

// learn reads what the target has, of the copied partitions.
func (g *groupSync) learn(ctx context.Context) error {
	f := g.flow
	there, err := g.read(ctx, f.target)
	if err != nil {
		return err
	}
	for group, all := range there {
		have := offsets{}
		for on, o := range all {
			virtual, ok := f.cfg.TargetNames.Virtual(on.Topic)
			tp := journal.TP{Topic: virtual, Partition: on.Partition}
			if ok && f.pump(tp) != nil {
				have[tp] = o
			}
		}
		g.stored[group] = have
	}
	return nil
}
