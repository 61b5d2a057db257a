package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
	"github.com/switchback-proxy/switchback/translate"
)

// fakeCluster is a virtual cluster whose cutovers succeed, or wait in Draining while hold is open.
type fakeCluster struct {
	name   string
	ready  error
	driver *cutover.Driver
	state  control.State
	drain  chan struct{} // closed: nothing waits
}

func newFakeCluster(t *testing.T, name string) *fakeCluster {
	t.Helper()
	c := &fakeCluster{name: name, drain: make(chan struct{}), state: control.State{VirtualCluster: name, Generation: 1, Active: "blue", Standby: "green", Phase: control.Idle}}
	c.driver = cutover.New(cutover.Config{VirtualCluster: name, Records: c, Archive: c, Gate: c, Groups: fakeGroups{}, Flow: c, Site: c, Router: c, Log: zerolog.Nop()})
	c.driver.Resume(control.Snapshot{State: c.state})
	t.Cleanup(c.driver.Close)
	return c
}

func (c *fakeCluster) Name() string { return c.name }
func (c *fakeCluster) Ready() error { return c.ready }
func (c *fakeCluster) Reseed(_ context.Context, topic string) error {
	if topic != "orders" {
		return &cutover.Error{Code: cutover.CodeNotReseeded, Message: topic, Hint: "h"}
	}
	return nil
}
func (c *fakeCluster) Status() VirtualClusterStatus {
	st := c.driver.State()
	return VirtualClusterStatus{
		Name: c.name, Active: st.Active, Standby: st.Standby, Generation: int64(st.Generation), Health: Green, Phase: ShowPhase(st.Phase),
		Reason:     errors.Join(errors.New("one"), errors.New("two")).Error(),
		Partitions: []Partition{{Topic: "orders", State: "CaughtUp"}, {Topic: "bills", State: "Stopped", Reason: "r\nand more", Hint: "h"}},
		Groups:     []GroupLine{{Group: "app", State: "ok"}},
	}
}
func (c *fakeCluster) Cutovers() *cutover.Driver { return c.driver }
func (c *fakeCluster) Translate(_ context.Context, q TranslateQuery) (Translation, error) {
	return Translation{Topic: q.Topic, Partition: q.Partition, Cluster: "blue", Virtual: q.Offset, Physical: q.Offset, Kind: "record", Segment: &Segment{Kind: "native", Records: -1}}, nil
}
func (c *fakeCluster) Group(_ context.Context, name string) (Group, error) {
	return Group{Group: name, Type: "classic", Partitions: []GroupPartition{}}, nil
}
func (c *fakeCluster) Orphans(context.Context) (Orphans, error) {
	return Orphans{Strays: []Orphan{{Cluster: "green", Topic: "orders", From: 3, To: 4, Records: 1}}}, nil
}

