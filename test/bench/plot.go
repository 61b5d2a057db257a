package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"

	"github.com/switchback-proxy/switchback/test/bench/load"
)

// The plot is bars with a whisker from the lowest to the highest round: throughput and CPU as ratio to the splice relay, and
// latency in milliseconds. It has its own background and takes the reader's choice of light or dark.
const (
	plotWidth  = 860
	labelWidth = 300
	barHeight  = 13
	barGap     = 3
	groupGap   = 12
	panelGap   = 38
	rightSpace = 125
)

const plotStyle = `
 .bg{fill:#ffffff} text{fill:#1f2328;font:12px system-ui,-apple-system,"Segoe UI",sans-serif} .title{font-size:14px;font-weight:600}
 .small{font-size:11px;fill:#59636e} .axis{stroke:#d1d9e0;stroke-width:1} .one{stroke:#59636e;stroke-width:1;stroke-dasharray:4 3}
 .whisker{stroke:#1f2328;stroke-width:1.2} .direct{fill:#9aa4af} .relay{fill:#6b9bd1} .tls{fill:#7f7fc4} .product{fill:#d9730d}
 @media (prefers-color-scheme: dark){
 .bg{fill:#0d1117} text{fill:#e6edf3} .small{fill:#9198a1} .axis{stroke:#3d444d} .one{stroke:#9198a1} .whisker{stroke:#e6edf3}
 .direct{fill:#6e7781} .relay{fill:#4a7fb8} .tls{fill:#6a6ab8} .product{fill:#f0883e}}
`

// panel is one measure.
type panel struct {
	title string
	rows  func(*Row) bool
	value func(*Row) *Spread
	one   bool // a line at 1
	unit  string
}

func panels() []panel {
	low := func(row *Row) bool { return row.Scenario.Work == load.Latency && row.Scenario.Load == lowLoad }
	high := func(row *Row) bool { return row.Scenario.Work == load.Latency && row.Scenario.Load == highLoad }
	others := func(row *Row) bool { return row.Scenario.Work != load.Latency && row.Variant != row.Phase.limit() }
	between := func(row *Row) bool { return others(row) && row.Variant != Direct && row.CPUPerGB != nil }
	return []panel{
		{"Throughput, as a ratio to the bare relay; more is better", others, func(row *Row) *Spread { return row.VsRelay }, true, "×"},
		{"CPU of the process in between per GB, as a ratio to that relay's; less is better", between, func(row *Row) *Spread { return row.CPUVsRelay }, true, "×"},
		{"Latency at low load, median; less is better", low, func(row *Row) *Spread { return row.P50 }, false, "ms"},
		{"Latency at low load, p99; less is better", low, func(row *Row) *Spread { return row.P99 }, false, "ms"},
		{"Latency at 70 % load, median; less is better", high, func(row *Row) *Spread { return row.P50 }, false, "ms"},
		{"Latency at 70 % load, p99; less is better", high, func(row *Row) *Spread { return row.P99 }, false, "ms"},
	}
}

// canvas collects shapes; y is where the next one goes.
type canvas struct {
	bytes.Buffer
	y int
}

func (c *canvas) text(x, y int, class, anchor, text string) {
	fmt.Fprintf(c, `<text x="%d" y="%d" class="%s" text-anchor="%s">`, x, y, class, anchor)
	xml.EscapeText(c, []byte(text))
	c.WriteString("</text>\n")
}

func (c *canvas) line(class string, x1, y1, x2, y2 int) {
	fmt.Fprintf(c, `<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", class, x1, y1, x2, y2)
}

// plot draws a report.
func plot(r *Report) []byte {
	c := &canvas{y: 26}
	title := fmt.Sprintf("switchback beside bare relays: %d cores, Kafka %s, %d rounds", r.Machine.Cores, r.Machine.Kafka, r.Rounds)
	if r.Plan == "smoke" {
		title = "SMOKE RUN, FIGURES MEAN NOTHING · " + title
	}
	c.text(16, c.y, "title", "start", title)
	c.y += 18
	c.text(16, c.y, "small", "start", "bar: median of the rounds; whisker: lowest to highest round; relay: passes the same bytes on unread, by splice, or ends TLS and copies")
	c.y += panelGap - 10
	for _, p := range panels() {
		p.draw(c, r)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="Benchmark results of switchback">`,
		plotWidth, c.y, plotWidth, c.y)
	fmt.Fprintf(&out, "\n<style>%s</style>\n"+`<rect class="bg" width="%d" height="%d" rx="6"/>`+"\n", plotStyle, plotWidth, c.y)
	out.Write(c.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func (p panel) draw(c *canvas, r *Report) {
	var rows []*Row
	top := 0.0
	for _, row := range r.Rows {
		if s := p.value(row); p.rows(row) && s != nil {
			rows, top = append(rows, row), max(top, s.Max)
		}
	}
	if len(rows) == 0 {
		return
	}
	top = nice(top)
	scale := func(v float64) int { return labelWidth + int(v/top*float64(plotWidth-labelWidth-rightSpace)) }
	c.text(16, c.y, "title", "start", p.title)
	c.y += 12
	from := c.y
	var bars canvas
	bars.y = from
	for i, row := range rows {
		if i == 0 || row.Phase != rows[i-1].Phase || row.Scenario != rows[i-1].Scenario {
			bars.y += groupGap
			// What comes behind the number of clients has no room in the first line.
			name, rest, _ := strings.Cut(row.Scenario.String(), " client, ")
			phase := string(row.Phase)
			if rest != "" {
				name, phase = name+" client", rest+", "+phase
			}
			bars.text(16, bars.y+6, "", "start", name)
			bars.text(16, bars.y+20, "small", "start", phase)
			bars.y -= 4
		}
		p.bar(&bars, row, scale)
		if last := i == len(rows)-1 || row.Phase != rows[i+1].Phase || row.Scenario != rows[i+1].Scenario; last && alone(rows, i) {
			bars.y += barHeight // room for both lines of the label
		}
	}
	for i := range 5 {
		v := top * float64(i) / 4
		c.line("axis", scale(v), from, scale(v), bars.y+4)
		c.text(scale(v), bars.y+18, "small", "middle", fmt.Sprintf("%.5g %s", v, p.unit))
	}
	c.Write(bars.Bytes())
	if p.one {
		c.line("one", scale(1), from, scale(1), bars.y+4)
	}
	c.y = bars.y + 18 + panelGap
}

// alone says whether row i is the only one of its group.
func alone(rows []*Row, i int) bool {
	return i == 0 || rows[i-1].Phase != rows[i].Phase || rows[i-1].Scenario != rows[i].Scenario
}

func (p panel) bar(c *canvas, row *Row, scale func(float64) int) {
	s := p.value(row)
	middle := c.y + barHeight/2 + 1
	fmt.Fprintf(c, `<rect class="%s" x="%d" y="%d" width="%d" height="%d"/>`+"\n", colour(row.Variant), labelWidth, c.y, max(1, scale(s.Median)-labelWidth), barHeight)
	c.line("whisker", scale(s.Min), middle, scale(s.Max), middle)
	c.text(scale(s.Max)+6, c.y+barHeight-3, "small", "start", fmt.Sprintf("%.2f %s", s.Median, row.Variant))
	c.y += barHeight + barGap
}

func colour(v Variant) string {
	switch v {
	case Product:
		return "product"
	case Direct:
		return "direct"
	case TLSOnly:
		return "tls"
	}
	return "relay"
}

// nice is the next higher end of an axis that four steps divide well.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 1.2, 1.6, 2, 2.4, 3.2, 4, 6, 8, 10} {
		if v <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}
