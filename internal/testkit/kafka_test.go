package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestEmbeddedClusterHandsOutSmallProducerIDs(t *testing.T) {
	cluster, err := StartKafka(3, "blue", kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for want := int64(FirstProducerID); want < FirstProducerID+3; want++ {
		resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, client)
		if err != nil {
			t.Fatal(err)
		}
		if resp.ErrorCode != 0 || resp.ProducerID != want {
			t.Fatalf("got id %d, error %d; want id %d", resp.ProducerID, resp.ErrorCode, want)
		}
	}
	if err := client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err == nil {
		t.Fatal("a record without a topic was accepted")
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
