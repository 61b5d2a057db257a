package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// microPackages hold what runs for every request or batch.
func microPackages() []string {
	return []string{"proxy", "internal/wire", "internal/batch", "translate"}
}

const (
	baselineFile = "test/bench/baseline.json"
	// tolerance is how much more of allocations or CPU than in the baseline passes.
	tolerance = 1.10
	// attempts is how often what looks slower is measured again before it counts: other work on the machine only ever adds.
	attempts      = 4
	microDuration = "40ms"
)

// Micro is what the micro benchmarks of a run cost.
type Micro struct {
	CPU         string // the ratios hold on this kind of processor
	Go          string
	ReferenceNs float64 // one turn of the reference loop
	Benchmarks  map[string]Cost
}

// Cost is of one operation.
type Cost struct {
	Ns     float64
	Ratio  float64 // to the reference loop, run just before and after
	Bytes  float64
	Allocs float64
}

// runMicro runs every benchmark of the packages, rounds times, and keeps the least of each. pattern chooses benchmarks.
func runMicro(ctx context.Context, rounds int, pattern string) (*Micro, error) {
	dir, err := os.MkdirTemp("", "switchback-micro-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m := &Micro{CPU: thisMachine().CPU, Go: thisMachine().Go, Benchmarks: make(map[string]Cost)}
	binaries := make(map[string]string)
	for _, pkg := range microPackages() {
		binary := filepath.Join(dir, strings.ReplaceAll(pkg, "/", "-")+".test")
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./"+pkg).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build benchmarks of %s: %w\n%s", pkg, err, out)
		}
		if _, err := os.Stat(binary); err == nil { // there is none where there are no tests
			binaries[pkg] = binary
		}
	}
	for range rounds {
		for _, pkg := range slices.Sorted(maps.Keys(binaries)) {
			if err := m.round(ctx, pkg, binaries[pkg], pattern); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// round runs one package's benchmarks between two runs of the reference loop.
func (m *Micro) round(ctx context.Context, pkg, binary, pattern string) error {
	before := reference()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", pattern, "-test.benchmem", "-test.benchtime", microDuration, "-test.cpu", "1", "-test.timeout", "5m")
	cmd.Dir = pkg
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("benchmarks of %s: %w\n%s", pkg, err, out)
	}
	turn := min(before, reference())
	if m.ReferenceNs == 0 || turn < m.ReferenceNs {
		m.ReferenceNs = turn
	}
	found, err := parseBenchmarks(bytes.NewReader(out))
	if err != nil {
		return fmt.Errorf("benchmarks of %s: %w", pkg, err)
	}
	for name, cost := range found {
		cost.Ratio = cost.Ns / turn
		m.keep(pkg+"."+name, cost)
	}
	return nil
}

func (m *Micro) keep(name string, cost Cost) {
	if old, ok := m.Benchmarks[name]; ok {
		cost.Ns, cost.Ratio = min(cost.Ns, old.Ns), min(cost.Ratio, old.Ratio)
		cost.Bytes, cost.Allocs = min(cost.Bytes, old.Bytes), min(cost.Allocs, old.Allocs)
	}
	m.Benchmarks[name] = cost
}

// reference is the time of one turn, in nanoseconds, of a loop that has nothing to do with our code but does the same kind of
// thing: integers read and hashed, bytes copied. The least of several runs.
func reference() float64 {
	src, dst := make([]byte, 16<<10), make([]byte, 16<<10)
	for i := range src {
		src[i] = byte(i * 7)
	}
	least := 0.0
	for range 8 {
		const turns = 100
		started, sum := time.Now(), uint64(0)
		for range turns {
			h := fnv.New64a()
			h.Write(src[:2048])
			for at := 0; at < len(src); at += 64 {
				sum += binary.BigEndian.Uint64(src[at:])
			}
			copy(dst, src)
			sum += h.Sum64() + uint64(dst[sum%1024])
		}
		turn := float64(time.Since(started).Nanoseconds()) / turns
		if sum == 0 {
			panic("the loop was optimised away")
		}
		if least == 0 || turn < least {
			least = turn
		}
	}
	return least
}

// parseBenchmarks reads what go test -bench -benchmem prints.
func parseBenchmarks(in io.Reader) (map[string]Cost, error) {
	found := make(map[string]Cost)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		var cost Cost
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			switch fields[i+1] {
			case "ns/op":
				cost.Ns = value
			case "B/op":
				cost.Bytes = value
			case "allocs/op":
				cost.Allocs = value
			}
		}
		found[strings.TrimPrefix(fields[0], "Benchmark")] = cost
	}
	return found, lines.Err()
}

