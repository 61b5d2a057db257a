// Package obs is what operators see: the names of metrics and log fields, the metrics themselves, the events that are
// logged, and the logger.
//
//	metrics := obs.NewMetrics(obs.Build{Version: "1.0.0"})
//	http.Handle("/metrics", metrics.Handler())
//	calls := metrics.Proxy("main")             // once per virtual cluster
//	calls.Calls(int16(kmsg.Fetch)).Inc()       // per call: an array look-up
//	pump := metrics.Partition("blue.green", "orders", 3)
//	pump.SetLag(120, 2*time.Second)
//	defer pump.Delete()                        // the series go when the pump goes
//
// Every method works on a nil receiver and then does nothing, so a package with no metrics needs no conditions. All
// are safe for concurrent use. There is no global registry: two Metrics in one process do not meet.
package obs
