package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchback-proxy/switchback/internal/admin"
)

const watchEvery = time.Second

func statusCommand(o *options) *cobra.Command {
	var topics, only string
	var watch, all bool
	c := &cobra.Command{
		Use: "status", Short: "Show roles, health, lag and groups",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := admin.StatusQuery{Only: only}
			if topics != "" {
				q.Topics = strings.Split(topics, ",")
			}
			if only != "" && only != admin.Red {
				return usageError{fmt.Errorf("--only %s: the one filter is red", only)}
			}
			limit := 15
			if all || topics != "" {
				limit = 0
			}
			if !watch {
				return showStatus(cmd.Context(), o, q, limit)
			}
			return watchStatus(cmd.Context(), o, q, limit)
		},
	}
	c.Flags().StringVar(&topics, "topics", "", "only these topics, separated by commas")
	c.Flags().StringVar(&only, "only", "", "red: only what somebody has to look at")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again every second")
	c.Flags().BoolVarP(&all, "all", "a", false, "every partition and group")
	return c
}

func showStatus(ctx context.Context, o *options, q admin.StatusQuery, limit int) error {
	st, err := o.client().Status(ctx, q)
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(o.out, st)
	}
	printStatus(o.out, painter{on: isTerminal(o.out)}, st, limit)
	return saySilentTopics(o.err, st, q)
}

// saySilentTopics names the topics that were asked for and are not there.
func saySilentTopics(w io.Writer, st admin.Status, q admin.StatusQuery) error {
	if q.Only != "" { // what is left out may well be there
		return nil
	}
	known := make(map[string]bool)
	for _, vc := range st.VirtualClusters {
		for _, p := range vc.Partitions {
			known[p.Topic] = true
		}
	}
	for _, topic := range q.Topics {
		if known[topic] {
			continue
		}
		if _, err := fmt.Fprintf(w, "no topic that is copied has the name %q; topics are named as clients see them\n", topic); err != nil {
			return err
		}
	}
	return nil
}

// watchStatus redraws a terminal; elsewhere, and as JSON, one status follows the other. It ends with ctx.
func watchStatus(ctx context.Context, o *options, q admin.StatusQuery, limit int) error {
	terminal := isTerminal(o.out) && !o.json
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		st, err := o.client().Status(ctx, q)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !terminal:
			return err
		case o.json:
			err = printJSON(o.out, st)
		default:
			err = redraw(o.out, terminal, st, err, limit)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// redraw writes a whole picture at once, so that it does not flicker.
func redraw(w io.Writer, terminal bool, st admin.Status, failure error, limit int) error {
	var picture bytes.Buffer
	if terminal {
		picture.WriteString("\x1b[H\x1b[2J")
	}
	if failure != nil {
		showError(&picture, failure)
	} else {
		printStatus(&picture, painter{on: terminal}, st, limit)
	}
	_, err := w.Write(picture.Bytes())
	return err
}

func printStatus(w io.Writer, p painter, st admin.Status, limit int) {
	for i, vc := range st.VirtualClusters {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s  %s → %s  generation %d  offsets %s  %s  %s\n", p.bold(vc.Name), p.bold(vc.Active), vc.Standby, vc.Generation, vc.Offsets, p.health(vc.Health), vc.Phase)
		if vc.Reason != "" {
			fmt.Fprintf(w, "  %s%s\n", vc.Reason, p.soft(before(": ", vc.Hint)))
		}
		if vc.Assumed != "" {
			fmt.Fprintf(w, "  %s\n", p.yellow(vc.Assumed))
		}
		if c := vc.Cutover; c != nil {
			printLastMove(w, p, *c)
		}
		printPartitions(w, p, vc.Partitions, limit)
		printGroups(w, p, vc.Groups, limit)
	}
}

func before(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

func printLastMove(w io.Writer, p painter, c admin.Cutover) {
	what := "move"
	if c.Over() {
		what = "last move"
	}
	fmt.Fprintf(w, "  %s %s: %s → %s, %s, pause %s, %s\n", what, c.ID, c.From, c.To, verdict(p, c), millis(c.PauseMillis), c.StartedAt.Local().Format(time.DateTime))
	if c.Error != nil {
		fmt.Fprintf(w, "    %s%s\n", c.Error.Message, p.soft(before(" — ", c.Error.Hint)))
	}
}

func verdict(p painter, c admin.Cutover) string {
	switch c.Phase {
	case "Done":
		return p.green(c.Phase)
	case "Aborted":
		return p.red(c.Phase)
	}
	return p.yellow(c.Phase)
}

func printPartitions(w io.Writer, p painter, list []admin.Partition, limit int) {
	if len(list) == 0 {
		return
	}
	total := int64(0)
	for _, one := range list {
		total += max(one.LagRecords, 0)
	}
	fmt.Fprintf(w, "\n  %d partitions, %s records behind\n", len(list), number(total))
	slices.SortStableFunc(list, func(a, b admin.Partition) int { // what needs a look first
		return cmp.Or(boolean(b.State == "Stopped")-boolean(a.State == "Stopped"), cmp.Compare(b.LagRecords, a.LagRecords))
	})
	t := table{head: []string{"TOPIC", "PARTITION", "STATE", "LAG", "BEHIND", ""}, right: []bool{false, true, false, true, true, false}}
	for _, one := range firstOf(list, limit) {
		t.add(one.Topic, fmt.Sprint(one.Partition), p.state(one.State), number(one.LagRecords), millis(one.LagMillis), one.Reason+before(" — ", one.Hint))
	}
	t.print(w, p, "  ")
	printMore(w, p, len(list), limit)
}

func printGroups(w io.Writer, p painter, list []admin.GroupLine, limit int) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  %d groups\n", len(list))
	slices.SortStableFunc(list, func(a, b admin.GroupLine) int { return boolean(b.State != "ok") - boolean(a.State != "ok") })
	t := table{head: []string{"GROUP", "STATE", "CHECKPOINT", ""}, right: []bool{false, false, true, false}}
	for _, one := range firstOf(list, limit) {
		t.add(one.Group, p.state(one.State), ago(one.CheckpointAgeMillis), one.Reason+before(" — ", one.Hint))
	}
	t.print(w, p, "  ")
	printMore(w, p, len(list), limit)
}

func ago(ms int64) string {
	if ms < 0 {
		return "never"
	}
	return millis(ms) + " ago"
}

func printMore(w io.Writer, p painter, n, limit int) {
	if limit > 0 && n > limit {
		fmt.Fprintln(w, p.soft(fmt.Sprintf("  and %d more; --all shows them", n-limit)))
	}
}

// firstOf is the list up to a limit; 0: all.
func firstOf[T any](list []T, limit int) []T {
	if limit == 0 || len(list) <= limit {
		return list
	}
	return list[:limit]
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
