package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/cutover"
)

// Config is what a Server works with.
type Config struct {
	Token    string // if empty, only callers on the same machine are answered
	Version  string
	Clusters []VirtualCluster
	Metrics  http.Handler // if nil, /metrics is not there
	Log      zerolog.Logger
}

// VirtualCluster is one virtual cluster as the interface shows it. None of its methods blocks for long.
type VirtualCluster interface {
	Name() string
	Status() VirtualClusterStatus // all partitions and groups, sorted
	Ready() error                 // why clients cannot be served; nil if they can
	Cutovers() *cutover.Driver
	// Reseed lets a topic be copied anew that was deleted and made again; errors for operators are *cutover.Error.
	Reseed(ctx context.Context, topic string) error
	Inspector
}

// Inspector answers questions about one topic or group; it may ask brokers. Errors for operators are *cutover.Error.
type Inspector interface {
	Translate(ctx context.Context, q TranslateQuery) (Translation, error)
	Group(ctx context.Context, name string) (Group, error)
	Orphans(ctx context.Context) (Orphans, error)
}

const (
	maxBodyBytes    = 1 << 20
	headerTimeout   = 5 * time.Second
	requestTimeout  = 30 * time.Second // of all but events and profiles
	shutdownTimeout = 3 * time.Second
	eventHeartbeat  = 15 * time.Second
)

// Codes of errors that this package makes.
const (
	codeBadRequest   = "bad_request"
	codeUnauthorised = "unauthorised"
	codeForbidden    = "forbidden"
	codeInternal     = "internal"
	codeMethod       = "method_not_allowed"
	codeTooLarge     = "body_too_large"
)

// Server is the HTTP interface.
type Server struct {
	cfg      Config
	mux      *http.ServeMux
	patterns []string // all that the mux knows, but for the one that takes the rest
}

// New returns a server; nothing listens before Serve.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, mux: http.NewServeMux()}
	s.routes()
	return s
}

// handler writes its answer, or returns an error before it has written anything.
type handler func(w http.ResponseWriter, r *http.Request) error

func (s *Server) routes() {
	s.open("GET /{$}", s.console)
	s.open("GET /healthz", s.healthz)
	s.open("GET /readyz", s.readyz)
	if s.cfg.Metrics != nil {
		s.open("GET /metrics", func(w http.ResponseWriter, r *http.Request) error { s.cfg.Metrics.ServeHTTP(w, r); return nil })
	}
	s.guarded("GET /v1/status", s.status)
	s.guarded("POST /v1/cutovers", s.startCutover)
	s.guarded("GET /v1/cutovers/{id}", s.getCutover)
	s.guarded("GET /v1/cutovers/{id}/events", s.events)
	s.guarded("POST /v1/cutovers/{id}/abort", s.abortCutover)
	s.guarded("GET /v1/translate", s.translate)
	s.guarded("GET /v1/groups/{group...}", s.group)
	s.guarded("GET /v1/orphans", s.orphans)
	s.guarded("POST /v1/topics/{topic}/reseed", s.reseed)
	for path, what := range map[string]string{
		"POST /v1/rehearsals":        "rehearse",
		"GET /v1/explain":            "explain",
		"GET /v1/orphans/export":     "orphans export",
		"POST /v1/orphans/republish": "orphans republish",
	} {
		s.guarded(path, func(http.ResponseWriter, *http.Request) error { return NotBuilt(what) })
	}
	for path, h := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "/debug/pprof/cmdline": pprof.Cmdline, "/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol": pprof.Symbol, "/debug/pprof/trace": pprof.Trace,
	} {
		s.guarded(path, func(w http.ResponseWriter, r *http.Request) error { h(w, r); return nil })
	}
	s.handle(theRest, s.nothingThere)
}

// theRest is the pattern of what no other pattern takes.
const theRest = "/"

// nothingThere answers a path that is not known, or that is known with other methods.
func (s *Server) nothingThere(w http.ResponseWriter, r *http.Request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := s.mux.Handler(probe); pattern != theRest {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return &cutover.Error{Code: codeMethod, Message: fmt.Sprintf("%s does not take %s", r.URL.Path, r.Method), Hint: "use " + strings.Join(allowed, " or ") + "; see docs/http.md"}
	}
	if err := s.guard(r); err != nil {
		return err
	}
	return &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("there is no %s %s", r.Method, r.URL.Path), Hint: "the endpoints are listed in docs/http.md"}
}

