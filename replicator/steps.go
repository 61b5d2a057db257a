package replicator

import (
	"time"

	"github.com/rs/zerolog"
)

// steps are the parts of a recovery and how long each took.
type steps struct {
	last time.Time
	done []step
}

type step struct {
	name string
	took time.Duration
}

func newSteps() *steps { return &steps{last: time.Now()} }

// step ends a step.
func (s *steps) step(name string) {
	now := time.Now()
	s.done = append(s.done, step{name, now.Sub(s.last)})
	s.last = now
}

func (s *steps) MarshalZerologObject(e *zerolog.Event) {
	for _, one := range s.done {
		e.Int64(one.name, one.took.Milliseconds())
	}
}
