package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// serveOn starts a switchback that is to end by itself; err waits for that and gives its error.
func (s *site) serveOn(ports int) (err func() error) {
	s.t.Helper()
	own := *s
	own.ports = ports
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cfg := own.config(s.blue.ListenAddrs()[0], s.green.ListenAddrs()[0])
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done <- Serve(ctx, cfg, Options{WatchInterval: 100 * time.Millisecond, Log: zerolog.New(s.log)})
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
	return func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return errors.New("it runs on")
		}
	}
}

func TestAProcessEndsWhenAnotherOneServesItsVirtualCluster(t *testing.T) {
	s := newSite(t)
	first := s.serveOn(s.ports)
	s.await("not serving", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 && vc.Health == admin.Green })
	s.serveOn(freePorts(t))
	if err := first(); !errors.Is(err, control.ErrOvertaken) || !strings.Contains(err.Error(), "another process has taken over virtual cluster main") {
		t.Errorf("it ended with: %v", err)
	}
}

func TestAProcessEndsWhenAnotherOneMovesItsVirtualCluster(t *testing.T) {
	s := newSite(t)
	served := s.serveOn(s.ports)
	s.await("not serving", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 && vc.Health == admin.Green })
	client, err := kgo.NewClient(kgo.SeedBrokers(s.green.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	log := control.NewLog(control.Config{Client: client, Cluster: "green", VirtualCluster: "main", Names: []string{"main"}})
	other := control.NewStore("main", map[string]*control.Log{"green": log})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	snap, err := log.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	st := snap.State
	st.Generation, st.Active, st.Standby = 2, "green", "blue"
	if err := other.Save(ctx, st); err != nil {
		t.Fatal(err)
	}
	want := "another process moved virtual cluster main to generation 2 (green is active); run one process for each virtual cluster"
	if err := served(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("it ended with: %v", err)
	}
	testkit.Eventually(t, 10*time.Second, "clients can still connect", func() bool { return !s.ready() })
}

// The standby was away when the process started, which assumed that no later move was committed there. There was one, and its
// record must not be overwritten.
func TestAProcessEndsWhenTheClusterThatComesBackTellsOfALaterMove(t *testing.T) {
	s := newSite(t)
	port, err := testkit.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	away := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, s.config(s.blue.ListenAddrs()[0], away), Options{WatchInterval: 100 * time.Millisecond, Log: zerolog.New(s.log)})
	}()
	s.await("nothing is assumed", func(vc admin.VirtualClusterStatus) bool { return vc.Generation == 1 && vc.Assumed != "" })
	client, err := kgo.NewClient(kgo.SeedBrokers(s.green.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	log := control.NewLog(control.Config{Client: client, Cluster: "green", VirtualCluster: "main", Names: []string{"main"}})
	st := control.State{VirtualCluster: "main", Generation: 2, Active: "green", Standby: "blue", Phase: control.Idle}
	if err := control.NewStore("main", map[string]*control.Log{"green": log}).Save(ctx, st); err != nil {
		t.Fatal(err)
	}
	forward(t, away, s.green.ListenAddrs()[0])
	if err := <-done; !errors.Is(err, control.ErrOvertaken) || !strings.Contains(err.Error(), "generation 2 (green is active)") {
		t.Errorf("it ended with: %v", err)
	}
	if snap, err := log.Read(ctx); err != nil || snap.State.Generation != 2 {
		t.Errorf("the record is of generation %d, %v", snap.State.Generation, err)
	}
}

// forward lets connections to one address reach another.
func forward(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				all.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
}

func TestTheReasonOfALostSlotIsShownBeforeThoseThatHaveNone(t *testing.T) {
	list := []admin.Partition{{State: "CaughtUp"}, {State: "Probing"}, {State: "Probing", Topic: "orders", Reason: "the slot is lost", Hint: "run one"}, {State: "Probing"}}
	if reason, hint := probing(list); !strings.Contains(reason, "orders is not copied now: the slot is lost") || hint != "run one" {
		t.Errorf("%s; %s", reason, hint)
	}
	if reason, hint := probing(list[:2]); reason != "some partitions are not copied yet" || hint == "" {
		t.Errorf("%s; %s", reason, hint)
	}
	if reason, _ := probing(list[:1]); reason != "" {
		t.Error(reason)
	}
	stuck := []admin.Partition{{State: "Copying"}, {State: "Copying", Topic: "orders", Reason: "the target has taken nothing", Hint: "look"}}
	if reason, hint := probing(stuck); !strings.Contains(reason, "orders is not copied now: the target has taken nothing") || hint != "look" {
		t.Errorf("%s; %s", reason, hint)
	}
	if reason, _ := probing(stuck[:1]); reason != "" {
		t.Error(reason)
	}
}
