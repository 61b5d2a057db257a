package engine

import (
	"testing"

	"github.com/switchback-proxy/switchback/internal/admin"
)

func TestATopicThatIsDeletedOnBothClustersStandsInTheWayOfNoMove(t *testing.T) {
	s := newSite(t)
	for _, topic := range []string{"orders", "old"} {
		if err := s.blue.CreateTopic(topic, 2, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.serve()
	s.await("copied", caughtUp("orders"))
	s.cutover("green")
	s.await("copied back", caughtUp("orders"))
	if err := s.green.DeleteTopic("old"); err != nil {
		t.Fatal(err)
	}
	if err := s.blue.DeleteTopic("old"); err != nil {
		t.Fatal(err)
	}
	s.await("the topic is gone", func(vc admin.VirtualClusterStatus) bool {
		return len(vc.Partitions) == 2 && caughtUp("orders")(vc)
	})
	s.cutover("blue")
}
