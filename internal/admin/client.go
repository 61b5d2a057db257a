package admin

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/switchback-proxy/switchback/internal/cutover"
)

// Client asks a Server. Errors of requests wrap a *cutover.Error; NothingDone tells some of them apart.
type Client struct {
	URL   string // such as http://127.0.0.1:8080, or host:port for the same
	Token string
	HTTP  *http.Client // if nil, one that waits up to 30 s for an answer to begin
}

const maxEventBytes = 16 << 20

// Status asks for the status.
func (c *Client) Status(ctx context.Context, q StatusQuery) (Status, error) {
	v := url.Values{}
	if len(q.Topics) > 0 {
		v.Set("topics", strings.Join(q.Topics, ","))
	}
	if q.Only != "" {
		v.Set("only", q.Only)
	}
	return get[Status](ctx, c, "/v1/status", v)
}

// StartCutover orders a cutover and returns its id.
func (c *Client) StartCutover(ctx context.Context, order CutoverOrder) (string, error) {
	body, err := json.Marshal(order)
	if err != nil {
		return "", err
	}
	out, err := ask[CutoverID](ctx, c, http.MethodPost, "/v1/cutovers", body)
	return out.ID, err
}

// Cutover asks for one cutover.
func (c *Client) Cutover(ctx context.Context, id string) (Cutover, error) {
	return get[Cutover](ctx, c, "/v1/cutovers/"+url.PathEscape(id), nil)
}

// Abort asks a cutover to go back.
func (c *Client) Abort(ctx context.Context, id string) (Cutover, error) {
	return ask[Cutover](ctx, c, http.MethodPost, "/v1/cutovers/"+url.PathEscape(id)+"/abort", nil)
}

// Translate asks for one offset.
func (c *Client) Translate(ctx context.Context, q TranslateQuery) (Translation, error) {
	return get[Translation](ctx, c, "/v1/translate", q.values())
}

// Group asks where a group stands.
func (c *Client) Group(ctx context.Context, virtualCluster, group string) (Group, error) {
	v := url.Values{}
	if virtualCluster != "" {
		v.Set("virtual_cluster", virtualCluster)
	}
	return get[Group](ctx, c, "/v1/groups/"+url.PathEscape(group), v)
}

// Orphans asks for orphans and strays.
func (c *Client) Orphans(ctx context.Context) (Orphans, error) {
	return get[Orphans](ctx, c, "/v1/orphans", nil)
}

// Reseed lets a topic be copied anew.
func (c *Client) Reseed(ctx context.Context, virtualCluster, topic string) error {
	path := "/v1/topics/" + url.PathEscape(topic) + "/reseed"
	if virtualCluster != "" {
		path += "?" + url.Values{"virtual_cluster": {virtualCluster}}.Encode()
	}
	_, err := ask[Reseeded](ctx, c, http.MethodPost, path, nil)
	return err
}

// Events calls each with every state of a cutover until its end, or until each returns false. An error before the end
// means that the stream broke: the cutover goes on.
func (c *Client) Events(ctx context.Context, id string, each func(Cutover) bool) error {
	resp, err := c.send(ctx, http.MethodGet, "/v1/cutovers/"+url.PathEscape(id)+"/events", nil, true)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 64<<10), maxEventBytes)
	over := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var state Cutover
		if err := json.Unmarshal([]byte(data), &state); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		over = state.Over()
		if !each(state) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if !over {
		return errors.New("the stream of events ended before the cutover")
	}
	return nil
}

func get[T any](ctx context.Context, c *Client, path string, v url.Values) (T, error) {
	if len(v) > 0 {
		path += "?" + v.Encode()
	}
	return ask[T](ctx, c, http.MethodGet, path, nil)
}

func ask[T any](ctx context.Context, c *Client, method, path string, body []byte) (out T, err error) {
	resp, err := c.send(ctx, method, path, body, false)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("read the answer of %s: %w", c.URL, err)
	}
	return out, nil
}

// requestError is a request that did not succeed.
type requestError struct {
	failure     *cutover.Error
	nothingDone bool
}

func (e *requestError) Error() string { return e.failure.Error() }
func (e *requestError) Unwrap() error { return e.failure }

// NothingDone says whether err is of a request that did not reach the server, or that the server refused before it began
// anything.
func NothingDone(err error) bool {
	var failed *requestError
	return errors.As(err, &failed) && failed.nothingDone
}

// base is the address that paths are put behind.
func (c *Client) base() (string, error) {
	address := c.URL
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") || u.RawQuery != "" || u.Fragment != "" {
		failure := &cutover.Error{Code: "bad_address", Message: fmt.Sprintf("%q is not the address of an admin interface", c.URL), Hint: "write --admin HOST:PORT or --admin http://HOST:PORT"}
		return "", &requestError{failure: failure, nothingDone: true}
	}
	return strings.TrimRight(address, "/"), nil
}

// send returns an answer of success, whose body the caller closes.
func (c *Client) send(ctx context.Context, method, path string, body []byte, stream bool) (*http.Response, error) {
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	req, err := http.NewRequestWithContext(traced, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if stream {
		req.Header.Set("Accept", "text/event-stream")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.client().Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		failure := &cutover.Error{Code: "unreachable", Message: fmt.Sprintf("the admin interface does not answer: %v", err), Hint: "is switchback running there? name its address with --admin"}
		if method != http.MethodGet && sent.Load() {
			failure.Hint = "it may have taken the order all the same: see switchback status"
			return nil, &requestError{failure: failure}
		}
		return nil, &requestError{failure: failure, nothingDone: true}
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	return nil, c.refusal(resp)
}

// refusal reads an answer that is no success.
func (c *Client) refusal(resp *http.Response) error {
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	refused := resp.StatusCode/100 == 4
	var failure Failure
	if json.Unmarshal(text, &failure) == nil && failure.Error != nil {
		refused = refused || resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusServiceUnavailable
		return &requestError{failure: failure.Error, nothingDone: refused}
	}
	unexpected := &cutover.Error{Code: "unexpected_answer", Message: fmt.Sprintf("%s answered %s", c.URL, resp.Status), Hint: "is this the admin address of switchback?"}
	return &requestError{failure: unexpected, nothingDone: refused}
}

func (c *Client) client() *http.Client {
	if c.HTTP != nil {
		return c.HTTP
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: 30 * time.Second, DisableKeepAlives: true}}
}
