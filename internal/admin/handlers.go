package admin

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchback-proxy/switchback/internal/control"
	"github.com/switchback-proxy/switchback/internal/cutover"
)

//go:embed console.html
var consolePage []byte

func (s *Server) console(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'")
	_, err := w.Write(consolePage)
	return ignoreGone(err)
}

// ignoreGone is for errors of writing an answer: nobody is left who could be told.
func ignoreGone(error) error { return nil }

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) error {
	reasons := []string{}
	for _, vc := range s.cfg.Clusters {
		if err := vc.Ready(); err != nil {
			reasons = append(reasons, oneLine(fmt.Sprintf("%s: %v", vc.Name(), err)))
		}
	}
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}{len(reasons) == 0, reasons})
	return nil
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	filter := StatusQuery{Only: q.Get("only")}
	if topics := q.Get("topics"); topics != "" {
		filter.Topics = strings.Split(topics, ",")
	}
	if filter.Only != "" && filter.Only != Red {
		return badRequest("only=%s", "the one filter is only=red", filter.Only)
	}
	out := Status{Version: s.cfg.Version, VirtualClusters: []VirtualClusterStatus{}}
	for _, vc := range s.cfg.Clusters {
		out.VirtualClusters = append(out.VirtualClusters, filter.apply(vc.Status()))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// StatusQuery narrows a status down.
type StatusQuery struct {
	Topics []string // virtual names; empty: all
	Only   string   // Red: only what somebody has to look at
}

func (q StatusQuery) apply(vc VirtualClusterStatus) VirtualClusterStatus {
	partitions, groups := []Partition{}, []GroupLine{}
	for _, p := range vc.Partitions {
		p.Reason = oneLine(p.Reason)
		if (len(q.Topics) == 0 || slices.Contains(q.Topics, p.Topic)) && (q.Only == "" || p.State == "Stopped") {
			partitions = append(partitions, p)
		}
	}
	for _, g := range vc.Groups {
		g.Reason = oneLine(g.Reason)
		if q.Only == "" || g.State == "blocked" {
			groups = append(groups, g)
		}
	}
	vc.Partitions, vc.Groups, vc.Reason = partitions, groups, oneLine(vc.Reason)
	return vc
}

// oneLine shows errors that were joined in one line, as tables and lists want them.
func oneLine(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") }

// cluster finds a virtual cluster; an empty name is the only one.
func (s *Server) cluster(name string) (VirtualCluster, error) {
	if name == "" && len(s.cfg.Clusters) == 1 {
		return s.cfg.Clusters[0], nil
	}
	var names []string
	for _, vc := range s.cfg.Clusters {
		if vc.Name() == name {
			return vc, nil
		}
		names = append(names, vc.Name())
	}
	hint := "the virtual clusters are " + strings.Join(names, ", ")
	if name == "" {
		return nil, badRequest("virtual_cluster is missing", hint)
	}
	return nil, &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("there is no virtual cluster %q", name), Hint: hint}
}

func (s *Server) startCutover(w http.ResponseWriter, r *http.Request) error {
	var order CutoverOrder
	if err := readJSON(r, &order); err != nil {
		return err
	}
	vc, err := s.cluster(order.VirtualCluster)
	if err != nil {
		return err
	}
	maxPause := time.Duration(0)
	if order.MaxPause != "" {
		if maxPause, err = time.ParseDuration(order.MaxPause); err != nil || maxPause <= 0 {
			return badRequest("max_pause %q", "a duration such as 30s", order.MaxPause)
		}
	}
	if order.To == "" {
		return badRequest("to is missing", "the name of the standby cluster")
	}
	id, err := vc.Cutovers().Start(cutover.Order{To: order.To, Mode: order.Mode, DryRun: order.DryRun, MaxPause: maxPause})
	if err != nil {
		return err
	}
	s.cfg.Log.Info().Str("virtual_cluster", vc.Name()).Str("cutover", id).Str("to", order.To).Bool("dry_run", order.DryRun).Msg("cutover ordered")
	writeJSON(w, http.StatusAccepted, CutoverID{id})
	return nil
}

// find looks a cutover up in all virtual clusters. It is not known to be missing while one of them cannot say.
func (s *Server) find(id string) (*cutover.Driver, control.State, error) {
	missing := &cutover.Error{Code: cutover.CodeNotFound, Message: fmt.Sprintf("no cutover %q is known", id), Hint: "the status names the last one"}
	for _, vc := range s.cfg.Clusters {
		st, err := vc.Cutovers().Get(id)
		if err == nil {
			return vc.Cutovers(), st, nil
		}
		var failure *cutover.Error
		if errors.As(err, &failure) && failure.Code != cutover.CodeNotFound {
			missing = failure
		}
	}
	return nil, control.State{}, missing
}

func (s *Server) getCutover(w http.ResponseWriter, r *http.Request) error {
	_, st, err := s.find(r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, ShowCutover(st))
	return nil
}

func (s *Server) abortCutover(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	driver, st, err := s.find(id)
	if err != nil {
		return err
	}
	if err := driver.Abort(id); err != nil {
		return err
	}
	s.cfg.Log.Info().Str("virtual_cluster", st.VirtualCluster).Str("cutover", id).Msg("abort ordered")
	writeJSON(w, http.StatusAccepted, ShowCutover(st))
	return nil
}

// events streams the states of a cutover until its end: one SSE data line each.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	driver, _, err := s.find(id)
	if err != nil {
		return err
	}
	states, stop, err := driver.Subscribe(id)
	if err != nil {
		return err
	}
	defer stop()
	flusher, ok := w.(http.Flusher)
	if !ok {
		return errors.New("this connection cannot stream")
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flusher.Flush()
	heartbeat := time.NewTicker(eventHeartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case st, more := <-states:
			if !more {
				return nil
			}
			body, err := json.Marshal(ShowCutover(st))
			if err != nil {
				s.cfg.Log.Error().Err(err).Msg("encode an event")
				return nil
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", body); err != nil {
				return ignoreGone(err)
			}
		case <-heartbeat.C:
			if _, err := fmt.Fprint(w, ": still here\n\n"); err != nil {
				return ignoreGone(err)
			}
		case <-r.Context().Done():
			return nil
		}
		flusher.Flush()
	}
}

