package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/switchback-proxy/switchback/translate"
)

const (
	// readTimeout bounds how long Load waits for a log that does not answer.
	readTimeout = 5 * time.Second
	// copyTimeout bounds the copy to the other log; shutCopyTimeout does while clients wait at the gate.
	copyTimeout     = 5 * time.Second
	shutCopyTimeout = 500 * time.Millisecond
	// maxFences bounds how often one write becomes the writer anew.
	maxFences = 8
)

// ErrUndecided says that only a log which cannot be read now knows whether a cutover was committed.
var ErrUndecided = errors.New("it is not known whether a cutover was committed")

// Store is both logs of one virtual cluster. Methods may be called from any goroutine.
type Store struct {
	vc   string
	logs map[string]*Log // by cluster; never changed

	turns map[string]chan struct{} // by cluster; holds one token, which fence takes: one at a time becomes the writer

	mu       sync.Mutex // guards what follows; never held across I/O
	writers  map[string]*Writer
	unfenced map[string]error // by cluster: why Fence failed and no fence has succeeded since. Such a log has no writer
}

// NewStore joins the logs of a virtual cluster, by cluster.
func NewStore(vc string, logs map[string]*Log) *Store {
	s := &Store{vc: vc, logs: logs, turns: make(map[string]chan struct{}), writers: make(map[string]*Writer), unfenced: make(map[string]error)}
	for cluster := range logs {
		s.turns[cluster] = make(chan struct{}, 1)
		s.turns[cluster] <- struct{}{}
	}
	return s
}

// clusters are the names of the logs, sorted.
func (s *Store) clusters() []string {
	names := make([]string, 0, len(s.logs))
	for name := range s.logs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

type reading struct {
	cluster  string
	snap     Snapshot // eras of every generation
	err      error
	unfenced error // why more may follow that was sent earlier; nil behind a fence, and for a Store that never fenced
}

// open says why the log may hold more than was read; nil if it does not.
func (r *reading) open() error {
	if r.err != nil {
		return r.err
	}
	return r.unfenced
}

// Load reads both logs. The state of the highest generation wins; of two equal ones that on the log of its active
// cluster, because that is where it is decided. Topics and groups are those of the log of the active cluster, or of the
// other one if that cannot be read. A log that Fence could not fence counts for what it says, and not for what it lacks.
// ErrUndecided if a log that cannot be read, or may still grow, may come to hold a Committed that matters.
func (s *Store) Load(ctx context.Context) (Snapshot, error) {
	return decide(s.readAll(ctx))
}

func (s *Store) readAll(ctx context.Context) []reading {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	names := s.clusters()
	readings := make([]reading, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() { readings[i] = s.read(ctx, name) })
	}
	all.Wait()
	return readings
}

func (s *Store) read(ctx context.Context, cluster string) reading {
	r := reading{cluster: cluster, unfenced: s.notFenced(cluster)} // before the log is read: a fence that succeeds later is behind what is read
	f, err := s.logs[cluster].read(ctx)
	if err != nil {
		r.err = err
		return r
	}
	r.snap, r.err = f.snapshot(s.vc)
	return r
}

// decide is the rule of two logs; pure.
func decide(readings []reading) (Snapshot, error) {
	var unread []string
	var failures []error
	var best *reading
	for i := range readings {
		r := &readings[i]
		if err := r.open(); err != nil {
			unread, failures = append(unread, r.cluster), append(failures, err)
		}
		switch {
		case r.err != nil || r.snap.State.Generation == 0:
		case best == nil || r.beats(best):
			best = r
		}
	}
	if len(unread) == len(readings) {
		return Snapshot{}, errors.Join(failures...)
	}
	out := Snapshot{Unread: unread, Topics: make(map[string]Topic), Groups: make(map[string]Group)}
	if best != nil {
		out.State = best.snap.State
		records := best
		for i := range readings {
			if r := &readings[i]; r.err == nil && r.cluster == out.State.Active {
				records = r
			}
		}
		out.Topics, out.Groups = records.snap.Topics, records.snap.Groups
		out.FromCopy = records.cluster != out.State.Active
		out = out.upTo(out.State.Generation)
	}
	if len(unread) == 0 {
		return out, nil
	}
	return assume(out, best, failures)
}

func (r *reading) beats(best *reading) bool {
	a, b := r.snap.State, best.snap.State
	return a.Generation > b.Generation || a.Generation == b.Generation && r.cluster == a.Active
}

