package replicator

import (
	"context"
	"errors"
	"fmt"
)

// errReseed ends a reign because a topic of the slot is to be copied anew.
var errReseed = errors.New("a topic is copied anew")

// Reseed copies a topic anew, from the source's log start, after its topic on one of the two clusters was deleted and made
// again. What the journal knows of it is dropped. A target that still has records stays stopped: delete the topic there
// first, or readers of the target would find them twice. It is refused when the topic has been through a cutover: then the
// source alone does not know which virtual offsets it had.
func (f *Flow) Reseed(ctx context.Context, topic string) error {
	if err := f.begun(ctx); err != nil {
		return err
	}
	if err := f.discovering.take(ctx); err != nil {
		return err
	}
	var old []*pump
	for _, p := range f.allPumps() {
		if p.tp.Topic == topic {
			old = append(old, p)
		}
	}
	err := f.mayReseed(topic, old)
	if err == nil {
		for _, p := range old {
			f.uproot(p)
		}
	}
	f.discovering.put()
	if err != nil {
		return err
	}
	if err := f.refresh(ctx); err != nil {
		return err
	}
	if err := f.discover(ctx); err != nil {
		return err
	}
	for _, p := range old {
		p.slot.end(errReseed)
	}
	return f.Refresh(ctx)
}

func (f *Flow) mayReseed(topic string, pumps []*pump) error {
	if len(pumps) == 0 {
		return fmt.Errorf("topic %s is not copied", topic)
	}
	for _, p := range pumps {
		if len(p.eras()) > 1 {
			return fmt.Errorf("topic %s has been through a cutover; it cannot be copied anew from %s alone", topic, f.cfg.From)
		}
	}
	return nil
}

// uproot forgets a pump. The reign that still runs it is ended by the caller.
func (f *Flow) uproot(p *pump) {
	f.mu.Lock()
	delete(f.pumps, p.tp)
	f.reseeding[p.tp] = true
	f.mu.Unlock()
	p.slot.remove(p)
	f.fetchers.remove(p.feed)
	f.groups.lose(p.tp)
}

// end ends the present reign; the next one begins at once.
func (s *slot) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endNow(why)
}

// endNow is called with mu held. A sealed slot stays as it is: nothing is written there, and no marker must be.
func (s *slot) endNow(why error) {
	if s.mode == copying && s.abandon != nil {
		s.abandon(why)
	}
}
