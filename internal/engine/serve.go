package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/obs"
	"github.com/switchback-proxy/switchback/proxy"
)

// Options are what a configuration does not say.
type Options struct {
	Version, Commit string
	WatchInterval   time.Duration // between looks at the clusters; if 0, 5 s
	Log             zerolog.Logger
}

// Serve runs all virtual clusters of a configuration and the admin interface until ctx ends, then ends them in order. An
// error is something that waiting does not mend; it ends all.
func Serve(ctx context.Context, cfg *config.Config, o Options) error {
	metrics := obs.NewMetrics(obs.Build{Version: o.Version, Commit: o.Commit})
	ups, closeAll, err := connectAll(cfg, metrics)
	if err != nil {
		return err
	}
	defer closeAll()
	engines, err := newEngines(cfg, ups, settings{Replication: cfg.Replication, Cutover: cfg.Cutover, Limits: cfg.Limits, Metrics: metrics, Memory: proxy.NewMemory(cfg.Limits.TotalBytes, metrics), WatchInterval: cmp.Or(o.WatchInterval, defaultWatchInterval), Log: o.Log})
	if err != nil {
		return err
	}
	server := admin.New(admin.Config{Token: cfg.Admin.Token.Reveal(), Version: o.Version, Clusters: asClusters(engines), Metrics: metrics.Handler(), Log: o.Log})
	listener, err := net.Listen("tcp", cfg.Admin.Listen)
	if err != nil {
		return fmt.Errorf("listen for the admin interface: %w", err)
	}
	return runAll(ctx, engines, server, listener)
}

// runAll waits for all engines, then ends the admin interface, so that the end of a cutover can still be read.
func runAll(ctx context.Context, engines []*Engine, server *admin.Server, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	errs := make([]error, len(engines)+1)
	var running, admin sync.WaitGroup
	admin.Go(func() {
		errs[len(engines)] = server.Serve(serving, listener)
		cancel()
	})
	for i, e := range engines {
		running.Go(func() {
			errs[i] = e.Run(ctx)
			cancel()
		})
	}
	running.Wait()
	stopServing()
	admin.Wait()
	return errors.Join(errs...)
}

func asClusters(engines []*Engine) []admin.VirtualCluster {
	out := make([]admin.VirtualCluster, len(engines))
	for i, e := range engines {
		out[i] = e
	}
	return out
}

// connectAll makes a client for every cluster that a virtual cluster uses.
func connectAll(cfg *config.Config, metrics *obs.Metrics) (map[string]*upstream, func(), error) {
	ups := make(map[string]*upstream)
	closeAll := func() {
		for _, u := range ups {
			u.client.Close()
		}
	}
	for _, vc := range cfg.VirtualClusters {
		for _, name := range []string{vc.Active, vc.Standby} {
			if ups[name] != nil {
				continue
			}
			u, err := connect(name, cfg.Clusters[name])
			if err != nil {
				closeAll()
				return nil, nil, err
			}
			u.seen = func(yes bool) { metrics.SetReachable(name, yes) }
			ups[name] = u
		}
	}
	return ups, closeAll, nil
}

func newEngines(cfg *config.Config, ups map[string]*upstream, s settings) ([]*Engine, error) {
	var names []string
	for _, vc := range cfg.VirtualClusters {
		names = append(names, vc.Name)
	}
	slices.Sort(names)
	var engines []*Engine
	for _, vc := range cfg.VirtualClusters {
		if vc.Offsets == config.OffsetsTranslated {
			return nil, fmt.Errorf("virtual cluster %s: offsets: translated is not built; use preserved", vc.Name)
		}
		e, err := newEngine(vc, ups, names, s)
		if err != nil {
			return nil, fmt.Errorf("virtual cluster %s: %w", vc.Name, err)
		}
		engines = append(engines, e)
	}
	return engines, nil
}