func (s *Server) translate(w http.ResponseWriter, r *http.Request) error {
	q, err := parseTranslate(r.URL.Query())
	if err != nil {
		return err
	}
	vc, err := s.cluster(q.VirtualCluster)
	if err != nil {
		return err
	}
	out, err := vc.Translate(r.Context(), q)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func parseTranslate(v url.Values) (TranslateQuery, error) {
	q := TranslateQuery{VirtualCluster: v.Get("virtual_cluster"), Topic: v.Get("topic"), From: v.Get("from"), To: v.Get("to")}
	if q.Topic == "" {
		return q, badRequest("topic is missing", "topic, partition and offset are needed")
	}
	partition, err := strconv.ParseInt(v.Get("partition"), 10, 32)
	if err != nil || partition < 0 {
		return q, badRequest("partition %q", "a number from 0", v.Get("partition"))
	}
	q.Partition = int32(partition)
	if q.Offset, err = strconv.ParseInt(v.Get("offset"), 10, 64); err != nil || q.Offset < 0 {
		return q, badRequest("offset %q", "a number from 0", v.Get("offset"))
	}
	return q, nil
}

func (q TranslateQuery) values() url.Values {
	v := url.Values{"topic": {q.Topic}, "partition": {fmt.Sprint(q.Partition)}, "offset": {fmt.Sprint(q.Offset)}}
	for key, value := range map[string]string{"virtual_cluster": q.VirtualCluster, "from": q.From, "to": q.To} {
		if value != "" {
			v.Set(key, value)
		}
	}
	return v
}

func (s *Server) group(w http.ResponseWriter, r *http.Request) error {
	vc, err := s.cluster(r.URL.Query().Get("virtual_cluster"))
	if err != nil {
		return err
	}
	out, err := vc.Group(r.Context(), r.PathValue("group"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) reseed(w http.ResponseWriter, r *http.Request) error {
	vc, err := s.cluster(r.URL.Query().Get("virtual_cluster"))
	if err != nil {
		return err
	}
	topic := r.PathValue("topic")
	if err := vc.Reseed(r.Context(), topic); err != nil {
		return err
	}
	s.cfg.Log.Info().Str("virtual_cluster", vc.Name()).Str("topic", topic).Msg("topic is copied anew")
	writeJSON(w, http.StatusAccepted, Reseeded{topic})
	return nil
}

func (s *Server) orphans(w http.ResponseWriter, r *http.Request) error {
	clusters := s.cfg.Clusters
	if name := r.URL.Query().Get("virtual_cluster"); name != "" {
		vc, err := s.cluster(name)
		if err != nil {
			return err
		}
		clusters = []VirtualCluster{vc}
	}
	out := Orphans{Orphans: []Orphan{}, Strays: []Orphan{}}
	for _, vc := range clusters {
		one, err := vc.Orphans(r.Context())
		if err != nil {
			return err
		}
		out.Orphans, out.Strays = append(out.Orphans, one.Orphans...), append(out.Strays, one.Strays...)
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}
