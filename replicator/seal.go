package replicator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/journal"
	"github.com/switchback-proxy/switchback/translate"
)

// End is where a partition's log ends on the source, read from its leader.
type End struct {
	High, Stable translate.Virtual // high watermark and last stable offset, exclusive
	Epoch        translate.RealEpoch
}

// Sealed is where a partition stands when nothing is written any more.
type Sealed struct {
	Frontier      translate.Virtual
	Physical      translate.Physical // the next offset on the target
	TargetEpoch   translate.RealEpoch
	TargetTopicID [16]byte
}

func (s *slot) isSealed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mode == sealed
}

// begun waits until the flow runs.
func (f *Flow) begun(ctx context.Context) error {
	select {
	case <-f.ready:
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), f.Err())
	}
}

// Refresh looks for topics and partitions now. When it returns without an error, each one exists on the target and its pump
// is recovered, or stopped.
func (f *Flow) Refresh(ctx context.Context) error {
	if err := f.begun(ctx); err != nil {
		return err
	}
	if err := f.refresh(ctx); err != nil {
		return journal.Cause(ctx, err)
	}
	if err := f.discover(ctx); err != nil {
		return journal.Cause(ctx, err)
	}
	for _, s := range f.slots {
		s.wakeUp()
	}
	for _, p := range f.allPumps() {
		err := f.await(ctx, func() bool {
			s := p.status()
			return s.State != StateProbing
		})
		if err != nil {
			return fmt.Errorf("pump of %v: %w", p.tp, err)
		}
	}
	return nil
}

// await waits until ok, asked again after each change.
func (f *Flow) await(ctx context.Context, ok func() bool) error {
	for {
		changed := f.progress.wait()
		if ok() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// Ends reads the ends of all partitions from their leaders. While an election passes it asks again, for a short time: clients may
// be waiting.
func (f *Flow) Ends(ctx context.Context) (map[journal.TP]End, error) {
	if err := f.begun(ctx); err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		ends, err := f.endsNow(ctx)
		if !kerr.IsRetriable(err) || time.Since(began) > endsTimeout {
			return ends, err
		}
		f.source.kick()
		if stopped := sleep(ctx, kickInterval); stopped != nil {
			return nil, errors.Join(stopped, err)
		}
	}
}

// endsTimeout is how long leaders may be in the making.
const endsTimeout = 3 * time.Second

func (f *Flow) endsNow(ctx context.Context) (map[journal.TP]End, error) {
	pumps := map[sentPartition]*pump{}
	for _, p := range f.allPumps() {
		pumps[sentPartition{p.source, p.tp.Partition}] = p
	}
	var high, stable map[sentPartition]translate.Physical
	var epochs map[sentPartition]translate.RealEpoch
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { high, epochs, errs[0] = f.listEnds(ctx, pumps, 0) })
	both.Go(func() { stable, _, errs[1] = f.listEnds(ctx, pumps, 1) })
	both.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	out := make(map[journal.TP]End, len(pumps))
	for key, p := range pumps {
		era := p.newestEra()
		v := func(at translate.Physical) translate.Virtual { return translate.Virtual(at-era.Physical) + era.Virtual }
		out[p.tp] = End{v(high[key]), v(stable[key]), epochs[key]}
	}
	return out, nil
}