func (c *fakeCluster) Fence(context.Context) error { return nil }
func (c *fakeCluster) Load(context.Context) (control.Snapshot, error) {
	return control.Snapshot{State: c.driver.State()}, nil
}
func (c *fakeCluster) Save(context.Context, control.State) error                { return nil }
func (c *fakeCluster) PutTopics(context.Context, string, []control.Topic) error { return nil }
func (c *fakeCluster) PutGroups(context.Context, string, []control.Group) error { return nil }
func (c *fakeCluster) DropStale(context.Context, string, translate.Generation, func(context.Context, []string) ([]string, error)) error {
	return nil
}
func (c *fakeCluster) Hold(context.Context) error                                  { return nil }
func (c *fakeCluster) Release()                                                    {}
func (c *fakeCluster) PauseMillis() int64                                          { return 42 }
func (c *fakeCluster) Refresh(context.Context) error                               { return nil }
func (c *fakeCluster) Ends(context.Context) (map[cutover.TP]cutover.End, error)    { return nil, nil }
func (c *fakeCluster) Seal(context.Context) (map[cutover.TP]cutover.Sealed, error) { return nil, nil }
func (c *fakeCluster) Unseal()                                                     {}
func (c *fakeCluster) Settled(context.Context) error                               { return nil }
func (c *fakeCluster) PrepareSeal(context.Context) error                           { return nil }
func (c *fakeCluster) FinalOffsets(context.Context) (int, error)                   { return 0, nil }
func (c *fakeCluster) Inspect(context.Context, string, string) (cutover.Facts, error) {
	return nil, nil
}
func (c *fakeCluster) Gone(context.Context, []string) ([]string, error)    { return nil, nil }
func (c *fakeCluster) Warm(context.Context, string) (cutover.Facts, error) { return nil, nil }
func (c *fakeCluster) Publish(context.Context, control.Snapshot) error     { return nil }
func (c *fakeCluster) Reverse(context.Context, control.Snapshot) error     { return nil }
func (c *fakeCluster) Reach(context.Context, map[cutover.TP]translate.Virtual, func(int, int)) error {
	return nil
}
func (c *fakeCluster) Drain(ctx context.Context) error {
	select {
	case <-c.drain:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type fakeGroups struct{}

func (fakeGroups) Prepare(context.Context, string) (cutover.Facts, error) { return nil, nil }
func (fakeGroups) Check(context.Context) (cutover.Facts, error)           { return nil, nil }
func (fakeGroups) Records() []control.Group                               { return nil }
func (fakeGroups) Discard(context.Context)                                {}
func (fakeGroups) Retire(context.Context, string)                         {}

func serve(t *testing.T, token string, clusters ...*fakeCluster) (*httptest.Server, *Client) {
	t.Helper()
	cfg := Config{Token: token, Version: "test", Log: zerolog.Nop(), Metrics: http.NotFoundHandler()}
	for _, c := range clusters {
		cfg.Clusters = append(cfg.Clusters, c)
	}
	server := httptest.NewServer(New(cfg))
	t.Cleanup(server.Close)
	return server, &Client{URL: server.URL, Token: token}
}

func codeOf(err error) string {
	var e *cutover.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

func TestACutoverIsOrderedFollowedAndEnds(t *testing.T) {
	main := newFakeCluster(t, "main")
	_, client := serve(t, "secret", main)
	id, err := client.StartCutover(t.Context(), CutoverOrder{To: "green", MaxPause: "10s"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.StartCutover(t.Context(), CutoverOrder{To: "green"}); codeOf(err) != cutover.CodeRunning {
		t.Errorf("a second one: %v", err)
	}
	var phases []string
	err = client.Events(t.Context(), id, func(c Cutover) bool {
		if len(phases) == 0 || phases[len(phases)-1] != c.Phase {
			phases = append(phases, c.Phase)
		}
		if c.Phase == string(control.Draining) {
			select {
			case <-main.drain:
			default:
				close(main.drain)
			}
		}
		return true
	})
	if err != nil || len(phases) == 0 || phases[len(phases)-1] != "Done" {
		t.Fatalf("phases %v, %v", phases, err)
	}
	c, err := client.Cutover(t.Context(), id)
	if err != nil || c.PauseMillis != 42 || c.From != "blue" || c.To != "green" || !c.Lost.Exact || len(c.Phases) != 10 || c.Error != nil {
		t.Errorf("%+v, %v", c, err)
	}
	status, err := client.Status(t.Context(), StatusQuery{})
	if err != nil || status.VirtualClusters[0].Active != "green" || status.VirtualClusters[0].Phase != "Idle" {
		t.Errorf("%+v, %v", status, err)
	}
	if _, err := client.Abort(t.Context(), id); codeOf(err) != cutover.CodeTooLate || !strings.Contains(err.Error(), "is over: Done") {
		t.Errorf("abort of one that is over: %v", err)
	}
}

func TestACutoverIsNotMissingBeforeTheRecordIsRead(t *testing.T) {
	starting := newFakeCluster(t, "starting")
	starting.driver = cutover.New(cutover.Config{VirtualCluster: "starting", Log: zerolog.Nop()})
	for name, clusters := range map[string][]*fakeCluster{"alone": {starting}, "beside one that is read": {starting, newFakeCluster(t, "main")}} {
		_, client := serve(t, "secret", clusters...)
		if _, err := client.Cutover(t.Context(), "x"); codeOf(err) != cutover.CodeClusterDown {
			t.Errorf("%s: %v", name, err)
		}
		if err := client.Events(t.Context(), "x", func(Cutover) bool { return true }); codeOf(err) != cutover.CodeClusterDown {
			t.Errorf("%s: events: %v", name, err)
		}
	}
}

func TestATopicIsReseededByName(t *testing.T) {
	_, client := serve(t, "secret", newFakeCluster(t, "main"))
	if err := client.Reseed(t.Context(), "main", "orders"); err != nil {
		t.Fatal(err)
	}
	if err := client.Reseed(t.Context(), "", "moved"); codeOf(err) != cutover.CodeNotReseeded || !NothingDone(err) {
		t.Fatal(err)
	}
	if err := client.Reseed(t.Context(), "other", "orders"); codeOf(err) != cutover.CodeNotFound {
		t.Fatal(err)
	}
}

func TestAnAbortGoesBack(t *testing.T) {
	_, client := serve(t, "secret", newFakeCluster(t, "main"))
	id, err := client.StartCutover(t.Context(), CutoverOrder{To: "green"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Abort(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	var last Cutover
	if err := client.Events(t.Context(), id, func(c Cutover) bool { last = c; return true }); err != nil {
		t.Fatal(err)
	}
	if last.Phase != "Aborted" || last.Error.Code != cutover.CodeAborted {
		t.Errorf("%+v", last)
	}
}

func TestWhoMayAsk(t *testing.T) {
	main := newFakeCluster(t, "main")
	ask := func(token string, change func(*http.Request)) int {
		s := New(Config{Token: token, Clusters: []VirtualCluster{main}, Log: zerolog.Nop()})
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/v1/status", nil)
		r.RemoteAddr = "127.0.0.1:5000"
		change(r)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Code
	}
	nothing := func(*http.Request) {}
	bearing := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}
	for name, c := range map[string]struct{ got, want int }{
		"the token":                       {ask("secret", bearing("Bearer secret")), 200},
		"the token from far away":         {ask("secret", func(r *http.Request) { bearing("Bearer secret")(r); r.RemoteAddr = "10.0.0.1:1" }), 200},
		"no token":                        {ask("secret", nothing), 401},
		"the token, scheme in small":      {ask("secret", bearing("bearer secret")), 200},
		"a wrong token":                   {ask("secret", bearing("Bearer secre")), 401},
		"a token of another kind":         {ask("secret", bearing("Basic secret")), 401},
		"none configured":                 {ask("", nothing), 200},
		"none configured, far away":       {ask("", func(r *http.Request) { r.RemoteAddr = "10.0.0.1:1" }), 403},
		"none configured, a rebound name": {ask("", func(r *http.Request) { r.Host = "evil.example:8080" }), 403},
		"a page of another origin":        {ask("", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }), 403},
		"a page of this origin":           {ask("", func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:8080") }), 200},
		"IPv6":                            {ask("", func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:5000", "[::1]:8080" }), 200},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

func TestHealthAndReadinessNeedNoToken(t *testing.T) {
	main := newFakeCluster(t, "main")
	main.ready = errors.New("blue cannot be reached")
	server, _ := serve(t, "secret", main)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 404, "/": 200, "/debug/pprof/": 401, "/v1/nothing": 401} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d: %s", path, resp.StatusCode, want, body)
		}
		if path == "/readyz" && !strings.Contains(string(body), "blue cannot be reached") {
			t.Errorf("readyz says %s", body)
		}
	}
}

func TestTheConsoleLoadsNothingFromElsewhere(t *testing.T) {
	page := string(consolePage)
	for _, bad := range []string{"http://", "https://", "src=", "@import", "innerHTML"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

func TestErrorsHaveOneShapeAndAStatus(t *testing.T) {
	server, client := serve(t, "secret", newFakeCluster(t, "main"), newFakeCluster(t, "archive"))
	post := func(path, contentType, body string) (int, *cutover.Error) {
		r, err := http.NewRequest(http.MethodPost, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer secret")
		r.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var f Failure
		_ = json.NewDecoder(resp.Body).Decode(&f)
		return resp.StatusCode, f.Error
	}
	const js = "application/json"
	for _, c := range []struct {
		path, contentType, body string
		status                  int
		code                    string
	}{
		{"/v1/cutovers", js, `{"virtual_cluster":"main","to":"green","mode":"forced"}`, 501, cutover.CodeNotBuilt},
		{"/v1/cutovers", js, `{"virtual_cluster":"main","to":"blue"}`, 400, cutover.CodeBadTarget},
		{"/v1/cutovers", js, `{"virtual_cluster":"main"}`, 400, codeBadRequest},
		{"/v1/cutovers", js, `{"virtual_cluster":"main","to":"green","max_pause":"soon"}`, 400, codeBadRequest},
		{"/v1/cutovers", js, `{"virtual_cluster":"main","to":"green","max_paws":"3s"}`, 400, codeBadRequest},
		{"/v1/cutovers", js, `{"to":"green"}`, 400, codeBadRequest},
		{"/v1/cutovers", js, `{"virtual_cluster":"x","to":"green"}`, 404, cutover.CodeNotFound},
		{"/v1/cutovers", js, `{} {}`, 400, codeBadRequest},
		{"/v1/cutovers", "text/plain", `{"virtual_cluster":"main","to":"blue"}`, 400, cutover.CodeBadTarget},
		{"/v1/cutovers/x/abort", js, ``, 404, cutover.CodeNotFound},
		{"/v1/rehearsals", js, `{}`, 501, cutover.CodeNotBuilt},
	} {
		status, e := post(c.path, c.contentType, c.body)
		if status != c.status || e == nil || e.Code != c.code || e.Message == "" || e.Hint == "" {
			t.Errorf("%s %s: %d %+v, want %d %s", c.path, c.body, status, e, c.status, c.code)
		}
	}
	if _, err := client.Cutover(t.Context(), "x"); codeOf(err) != cutover.CodeNotFound {
		t.Errorf("an unknown cutover: %v", err)
	}
	if _, err := client.Translate(t.Context(), TranslateQuery{VirtualCluster: "main"}); codeOf(err) != codeBadRequest {
		t.Errorf("translate without a topic: %v", err)
	}
}

func TestAWrongMethodNamesTheRightOnes(t *testing.T) {
	server, _ := serve(t, "secret", newFakeCluster(t, "main"))
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodPost, "/v1/status", "GET, HEAD"},
		{http.MethodGet, "/v1/cutovers", "POST"},
		{http.MethodDelete, "/v1/cutovers/x", "GET, HEAD"},
		{http.MethodGet, "/v1/cutovers/x/abort", "POST"},
		{http.MethodPut, "/healthz", "GET, HEAD"},
		{http.MethodPost, "/", "GET, HEAD"},
		{http.MethodPost, "/metrics", "GET, HEAD"},
	} {
		r, err := http.NewRequest(c.method, server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q, want %q", c.method, c.path, resp.StatusCode, resp.Header.Get("Allow"), c.allow)
		}
	}
}

func TestABodyThatCannotBeReadIsToldInWordsOfJSON(t *testing.T) {
	s := New(Config{Clusters: []VirtualCluster{newFakeCluster(t, "main")}, Log: zerolog.Nop()})
	for _, c := range []struct {
		body   string
		status int
		says   string
	}{
		{``, 400, "empty"},
		{`{"to":"green"`, 400, "ends within"},
		{`{"to":green}`, 400, "byte 7"},
		{`[1]`, 400, "a JSON array, not an object"},
		{`{"to":1}`, 400, "to cannot be a JSON number"},
		{`{"dry_run":"yes"}`, 400, "dry_run cannot be a JSON string"},
		{`{"max_paws":"3s"}`, 400, `unknown field "max_paws"`},
		{`{"to":"` + strings.Repeat("x", maxBodyBytes) + `"}`, 413, "more than 1048576 bytes"},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/v1/cutovers", strings.NewReader(c.body))
		r.RemoteAddr = "127.0.0.1:5000"
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var f Failure
		if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || f.Error == nil {
			t.Errorf("%.30s: %s", c.body, w.Body)
			continue
		}
		text := f.Error.Message
		if w.Code != c.status || !strings.Contains(text, c.says) || strings.Contains(text, "Go ") || !strings.Contains(f.Error.Hint, "docs/http.md") {
			t.Errorf("%.30s: %d %+v", c.body, w.Code, f.Error)
		}
	}
}

func TestQuestions(t *testing.T) {
	_, client := serve(t, "", newFakeCluster(t, "main"))
	tr, err := client.Translate(t.Context(), TranslateQuery{Topic: "orders", Partition: 2, Offset: 7})
	if err != nil || tr.Virtual != 7 || tr.Segment.Records != -1 {
		t.Errorf("%+v, %v", tr, err)
	}
	g, err := client.Group(t.Context(), "", "team/app 1")
	if err != nil || g.Group != "team/app 1" {
		t.Errorf("%+v, %v", g, err)
	}
	o, err := client.Orphans(t.Context())
	if err != nil || o.Orphans == nil || len(o.Strays) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	red, err := client.Status(t.Context(), StatusQuery{Only: Red})
	if err != nil || len(red.VirtualClusters[0].Partitions) != 1 || len(red.VirtualClusters[0].Groups) != 0 {
		t.Fatalf("%+v, %v", red, err)
	}
	if vc := red.VirtualClusters[0]; vc.Reason != "one; two" || vc.Partitions[0].Reason != "r; and more" {
		t.Errorf("a reason has several lines: %+v", vc)
	}
	one, err := client.Status(t.Context(), StatusQuery{Topics: []string{"orders"}})
	if err != nil || len(one.VirtualClusters[0].Partitions) != 1 {
		t.Errorf("%+v, %v", one, err)
	}
}

func TestTheServerEndsWithItsContext(t *testing.T) {
	main := newFakeCluster(t, "main")
	s := New(Config{Clusters: []VirtualCluster{main}, Log: zerolog.Nop()})
	l := httptest.NewUnstartedServer(nil).Listener
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	client := &Client{URL: "http://" + l.Addr().String()}
	id, err := client.StartCutover(t.Context(), CutoverOrder{To: "green"})
	if err != nil {
		t.Fatal(err)
	}
	err = client.Events(t.Context(), id, func(Cutover) bool { cancel(); return true }) // the stream must not keep it alive
	if err == nil {
		t.Error("the stream ended as if the cutover were over")
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
}
