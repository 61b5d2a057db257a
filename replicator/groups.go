package replicator

import "context"

type groupSync struct{ flow *Flow }

func newGroupSync(f *Flow) *groupSync { return &groupSync{f} }

func (g *groupSync) run(ctx context.Context) { <-ctx.Done() }
