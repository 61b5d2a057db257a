package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchback-proxy/switchback/internal/admin"
	"github.com/switchback-proxy/switchback/internal/cutover"
)

func cutoverCommand(o *options) *cobra.Command {
	var order admin.CutoverOrder
	var force, detach bool
	var maxPause time.Duration
	c := &cobra.Command{
		Use: "cutover --to CLUSTER", Short: "Move all clients to the standby, and show how it goes",
		Long: `Move all clients to the standby, and show how it goes.

Exit code 0: they are there (with --dry-run: nothing stands in the way)
          1: it was tried and went back, clients are where they were (with --dry-run: what stands in the way is shown); or
             how it ended could not be seen: ask "switchback status"
          2: it was not tried: a mistake in the command, the server refused the order, or it cannot be reached`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if order.To == "" {
				return usageError{errors.New("say where to with --to")}
			}
			if force {
				order.Mode = "forced"
			}
			if cmd.Flags().Changed("max-pause") {
				if maxPause <= 0 {
					return usageError{fmt.Errorf("--max-pause %s: it must be above zero", maxPause)}
				}
				order.MaxPause = maxPause.String()
			}
			return startCutover(cmd.Context(), o, order, detach)
		},
	}
	c.Flags().StringVar(&order.To, "to", "", "the cluster that becomes active")
	c.Flags().StringVar(&order.VirtualCluster, "virtual-cluster", "", "which one, where there are several")
	c.Flags().BoolVar(&order.DryRun, "dry-run", false, "read only: what would stand in the way")
	c.Flags().BoolVar(&force, "force", false, "do without the active cluster")
	c.Flags().BoolVar(&order.AcceptUnknownLoss, "accept-unknown-loss", false, "with --force, where a proxy that is cut off may still serve")
	c.Flags().DurationVar(&maxPause, "max-pause", 0, "go back if clients would wait longer (default: as configured)")
	c.Flags().BoolVar(&detach, "detach", false, "print the id and do not wait")
	return c
}

func startCutover(ctx context.Context, o *options, order admin.CutoverOrder, detach bool) error {
	client := o.client()
	id, err := client.StartCutover(ctx, order)
	if err != nil {
		return err
	}
	if detach {
		if o.json {
			return printJSON(o.out, admin.CutoverID{ID: id})
		}
		_, err := fmt.Fprintln(o.out, id)
		return err
	}
	view := newView(o)
	last, err := follow(ctx, client, id, view.show)
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintf(o.err, "\nnobody watches cutover %s now; it goes on. End it with: switchback abort %s\n", id, id)
		}
		return tried{err}
	}
	if err := view.finish(last); err != nil {
		return tried{err}
	}
	return nil
}

const (
	reconnectFor   = 30 * time.Second // how long a stream that broke is tried again
	reconnectEvery = 500 * time.Millisecond
)

// follow calls show with each state of a cutover until its end. A broken stream is opened again: the cutover goes on
// meanwhile.
func follow(ctx context.Context, client *admin.Client, id string, show func(admin.Cutover)) (admin.Cutover, error) {
	var last admin.Cutover
	lost := time.Time{}
	for {
		err := client.Events(ctx, id, func(c admin.Cutover) bool {
			last, lost = c, time.Time{}
			show(c)
			return true
		})
		if err == nil && last.Over() {
			return last, nil
		}
		var refused *cutover.Error
		if ctx.Err() != nil || errors.As(err, &refused) && refused.Code == cutover.CodeNotFound {
			return last, err
		}
		if lost.IsZero() {
			lost = time.Now()
		}
		if time.Since(lost) > reconnectFor {
			return last, fmt.Errorf("cutover %s: %w", id, err)
		}
		timer := time.NewTimer(reconnectEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return last, ctx.Err()
		case <-timer.C:
		}
	}
}

// view shows a cutover on a terminal by one line a phase, of which the last is drawn over, elsewhere by lines that stay.
type view struct {
	o       *options
	w       io.Writer // where progress goes: with --json not to where the result goes
	p       painter
	live    bool
	printed int // phases whose line stands
	pending bool
}

func newView(o *options) *view {
	w := o.out
	if o.json {
		w = o.err
	}
	live := isTerminal(w)
	return &view{o: o, w: w, p: painter{on: live}, live: live}
}

func (v *view) show(c admin.Cutover) {
	for i, ph := range c.Phases {
		over := i < len(c.Phases)-1 || c.Over()
		if i < v.printed || ph.Phase == "Done" {
			continue
		}
		if !over && !v.live {
			continue
		}
		v.clear()
		mark := v.p.yellow("…")
		switch {
		case over && c.Phase == "Aborted" && i == len(c.Phases)-1:
			mark = v.p.red("✗")
		case over:
			mark = v.p.green("✓")
		}
		took := ph.Millis
		if !over {
			took = time.Since(ph.StartedAt).Milliseconds()
		}
		head := fmt.Sprintf("%s %-12s %9s", mark, ph.Phase, millis(max(took, 0)))
		if over {
			fmt.Fprintln(v.w, strings.TrimRight(head+"  "+v.p.soft(strings.Join(factsLines(ph.Facts), v.between())), " "))
			v.printed = i + 1
		} else {
			v.draw(head + "  " + v.p.soft(strings.Join(factsLines(ph.Facts), " ")))
		}
	}
	if c.Error != nil && !c.Over() && v.live {
		v.clear()
		v.draw(v.p.yellow("…") + " " + c.Error.Message)
	}
}

