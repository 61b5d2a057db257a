package product

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/switchback-proxy/switchback/test/proc"
)

// The shapes of the admin API, as the public surface promises them. They are written down here a second time on purpose: the
// tests must notice when the product changes one.

// Status is the answer of GET /v1/status.
type Status struct {
	Version         string                 `json:"version"`
	VirtualClusters []VirtualClusterStatus `json:"virtual_clusters"`
}

// VirtualClusterStatus is about one virtual cluster.
type VirtualClusterStatus struct {
	Name       string            `json:"name"`
	Active     string            `json:"active"`
	Standby    string            `json:"standby"`
	Generation int64             `json:"generation"`
	Health     string            `json:"health"`
	Phase      string            `json:"phase"`
	Partitions []PartitionStatus `json:"partitions"`
	Groups     []struct {
		Group           string `json:"group"`
		CheckpointAgeMS int64  `json:"checkpoint_age_ms"`
		State           string `json:"state"`
		Reason          string `json:"reason"`
		Hint            string `json:"hint"`
	} `json:"groups"`
}

// PartitionStatus is about the pump of one partition.
type PartitionStatus struct {
	Topic      string `json:"topic"`
	Partition  int32  `json:"partition"`
	State      string `json:"state"`
	LagRecords int64  `json:"lag_records"`
	LagMS      int64  `json:"lag_ms"`
	Reason     string `json:"reason"`
	Hint       string `json:"hint"`
}

// APIError is what the API and a failed cutover say.
type APIError struct {
	Status  int    `json:"-"` // of HTTP
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

func (e *APIError) Error() string {
	return fmt.Sprintf("%d %s: %s (hint: %s)", e.Status, e.Code, e.Message, e.Hint)
}

// Cutover is the answer of GET /v1/cutovers/{id}, and one of its events.
type Cutover struct {
	ID             string `json:"id"`
	VirtualCluster string `json:"virtual_cluster"`
	From           string `json:"from"`
	To             string `json:"to"`
	Mode           string `json:"mode"`
	Phase          string `json:"phase"`
	PauseMS        int64  `json:"pause_ms"`
	Phases         []struct {
		Phase string          `json:"phase"`
		MS    int64           `json:"ms"`
		Facts json.RawMessage `json:"facts"`
	} `json:"phases"`
	Lost struct {
		Records int64 `json:"records"`
		Exact   bool  `json:"exact"`
	} `json:"lost"`
	Error *APIError `json:"error"`
}

// UnderGate tells what took the time while clients were held, phase by phase.
func (c Cutover) UnderGate() string {
	var out []string
	for _, p := range c.Phases {
		switch p.Phase {
		case "Draining", "Sealing", "Translating":
			out = append(out, fmt.Sprintf("%s %d ms %s", p.Phase, p.MS, p.Facts))
		}
	}
	return strings.Join(out, ", ")
}

// Translation is the answer of GET /v1/translate.
type Translation struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Cluster   string `json:"cluster"`
	Virtual   int64  `json:"virtual"`
	Physical  int64  `json:"physical"`
	Kind      string `json:"kind"`
}

// GroupStatus is the answer of GET /v1/groups/{group}.
type GroupStatus struct {
	Group      string `json:"group"`
	Type       string `json:"type"`
	Partitions []struct {
		Topic     string            `json:"topic"`
		Partition int32             `json:"partition"`
		Virtual   *int64            `json:"virtual"`
		Committed map[string]*int64 `json:"committed"`
		State     string            `json:"state"`
		Reason    string            `json:"reason"`
	} `json:"partitions"`
}

