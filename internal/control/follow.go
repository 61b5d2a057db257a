package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/switchback-proxy/switchback/translate"
)

// followTimeout bounds one look at both logs.
const followTimeout = 3 * time.Second

// ErrOvertaken says that another process drives the virtual cluster, and may move its clients, or has.
var ErrOvertaken = errors.New("run one process for each virtual cluster")

// Follower reads what others write to the logs of a Store. Only what is new in a log is read. It is used by one goroutine.
type Follower struct {
	store *Store
	folds map[string]*fold // by cluster; of the state alone
}

// NewFollower has read nothing yet.
func NewFollower(s *Store) *Follower { return &Follower{store: s, folds: make(map[string]*fold)} }

// Overtaken is an ErrOvertaken if a log tells of a generation above the caller's, or was fenced by somebody else. A log that
// cannot be read now says nothing. While the caller drives a cutover itself, the answer has no meaning.
func (f *Follower) Overtaken(ctx context.Context, own translate.Generation) error {
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	names := f.store.clusters()
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		known := f.folds[name]
		if known == nil {
			known = newFold()
			f.folds[name] = known
		}
		all.Go(func() { errs[i] = f.look(ctx, name, known, own) })
	}
	all.Wait()
	var fenced error
	for _, err := range errs {
		var moved movedError
		if errors.As(err, &moved) { // says more
			return err
		}
		if errors.Is(err, ErrOvertaken) {
			fenced = err
		}
	}
	return fenced
}

// movedError is an ErrOvertaken that has a new generation.
type movedError struct{ State }

func (m movedError) Error() string {
	return fmt.Sprintf("another process moved virtual cluster %s to generation %d (%s is active); %v", m.VirtualCluster, m.Generation, m.Active, ErrOvertaken)
}

func (m movedError) Unwrap() error { return ErrOvertaken }

// look reads on in one log.
func (f *Follower) look(ctx context.Context, cluster string, known *fold, own translate.Generation) error {
	s := f.store
	log, w := s.logs[cluster], s.writer(cluster) // w first: what fences it is behind its own marker
	if err := log.open(ctx); err != nil {
		return err
	}
	err := retry(ctx, func() error { return log.readTo(ctx, known, until{}) })
	if errors.Is(err, kerr.OffsetOutOfRange) { // another log by the same name
		*known = *newFold()
	}
	if err != nil {
		return err
	}
	maps.DeleteFunc(known.values, func(key string, _ []byte) bool { return !strings.HasPrefix(key, "state/") })
	snap, err := known.snapshot(s.vc)
	if err != nil {
		return err
	}
	if snap.State.Generation > own {
		return movedError{snap.State}
	}
	if w == nil || !known.fenced(w) || s.replaced(ctx, cluster, w) || log.halfway.Load() || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("another process has taken over virtual cluster %s: it writes the control log on %s; %w", s.vc, cluster, ErrOvertaken)
}

// fenced says whether a newer marker than that of w was read.
func (f *fold) fenced(w *Writer) bool {
	return f.superseded[w.producerID] || f.owned && f.producerID == w.producerID && f.epoch > w.epoch
}