// NotBuilt is the error of what the design has and this version does not.
func NotBuilt(what string) *cutover.Error {
	return &cutover.Error{Code: cutover.CodeNotBuilt, Message: what + " is not built", Hint: "see the limits in README.md"}
}

func (s *Server) open(pattern string, h handler) {
	s.patterns = append(s.patterns, pattern)
	s.handle(pattern, h)
}

func (s *Server) handle(pattern string, h handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

func (s *Server) guarded(pattern string, h handler) {
	s.open(pattern, func(w http.ResponseWriter, r *http.Request) error {
		if err := s.guard(r); err != nil {
			return err
		}
		return h(w, r)
	})
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	if !strings.HasSuffix(r.URL.Path, "/events") && !strings.HasPrefix(r.URL.Path, "/debug/") {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	s.mux.ServeHTTP(w, r)
}

// Serve answers on l until ctx ends, and closes it. Requests under way have a moment to end.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return base },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the admin interface: %w", err)
	case <-ctx.Done():
	}
	cancel() // ends event streams
	ending, stop := context.WithTimeout(base, shutdownTimeout)
	defer stop()
	_ = server.Shutdown(context.WithoutCancel(ending)) // listeners are closed first; Close ends what is left
	_ = server.Close()
	<-served
	return nil
}

// fail writes an error in its one shape.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	var failure *cutover.Error
	if !errors.As(err, &failure) {
		failure = &cutover.Error{Code: codeInternal, Message: err.Error(), Hint: "see the log"}
		s.cfg.Log.Error().Err(err).Str("path", r.URL.Path).Msg("admin request failed")
	}
	if failure.Code == codeUnauthorised {
		w.Header().Set("WWW-Authenticate", `Bearer realm="switchback"`)
	}
	writeJSON(w, statusOf(failure.Code), Failure{failure})
}

func statusOf(code string) int {
	switch code {
	case codeBadRequest, cutover.CodeBadTarget:
		return http.StatusBadRequest
	case codeUnauthorised:
		return http.StatusUnauthorized
	case codeForbidden:
		return http.StatusForbidden
	case codeMethod:
		return http.StatusMethodNotAllowed
	case codeTooLarge:
		return http.StatusRequestEntityTooLarge
	case cutover.CodeNotFound:
		return http.StatusNotFound
	case cutover.CodeRunning, cutover.CodeTooLate, cutover.CodeNotReseeded:
		return http.StatusConflict
	case cutover.CodeNotBuilt:
		return http.StatusNotImplemented
	case cutover.CodeClusterDown, cutover.CodeShutdown:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

// readJSON reads one strict JSON object, whatever its content type: a page of another origin is told by Origin, see guard.
func readJSON(r *http.Request, into any) error {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return unreadable(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return badRequest("something follows the object", "send one object")
	}
	return nil
}

// unreadable says in words of JSON what is wrong with a body.
func unreadable(err error) error {
	const hint = "its shape is in docs/http.md"
	var tooLarge *http.MaxBytesError
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &tooLarge):
		return &cutover.Error{Code: codeTooLarge, Message: fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit), Hint: hint}
	case errors.Is(err, io.EOF):
		return badRequest("the body is empty", hint)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badRequest("the body ends within the object", hint)
	case errors.As(err, &syntax):
		return badRequest("the body is not JSON from byte %d on", hint, syntax.Offset)
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return badRequest("the body is a JSON %s, not an object", hint, wrongType.Value)
	case errors.As(err, &wrongType):
		return badRequest("%s cannot be a JSON %s", hint, wrongType.Field, wrongType.Value)
	}
	return badRequest("the body cannot be read: %s", hint, strings.TrimPrefix(err.Error(), "json: "))
}

func badRequest(format, hint string, args ...any) error {
	return &cutover.Error{Code: codeBadRequest, Message: fmt.Sprintf(format, args...), Hint: hint}
}
