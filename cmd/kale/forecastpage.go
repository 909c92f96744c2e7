package main

import (
	"bytes"
	"context"
	_ "embed" // the page's parts are files
	"errors"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/report"
	"github.com/kale-sched/kale/forecast"
)

//go:embed forecastpage.html
var evalPageHTML string

//go:embed forecastpage.css
var evalPageCSS string

//go:embed forecastpage.js
var evalPageJS string

var evalPageTemplate = template.Must(template.New("evaluation").Funcs(template.FuncMap{"percent": percent, "short": short, "three": func(v *float64) string { return fixedTo(3, v) }}).Parse(evalPageHTML))

// What the page shows of the past.
const (
	courseSeasons = 3   // of the shortest season, at the end of what is measured,
	courseLeast   = 96  // and so many bins at least,
	coursePoints  = 480 // at about so many of them: each is a forecast of its own
)

// picture is the JSON in the page, from which the charts are drawn. null: not known.
type picture struct {
	Horizons []string    `json:"horizons"`
	Errors   []errorLine `json:"errors"`
	T        []float64   `json:"t"` // beginnings of bins, s since 1970
	Came     []*float64  `json:"came"`
	Courses  []course    `json:"courses"`
}

// errorLine are the errors of a forecaster, one for each horizon.
type errorLine struct {
	Name    string     `json:"name"`
	WAPE    []*float64 `json:"wape"`    // %
	Pinball []*float64 `json:"pinball"` // records/s
}

// course is what a forecaster said of each bin of T, so long before; the bounds are its quantiles 0.05 and 0.95.
type course struct {
	Name  string     `json:"name"`
	Mean  []*float64 `json:"mean"`
	Lower []*float64 `json:"lower"`
	Upper []*float64 `json:"upper"`
}

// lead is how many bins ahead the page's forecasts look.
func (f evalFlags) lead(p past, horizons []int) (int, error) {
	if f.ahead == "" {
		return slices.Max(horizons), nil
	}
	d, err := job.ParseDuration(f.ahead)
	if err != nil {
		return 0, usagef("-ahead %q: %w", f.ahead, err)
	}
	bins := int(d / p.series.Step)
	if bins < 1 || d%p.series.Step != 0 || bins > slices.Max(horizons) {
		return 0, usagef("-ahead %s: want whole bins of %s, and no more than the longest horizon, %s", f.ahead,
			job.FormatDuration(p.series.Step), job.FormatDuration(time.Duration(slices.Max(horizons))*p.series.Step))
	}
	return bins, nil
}

// evalPage writes the page of a measurement.
func (a *app) evalPage(ctx context.Context, contenders []contender, p past, first, lead int, e evaluation, f evalFlags) error {
	pic := picture{Errors: errorLines(e), Courses: []course{}}
	for _, r := range e.Rows {
		if h := horizonWords(r.HorizonMin); !slices.Contains(pic.Horizons, h) {
			pic.Horizons = append(pic.Horizons, h)
		}
	}
	if err := a.courses(ctx, contenders, p, first, lead, f.workers, &pic); err != nil {
		return err
	}
	data := struct {
		evaluation
		Step, Ahead, Written, Version string
		Bins                          int
		Horizons                      []evalGroup
		Courses                       []course
	}{e, job.FormatDuration(p.series.Step), job.FormatDuration(time.Duration(lead) * p.series.Step), time.Now().UTC().Format("2006-01-02 15:04"), about.Build().Version, len(p.series.Values) - first, evalGroups(e), pic.Courses}
	var body, page bytes.Buffer
	if err := evalPageTemplate.Execute(&body, data); err != nil {
		return fmt.Errorf("page of the measurement: %w", err)
	}
	if err := report.WritePage(&page, report.Page{Title: e.Trace + " · Kale forecasts", Body: template.HTML(body.String()), CSS: evalPageCSS, Script: evalPageJS, Data: pic}); err != nil {
		return err
	}
	if err := backend.WriteFileMode(f.out, page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the page of the measurement: %w", err)
	}
	fmt.Fprintf(a.err, "wrote %s\n", f.out)
	return nil
}

// evalGroup are the rows of one horizon.
type evalGroup struct {
	Ahead string
	Rows  []evalRow
}

// evalGroups takes apart rows that are in order of their horizons.
func evalGroups(e evaluation) (out []evalGroup) {
	for _, r := range e.Rows {
		ahead := horizonWords(r.HorizonMin)
		if n := len(out); n == 0 || out[n-1].Ahead != ahead {
			out = append(out, evalGroup{Ahead: ahead})
		}
		g := &out[len(out)-1]
		g.Rows = append(g.Rows, r)
	}
	return out
}

// errorLines are those of all forecasters that were measured, in the order of the table; all have as many values as there are horizons.
func errorLines(e evaluation) (out []errorLine) {
	groups := evalGroups(e)
	for i, g := range groups {
		for _, r := range g.Rows {
			k := slices.IndexFunc(out, func(l errorLine) bool { return l.Name == r.Model })
			if k < 0 {
				k = len(out)
				out = append(out, errorLine{Name: r.Model, WAPE: make([]*float64, len(groups)), Pinball: make([]*float64, len(groups))})
			}
			if r.WAPE != nil {
				out[k].WAPE[i] = figure(100 * *r.WAPE)
			}
			out[k].Pinball[i] = r.Pinball
		}
	}
	return out
}

// courses makes a forecast of every bin that is drawn, by each forecaster that reaches so far ahead.
func (a *app) courses(ctx context.Context, contenders []contender, p past, first, lead, threads int, pic *picture) error {
	values := p.series.Values
	span := max(courseSeasons*int(slices.Min(p.seasons)/p.series.Step), courseLeast)
	from := max(first+lead-1, len(values)-span)
	every := max(1, (len(values)-from)/coursePoints)
	q := asking{series: p.series, calendar: p.calendar(), steps: lead, threads: threads, doing: "second of two passes: drawing"}
	for bin := from; bin < len(values); bin += every {
		q.origins = append(q.origins, bin-lead+1)
		pic.T = append(pic.T, float64(p.series.At(bin).Unix()))
		pic.Came = append(pic.Came, figure(values[bin]))
	}
	reaching := slices.DeleteFunc(slices.Clone(contenders), func(c contender) bool { return c.reach < lead })
	all, asked := a.record(ctx, reaching, q)
	if asked < len(q.origins) {
		return errors.New("draw the page of the measurement: interrupted; it is not written")
	}
	for _, r := range all {
		c := course{Name: r.name}
		for bin := from; bin < len(values); bin += every {
			c.add(r.made[bin-lead+1], lead-1)
		}
		if len(r.made) > 0 {
			pic.Courses = append(pic.Courses, c)
		}
	}
	return nil
}

// add notes what a forecast says of one of its bins; one without bins says nothing.
func (c *course) add(f forecast.Forecast, bin int) {
	row := func(row []float64) *float64 {
		if bin >= len(row) {
			return nil
		}
		return figure(row[bin])
	}
	at := func(level float64) *float64 {
		i := slices.Index(f.Levels, level)
		if i < 0 {
			return nil
		}
		return row(f.Quantiles[i])
	}
	c.Mean, c.Lower, c.Upper = append(c.Mean, row(f.Mean)), append(c.Lower, at(0.05)), append(c.Upper, at(0.95))
}
