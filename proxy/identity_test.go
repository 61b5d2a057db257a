package proxy

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/switchback-proxy/switchback/internal/testkit"
)

// Sessions share look-ups. One that ends must not fail those of the others: their clients would be told that topics have no leaders.
func TestALookUpOutlivesTheSessionThatAskedFirst(t *testing.T) {
	kafka, err := testkit.StartKafka(1, "blue")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	asked, answer := make(chan struct{}), make(chan struct{})
	kafka.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(asked)
		kafka.SleepControl(func() { <-answer })
		return nil, nil, false
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	a := &addresses{ctx: t.Context(), client: client}
	first, leave := context.WithCancel(t.Context())
	gone, got := make(chan error, 1), make(chan error, 1)
	go func() { gone <- a.refresh(first) }()
	<-asked
	go func() { got <- a.refresh(t.Context()) }()
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the session that left got %v", err)
	}
	close(answer)
	if err := <-got; err != nil {
		t.Errorf("the session that stayed got %v", err)
	}
}