func (f *Flow) listEnds(ctx context.Context, pumps map[sentPartition]*pump, isolation int8) (map[sentPartition]translate.Physical, map[sentPartition]translate.RealEpoch, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = isolation
	at := map[string]int{}
	for key := range pumps {
		i, ok := at[key.topic]
		if !ok {
			i = len(req.Topics)
			at[key.topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = key.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = key.partition, journal.Latest
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	ends := make(map[sentPartition]translate.Physical, len(pumps))
	epochs := make(map[sentPartition]translate.RealEpoch, len(pumps))
	if len(pumps) == 0 {
		return ends, epochs, nil
	}
	resp, err := req.RequestWith(ctx, f.source.client)
	if err != nil {
		return nil, nil, journal.Cause(ctx, fmt.Errorf("ends of %s: %w", f.cfg.From, err))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, nil, fmt.Errorf("end of %s-%d on %s: %w", t.Topic, p.Partition, f.cfg.From, err)
			}
			key := sentPartition{t.Topic, p.Partition}
			ends[key], epochs[key] = translate.Physical(p.Offset), translate.RealEpoch(p.LeaderEpoch)
		}
	}
	if len(ends) != len(pumps) {
		return nil, nil, fmt.Errorf("%s told %d ends of %d", f.cfg.From, len(ends), len(pumps))
	}
	return ends, epochs, nil
}

// Reach waits until each pump's frontier is at or above its end. It fails at once when a pump is stopped, or is not there.
// progress, if not nil, is told how many have arrived.
func (f *Flow) Reach(ctx context.Context, ends map[journal.TP]translate.Virtual, progress func(done, total int)) error {
	if err := f.begun(ctx); err != nil {
		return err
	}
	defer f.pace.hurry()()
	var failed error
	told := -1
	err := f.await(ctx, func() bool {
		done := 0
		for tp, end := range ends {
			p := f.pump(tp)
			if p == nil {
				failed = fmt.Errorf("%v is not copied", tp)
				return true
			}
			frontier, t := p.standing()
			switch {
			case frontier >= end:
				done++
			case t != nil:
				failed = fmt.Errorf("%v is stopped: %w", tp, t)
				return true
			}
		}
		if progress != nil && done != told {
			told = done
			progress(done, len(ends))
		}
		return done == len(ends)
	})
	return errors.Join(failed, err)
}

// standing is the frontier (−1: not known), and why the pump is stopped, if it is.
func (p *pump) standing() (translate.Virtual, *trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.part == nil {
		return -1, p.anyTrouble()
	}
	return p.part.Frontier(), p.anyTrouble()
}

// PrepareSeal does the half of Seal's fences that stops nothing, so that Seal takes less time, and fails if a slot could not be
// fenced. Unseal takes it back. One of them is to follow soon: a coordinator ends a transaction that stays open for
// txnTimeoutMillis, and then the slots are owned anew.
func (f *Flow) PrepareSeal(ctx context.Context) error {
	if err := f.begun(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	errs := make([]error, len(f.slots))
	var all sync.WaitGroup
	for i, s := range f.slots {
		all.Go(func() { errs[i] = again(ctx, func() error { return s.prepareSeal(ctx) }) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// prepareTimeout is what a coordinator may take that loads, or that still ends the last transaction of a slot.
const prepareTimeout = 15 * time.Second

// Seal stops all pumps, fences all slots anew and reads the markers. From its return on nothing of this flow is written, nor
// will be, until Unseal, but for the settled records of what is in the logs: see Settled. Partitions that cannot be sealed are errors; all slots stay sealed then
// as well. Group offsets are left alone too, but for FinalOffsets.
func (f *Flow) Seal(ctx context.Context) (map[journal.TP]Sealed, error) {
	if err := f.begun(ctx); err != nil {
		return nil, err
	}
	if err := f.groups.pause(ctx); err != nil {
		return nil, fmt.Errorf("wait for group offsets that are being stored: %w", err)
	}
	var waits []<-chan struct{}
	for _, s := range f.slots {
		waits = append(waits, s.set(sealed))
	}
	for i, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
			return nil, fmt.Errorf("seal slot %d: %w", i, errors.Join(context.Cause(ctx), f.slots[i].why()))
		}
	}
	out := map[journal.TP]Sealed{}
	var errs []error
	for _, p := range f.allPumps() {
		s, err := p.sealed()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[p.tp] = s
	}
	return out, errors.Join(errs...)
}

// Settled waits, after Seal, until the journal says all of what is in the logs: who reads it later, and the next flow in this
// direction, know nothing else of it. No move may be committed before.
func (f *Flow) Settled(ctx context.Context) error {
	for i, s := range f.slots {
		s.mu.Lock()
		settled := s.settled
		s.mu.Unlock()
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("settle slot %d: %w", i, errors.Join(context.Cause(ctx), s.why()))
		}
	}
	return nil
}

func (s *slot) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

func (p *pump) sealed() (Sealed, error) {
	_, epoch, _ := p.flow.target.leader(p.target, p.tp.Partition)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch t := p.anyTrouble(); {
	case t != nil:
		return Sealed{}, fmt.Errorf("%v is stopped: %w", p.tp, t)
	case p.part == nil || p.state != StateSealed:
		return Sealed{}, fmt.Errorf("%v could not be fenced: its leader on the target is not there", p.tp)
	}
	epoch = max(epoch, p.part.Last.Epoch) // that of our marker
	return Sealed{p.part.Frontier(), p.part.PhysicalEnd, epoch, p.targetID}, nil
}

// Unseal lets the slots start anew: the cutover went back.
func (f *Flow) Unseal() {
	for _, s := range f.slots {
		s.set(copying)
	}
	f.groups.resume()
}

// ownerNow is the identity that the slot was last owned with.
func (s *slot) ownerNow() journal.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}