// assume says what a snapshot rests on while the other log cannot be read, or may still grow. A move away from a cluster is
// decided on the other one: so the standby's log is sure of the generation, and the active's is, unless a move was about to
// be committed.
func assume(out Snapshot, best *reading, failures []error) (Snapshot, error) {
	missing := strings.Join(out.Unread, ", ")
	switch {
	case best == nil:
		out.Assumed = fmt.Sprintf("the control log of %s cannot be read or not be fenced (%v), and there is no other record: assumed that this is the first start", missing, errors.Join(failures...))
	case best.cluster != out.State.Active:
		out.Assumed = fmt.Sprintf("the control log of %s, which is active, cannot be read: topics and groups are from the copy on %s", missing, best.cluster)
	case best.unfenced != nil:
		out.Assumed = fmt.Sprintf("the control log of %s, which is active, cannot be fenced: assumed that no other process writes it", missing)
	case out.State.Phase == Translating:
		return out, fmt.Errorf("%w: %s was moving from %s to %s, and only the control log of %s says how that ended: %w", ErrUndecided,
			out.State.VirtualCluster, out.State.Active, out.State.Standby, missing, errors.Join(failures...))
	default:
		out.Assumed = fmt.Sprintf("the control log of %s cannot be read or not be fenced: assumed that no later move was committed there", missing)
	}
	return out, nil
}

// Fence makes the caller the writer of every log that can be reached; an error if there is none, or if somebody else
// fences at the same time. What was sent to a log that could not be fenced may still be written: it has no writer from
// here on, because the one before might send it again, and Load counts it as not read until a fence succeeds. That is tried
// by the next Fence, by FenceRest, and before anything is written there.
func (s *Store) Fence(ctx context.Context) error { return s.fenceAll(ctx, s.clusters()) }

// FenceRest tries again to fence the logs that Fence could not; nothing is done if there are none.
func (s *Store) FenceRest(ctx context.Context) error {
	s.mu.Lock()
	names := slices.Sorted(maps.Keys(s.unfenced))
	s.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	return s.fenceAll(ctx, names)
}

func (s *Store) fenceAll(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			if _, errs[i] = s.fence(ctx, name); errs[i] != nil {
				s.setUnfenced(name, errs[i])
			}
		})
	}
	all.Wait()
	reached := 0
	for _, err := range errs {
		if errors.Is(err, ErrFenced) {
			return err
		}
		if err == nil {
			reached++
		}
	}
	if reached == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// setUnfenced notes that a log could not be fenced. One that somebody else fences at the same time keeps its writer, which is
// refused from now on: so a write says that another process drives, and does not fence that one in turn.
func (s *Store) setUnfenced(cluster string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, ErrFenced) {
		delete(s.writers, cluster)
		s.unfenced[cluster] = fmt.Errorf("it could not be fenced: %w", err)
	}
}

func (s *Store) notFenced(cluster string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfenced[cluster]
}