// Range is an entry in the lists of orphans and strays: physical offsets [From, To) of a cluster.
type Range struct {
	Cluster   string `json:"cluster"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Records   int64  `json:"records"`
}

// Orphans is the answer of GET /v1/orphans, and what orphans list --json prints.
type Orphans struct {
	Orphans []Range `json:"orphans"`
	Strays  []Range `json:"strays"`
}

// Admin calls the admin API.
type Admin struct {
	base, token string
	client      http.Client
}

// Do calls the API; an answer that is not of the 200s becomes an *APIError.
func (a *Admin) Do(ctx context.Context, method, path string, body, into any) error {
	resp, err := a.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s %s: decode: %w", method, path, err)
	}
	return nil
}

func (a *Admin) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, payload)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	var answer struct {
		Error APIError `json:"error"`
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(text, &answer) != nil || answer.Error.Code == "" {
		answer.Error = APIError{Code: "unexpected", Message: string(text)}
	}
	answer.Error.Status = resp.StatusCode
	return nil, &answer.Error
}

const callTimeout = 10 * time.Second

func (a *Admin) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return a.Do(ctx, http.MethodGet, path, nil, into)
}

// Status is the state of the only virtual cluster.
func (a *Admin) Status() (VirtualClusterStatus, error) {
	var s Status
	if err := a.get("/v1/status", &s); err != nil {
		return VirtualClusterStatus{}, err
	}
	if len(s.VirtualClusters) != 1 {
		return VirtualClusterStatus{}, fmt.Errorf("status has %d virtual clusters, want 1", len(s.VirtualClusters))
	}
	return s.VirtualClusters[0], nil
}

// StartCutover posts a planned cutover and returns its id.
func (a *Admin) StartCutover(to string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var answer struct {
		ID string `json:"id"`
	}
	body := map[string]any{"virtual_cluster": VirtualCluster, "to": to, "mode": "planned", "dry_run": false, "max_pause": "30s"}
	if err := a.Do(ctx, http.MethodPost, "/v1/cutovers", body, &answer); err != nil {
		return "", err
	}
	if answer.ID == "" {
		return "", errors.New("POST /v1/cutovers answered without an id")
	}
	return answer.ID, nil
}

// Cutover is the state of one.
func (a *Admin) Cutover(id string) (Cutover, error) {
	var c Cutover
	err := a.get("/v1/cutovers/"+url.PathEscape(id), &c)
	return c, err
}

// WaitCutover returns when the cutover is Done, and fails the test if it aborts or takes too long.
func (a *Admin) WaitCutover(t testing.TB, id string, timeout time.Duration) Cutover {
	t.Helper()
	var c Cutover
	proc.Until(t, timeout, "cutover "+id, func() (err error) {
		c, err = a.Cutover(id)
		if err != nil {
			return err
		}
		switch c.Phase {
		case "Done":
			return nil
		case "Aborted":
			t.Fatalf("cutover to %s aborted: %v\nphases: %+v", c.To, c.Error, c.Phases)
		}
		return fmt.Errorf("in phase %s; %+v", c.Phase, c.Phases)
	})
	return c
}

// Move is StartCutover and WaitCutover.
func (a *Admin) Move(t testing.TB, to string, timeout time.Duration) Cutover {
	t.Helper()
	id, err := a.StartCutover(to)
	if err != nil {
		t.Fatalf("start cutover to %s: %v", to, err)
	}
	return a.WaitCutover(t, id, timeout)
}

// Events follows the event stream of a cutover and calls f for each change, until f returns false or the stream ends.
func (a *Admin) Events(ctx context.Context, id string, f func(Cutover) bool) error {
	resp, err := a.send(ctx, http.MethodGet, "/v1/cutovers/"+url.PathEscape(id)+"/events", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		var c Cutover
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("event %.200q: %w", data, err)
		}
		if !f(c) {
			return nil
		}
	}
	return lines.Err()
}

// Translate asks where a virtual offset is on a cluster.
func (a *Admin) Translate(topic string, partition int32, virtual int64, to string) (Translation, error) {
	query := url.Values{
		"topic": {topic}, "partition": {strconv.Itoa(int(partition))}, "offset": {strconv.FormatInt(virtual, 10)}, "to": {to},
	}
	var answer Translation
	err := a.get("/v1/translate?"+query.Encode(), &answer)
	return answer, err
}

// Group tells where a group stands.
func (a *Admin) Group(group string) (GroupStatus, error) {
	var answer GroupStatus
	err := a.get("/v1/groups/"+url.PathEscape(group), &answer)
	return answer, err
}

// WaitCaughtUp returns when every partition of the topics is copied up to at most lag records.
func (a *Admin) WaitCaughtUp(t testing.TB, topics map[string]int32, lag int64, timeout time.Duration) {
	t.Helper()
	proc.Until(t, timeout, "standby caught up", func() error {
		s, err := a.Status()
		if err != nil {
			return err
		}
		return caughtUp(s, topics, lag)
	})
}

func caughtUp(s VirtualClusterStatus, topics map[string]int32, lag int64) error {
	listed := make(map[string]int32)
	for _, p := range s.Partitions {
		if _, wanted := topics[p.Topic]; !wanted {
			continue
		}
		listed[p.Topic]++
		if p.State != "CaughtUp" || p.LagRecords > lag {
			return fmt.Errorf("%s-%d: %s, %d records behind, %s %s", p.Topic, p.Partition, p.State, p.LagRecords, p.Reason, p.Hint)
		}
	}
	for topic, partitions := range topics {
		if listed[topic] < partitions {
			return fmt.Errorf("%s: %d partitions in the status, want %d", topic, listed[topic], partitions)
		}
	}
	return nil
}
