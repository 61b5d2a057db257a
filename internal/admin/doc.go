// Package admin is the HTTP interface of switchback, its console, and the client that the command line uses.
//
//	server := admin.New(admin.Config{Token: "…", Version: "1.0", Clusters: engines, Metrics: metrics.Handler(), Log: log})
//	err := server.Serve(ctx, listener) // until ctx ends
//
//	client := admin.Client{URL: "http://127.0.0.1:8080", Token: "…"}
//	status, err := client.Status(ctx, admin.StatusQuery{})
//
// Data path: Server.Serve → guard (token, loopback, origin) → a handler, which writes its answer or returns an error →
// failure (one JSON shape, one status per code). Events of a cutover are an SSE stream.
//
// The JSON shapes are in types.go. They are stable: fields may be added, never renamed; times are RFC 3339, durations
// end in _ms, counts in _records; lists are never null.
//
// Who may ask: /healthz, /readyz, /metrics and the console's page (which has no data of its own) are open. All else asks for
// the bearer token; where none is configured, only callers on the same machine are answered, and no page of another origin.
package admin
