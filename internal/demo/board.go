package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// board tells the story: lines that stay, and under them one line that shows what is going on.
type board struct {
	out      io.Writer
	terminal bool
	started  time.Time

	mu   sync.Mutex // guards out, live and stop
	live bool       // a line is drawn that the next one takes the place of
	stop func()     // ends following
}

func newBoard(out io.Writer, terminal bool) *board {
	return &board{out: out, terminal: terminal, started: time.Now(), stop: func() {}}
}

const (
	clearLine = "\r\x1b[K"
	wrapOff   = "\x1b[?7l"
	wrapOn    = "\x1b[?7h"
	bold      = "\x1b[1m"
	dim       = "\x1b[2m"
	red       = "\x1b[31m"
	greenInk  = "\x1b[32m"
	blueInk   = "\x1b[34m"
	plain     = "\x1b[0m"
)

func (b *board) ink(code, text string) string {
	if !b.terminal {
		return text
	}
	return code + text + plain
}

// say tells one thing that happened.
func (b *board) say(format string, args ...any) {
	b.print(fmt.Sprintf("%s %s\n", b.ink(dim, b.clock()), b.names(fmt.Sprintf(format, args...))))
}

func (b *board) clock() string { return fmt.Sprintf("%5.1fs", time.Since(b.started).Seconds()) }

// names colours the clusters' names.
func (b *board) names(text string) string {
	if !b.terminal {
		return text
	}
	return strings.NewReplacer(" "+blue, " "+b.ink(blueInk, blue), " "+green, " "+b.ink(greenInk, green)).Replace(text)
}

// print writes text as it is, above the live line.
func (b *board) print(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.live {
		io.WriteString(b.out, clearLine)
		b.live = false
	}
	io.WriteString(b.out, text)
}

func (b *board) verdict(ok bool, text string) {
	if ok {
		b.print(b.ink(bold+greenInk, "CLEAN") + "  " + text + "\n")
		return
	}
	b.print(b.ink(bold+red, "UNCLEAN") + "  " + text + "\n")
}

// follow shows what clients and switchback do until unfollow: five times a second on a terminal, else every two seconds.
func (b *board) follow(f *fleet, s *site) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { b.run(ctx, f, s) })
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
	})
}

func (b *board) unfollow() {
	b.mu.Lock()
	stop := b.stop
	b.mu.Unlock()
	stop()
}

func (b *board) close() { b.unfollow() }

func (b *board) run(ctx context.Context, f *fleet, s *site) {
	every := 2 * time.Second
	if b.terminal {
		every = 200 * time.Millisecond
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var acked, read int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		a, r := f.counts.acked.Load(), f.counts.read.Load()
		perSecond := float64(time.Second) / float64(every)
		b.draw(b.line(ctx, s, int64(float64(a-acked)*perSecond), int64(float64(r-read)*perSecond), f.counts.errors.Load()))
		acked, read = a, r
	}
}

func (b *board) line(ctx context.Context, s *site, acks, reads, errors int64) string {
	active, lag := "?", int64(0)
	if st, err := s.status(ctx); err == nil && len(st.VirtualClusters) == 1 {
		vc := st.VirtualClusters[0]
		active = vc.Active
		for _, p := range vc.Partitions {
			lag += p.LagRecords
		}
	}
	phase := "Idle"
	if p := s.phase.Load(); p != nil {
		phase = *p
	}
	return b.wording(active, phase, acks, reads, lag, errors)
}

// wording has up to 80 columns.
func (b *board) wording(active, phase string, acks, reads, lag, errors int64) string {
	return fmt.Sprintf("%s active %s │ %5d acks/s %5d reads/s lag %4d errors %d │ %s",
		b.ink(dim, b.clock()), strings.TrimPrefix(b.names(" "+active), " "), acks, reads, lag, errors, phase)
}

func (b *board) draw(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.terminal {
		io.WriteString(b.out, line+"\n")
		return
	}
	io.WriteString(b.out, clearLine+wrapOff+line+wrapOn) // what went on below would not be cleared
	b.live = true
}
