package main

import (
	"fmt"
	"slices"
)

// Spread is of several measurements of the same.
type Spread struct{ Min, Median, Max float64 }

func spreadOf(values []float64) *Spread {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	s := &Spread{Min: sorted[0], Median: sorted[middle], Max: sorted[len(sorted)-1]}
	if len(sorted)%2 == 0 {
		s.Median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return s
}

// text is min / median / max; a nil one is a dash.
func (s *Spread) text(format string) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf(format+" / "+format+" / "+format, s.Min, s.Median, s.Max)
}

// percentile is of sorted values: the smallest that at least p of them (0 < p ≤ 1) do not exceed.
func percentile(sorted []int32, p float64) int32 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(p*float64(len(sorted))+0.9999999) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// Latency is in milliseconds.
type Latency struct {
	Mean, P50, P99, P999 float64
	Count                int
}

func latencyOf(micros []int32) *Latency {
	if len(micros) == 0 {
		return nil
	}
	slices.Sort(micros)
	sum := 0.0
	for _, m := range micros {
		sum += float64(m)
	}
	ms := func(p float64) float64 { return float64(percentile(micros, p)) / 1000 }
	return &Latency{Mean: sum / float64(len(micros)) / 1000, P50: ms(0.5), P99: ms(0.99), P999: ms(0.999), Count: len(micros)}
}
