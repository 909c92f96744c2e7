package replay

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/forecast"
)

// halves divides a comparison by its days: settings are chosen on the first half and measured on the second, so that no policy is measured on the days that it
// was fitted to. Forecasts are those that there are; each half begins without a backlog. ok is false for less than two days.
func (c *Comparison) halves() (first, second *Comparison, ok bool) {
	whole := int(c.course.Days())
	if whole < 2 {
		return c, c, false
	}
	left := time.Duration(whole/2) * day
	a, b := *c, *c
	a.course, b.course = c.course.without(), c.course.without()
	a.outlooks, a.arrived, b.outlooks, b.arrived = nil, nil, nil, nil
	for k, p := range c.course.Parts {
		take := min(left, p.Duration())
		left -= take
		if take > 0 {
			a.add(p.slice(0, take), c.outlooks[k])
		}
		if take < p.Duration() {
			b.add(p.slice(take, p.Duration()), c.outlooks[k][int(take/p.History.Step):])
		}
	}
	return &a, &b, true
}

// without is the course without its parts.
func (c *Course) without() *Course {
	out := *c
	out.Parts = nil
	return &out
}

// add makes a part and the forecasts of its bins the comparison's last.
func (c *Comparison) add(p Part, outlook []*packed) {
	c.course.Parts = append(c.course.Parts, p)
	c.outlooks = append(c.outlooks, outlook)
	c.arrived = append(c.arrived, newArrivals(p.Step.Seconds(), p.Rates))
}

// slice is the part between two times since its beginning, both whole bins of what is measured.
func (p Part) slice(from, to time.Duration) Part {
	bins := int(to / p.History.Step)
	out := p
	out.Start = p.Start.Add(from)
	out.Rates, out.Filled = p.Rates[int(from/p.Step):int(to/p.Step)], p.Filled[int(from/p.Step):int(to/p.Step)]
	out.History = forecast.Series{Start: p.History.Start, Step: p.History.Step, Values: p.History.Values[:min(p.First+bins, len(p.History.Values))]}
	out.First = p.First + int(from/p.History.Step)
	return out
}

// blindWindow is how much around each minute the blind oracle's mean is taken over.
const blindWindow = time.Hour

// blind is the comparison as the blind oracle sees it: at each moment the mean rate of the hour around it, and of every outage, lead and drain the mean. It is
// what is known of the future where nothing but the noise is unknown; no policy can be expected to know more.
func (c *Comparison) blind() *Comparison {
	out := *c
	mean := func(b Between) Between { m := (b.From + b.To) / 2; return Between{m, m} }
	w := &out.o.World
	w.Outage, w.Lead, w.Drain = mean(w.Outage), mean(w.Lead), mean(w.Drain)
	out.arrived = nil
	for _, p := range c.course.Parts {
		out.arrived = append(out.arrived, newArrivals(p.Step.Seconds(), smooth(p.Rates, int(blindWindow/p.Step))))
	}
	return &out
}

// smooth is the mean of so many rates around each; at the ends of as many as there are.
func smooth(rates []float64, n int) []float64 {
	out := make([]float64, len(rates))
	a := newArrivals(1, rates)
	for i := range out {
		from, to := max(i-n/2, 0), min(i+n/2+1, len(rates))
		out[i] = (a.cum[to] - a.cum[from]) / float64(to-from)
	}
	return out
}

// playBlind carries the blind oracle's schedule out under every seed: planned once, without knowing the noise or the draws, it answers to the lag as it goes.
// Where that takes more rescales than are allowed, the schedule is that of the least toll with which none of the seeds does.
func (c *Comparison) playBlind(ctx context.Context, seeds int) []*tally {
	b := c.blind()
	if c.o.World.Live {
		return c.playBlindLive(ctx, b, seeds)
	}
	deciders := make([]decider, len(c.course.Parts))
	for k := range deciders {
		o := b.newOracle(k, 0, restartGrid(c.j.SLO.MaxLag, c.o.World), prices{Weights: c.fig.weights})
		_, first := o.solve(ctx)
		deciders[k] = follow{o, first}
	}
	return c.playDeciders(ctx, deciders, seeds)
}

// playBlindLive is playBlind where rescales are live; b is what the oracle knows.
func (c *Comparison) playBlindLive(ctx context.Context, b *Comparison, seeds int) (out []*tally) {
	grid := liveGrid(c.j.SLO.MaxLag)
	_, _, hint := b.playLiveOracle(ctx, 0, grid, -1, nil)
	played := math.NaN()
	play := func(toll float64) {
		if toll == played {
			return
		}
		deciders := make([]decider, len(c.course.Parts))
		for k := range deciders {
			o := b.newLiveOracle(k, 0, grid, prices{Weights: c.fig.weights})
			o.toll = toll
			_, first := o.solve(ctx)
			deciders[k] = followLive{o, first}
		}
		out, played = c.playDeciders(ctx, deciders, seeds), toll
	}
	play(tollFrom(hint, func(toll float64) bool {
		play(toll)
		return !slices.ContainsFunc(out, func(t *tally) bool { return float64(t.rescales) > c.allowed() })
	}))
	return out
}

// allowed is how many rescales there may be in all days: as many as the world's budget gives a policy in less than a day, those at once and what comes in by then,
// and from a day on PerDay in each.
func (c *Comparison) allowed() float64 {
	w, d := c.o.World, c.course.Days()
	switch {
	case w.PerDay == 0:
		return math.Inf(1)
	case d < 1:
		return float64(w.Burst) + float64(w.PerDay-w.Burst)*d
	}
	return float64(w.PerDay) * d
}

// playDeciders plays under every seed what decides in each part, with no limit on rescales but its own.
func (c *Comparison) playDeciders(ctx context.Context, deciders []decider, seeds int) []*tally {
	j := *c.j
	j.Autoscale.Mode, j.Autoscale.Tick = c.o.World.mode(), time.Minute
	free := *c
	free.o.World.PerDay = 0
	out := make([]*tally, seeds)
	for seed := range out {
		out[seed] = &tally{}
		for k, d := range deciders {
			free.playPart(ctx, k, &j, d, uint64(seed), nil, out[seed])
		}
	}
	return out
}