// check compares with the baseline, or writes a new one.
func check(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	write := flags.Bool("write", false, "take what is measured as the new baseline")
	rounds := flags.Int("rounds", 5, "how often each benchmark runs; the least counts")
	file := flags.String("baseline", baselineFile, "the baseline file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	measured, err := runMicro(ctx, *rounds, ".")
	if err != nil {
		return err
	}
	if *write {
		for range baselineRuns - 1 {
			again, err := runMicro(ctx, *rounds, ".")
			if err != nil {
				return err
			}
			measured.raise(again)
		}
		return measured.write(*file)
	}
	b, err := os.ReadFile(*file)
	if err != nil {
		return fmt.Errorf("read baseline: %w (make one with -write)", err)
	}
	var baseline Micro
	if err := json.Unmarshal(b, &baseline); err != nil {
		return fmt.Errorf("read baseline %s: %w", *file, err)
	}
	if err := confirm(ctx, measured, &baseline, *rounds); err != nil {
		return err
	}
	return judge(os.Stdout, measured, &baseline)
}

// baselineRuns is how many runs a baseline is made of. Of each benchmark the worst counts: a machine has slower minutes, and a later
// run may fall into one.
const baselineRuns = 4

// raise keeps of each benchmark what cost more.
func (m *Micro) raise(again *Micro) {
	for name, cost := range again.Benchmarks {
		if was, ok := m.Benchmarks[name]; ok && was.Ratio < cost.Ratio {
			cost.Allocs, cost.Bytes = min(cost.Allocs, was.Allocs), min(cost.Bytes, was.Bytes)
			m.Benchmarks[name] = cost
		}
	}
}

// confirm measures again, alone, what looks worse than the baseline.
func confirm(ctx context.Context, measured, baseline *Micro, rounds int) error {
	for range attempts {
		worse := worseThan(measured, baseline)
		if len(worse) == 0 {
			return nil
		}
		var names []string
		for _, w := range worse {
			_, name, _ := strings.Cut(w.name, ".")
			name, _, _ = strings.Cut(name, "/")
			names = append(names, name)
		}
		again, err := runMicro(ctx, rounds, "^Benchmark("+strings.Join(names, "|")+")$")
		if err != nil {
			return err
		}
		for name, cost := range again.Benchmarks {
			measured.keep(name, cost)
		}
	}
	return nil
}

// worse is one benchmark that costs more than it may.
type worse struct{ name, why string }

// worseThan lists what is above the tolerance. Ratios are only compared on the kind of processor that the baseline is from:
// elsewhere the reference loop and a walker need not speed up alike.
func worseThan(measured, baseline *Micro) []worse {
	var found []worse
	for _, name := range slices.Sorted(maps.Keys(baseline.Benchmarks)) {
		was := baseline.Benchmarks[name]
		is, ok := measured.Benchmarks[name]
		switch {
		case !ok:
			found = append(found, worse{name, "is gone; if that is meant, write a new baseline"})
		case is.Allocs > was.Allocs*tolerance:
			found = append(found, worse{name, fmt.Sprintf("%g allocations, were %g", is.Allocs, was.Allocs)})
		case measured.CPU == baseline.CPU && is.Ratio > was.Ratio*tolerance:
			found = append(found, worse{name, fmt.Sprintf("%.1f ns, %.4f of the reference loop, was %.4f: %+.0f %%", is.Ns, is.Ratio, was.Ratio, 100*(is.Ratio/was.Ratio-1))})
		}
	}
	return found
}

func judge(out io.Writer, measured, baseline *Micro) error {
	measured.print(out, baseline)
	if measured.CPU != baseline.CPU {
		fmt.Fprintf(out, "The baseline is from another processor (%s): allocations are judged, CPU is only shown.\n", baseline.CPU)
	}
	found := worseThan(measured, baseline)
	var errs []error
	for _, w := range found {
		errs = append(errs, fmt.Errorf("%s: %s", w.name, w.why))
	}
	if len(errs) > 0 {
		return fmt.Errorf("worse than the baseline by more than %.0f %%:\n%w", 100*(tolerance-1), errors.Join(errs...))
	}
	return nil
}

func (m *Micro) write(file string) error {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// print shows a table; baseline may be nil.
func (m *Micro) print(out io.Writer, baseline *Micro) {
	t := table{head: []string{"micro benchmark", "ns/op", "allocs/op", "B/op", "× reference", "baseline"}}
	for _, name := range slices.Sorted(maps.Keys(m.Benchmarks)) {
		c, was := m.Benchmarks[name], "–"
		if baseline != nil {
			was = "new"
			if b, ok := baseline.Benchmarks[name]; ok {
				was = fmt.Sprintf("%.4f", b.Ratio)
			}
		}
		t.add(name, fmt.Sprintf("%.1f", c.Ns), fmt.Sprintf("%g", c.Allocs), fmt.Sprintf("%g", c.Bytes), fmt.Sprintf("%.4f", c.Ratio), was)
	}
	fmt.Fprintf(out, "\n### Micro benchmarks\nOne core; the reference loop takes %.0f ns.\n\n", m.ReferenceNs)
	t.print(out)
}
