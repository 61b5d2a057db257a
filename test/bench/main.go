// Command bench measures what switchback costs: against real brokers, beside no proxy at all and beside relays that only pass bytes
// on, in turns, so that whatever else the machine does falls on all of them alike. docs/performance.md tells how to read it.
//
//	go run ./test/bench                     micro benchmarks, then everything in the default plan; under 15 minutes
//	BENCH=full go run ./test/bench          the whole matrix
//	BENCH=smoke go run ./test/bench         seconds, tiny: does it run? The figures mean nothing
//	go run ./test/bench check               micro benchmarks against test/bench/baseline.json; fails if 10 % worse
//	go run ./test/bench check -write        takes them as the new baseline
//	go run ./test/bench render FILE.json    table and plot of an earlier run
//
// It needs what test/setup.sh installs, uses loopback only and ends only what it started.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := dispatch(ctx, os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "load": // a child of ours
		return serveLoad(ctx)
	case "relay": // a child of ours
		return serveRelay(ctx)
	case "check":
		return check(ctx, args[1:])
	case "render":
		return render(args[1:])
	}
	return bench(ctx, args)
}

// options are the flags of a whole run.
type options struct {
	output, plot, page string
	product            string
	only               string
	skipMicro          bool
	keep               string
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.output, "o", "", "write the results as JSON to this file")
	flags.StringVar(&o.plot, "svg", "", "write the plot to this file")
	flags.StringVar(&o.page, "page", "", "put the tables into this page, between its markers")
	flags.StringVar(&o.product, "product", "", "the switchback binary; by default it is built; none: relays only")
	flags.StringVar(&o.only, "only", "", "only scenarios whose name has this in it, for example \"consume 1 KB\"")
	flags.BoolVar(&o.skipMicro, "skip-micro", false, "no micro benchmarks")
	flags.StringVar(&o.keep, "logs", "", "keep the logs of brokers and proxy in this folder")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown command %q", flags.Arg(0))
	}
	return o, nil
}

func bench(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	plan, err := planFor(os.Getenv("BENCH"), o.only)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, plan.Limit, fmt.Errorf("not done within %v", plan.Limit))
	defer cancel()
	report := newReport(ctx, plan)
	if !o.skipMicro {
		if report.Micro, err = runMicro(ctx, plan.MicroRounds, "."); err != nil {
			return err
		}
	}
	runErr := runAll(ctx, o, plan, report)
	report.finish()
	if err := report.save(o); err != nil {
		return errors.Join(runErr, err)
	}
	report.print(os.Stdout)
	return runErr
}
