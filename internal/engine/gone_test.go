package engine

import (
	"errors"
	"testing"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/cutover"
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

func TestATopicThatIsMadeAnewOnBothClustersGoesAlongWithTheNextMoves(t *testing.T) {
	s := newSite(t)
	s.create("orders")
	s.create("old")
	stop := s.serve()
	s.await("orders is copied", caughtUp("orders"))
	s.await("old is copied", caughtUp("old"))
	s.cutover("green")
	s.await("orders is copied back", caughtUp("orders"))
	s.await("old is copied back", caughtUp("old"))
	s.deleteOnBoth("old")
	s.await("the old topic is gone", func(vc admin.VirtualClusterStatus) bool { return len(vc.Partitions) == 2 })
	if err := s.green.CreateTopic("old", 2, nil); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"blue", "green", "blue"} {
		s.await("the new topic is copied", caughtUp("old"))
		s.cutover(to)
	}
	_ = stop()
	s.serve()
	s.await("the new topic is copied after a restart", caughtUp("old"))
}

func TestATopicThatWasMadeAgainMovesAfterItIsReseeded(t *testing.T) {
	s := newSite(t)
	s.create("orders")
	s.serve()
	s.await("copied", caughtUp("orders"))
	var refused *cutover.Error
	if err := s.client.Reseed(t.Context(), "", "orders"); !errors.As(err, &refused) || refused.Code != cutover.CodeNotReseeded {
		t.Fatalf("a topic that is copied: %v", err)
	}
	if err := s.green.DeleteTopic("orders"); err != nil {
		t.Fatal(err)
	}
	s.await("the topic is seen to be another", func(vc admin.VirtualClusterStatus) bool {
		return vc.Health == admin.Red && len(vc.Partitions) == 2 && vc.Partitions[0].State == "Stopped" && vc.Partitions[1].State == "Stopped"
	})
	if err := s.client.Reseed(t.Context(), "main", "orders"); err != nil {
		t.Fatal(err)
	}
	s.await("copied anew", caughtUp("orders"))
	s.cutover("green")
	s.await("copied back", caughtUp("orders"))
}
