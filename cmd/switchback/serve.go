package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/config"
	"github.com/switchback-proxy/switchback/internal/demo"
	"github.com/switchback-proxy/switchback/internal/engine"
	"github.com/switchback-proxy/switchback/internal/obs"
)

func serveCommand(o *options) *cobra.Command {
	var file, roles string
	c := &cobra.Command{
		Use: "serve -c FILE", Short: "Run: serve clients, copy, answer the admin interface",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRoles(roles); err != nil {
				return err
			}
			cfg, err := loadConfig(o, file)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	c.Flags().StringVar(&roles, "roles", "proxy,replicator,admin", "what this process does")
	return c
}

// checkRoles accepts all roles together, in any order.
func checkRoles(roles string) error {
	list := strings.Split(roles, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	slices.Sort(list)
	for _, role := range list {
		if !slices.Contains([]string{"proxy", "replicator", "admin"}, role) {
			return usageError{fmt.Errorf("role %q: the roles are proxy, replicator and admin", role)}
		}
	}
	if !slices.Equal(slices.Compact(list), []string{"admin", "proxy", "replicator"}) {
		return usageError{admin.NotBuilt("a process with some of the roles only")}
	}
	return nil
}

// serve runs a configuration until ctx ends, and ends in order.
func serve(ctx context.Context, cfg *config.Config) error {
	log, err := obs.NewLogger(obs.LogConfig{Level: cfg.Log.Level, Format: cfg.Log.Format, Instance: cfg.Instance})
	if err != nil {
		return usageError{err}
	}
	return serveWith(ctx, cfg, log)
}

func serveWith(ctx context.Context, cfg *config.Config, log zerolog.Logger) error {
	v, c := buildVersion()
	log.Info().Str(obs.KeyVersion, v).Str(obs.KeyAddress, cfg.Admin.Listen).Msg("switchback starts")
	stop := context.AfterFunc(ctx, func() { log.Info().Msg("switchback is ending; a second signal ends it at once") })
	defer stop()
	err := engine.Serve(ctx, cfg, engine.Options{Version: v, Commit: c, Log: log})
	if err == nil {
		log.Info().Msg("switchback has ended")
	}
	return err
}

// loadConfig reads a configuration; its mistakes are shown here, one a line.
func loadConfig(o *options, file string) (*config.Config, error) {
	if file == "" {
		return nil, usageError{errors.New("name a configuration file with -c")}
	}
	cfg, err := config.Load(file)
	var problems *config.Problems
	if errors.As(err, &problems) {
		if o.json {
			_ = printJSON(o.out, showProblems(problems))
		} else {
			fmt.Fprintln(o.err, err)
			fmt.Fprintf(o.err, "%s all keys are in docs/configuration.md\n", painter{on: isTerminal(o.err)}.soft("hint:"))
		}
		return nil, usageError{silent{err}}
	}
	if err != nil {
		return nil, usageError{err}
	}
	return cfg, nil
}

type problemJSON struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
	Hint string `json:"hint"`
}

func showProblems(p *config.Problems) map[string][]problemJSON {
	list := []problemJSON{}
	for _, one := range p.List {
		list = append(list, problemJSON(one))
	}
	return map[string][]problemJSON{"problems": list}
}

func validateCommand(o *options) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "validate -c FILE", Short: "Find every mistake in a configuration; exit code 2 if there is one",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := loadConfig(o, file)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(o.out, showProblems(new(config.Problems)))
			}
			_, err = fmt.Fprintf(o.out, "%s is valid: %d clusters, %d virtual clusters\n", file, len(cfg.Clusters), len(cfg.VirtualClusters))
			return err
		},
	}
	c.Flags().StringVarP(&file, "config", "c", "", "configuration file")
	return c
}

func demoCommand(o *options) *cobra.Command {
	var clients, cycles int
	c := &cobra.Command{
		Use: "demo", Short: "Two embedded clusters, live clients, a cutover and a failback, every record counted",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if clients < demo.MinClients || cycles < 1 {
				return usageError{fmt.Errorf("--clients must be at least %d, --cycles at least 1", demo.MinClients)}
			}
			err := demo.Run(cmd.Context(), demo.Config{
				Clients: clients, Cycles: cycles, Out: o.out, Terminal: isTerminal(o.out), Serve: serve,
			})
			if errors.Is(err, demo.ErrUnclean) {
				return silent{err}
			}
			return err
		},
	}
	c.Flags().IntVar(&clients, "clients", demo.DefaultClients, "producers, group members and readers together")
	c.Flags().IntVar(&cycles, "cycles", 1, "cutovers to the other cluster and back")
	return c
}