// fence becomes the writer of one log. The writer before it, if it is ours, is fenced by that as well.
func (s *Store) fence(ctx context.Context, cluster string) (*Writer, error) {
	if err := s.takeTurn(ctx, cluster); err != nil {
		return nil, err
	}
	defer s.giveTurn(cluster)
	w, err := s.logs[cluster].Fence(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.writers[cluster] = w
	delete(s.unfenced, cluster)
	return w, nil
}

func (s *Store) takeTurn(ctx context.Context, cluster string) error {
	select {
	case <-s.turns[cluster]:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Store) giveTurn(cluster string) { s.turns[cluster] <- struct{}{} }

func (s *Store) writer(cluster string) *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writers[cluster]
}

// put writes to one log, fencing it first if this Store is not its writer yet, or not any more for another reason than
// that somebody else is.
func (s *Store) put(ctx context.Context, cluster string, records ...Record) error {
	if s.logs[cluster] == nil {
		return fmt.Errorf("there is no control log of cluster %q", cluster)
	}
	for range maxFences {
		w := s.writer(cluster)
		if w == nil {
			var err error
			if w, err = s.fence(ctx, cluster); err != nil {
				return err
			}
		}
		err := w.Put(ctx, records...)
		if !errors.Is(err, ErrMustFence) && !errors.Is(err, ErrFenced) {
			return err
		}
		if s.replaced(ctx, cluster, w) { // a Fence of ours came in between
			continue
		}
		if errors.Is(err, ErrFenced) {
			return err
		}
		if _, err := s.fence(ctx, cluster); err != nil {
			return err
		}
	}
	return fmt.Errorf("write the control log of %s on %s: %w", s.vc, cluster, ErrMustFence)
}

// replaced waits for a fence of ours under way and says whether another writer has taken the place of w.
func (s *Store) replaced(ctx context.Context, cluster string, w *Writer) bool {
	if err := s.takeTurn(ctx, cluster); err != nil {
		return false
	}
	defer s.giveTurn(cluster)
	return s.writer(cluster) != w
}

// Save writes a state to the log of the cluster that is active in it: for Committed that is the target's, which is the
// decision. Then the other log gets a copy, if nothing runs or the decision is made; that it cannot be had is no error.
func (s *Store) Save(ctx context.Context, st State) error {
	record, err := StateRecord(st)
	if err != nil {
		return err
	}
	if err := s.put(ctx, st.Active, record); err != nil {
		return err
	}
	if st.Phase.BeforeCommitted() {
		return nil
	}
	timeout := copyTimeout
	if st.Phase == Committed || st.Phase == Switching {
		timeout = shutCopyTimeout
	}
	if log := s.logs[st.Standby]; log == nil || log.reachable() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_ = s.put(ctx, st.Standby, record) // a copy: the decision stands without it
	return nil
}

// PutTopics writes topic records to the log of one cluster.
func (s *Store) PutTopics(ctx context.Context, cluster string, topics []Topic) error {
	records := make([]Record, len(topics))
	for i, t := range topics {
		var err error
		if records[i], err = TopicRecord(s.vc, t); err != nil {
			return err
		}
	}
	return s.putSome(ctx, cluster, records)
}

// PutGroups writes group records to the log of one cluster.
func (s *Store) PutGroups(ctx context.Context, cluster string, groups []Group) error {
	records := make([]Record, len(groups))
	for i, g := range groups {
		var err error
		if records[i], err = GroupRecord(s.vc, g); err != nil {
			return err
		}
	}
	return s.putSome(ctx, cluster, records)
}

// RemoveTopics removes the records of topics from the log of one cluster.
func (s *Store) RemoveTopics(ctx context.Context, cluster string, names []string) error {
	records := make([]Record, len(names))
	for i, name := range names {
		records[i] = Record{Key: topicKey(s.vc, name)}
	}
	return s.putSome(ctx, cluster, records)
}

func (s *Store) putSome(ctx context.Context, cluster string, records []Record) error {
	if len(records) == 0 {
		return nil
	}
	return s.put(ctx, cluster, records...)
}

// DropStale takes out of the log of a cluster what must not count once a move there is committed: the eras above generation
// g, left by a move that went back, and the topics that gone says are no more, which the move will not write.
func (s *Store) DropStale(ctx context.Context, cluster string, g translate.Generation, gone func(ctx context.Context, topics []string) ([]string, error)) error {
	if s.logs[cluster] == nil {
		return fmt.Errorf("there is no control log of cluster %q", cluster)
	}
	r := s.read(ctx, cluster)
	if r.err != nil {
		return r.err
	}
	names, err := gone(ctx, slices.Sorted(maps.Keys(r.snap.Topics)))
	if err != nil {
		return err
	}
	records, err := stale(s.vc, r.snap, g, names)
	if err != nil {
		return err
	}
	return s.putSome(ctx, cluster, records)
}

// stale are the records to write: topics without the eras above g, removed if nothing is left or they are gone.
func stale(vc string, snap Snapshot, g translate.Generation, gone []string) ([]Record, error) {
	var records []Record
	all := Snapshot{Topics: maps.Clone(snap.Topics)}.upTo(g)
	for name, t := range snap.Topics {
		kept, left := all.Topics[name]
		switch {
		case !left || slices.Contains(gone, name):
			records = append(records, Record{Key: topicKey(vc, name)})
		case eraCount(kept) != eraCount(t):
			r, err := TopicRecord(vc, kept)
			if err != nil {
				return nil, err
			}
			records = append(records, r)
		}
	}
	return records, nil
}

func eraCount(t Topic) (n int) {
	for _, eras := range t.Partitions {
		n += len(eras)
	}
	return n
}
