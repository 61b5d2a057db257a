package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/proxy"
	"github.com/switchback-proxy/switchback/translate"
)

// reverseTimeout bounds one wait for the reverse flow, so that the operator sees why it does not run; the driver tries again.
const reverseTimeout = 15 * time.Second

// The seams of package cutover, each as a view of the engine. They hold nothing.

// flowSeam is cutover.Flow of whatever flow runs now.
type flowSeam struct{ e *Engine }

func (f flowSeam) Refresh(ctx context.Context) error {
	flow, err := f.e.needFlow()
	if err != nil {
		return err
	}
	return flow.Refresh(ctx)
}

func (f flowSeam) Ends(ctx context.Context) (map[cutover.TP]cutover.End, error) {
	flow, err := f.e.needFlow()
	if err != nil {
		return nil, err
	}
	run, _ := f.e.currentFlow()
	var ids map[string][16]byte
	var unknown error
	var asking sync.WaitGroup
	asking.Go(func() { ids, unknown = f.e.topicIDs(ctx, run.from) })
	ends, err := flow.Ends(ctx)
	asking.Wait()
	if err := errors.Join(err, unknown); err != nil {
		return nil, err
	}
	out := make(map[cutover.TP]cutover.End, len(ends))
	for tp, end := range ends {
		out[cutover.TP(tp)] = cutover.End{HighWatermark: end.High, LastStableOffset: end.Stable, LeaderEpoch: end.Epoch, TopicID: ids[tp.Topic]}
	}
	return out, nil
}

func (f flowSeam) Reach(ctx context.Context, ends map[cutover.TP]translate.Virtual, progress func(done, total int)) error {
	flow, err := f.e.needFlow()
	if err != nil {
		return err
	}
	in := make(map[journal.TP]translate.Virtual, len(ends))
	for tp, v := range ends {
		in[journal.TP(tp)] = v
	}
	return flow.Reach(ctx, in, progress)
}

func (f flowSeam) PrepareSeal(ctx context.Context) error {
	flow, err := f.e.needFlow()
	if err != nil {
		return err
	}
	return flow.PrepareSeal(ctx)
}

func (f flowSeam) Seal(ctx context.Context) (map[cutover.TP]cutover.Sealed, error) {
	flow, err := f.e.needFlow()
	if err != nil {
		return nil, err
	}
	sealed, err := flow.Seal(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[cutover.TP]cutover.Sealed, len(sealed))
	for tp, s := range sealed {
		out[cutover.TP(tp)] = cutover.Sealed{Frontier: s.Frontier, Next: s.Physical, TargetEpoch: s.TargetEpoch, TopicID: s.TargetTopicID}
	}
	return out, nil
}

func (f flowSeam) Unseal() {
	if _, flow := f.e.currentFlow(); flow != nil {
		flow.Unseal()
	}
}

func (f flowSeam) Settled(ctx context.Context) error {
	flow, err := f.e.needFlow()
	if err != nil {
		return err
	}
	return flow.Settled(ctx)
}

func (f flowSeam) FinalOffsets(ctx context.Context) (int, error) {
	flow, err := f.e.needFlow()
	if err != nil {
		return 0, err
	}
	return finalOffsets(ctx, flow, f.e.proxy)
}

// groupSeam is cutover.Groups of the proxy.
type groupSeam struct{ e *Engine }

func (g groupSeam) Prepare(ctx context.Context, to string) (cutover.Facts, error) {
	facts, err := g.e.proxy.PrepareGroups(ctx, to)
	return showGroups(facts), err
}

func (g groupSeam) Check(ctx context.Context) (cutover.Facts, error) {
	facts, err := g.e.proxy.CheckGroups(ctx)
	return showGroups(facts), err
}

func (g groupSeam) Records() []control.Group                { return g.e.proxy.GroupRecords() }
func (g groupSeam) Discard(ctx context.Context)             { g.e.proxy.DiscardGroups(ctx) }
func (g groupSeam) Retire(ctx context.Context, from string) { g.e.proxy.RetireGroups(ctx, from) }

func showGroups(f proxy.GroupFacts) cutover.Facts {
	out := cutover.Facts{
		"groups": int64(f.Groups), "members": int64(f.Members), "groups_moved": int64(f.Moved), "groups_at_barrier": int64(f.Barrier), "groups_idle": int64(f.Idle),
	}
	var reasons []string
	for group, reason := range f.Reasons {
		reasons = append(reasons, group+": "+reason)
	}
	if len(reasons) > 0 {
		slices.Sort(reasons)
		const shown = 10
		text := strings.Join(reasons[:min(len(reasons), shown)], "; ")
		if len(reasons) > shown {
			text += fmt.Sprintf("; and %d more", len(reasons)-shown)
		}
		out["barrier_reasons"] = text
	}
	return out
}

// siteSeam is cutover.Site of both clusters.
type siteSeam struct{ e *Engine }

