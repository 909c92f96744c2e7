// Package hindsight holds the forecasts of a job's past decisions against what came.
//
// In: the decisions and samples of a job's state, each decision with the forecast that it was made from. Out: for each lead, that is how far ahead of a forecast's
// beginning a bin ends, how far off those forecasts were and how often what came lay within their bands ([Review.Leads]); and the last bins, one by
// one ([Review.Bins]). Unlike kale forecast eval, which asks forecasters anew about a history, this is what the scheduler itself believed at the time.
package hindsight

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/state"
)

// Options say what is looked at.
type Options struct {
	From  time.Time       `json:"from"`  // bins that end later
	Leads []time.Duration `json:"leads"` // whole bins; none: one bin, and a quarter, a half and all of the newest forecast's horizon
	Bins  int             `json:"bins"`  // how many of the last ones are listed
}

// Review is how past forecasts came out.
type Review struct {
	Source  string        `json:"source"` // of the newest forecast
	Trusted bool          `json:"trusted"`
	Reason  string        `json:"reason,omitempty"` // the gate's words for that
	Step    time.Duration `json:"step"`             // length of a bin
	Leads   []Lead        `json:"leads"`
	Bins    []Bin         `json:"bins"`
	// Next is the newest forecast, without quantiles and scenarios: Lower and Upper hold 80 % of what may come.
	Next plan.Forecast `json:"next"`
	// Retrainings are what came of the last trainings of a forecast model beside the scheduler, oldest first.
	Retrainings []core.Retrained `json:"retrainings,omitempty"`
}

// Lead sums up what forecasts said of the bins that ended so long after their beginnings.
type Lead struct {
	Lead time.Duration `json:"lead"`
	Bins int           `json:"bins"` // of which both the forecast and what came are known
	// WAPE is Σ|came − expected| / Σ came, Bias Σ(expected − came) / Σ came, In90 the share of bins within the 5 % and 95 % quantiles; nil: of no bins, or nothing came.
	WAPE *float64 `json:"wape"`
	Bias *float64 `json:"bias"`
	In90 *float64 `json:"coverage90"`
}

// Bin is what came in one bin, samples/s, and what was expected for it: Expected[i] at Leads[i], nil where there was no forecast then.
type Bin struct {
	At       time.Time    `json:"at"` // its start
	Came     float64      `json:"came"`
	Expected []*core.Band `json:"expected"` // the band holds 90 %
}

var (
	// ErrNone says that no decision was made from a forecast yet.
	ErrNone = errors.New("no decision was made from a forecast yet")
	// ErrLead says that a lead is no whole number of bins.
	ErrLead = errors.New("a forecast is for whole bins")
)

// made is a decision's forecast. What a decision knew besides is not read: it is by far the most.
type made struct {
	Observation struct {
		Forecast plan.Forecast `json:"forecast"`
	} `json:"observation"`
}

