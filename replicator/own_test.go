package replicator

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The deadline may end the last request, whose error then says nothing.
func TestWhatACoordinatorSaidLastIsToldWhenTheTimeIsOver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := retryTxn(ctx, "own slot", func() (int16, error) {
		if asked++; asked == 1 {
			return kerr.ConcurrentTransactions.Code, nil
		}
		cancel()
		return 0, ctx.Err()
	})
	if !errors.Is(err, kerr.ConcurrentTransactions) || !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
