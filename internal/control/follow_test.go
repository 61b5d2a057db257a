package control

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAProcessIsToldThatAnotherOneTookOver(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	first, second := p.store(), p.store()
	follower := NewFollower(first)
	must(t, follower.Overtaken(ctx, 1))
	must(t, first.Fence(ctx))
	must(t, first.Save(ctx, sampleState(1, "blue", "green", Idle)))
	must(t, first.Fence(ctx)) // our own fence is nobody else's
	must(t, first.Save(ctx, sampleState(1, "blue", "green", Idle)))
	must(t, follower.Overtaken(ctx, 1))

	must(t, second.Fence(ctx))
	if err := follower.Overtaken(ctx, 1); !errors.Is(err, ErrOvertaken) || !strings.Contains(err.Error(), "taken over virtual cluster main") {
		t.Errorf("behind the fence of another process: %v", err)
	}
	must(t, second.Save(ctx, sampleState(2, "green", "blue", Committed)))
	err := follower.Overtaken(ctx, 1)
	if want := "another process moved virtual cluster main to generation 2 (green is active); run one process for each virtual cluster"; err == nil || err.Error() != want {
		t.Errorf("after its move: %v", err)
	}
	must(t, NewFollower(second).Overtaken(ctx, 2))

	p.clusters["green"].Close() // the copy on blue says the same
	if err := NewFollower(first).Overtaken(ctx, 1); !errors.Is(err, ErrOvertaken) {
		t.Errorf("with the new active down: %v", err)
	}
	p.clusters["blue"].Close()
	if err := NewFollower(first).Overtaken(ctx, 1); err != nil {
		t.Errorf("with both down: %v", err)
	}
}

// The marker of a fence of ours that failed after it was written is not another process.
func TestAFenceThatFailedHalfwayIsNotAnotherProcess(t *testing.T) {
	ctx, p := testContext(t), startPair(t)
	s := p.store()
	must(t, s.Fence(ctx))
	must(t, s.Save(ctx, sampleState(1, "blue", "green", Idle)))
	for _, c := range p.clusters {
		c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
			resp := r.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = kerr.UnknownServerError.Code
			return resp, nil, true
		})
	}
	if err := s.Fence(ctx); err == nil {
		t.Fatal("a fence whose marker cannot be read succeeded")
	}
	if err := NewFollower(s).Overtaken(ctx, 1); err != nil {
		t.Errorf("we are taken for another process: %v", err)
	}
	must(t, s.Fence(ctx))
	if err := NewFollower(s).Overtaken(ctx, 1); err != nil {
		t.Errorf("behind a fence that succeeded: %v", err)
	}
}