// between is what stands between lines of facts: people have 80 columns, a file has one line a phase.
func (v *view) between() string {
	if v.live {
		return "\n" + factsIndent
	}
	return " "
}

// draw shows a line that is drawn over. The terminal cuts it at its width: of a line that went on below, clear would leave the rest.
func (v *view) draw(line string) {
	fmt.Fprintf(v.w, "\x1b[?7l%s\x1b[?7h", line)
	v.pending = true
}

// clear takes away the line that is drawn over.
func (v *view) clear() {
	if v.pending {
		fmt.Fprint(v.w, "\r\x1b[2K")
		v.pending = false
	}
}

const (
	factsWidth  = 54 // with what stands before them: 80 columns
	factsIndent = "                          "
)

// factsLines are the facts in order, as many on a line as fit.
func factsLines(facts map[string]any) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		value := facts[name]
		if f, ok := value.(float64); ok && f == float64(int64(f)) {
			value = number(int64(f))
		}
		fact := fmt.Sprintf("%s %v", strings.ReplaceAll(name, "_", " "), value)
		last := len(lines) - 1
		if last >= 0 && visible(lines[last])+len(", ")+visible(fact)+len(",") <= factsWidth {
			lines[last] += ", " + fact
			continue
		}
		if last >= 0 {
			lines[last] += ","
		}
		lines = append(lines, fact)
	}
	return lines
}

// finish says how it ended; going back is an error.
func (v *view) finish(c admin.Cutover) error {
	v.clear()
	if v.o.json {
		if err := printJSON(v.o.out, c); err != nil {
			return err
		}
	}
	if c.Phase == "Done" {
		switch {
		case v.o.json:
		case c.DryRun:
			fmt.Fprintln(v.o.out, v.p.green("nothing stands in the way of a move to "+c.To))
		default:
			fmt.Fprintf(v.o.out, "%s is active; clients waited at most %s; lost records: %d\n", v.p.green(c.To), v.p.bold(millis(c.PauseMillis)), c.Lost.Records)
		}
		return nil
	}
	if c.Error == nil {
		return fmt.Errorf("cutover %s ended in phase %s", c.ID, c.Phase)
	}
	if !c.DryRun {
		fmt.Fprintf(v.o.err, "%s stays active; clients waited at most %s\n", c.From, millis(c.PauseMillis))
	}
	return c.Error
}

func abortCommand(o *options) *cobra.Command {
	var vc string
	c := &cobra.Command{
		Use: "abort [ID]", Short: "End a running cutover that is not committed; clients stay where they are", Args: cobra.MaximumNArgs(1),
		Long: `End a running cutover that is not committed; clients stay where they are.

Exit code 0: it went back; 1: how it ended could not be seen; 2: there is nothing to end, or it is committed.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			client := o.client()
			id, err := runningCutover(cmd.Context(), client, vc, args)
			if err != nil {
				return err
			}
			if _, err := client.Abort(cmd.Context(), id); err != nil {
				return err
			}
			last, err := follow(cmd.Context(), client, id, func(admin.Cutover) {})
			if err != nil {
				return tried{err}
			}
			if o.json {
				return printJSON(o.out, last)
			}
			_, err = fmt.Fprintf(o.out, "cutover %s is %s; %s stays active; clients waited at most %s\n", id, last.Phase, last.From, millis(last.PauseMillis))
			return err
		},
	}
	c.Flags().StringVar(&vc, "virtual-cluster", "", "which one, where there are several")
	return c
}

// runningCutover is the id given, or that of the one cutover that runs.
func runningCutover(ctx context.Context, client *admin.Client, vc string, args []string) (string, error) {
	if len(args) == 1 {
		return args[0], nil
	}
	st, err := client.Status(ctx, admin.StatusQuery{})
	if err != nil {
		return "", err
	}
	if vc != "" && !slices.ContainsFunc(st.VirtualClusters, func(one admin.VirtualClusterStatus) bool { return one.Name == vc }) {
		return "", usageError{fmt.Errorf("there is no virtual cluster %q", vc)}
	}
	var ids []string
	for _, one := range st.VirtualClusters {
		if (vc == "" || one.Name == vc) && one.Cutover != nil && !one.Cutover.Over() {
			ids = append(ids, one.Cutover.ID)
		}
	}
	switch len(ids) {
	case 0:
		return "", usageError{errors.New("no cutover runs")}
	case 1:
		return ids[0], nil
	}
	return "", usageError{fmt.Errorf("several cutovers run: %s; name one", strings.Join(ids, ", "))}
}
