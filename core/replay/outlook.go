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
	err := core.RollingForecasts(c.j, c.needs, p.History, p.First, c.o.ForecastEvery, func(i int, f plan.Forecast) error {
		kept := pack(f)
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

// perfect forecasts what comes, as far as a forecaster's horizon and what lies beyond it reach: a quarter of the shortest season, in bins of a 96th of it
// ([forecast.Outlook]). Beyond the end of the part the last rate stays.
func perfect(p *Part, j *job.Job) []*packed {
	steps := int(j.Forecast.Horizon / j.Forecast.Interval)
	a := newArrivals(p.Step.Seconds(), p.Rates)
	end, step := p.Duration(), p.History.Step
	rate := func(from, width time.Duration) float64 { // of bins of a part that ends
		at := min(from, end-min(width, end)).Seconds()
		return max((a.at(at+width.Seconds())-a.at(at))/width.Seconds(), 0)
	}
	bins := len(p.History.Values) - p.First
	future := make(plan.Values, bins+steps)
	for i := range future {
		future[i] = rate(time.Duration(i)*step, step)
	}
	season := slices.Min(j.Forecast.Season)
	wide := max(season/(4*perfectBeyond)/step, 1) * step
	out := make([]*packed, bins+1)
	for i := range out {
		knows := func(v plan.Values, step time.Duration) plan.Forecast {
			return plan.Forecast{At: p.History.At(p.First + i), Step: step, Mean: v, Lower: v, Upper: v, Source: PerfectForecast, Trusted: true}
		}
		beyond := make(plan.Values, max(season/4/wide, 1))
		for k := range beyond {
			beyond[k] = rate(time.Duration(i)*step+time.Duration(k)*wide, wide)
		}
		out[i] = &packed{band: knows(future[i:i+steps], step), beyond: &packed{band: knows(beyond, wide)}}
	}
	return out
}

// perfectBeyond is how many bins a perfect forecast has of a quarter of the shortest season.
const perfectBeyond = 24
