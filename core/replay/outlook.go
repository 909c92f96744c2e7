package replay

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// ForecastsNeeded says whether any of the policies goes by forecasts.
func ForecastsNeeded(policies []string) bool {
	return slices.ContainsFunc(policies, func(name string) bool { return plan.NeedsOf(name).Forecast })
}

// foresee makes the forecasts of a part, one for each of its bins of what is measured: none where no policy goes by them. They depend on the trace alone, and
// each only on what lies before it.
func (c *Comparison) foresee(ctx context.Context, p *Part, k int) ([]*packed, error) {
	bins := len(p.History.Values) - p.First
	if c.o.Forecaster == PerfectForecast {
		return perfect(p, c.j), nil
	}
	out := make([]*packed, bins+1)
	if !c.needs.Forecast {
		for i := range out {
			out[i] = &packed{band: plan.Forecast{Reason: "no policy that is compared goes by forecasts"}}
		}
		return out, nil
	}
	err := core.RollingForecasts(ctx, c.j, core.Rolling{Series: p.History, First: p.First, Every: c.o.ForecastEvery, Needs: c.needs, Progress: c.o.Progress}, func(i int, m core.Made) error {
		kept := pack(m.Forecast)
		kept.named, kept.why = m.Named, m.Why
		for n := i - p.First; n < min(i-p.First+c.o.ForecastEvery, len(out)); n++ {
			out[n] = kept
		}
		c.o.Progress("forecasting "+part(k, len(c.course.Parts)), i-p.First, bins)
		return ctx.Err()
	})
	return out, err
}

func part(k, n int) string {
	if n == 1 {
		return "the trace"
	}
	return fmt.Sprintf("stretch %d of %d of the trace", k+1, n)
}

// perfect forecasts what comes, for each bin of a part. Beyond its end the last rate stays.
func perfect(p *Part, j *job.Job) []*packed {
	a := newArrivals(p.Step.Seconds(), p.Rates)
	end := p.Duration()
	bins := len(p.History.Values) - p.First
	s := foresight(p, j, bins, func(from, width time.Duration) float64 {
		at := min(from, end-min(width, end)).Seconds()
		return max((a.at(at+width.Seconds())-a.at(at))/width.Seconds(), 0)
	})
	out := make([]*packed, bins+1)
	for i := range out {
		out[i] = s.see(i)
	}
	return out
}

// seer knows what comes in a part: as far as a forecaster's horizon and what lies beyond it reach, a quarter of the shortest season, in bins of a 96th of it
// ([forecast.Outlook]).
type seer struct {
	p      *Part
	steps  int           // of the horizon
	future plan.Values   // the rates of the steps from the part's first bin on
	far    int           // bins of what lies beyond
	wide   time.Duration // the length of each
	rate   func(from, width time.Duration) float64
}

// foresight makes the seer of so many bins of a part. rate is the mean rate of a span that begins so long after the part's first bin, which may lie beyond its
// end.
func foresight(p *Part, j *job.Job, bins int, rate func(from, width time.Duration) float64) *seer {
	step, season := p.History.Step, slices.Min(j.Forecast.Season)
	s := &seer{p: p, steps: int(j.Forecast.Horizon / step), rate: rate, wide: max(season/(4*perfectBeyond)/step, 1) * step}
	s.far = int(max(season/4/s.wide, 1))
	s.future = make(plan.Values, bins+s.steps)
	for i := range s.future {
		s.future[i] = rate(time.Duration(i)*step, step)
	}
	return s
}

// see is the forecast that is made at the beginning of bin i.
func (s *seer) see(i int) *packed {
	h := s.p.History
	knows := func(v plan.Values, step time.Duration) plan.Forecast {
		return plan.Forecast{At: h.At(s.p.First + i), Step: step, Mean: v, Lower: v, Upper: v, Source: PerfectForecast, Trusted: true}
	}
	beyond := make(plan.Values, s.far)
	for k := range beyond {
		beyond[k] = s.rate(time.Duration(i)*h.Step+time.Duration(k)*s.wide, s.wide)
	}
	return &packed{band: knows(s.future[i:i+s.steps], h.Step), beyond: &packed{band: knows(beyond, s.wide)}}
}

// perfectBeyond is how many bins a perfect forecast has of a quarter of the shortest season.
const perfectBeyond = 24