// Of looks back at the forecasts in a job's state.
func Of(st *state.Store, o Options) (Review, error) {
	var r Review
	var err error
	if r.Retrainings, err = core.RetrainedIn(st); err != nil {
		return r, err
	}
	newest, err := state.Last[made](st, state.Decisions, 1)
	if err != nil {
		return r, err
	}
	if len(newest) == 0 || len(newest[0].Observation.Forecast.Mean) == 0 || newest[0].Observation.Forecast.Step <= 0 {
		if len(newest) > 0 {
			if why := newest[0].Observation.Forecast.Reason; why != "" {
				return r, fmt.Errorf("%w: %s", ErrNone, why)
			}
		}
		return r, ErrNone
	}
	next := newest[0].Observation.Forecast
	r.Source, r.Trusted, r.Reason, r.Step, r.Next = next.Source, next.Trusted, next.Reason, next.Step, next.Band()
	horizon := time.Duration(len(next.Mean)) * r.Step
	leads := slices.Clone(o.Leads)
	if len(leads) == 0 {
		for _, part := range []time.Duration{horizon, 4, 2, 1} {
			leads = append(leads, max((horizon/part).Truncate(r.Step), r.Step))
		}
	}
	slices.Sort(leads)
	leads = slices.Compact(leads)
	longest := leads[len(leads)-1]
	for _, lead := range leads {
		if lead < r.Step || lead%r.Step != 0 {
			return r, fmt.Errorf("%w of %s, which %s is not", ErrLead, r.Step, lead)
		}
	}
	came, err := arrivals(st, o.From, r.Step)
	if err != nil {
		return r, err
	}
	past := map[int64]plan.Forecast{} // by their first bin's start: of two the later one, which knew no less
	err = state.Scan(st, state.Decisions, o.From.Add(-longest-r.Step), func(m made) bool {
		f := m.Observation.Forecast
		f.Scenarios, f.Beyond = nil, nil
		if f.Step == r.Step {
			past[f.At.UnixNano()] = f
		}
		return true
	})
	if err != nil {
		return r, err
	}
	r.Bins, r.Leads = compare(came, past, leads, r.Step)
	r.Bins = r.Bins[max(0, len(r.Bins)-o.Bins):]
	return r, nil
}

// arrival is the rate of one bin.
type arrival struct {
	at   time.Time // its start
	rate float64
}

// arrivals are the rates of the bins after a time, as far as they were measured: a sample's rate is that of the bin's length before it.
func arrivals(st *state.Store, from time.Time, step time.Duration) (out []arrival, err error) {
	var nearest time.Duration
	err = state.Scan(st, state.Samples, from.Add(-step/4), func(s core.Sample) bool {
		if s.Rate == nil {
			return true
		}
		end := s.At.Round(step)
		off := s.At.Sub(end).Abs()
		if off > step/4 || !end.After(from) {
			return true
		}
		a := arrival{end.Add(-step), *s.Rate}
		switch last := len(out) - 1; {
		case last < 0 || out[last].at.Before(a.at):
			out, nearest = append(out, a), off
		case out[last].at.Equal(a.at) && off < nearest:
			out[last], nearest = a, off
		}
		return true
	})
	return out, err
}

// compare holds bins against the forecasts of them.
func compare(came []arrival, past map[int64]plan.Forecast, leads []time.Duration, step time.Duration) (bins []Bin, out []Lead) {
	type sums struct{ off, bias, came, in float64 }
	total := make([]sums, len(leads))
	for _, lead := range leads {
		out = append(out, Lead{Lead: lead})
	}
	for _, a := range came {
		b := Bin{At: a.at, Came: a.rate, Expected: make([]*core.Band, len(leads))}
		known := false
		for i, lead := range leads {
			band := expected(past[a.at.Add(step-lead).UnixNano()], int(lead/step)-1)
			if band == nil {
				continue
			}
			b.Expected[i], known = band, true
			s := &total[i]
			s.off += math.Abs(a.rate - band.Mean)
			s.bias += band.Mean - a.rate
			s.came += a.rate
			if a.rate >= band.Lower && a.rate <= band.Upper {
				s.in++
			}
			out[i].Bins++
		}
		if known {
			bins = append(bins, b)
		}
	}
	for i, s := range total {
		if n := float64(out[i].Bins); n > 0 {
			in := s.in / n
			out[i].In90 = &in
		}
		if s.came > 0 {
			wape, bias := s.off/s.came, s.bias/s.came
			out[i].WAPE, out[i].Bias = &wape, &bias
		}
	}
	return bins, out
}

// expected is what a forecast says of its i-th bin; nil: nothing.
func expected(f plan.Forecast, i int) *core.Band {
	if i >= len(f.Mean) || math.IsNaN(f.Mean[i]) {
		return nil
	}
	return &core.Band{Mean: f.Mean[i], Lower: f.Quantile(0.05, i), Upper: f.Quantile(0.95, i)}
}
