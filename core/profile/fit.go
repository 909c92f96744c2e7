package profile

import (
	"errors"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"github.com/kale-sched/kale/estimator"
)

// mean of rates, 0 without any.
func mean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return stat.Mean(v, nil)
}

// Mean is the rate in records/s, 0 where it was not measured.
func (p Point) Mean() float64 {
	if p.Why != "" {
		return 0
	}
	return mean(p.Rates)
}

// Spread is the relative standard deviation of the intervals' rates.
func (p Point) Spread() float64 {
	if len(p.Rates) < 2 {
		return 0
	}
	m, sd := stat.MeanStdDev(p.Rates, nil)
	return sd / m
}

// samples are what the estimator learns from: each interval of each point that was not given up.
func samples(points []Point) []estimator.Sample {
	var out []estimator.Sample
	for _, p := range points {
		if p.Why != "" {
			continue
		}
		for _, r := range p.Rates {
			out = append(out, estimator.Sample{Workers: p.Workers, Servers: p.Servers, Rate: r, Saturated: true, Source: "profile"})
		}
	}
	return out
}

// forms are those that could tell such samples: servers apart only where there are several numbers of them, and M where it is known.
func forms(samples []estimator.Sample, batch float64) []estimator.Form {
	apart := false
	for _, s := range samples {
		apart = apart || s.Servers != samples[0].Servers
	}
	var out []estimator.Form
	for _, f := range estimator.Forms() {
		if (apart || !f.UsesServers()) && (batch > 0 || !f.NeedsBatch()) {
			out = append(out, f)
		}
	}
	return out
}

// ErrNothing says that no point was measured.
var ErrNothing = errors.New("no point was measured")

// fit chooses the model by leave-one-out. With too few points for that it is the straight line of the best rate of one worker, bent by what was measured
// where it was: then there are no trials.
func fit(samples []estimator.Sample, batch float64) (estimator.Model, []estimator.Trial, error) {
	if len(samples) == 0 {
		return estimator.Model{}, nil, ErrNothing
	}
	m, trials, err := estimator.Select(forms(samples, batch), batch, samples)
	if !errors.Is(err, estimator.ErrTooFewPoints) {
		return m, trials, err
	}
	one := 0.0
	most := 1
	for _, s := range samples {
		one, most = max(one, s.Rate/float64(s.Workers)), max(most, s.Workers)
	}
	prior := estimator.Model{Form: estimator.FormAsync, Theta: []float64{1 / one, 0, 0}}
	o, err := estimator.NewOnline(prior, estimator.OnlineOptions{PriorMin: 1, PriorMax: most})
	if err != nil {
		return m, nil, err
	}
	at := time.Unix(0, 0) // all are equally old
	for _, s := range samples {
		s.At = at
		if _, err := o.Observe(s); err != nil {
			return m, nil, err
		}
	}
	return o.Model(), nil, nil
}

// Row is a point beside what the model says.
type Row struct {
	Workers  int     `json:"workers"`
	Servers  int     `json:"servers"`
	Measured float64 `json:"measured"` // records/s; 0: it was not
	Spread   float64 `json:"spread"`   // relative standard deviation of its intervals
	Fitted   float64 `json:"fitted"`   // records/s
	Ratio    float64 `json:"ratio"`    // fitted over measured
	Error    float64 `json:"error"`    // relative standard error of Fitted
	// Extrapolated says that fewer, or more, workers than this were measured nowhere.
	Extrapolated bool   `json:"extrapolated,omitempty"`
	Why          string `json:"why,omitempty"` // it was given up
	Fewer        string `json:"fewer_intervals,omitempty"`
	Intervals    int    `json:"intervals,omitempty"` // that counted
}

// Rows are the points, and for each number of servers what the model says of every other number of workers up to most.
func (p *Profile) Rows(most int) []Row {
	sure := estimator.Assess(p.Model, samples(p.Points))
	lo, hi := p.Range()
	row := func(w, s int) Row {
		return Row{Workers: w, Servers: s, Fitted: p.Model.Throughput(w, s), Error: round(sure.Error(w, s), 4), Extrapolated: w < lo || w > hi}
	}
	var out []Row
	for _, s := range p.ServerCounts() {
		at := map[int]Row{}
		ws := counts(max(most, hi))
		for _, pt := range p.Points {
			if pt.Servers != s {
				continue
			}
			r := row(pt.Workers, s)
			if r.Why = pt.Why; r.Why == "" {
				r.Measured, r.Spread = pt.Mean(), round(pt.Spread(), 4)
				r.Ratio = round(r.Fitted/r.Measured, 4)
				r.Fewer, r.Intervals = pt.Fewer, len(pt.Rates)
			}
			at[pt.Workers] = r
			ws = append(ws, pt.Workers)
		}
		for _, w := range sorted(ws) {
			r, ok := at[w]
			if !ok {
				r = row(w, s)
			}
			out = append(out, r)
		}
	}
	return out
}

func round(v float64, digits int) float64 {
	f := math.Pow10(digits)
	return math.Round(v*f) / f
}