// Inspect reads only; the first thing that stands in the way is the error.
func (s siteSeam) Inspect(ctx context.Context, from, to string) (cutover.Facts, error) {
	e := s.e
	for _, name := range []string{from, to} {
		if err := e.clusters[name].ping(ctx); err != nil {
			return nil, &cutover.Error{Code: cutover.CodeClusterDown, Message: err.Error(), Hint: "a planned move needs both clusters"}
		}
	}
	if err := distinct(e.clusters[from], e.clusters[to]); err != nil {
		return nil, err
	}
	id := e.current().State.Identity
	if err := e.incompleteNow(); err != nil || len(id.Nodes[to]) == 0 || len(id.Nodes[from]) == 0 {
		failure := &cutover.Error{Code: "identity_incomplete", Message: "it is not known yet which brokers and versions both clusters have", Hint: "wait a few seconds after both have come up, or see the status"}
		if err != nil {
			failure.Message = err.Error()
		}
		return nil, failure
	}
	versions, err := e.clusters[to].apiVersions(ctx)
	if err != nil {
		return nil, err
	}
	if missing := lacking(id.Versions, versions); missing != "" {
		return nil, &cutover.Error{Code: "versions_missing", Message: fmt.Sprintf("%s does not speak %s, which clients were offered", to, missing), Hint: "upgrade its brokers first"}
	}
	return e.inspectFlow()
}

// inspectFlow says how far behind the standby is; a stopped partition is an error.
func (e *Engine) inspectFlow() (cutover.Facts, error) {
	flow, err := e.needFlow()
	if err == nil {
		err = flow.Err()
	}
	if err != nil {
		return nil, &cutover.Error{Code: "no_flow", Message: fmt.Sprintf("the standby gets no copies: %v", err), Hint: "see the status"}
	}
	list := flow.Status()
	records, worst := int64(0), int64(0)
	for _, p := range list {
		if p.State == "Stopped" {
			return nil, &cutover.Error{
				Code: "partition_stopped", Message: fmt.Sprintf("partition %d of topic %s is not copied: %s", p.Partition, p.Topic, p.Reason), Hint: p.Hint,
			}
		}
		records, worst = records+max(p.LagRecords, 0), max(worst, p.LagMillis)
	}
	return cutover.Facts{"partitions": int64(len(list)), "lag_records": records, "lag_ms": worst}, nil
}

// Warm makes the target's coordinators, internal topics and producer id blocks, which cost seconds the first time.
func (s siteSeam) Warm(ctx context.Context, to string) (cutover.Facts, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	client := s.e.clusters[to].client
	for _, kind := range []int8{0, 1} { // groups, transactions
		err := untilReady(ctx, func() (int16, error) {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, clientID, []string{clientID}
			resp, err := req.RequestWith(ctx, client)
			if err != nil {
				return 0, err
			}
			if len(resp.Coordinators) > 0 {
				return resp.Coordinators[0].ErrorCode, nil
			}
			return resp.ErrorCode, nil
		})
		if err != nil {
			return nil, fmt.Errorf("find a coordinator on %s: %w", to, err)
		}
	}
	err := untilReady(ctx, func() (int16, error) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
	if err != nil {
		return nil, fmt.Errorf("get a producer id on %s: %w", to, err)
	}
	return cutover.Facts{"warm_ms": time.Since(began).Milliseconds()}, nil
}

func (s siteSeam) Gone(ctx context.Context, topics []string) ([]string, error) {
	gone := topics
	for name := range s.e.clusters {
		var err error
		if gone, err = s.e.absent(ctx, name, gone); err != nil {
			return nil, err
		}
	}
	return gone, nil
}

// warmTimeout is enough for internal topics that have to be created.
const warmTimeout = time.Minute

// untilReady asks again while the answer is one that passes, or the connection was closed before it: a broker restarts.
func untilReady(ctx context.Context, ask func() (int16, error)) error {
	for {
		code, err := ask()
		if err == nil {
			err = kerr.ErrorForCode(code)
		}
		var closed *kgo.ErrFirstReadEOF
		if err == nil || !kerr.IsRetriable(err) && !errors.As(err, &closed) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// routerSeam is cutover.Router.
type routerSeam struct{ e *Engine }

// Publish takes the maps from the flow that was just sealed, or, in a process that did not run it, from the journal.
func (r routerSeam) Publish(ctx context.Context, s control.Snapshot) error {
	for _, t := range s.Topics {
		if misfit(s.State, t) == nil { // clients wait: ask only if there is something to ask for
			continue
		}
		if live, _, err := r.e.liveTopics(ctx, s); err == nil { // else what does not fit is refused, and watch asks again
			s = live
		}
		break
	}
	run, flow := r.e.currentFlow()
	var route proxy.Route
	var err error
	if flow != nil && run.from == s.State.Standby && run.to == s.State.Active {
		route, err = routeFrom(s, flow.Partition)
	} else {
		route, err = r.e.loadRoute(ctx, s)
	}
	if err != nil {
		return err
	}
	r.e.setCurrent(s, &route)
	r.e.proxy.Publish(route)
	r.e.noteRefused(&route)
	return nil
}

// Reverse makes the flow of what was published: of s without the topics that are gone.
func (r routerSeam) Reverse(ctx context.Context, s control.Snapshot) error {
	e := r.e
	if run, _ := e.currentFlow(); run == nil || run.from != s.State.Active {
		e.stopFlow()
		e.startFlow(e.view())
	}
	ctx, cancel := context.WithTimeout(ctx, reverseTimeout)
	defer cancel()
	if err := e.flowProblemNow(); err != nil {
		return err
	}
	_, flow := e.currentFlow()
	return flow.Refresh(ctx)
}
