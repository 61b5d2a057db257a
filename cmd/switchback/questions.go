package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/switchback-proxy/switchback/internal/admin"
)

func translateCommand(o *options) *cobra.Command {
	var q admin.TranslateQuery
	c := &cobra.Command{
		Use: "translate --topic T --partition P --offset O [--to CLUSTER]", Short: "Look up where one offset is, with the segment that decides",
		Long: `Look up where one offset is on both clusters, or on the one named by --to, with the segment that decides.
With --json the answer is about one cluster: that of --to, else that of --from, else the active one.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Topic == "" || !cmd.Flags().Changed("offset") {
				return usageError{errors.New("--topic, --partition and --offset are needed")}
			}
			client := o.client()
			out, err := client.Translate(cmd.Context(), q)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(o.out, out)
			}
			printTranslation(o.out, out)
			if q.To != "" {
				return nil
			}
			if q.To, err = otherCluster(cmd.Context(), client, q, out.Cluster); err != nil {
				return err
			}
			if out, err = client.Translate(cmd.Context(), q); err != nil {
				return err
			}
			printTranslation(o.out, out)
			return nil
		},
	}
	c.Flags().StringVar(&q.Topic, "topic", "", "topic, as clients see it")
	c.Flags().Int32Var(&q.Partition, "partition", 0, "partition")
	c.Flags().Int64Var(&q.Offset, "offset", 0, "offset as clients see it, or, with --from, as that cluster has it")
	c.Flags().StringVar(&q.From, "from", "", "cluster on which the offset is physical")
	c.Flags().StringVar(&q.To, "to", "", "cluster that is asked about (default: both)")
	c.Flags().StringVar(&q.VirtualCluster, "virtual-cluster", "", "which one, where there are several")
	return c
}

// otherCluster is the one of both clusters that is not this one.
func otherCluster(ctx context.Context, client *admin.Client, q admin.TranslateQuery, this string) (string, error) {
	st, err := client.Status(ctx, admin.StatusQuery{Topics: []string{q.Topic}})
	if err != nil {
		return "", err
	}
	for _, vc := range st.VirtualClusters {
		switch {
		case q.VirtualCluster != "" && vc.Name != q.VirtualCluster:
		case vc.Active == this:
			return vc.Standby, nil
		default:
			return vc.Active, nil
		}
	}
	return "", errors.New("the virtual cluster is gone")
}

func printTranslation(w io.Writer, t admin.Translation) {
	virtual, physical := "not known", "not known"
	if t.Virtual >= 0 {
		virtual = fmt.Sprint(t.Virtual)
	}
	if t.Physical >= 0 {
		physical = fmt.Sprint(t.Physical)
	}
	fmt.Fprintf(w, "%s-%d: virtual %s, on %s %s (%s)\n", t.Topic, t.Partition, virtual, t.Cluster, physical, t.Kind)
	if s := t.Segment; s != nil {
		length := number(s.Records) + " records"
		if s.Records < 0 {
			length = "open"
		}
		fmt.Fprintf(w, "  by the %s segment from virtual %d, physical %d, %s\n", s.Kind, s.Virtual, s.Physical, length)
	}
}

func groupCommand(o *options) *cobra.Command {
	var vc string
	c := &cobra.Command{
		Use: "group GROUP", Short: "Show where a group stands on both clusters", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := o.client().Group(cmd.Context(), vc, args[0])
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(o.out, g)
			}
			p := painter{on: isTerminal(o.out)}
			fmt.Fprintf(o.out, "%s (%s)\n", p.bold(g.Group), g.Type)
			t := table{head: []string{"TOPIC", "PARTITION", "VIRTUAL", "COMMITTED", "STATE", ""}, right: []bool{false, true, true, false, false, false}}
			for _, one := range g.Partitions {
				virtual := "?"
				if one.Virtual != nil {
					virtual = fmt.Sprint(*one.Virtual)
				}
				t.add(one.Topic, fmt.Sprint(one.Partition), virtual, committed(one.Committed), p.state(one.State), one.Reason+before(" — ", one.Hint))
			}
			t.print(o.out, p, "  ")
			return nil
		},
	}
	c.Flags().StringVar(&vc, "virtual-cluster", "", "which one, where there are several")
	return c
}

func committed(by map[string]int64) string {
	var parts []string
	for cluster, offset := range by {
		parts = append(parts, fmt.Sprintf("%s %d", cluster, offset))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func orphansCommand(o *options) *cobra.Command {
	c := &cobra.Command{Use: "orphans", Short: "Records that are in no virtual log", Args: cobra.ArbitraryArgs, RunE: helpOrUnknown}
	c.AddCommand(&cobra.Command{
		Use: "list", Short: "List orphans and strays",
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := o.client().Orphans(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(o.out, out)
			}
			p := painter{on: isTerminal(o.out)}
			if len(out.Orphans)+len(out.Strays) == 0 {
				fmt.Fprintln(o.out, p.green("none"))
				return nil
			}
			t := table{head: []string{"KIND", "CLUSTER", "TOPIC", "PARTITION", "FROM", "TO", "RECORDS"}, right: []bool{false, false, false, true, true, true, true}}
			for kind, list := range map[string][]admin.Orphan{"orphan": out.Orphans, "stray": out.Strays} {
				for _, one := range list {
					t.add(kind, one.Cluster, one.Topic, fmt.Sprint(one.Partition), fmt.Sprint(one.From), fmt.Sprint(one.To), number(one.Records))
				}
			}
			slices.SortFunc(t.rows, slices.Compare[[]string])
			t.print(o.out, p, "  ")
			return nil
		},
	}, notBuilt("export", "Write orphans to a file", "orphans export"), notBuilt("republish", "Send orphans to the active cluster", "orphans republish"))
	return c
}

func reseedCommand(o *options) *cobra.Command {
	var vc string
	c := &cobra.Command{
		Use: "reseed TOPIC", Short: "Copy a topic anew that was deleted and made again", Args: cobra.ExactArgs(1),
		Long: `Copy a topic anew, from where the active cluster has it, after it was deleted and made again under its name.
What the standby has of the old one must be deleted there first, or it stays stopped.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.client().Reseed(cmd.Context(), vc, args[0]); err != nil {
				return err
			}
			if o.json {
				return printJSON(o.out, admin.Reseeded{Topic: args[0]})
			}
			_, err := fmt.Fprintf(o.out, "%s is copied anew; see switchback status --topics %s\n", args[0], args[0])
			return err
		},
	}
	c.Flags().StringVar(&vc, "virtual-cluster", "", "which one, where there are several")
	return c
}

func rehearseCommand() *cobra.Command {
	return notBuilt("rehearse", "Run a cutover on shadow topics and measure it", "rehearse")
}

func explainCommand() *cobra.Command {
	return notBuilt("explain", "Tell why a group stands where it stands", "explain")
}

// notBuilt is a command that the design has and this version does not.
func notBuilt(use, short, what string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short + " (not built)", Args: cobra.ArbitraryArgs, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(*cobra.Command, []string) error { return usageError{admin.NotBuilt(what)} },
	}
}
