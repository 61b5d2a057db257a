package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/testkit"
)

// site is the running switchback, driven through its admin endpoint as an operator would.
type site struct {
	cfg              *config.Config
	bootstrap, admin string
	phase            atomic.Pointer[string] // of the move that runs
	ended            chan struct{}          // closed when serve has returned
	serveErr         error                  // valid once ended is closed
}

// move is a cutover as the admin endpoint tells of it.
type move struct {
	ID          string `json:"id"`
	Phase       string `json:"phase"`
	PauseMillis int64  `json:"pause_ms"`
	Phases      []struct {
		Phase  string `json:"phase"`
		Millis int64  `json:"ms"`
	} `json:"phases"`
	Error *struct {
		Code, Message, Hint string
	} `json:"error"`
}

// TotalMillis is how long all phases took.
func (m move) TotalMillis() int64 {
	total := int64(0)
	for _, p := range m.Phases {
		total += p.Millis
	}
	return total
}

// configuration is what an operator would write; %s and %d: both bootstraps, the ports.
const configuration = `
clusters:
  blue:  {bootstrap: [%s]}
  green: {bootstrap: [%s]}
virtual_clusters:
  - name: main
    active: blue
    standby: green
    listen: 127.0.0.1:%d
    broker_ports: {start: %d, count: %d}
    advertised_host: 127.0.0.1
replication: {checkpoint_interval: 1s}
admin: {listen: "127.0.0.1:%d"}
log: {level: error, format: console}
`

func addresses(c *kfake.Cluster) string {
	return `"` + strings.Join(c.ListenAddrs(), `", "`) + `"`
}

// newSite lays out a configuration on free loopback ports.
func newSite(p *pair) (*site, error) {
	ports, err := testkit.FreePorts(brokers + 2)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Parse(fmt.Appendf(nil, configuration, addresses(p.blue), addresses(p.green),
		ports, ports+1, brokers, ports+brokers+1))
	if err != nil {
		return nil, err
	}
	return &site{cfg: cfg, bootstrap: cfg.VirtualClusters[0].Listen, admin: "http://" + cfg.Admin.Listen, ended: make(chan struct{})}, nil
}

// serve runs switchback until the returned function is called, which waits for its end.
func (s *site) serve(ctx context.Context, run func(context.Context, *config.Config) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		s.serveErr = run(ctx, s.cfg)
		close(s.ended)
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

func (s *site) waitReady(ctx context.Context) error {
	return s.poll(ctx, "switchback is not ready", func() bool {
		resp, err := http.Get(s.admin + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// status is what the demo needs of GET /v1/status.
type status struct {
	VirtualClusters []struct {
		Active     string `json:"active"`
		Generation int64  `json:"generation"`
		Partitions []struct {
			State      string `json:"state"`
			LagRecords int64  `json:"lag_records"`
			Reason     string `json:"reason"`
		} `json:"partitions"`
	} `json:"virtual_clusters"`
}

func (s *site) status(ctx context.Context) (st status, err error) {
	return st, s.call(ctx, http.MethodGet, "/v1/status", nil, &st)
}

// waitCaughtUp returns once every partition is copied but for what is being written now.
func (s *site) waitCaughtUp(ctx context.Context) error {
	return s.poll(ctx, "the standby does not catch up", func() bool {
		st, err := s.status(ctx)
		if err != nil || len(st.VirtualClusters) != 1 || len(st.VirtualClusters[0].Partitions) < partitions {
			return false
		}
		for _, p := range st.VirtualClusters[0].Partitions {
			if p.State != "CaughtUp" && p.LagRecords > 100 {
				return false
			}
		}
		return true
	})
}

// cutover orders a move and returns when it has ended.
func (s *site) cutover(ctx context.Context, to string) (move, error) {
	var m move
	order := map[string]string{"virtual_cluster": "main", "to": to, "mode": "planned"}
	if err := s.call(ctx, http.MethodPost, "/v1/cutovers", order, &m); err != nil {
		return m, err
	}
	id := m.ID
	defer s.phase.Store(nil)
	err := s.poll(ctx, "the cutover does not end", func() bool {
		if s.call(ctx, http.MethodGet, "/v1/cutovers/"+id, nil, &m) != nil {
			return false
		}
		s.phase.Store(&m.Phase)
		return m.Phase == "Done" || m.Phase == "Aborted"
	})
	if err == nil && m.Phase != "Done" {
		err = fmt.Errorf("it went back: %+v", m.Error)
	}
	return m, err
}

// poll is poll, ended early when switchback has ended.
func (s *site) poll(ctx context.Context, otherwise string, ok func() bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.ended:
			cancel(fmt.Errorf("switchback has ended: %w", s.serveErr))
		case <-stop:
		}
	}()
	return poll(ctx, otherwise, ok)
}

// call does one request of the admin endpoint.
func (s *site) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.admin+path, body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(b))
	}
	return json.Unmarshal(b, out)
}
