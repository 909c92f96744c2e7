package replay

import (
	"bytes"
	_ "embed" // the page is a file
	"fmt"
	"html/template"
	"io"

	"github.com/kale-sched/kale/core/report"
)

//go:embed fleet.html
var fleetHTML string

var fleetTemplate = template.Must(template.New("fleet").Parse(fleetHTML))

// fleetPicture is the JSON in a fleet's page, from which the charts are drawn. Lines have one value for each of T.
type fleetPicture struct {
	T     []float64    `json:"t"`    // s since 1970
	Need  []float64    `json:"need"` // GPUs
	GPUs  int          `json:"gpus"` // of the pool
	Lines []fleetLines `json:"lines"`
}

// fleetLines are those of a policy, on one pool or in parts.
type fleetLines struct {
	Name     string    `json:"name"`
	Shown    bool      `json:"shown"`
	Parts    bool      `json:"parts"`
	Held     []float64 `json:"held"`
	JobsOver []float64 `json:"jobs_over"`
	Over     []float64 `json:"over"`
	LagSum   []float64 `json:"lag_sum"`
	GPUHours []float64 `json:"gpu_hours"`
	Cost     []float64 `json:"cost"`
}

// WriteHTML writes the report as one HTML file that loads nothing; of a partial one it says that it is. It does not say when: a replay that is repeated writes the same bytes.
func (r *FleetReport) WriteHTML(w io.Writer, version string) error {
	page := struct {
		*FleetReport
		Headline, Cut, Version, Legend string
		Facts                          []string
		Sheet                          sheet
	}{r, r.headline(), r.cut(), version, r.legend(), r.facts(), r.sheet()}
	var body bytes.Buffer
	if err := fleetTemplate.Execute(&body, page); err != nil {
		return fmt.Errorf("replay report: %w", err)
	}
	title := r.Trace + " · Kale replay"
	if r.Partial {
		title = "PARTIAL · " + title
	}
	return report.WritePage(w, report.Page{Title: title, Body: template.HTML(body.String()), CSS: pageCSS, Script: pageJS, Data: r.picture()})
}

// picture takes the lines of every row, thinned alike: of each bunch of rounds the highest, and of sums the last.
func (r *FleetReport) picture() fleetPicture {
	p := fleetPicture{GPUs: r.GPUs, Lines: []fleetLines{}}
	for i, row := range r.Rows {
		l := row.trail
		if l == nil {
			continue
		}
		b := bunches(len(l.At))
		if len(p.T) == 0 {
			p.T, p.Need = make([]float64, 0, len(l.At)), b.highest(l.Need)
			b.each(func(_, last int) { p.T = append(p.T, float64(l.At[last].Unix())) })
		}
		p.Lines = append(p.Lines, fleetLines{Name: row.title(), Shown: i < 2 || row.Policy == "cost", Parts: row.Partitioned, Held: b.highest(l.Held), JobsOver: b.highest(l.JobsOver),
			Over: b.last(l.Over), LagSum: b.last(l.LagSum), GPUHours: b.last(l.GPUHours), Cost: b.last(l.Cost)})
	}
	return p
}
