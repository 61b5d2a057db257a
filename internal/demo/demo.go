// Package demo shows the main job on embedded clusters in under a minute: two Kafka clusters, switchback between them and
// live clients, which cross to the other cluster and back while every record is counted.
//
//	err := demo.Run(ctx, demo.Config{Clients: 6, Cycles: 1, Out: os.Stdout, Serve: serve})
//
// Run: startClusters → writeHistory → Serve → startFleet → cycles of cutover and failback → judge. What a run says is what
// internal/check concludes from the clients' own events; nothing else is believed. It is no substitute for the tests on
// real brokers: the embedded ones keep their logs in memory and elect nobody.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/switchback-proxy/switchback/internal/check"
	"github.com/switchback-proxy/switchback/internal/config"
)

// Config says how large the demo is and where it is seen.
type Config struct {
	Clients  int       // producers, group members and readers together; at least MinClients, if 0: DefaultClients
	Cycles   int       // cutovers to the other cluster and back; if 0: 1
	Out      io.Writer // where the story is told
	Terminal bool      // Out is a terminal: colours, and a line that is drawn over
	// Serve runs switchback with this configuration until ctx ends, as the serve command does.
	Serve func(ctx context.Context, cfg *config.Config) error
}

// How many clients there are.
const (
	MinClients     = 3 // one of each kind
	DefaultClients = 6
)

// ErrUnclean is returned when the run ended but its checks found something.
var ErrUnclean = errors.New("the demo found something wrong; see the report above")

// steady is how long clients run undisturbed before and after each move.
const steady = 2 * time.Second

// Run tells the whole story once. The error is ErrUnclean if the checks found something, or says what broke.
func Run(ctx context.Context, cfg Config) error {
	cfg = cfg.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(cfg.Cycles)*time.Minute+time.Minute, errors.New("the demo took too long"))
	defer cancel()
	board := newBoard(cfg.Out, cfg.Terminal)
	defer board.close()

	pair, err := startClusters()
	if err != nil {
		return fmt.Errorf("start embedded clusters: %w", err)
	}
	defer pair.close()
	board.say("two embedded Kafka clusters of %d brokers: %s and %s", brokers, blue, green)
	if err := pair.writeHistory(ctx); err != nil {
		return fmt.Errorf("write what was there before: %w", err)
	}
	board.say("%s holds %d records, and transactions that were aborted: offsets there and on %s will differ", blue, historyRecords, green)

	site, err := newSite(pair)
	if err != nil {
		return err
	}
	stop := site.serve(ctx, cfg.Serve)
	defer stop()
	if err := site.waitReady(ctx); err != nil {
		return err
	}
	board.say("switchback serves on %s, admin on %s", site.bootstrap, site.admin)
	return tell(ctx, cfg, board, site, pair.history)
}

// tell runs the clients and the moves, and judges.
func tell(ctx context.Context, cfg Config, board *board, site *site, history []check.Event) error {
	fleet := newFleet(site.bootstrap, cfg.Clients)
	for _, e := range history {
		fleet.checker.Add(e)
	}
	if err := fleet.start(ctx); err != nil {
		return err
	}
	defer fleet.close()
	board.say("%d producers, %d members of group %s, %d readers: all live, none will be restarted", fleet.producers, fleet.members, group, fleet.readers)
	board.follow(fleet, site)
	if err := fleet.waitReading(ctx); err != nil {
		return err
	}
	if err := site.waitCaughtUp(ctx); err != nil {
		return err
	}
	fleet.checker.Add(check.Event{Kind: check.Mark, Millis: check.Now(), Text: check.MarkStart})
	moves, err := cross(ctx, cfg.Cycles, board, site)
	if err != nil {
		return err
	}
	fleet.checker.Add(check.Event{Kind: check.Mark, Millis: check.Now(), Text: check.MarkEnd})
	board.say("producers stop; readers finish")
	if err := fleet.finish(ctx); err != nil {
		return err
	}
	board.unfollow()
	return judge(board, fleet, moves)
}

// cross moves everyone to the other cluster and back, so often.
func cross(ctx context.Context, cycles int, board *board, site *site) ([]move, error) {
	var moves []move
	for range cycles {
		for _, to := range []string{green, blue} {
			if err := wait(ctx, steady); err != nil {
				return nil, err
			}
			m, err := site.cutover(ctx, to)
			if err != nil {
				return nil, fmt.Errorf("cutover to %s: %w", to, err)
			}
			board.say("cutover to %s: %s in %d ms, clients stood still for %d ms", to, m.Phase, m.TotalMillis(), m.PauseMillis)
			moves = append(moves, m)
		}
	}
	return moves, wait(ctx, steady)
}

// judge prints the report and the verdict.
func judge(board *board, fleet *fleet, moves []move) error {
	report := fleet.checker.Report()
	board.print(report.String())
	longest := int64(0)
	for _, m := range moves {
		longest = max(longest, m.PauseMillis)
	}
	if !report.OK() {
		board.verdict(false, "something is off: see above")
		return ErrUnclean
	}
	board.verdict(true, fmt.Sprintf("%d moves, %d records acked: 0 lost, 0 twice, 0 read again, 0 out of order, 0 rebalances, 0 errors; longest pause %d ms",
		len(moves), report.AckedRecords, longest))
	return nil
}

func (cfg Config) withDefaults() Config {
	if cfg.Clients == 0 {
		cfg.Clients = DefaultClients
	}
	cfg.Clients = max(cfg.Clients, MinClients)
	if cfg.Cycles == 0 {
		cfg.Cycles = 1
	}
	return cfg
}

// wait lets d pass, unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
