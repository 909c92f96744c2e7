package replay

import (
	"bytes"
	_ "embed" // the page's parts are files
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/core/report"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// mostPoints is how many points of a line are drawn; a screen has fewer columns.
const mostPoints = 3000

var pageTemplate = template.Must(template.New("replay").Parse(pageHTML))

// picture is the JSON in the page, from which the charts are drawn. Lines have one value for each of T.
type picture struct {
	T      []float64 `json:"t"` // s since 1970
	Rate   []float64 `json:"rate"`
	MaxLag float64   `json:"max_lag"` // s
	Max    int       `json:"max"`
	Lines  []lines   `json:"lines"`
}

// lines are those of one policy.
type lines struct {
	Name string `json:"name"`
	// Shown says that it is drawn before anybody chooses: the oracle, Kale's policy of the job, its "cost", and the cheapest rival.
	Shown    bool      `json:"shown"`
	Capacity []float64 `json:"capacity"`
	Held     []float64 `json:"held"`
	Lag      []float64 `json:"lag"`
	Over     []float64 `json:"over"`
	LagSum   []float64 `json:"lag_sum"`
	Downtime []float64 `json:"downtime"`
	GPUHours []float64 `json:"gpu_hours"`
}

// WriteHTML writes the report as one HTML file that loads nothing. It does not say when: a replay that is repeated writes the same bytes.
func WriteHTML(w io.Writer, r *Report, version string) error {
	page := struct {
		*Report
		Headline, Version string
		Facts, Remarks    []string
		Sheets            []sheet
	}{Report: r, Headline: r.Headline(), Facts: r.facts(), Remarks: r.remarks(), Version: version}
	for _, g := range r.groups() {
		page.Sheets = append(page.Sheets, r.wide(g))
		if s, ok := r.beside(g); ok {
			page.Sheets = append(page.Sheets, s)
		}
	}
	var body bytes.Buffer
	if err := pageTemplate.Execute(&body, page); err != nil {
		return fmt.Errorf("replay report: %w", err)
	}
	return report.WritePage(w, report.Page{Title: r.Trace + " · Kale replay", Body: template.HTML(body.String()), CSS: pageCSS, Script: pageJS, Data: r.picture()})
}

// picture takes the lines of every policy, thinned alike: of each bunch of minutes the highest lag, and else the last value.
func (r *Report) picture() picture {
	p := picture{MaxLag: r.MaxLag, Max: r.Max, Lines: []lines{}}
	rows := append(r.oracles(), r.Policies...)
	n := 0
	for _, row := range rows {
		if row.trail != nil {
			n = len(row.trail.At)
		}
	}
	b := bunches(n)
	chosen := []*Row{r.ours(), r.foremost("cost"), r.cheapestRival()}
	drawn := func(row Row) bool {
		return row.Name == "oracle" || slices.ContainsFunc(chosen, func(p *Row) bool {
			return p != nil && row.Name == p.Name && row.Setting == p.Setting && row.AsInJob == p.AsInJob
		})
	}
	for _, row := range rows {
		t := row.trail
		if t == nil || len(t.At) != n {
			continue
		}
		l := lines{Name: r.title(row), Shown: drawn(row)}
		if row.Setting == LabelBest && row.Name != "oracle" {
			l.Name += ", best"
		}
		l.Lag, l.Capacity, l.Over, l.LagSum, l.Downtime = b.highest(t.Lag), b.last(t.Capacity), b.last(t.Over), b.last(t.LagSum), b.last(t.Downtime)
		b.each(func(first, last int) {
			l.Held, l.GPUHours = append(l.Held, float64(t.Held[last])), append(l.GPUHours, rounded(t.WorkerHours[last]*r.gpus))
			if len(p.Lines) == 0 {
				p.T = append(p.T, float64(t.At[last].Unix()))
				p.Rate = append(p.Rate, rounded(r.course.rate(t.At[first], t.At[last])))
			}
		})
		p.Lines = append(p.Lines, l)
	}
	return p
}

// rate is the highest rate in the minutes that end from one moment to another.
func (c *Course) rate(from, to time.Time) float64 {
	highest := 0.0
	for _, p := range c.Parts {
		first := int(from.Add(-time.Minute).Sub(p.Start) / p.Step)
		for i := max(first, 0); i < len(p.Rates) && p.Start.Add(time.Duration(i)*p.Step).Before(to); i++ {
			highest = max(highest, p.Rates[i])
		}
	}
	return highest
}

// thinned are the first and the last index of each bunch of values of which a chart draws one.
type thinned [][2]int

// bunches divides n values into mostPoints bunches at most.
func bunches(n int) (out thinned) {
	size := max(1, int(math.Ceil(float64(n)/mostPoints)))
	for i := 0; i < n; i += size {
		out = append(out, [2]int{i, min(i+size, n) - 1})
	}
	return out
}

func (b thinned) each(do func(first, last int)) {
	for _, of := range b {
		do(of[0], of[1])
	}
}

// highest are the highest of each bunch, last their last, as digits that are drawn.
func (b thinned) highest(v []float64) (out []float64) {
	b.each(func(first, last int) { out = append(out, rounded(slices.Max(v[first:last+1]))) })
	return out
}

func (b thinned) last(v []float64) (out []float64) {
	b.each(func(_, last int) { out = append(out, rounded(v[last])) })
	return out
}

// rounded keeps four digits, which no chart shows more of.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
	return math.Round(v/unit) * unit
}
