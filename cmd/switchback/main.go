// Command switchback serves virtual Kafka clusters, and drives a process that does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/cutover"
)

// version and commit are set by the linker; what is not set is taken from the build.
var (
	version = ""
	commit  = ""
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // it was tried, and failed or went back
	exitUsage  = 2 // it was not tried: a mistake in the command or the configuration, a server that refused or was not reached
)

type streams struct {
	in       io.Reader
	out, err io.Writer
}

// usageError makes the exit code exitUsage.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// tried makes the exit code exitFailed, whatever it wraps: the server had begun.
type tried struct{ error }

func (t tried) Unwrap() error { return t.error }

// silent is an error whose text has been shown already.
type silent struct{ error }

func (s silent) Unwrap() error { return s.error }

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var quiet silent
	if !errors.As(err, &quiet) {
		showError(s.err, err)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var usage usageError
	var begun tried
	switch {
	case errors.As(err, &begun):
		return exitFailed
	case errors.As(err, &usage), admin.NothingDone(err):
		return exitUsage
	}
	return exitFailed
}

func showError(w io.Writer, err error) {
	p := painter{on: isTerminal(w)}
	fmt.Fprintf(w, "%s %v\n", p.red("error:"), err)
	var failure *cutover.Error
	if errors.As(err, &failure) && failure.Hint != "" {
		fmt.Fprintf(w, "%s %s\n", p.soft("hint:"), failure.Hint)
	}
}

// options are the flags that all commands share.
type options struct {
	admin string
	json  bool
	out   io.Writer
	err   io.Writer
}

func (o *options) client() *admin.Client {
	return &admin.Client{URL: o.admin, Token: os.Getenv("SWITCHBACK_TOKEN")}
}

func newRoot(s streams) *cobra.Command {
	o := &options{out: s.out, err: s.err}
	root := &cobra.Command{
		Use:   "switchback",
		Short: "A Kafka proxy that moves live clients from one cluster to another, and back",
		Long: `A Kafka proxy that moves live clients from one cluster to another, and back.

Exit codes of all commands:
  0  it was done
  1  it was tried, and failed or went back
  2  it was not tried: there is a mistake in the command or in the configuration, the server refused it before it began
     anything (not known, a wrong token, another cutover runs, not built), or the server cannot be reached`,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs, RunE: helpOrUnknown,
	}
	root.PersistentFlags().StringVar(&o.admin, "admin", "http://127.0.0.1:8080", "address of the admin interface, a URL or HOST:PORT; a token is read from SWITCHBACK_TOKEN")
	root.PersistentFlags().BoolVar(&o.json, "json", false, "print JSON")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(serveCommand(o), demoCommand(o), validateCommand(o), statusCommand(o), cutoverCommand(o), abortCommand(o),
		translateCommand(o), groupCommand(o), orphansCommand(o), reseedCommand(o), rehearseCommand(), explainCommand(), versionCommand(o))
	for _, c := range root.Commands() {
		strictArgs(c)
	}
	return root
}

// helpOrUnknown is what a command does that only has others below it.
func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("there is no command %q; see %s --help", args[0], cmd.CommandPath())}
	}
	return cmd.Help()
}

// strictArgs makes wrong arguments a mistake in the command.
func strictArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.NoArgs
	}
	if !c.HasSubCommands() {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		strictArgs(sub)
	}
}

// buildVersion is the version and the commit of this binary.
func buildVersion() (string, string) {
	v, c := version, commit
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, c
	}
	if v == "" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && c == "" {
			c = s.Value
		}
	}
	if v == "" {
		v = "(devel)"
	}
	return v, c
}

func versionCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version",
		RunE: func(*cobra.Command, []string) error {
			v, c := buildVersion()
			if o.json {
				return printJSON(o.out, map[string]string{"version": v, "commit": c})
			}
			_, err := fmt.Fprintln(o.out, "switchback", v, c)
			return err
		},
	}
}
