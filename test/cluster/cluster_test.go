//go:build e2e

package cluster

import (
	"testing"
	"time"
)

func TestStartedClusterAnswers(t *testing.T) {
	began := time.Now()
	c := Start(t, Options{Name: "blue"})
	t.Logf("ready after %v", time.Since(began))
	c.CreateTopic(t, Topic{Name: "a", Partitions: 3})
}
