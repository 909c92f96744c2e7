package replay

import (
	"context"
	"math"
	"time"
)

// Limits are what the oracle may be asked to keep to besides: a day's accumulated lag and downtime in minutes; nil is no limit. What a trace does not allow at
// the oracle's cost, the oracle within that very limit shows.
type Limits struct{ AccumulatedLagMin, DowntimeMin *float64 }

// limitSlack is what rounding may add to a figure that keeps to its limit, minutes.
const limitSlack = 1e-6

func (l Limits) valid() bool {
	for _, v := range []*float64{l.AccumulatedLagMin, l.DowntimeMin} {
		if v != nil && !(*v >= 0) { // NaN is none
			return false
		}
	}
	return true
}

// lag and down say whether a run kept to the limit of each.
func (l Limits) lag(t *tally) bool {
	return l.AccumulatedLagMin == nil || t.lagSum/(t.seconds/day.Seconds()) <= *l.AccumulatedLagMin+limitSlack
}

func (l Limits) down(t *tally) bool {
	return l.DowntimeMin == nil || t.downtime/60/(t.seconds/day.Seconds()) <= *l.DowntimeMin+limitSlack
}

// params are the limits by the names of kale replay's flags.
func (l Limits) params() map[string]float64 {
	params := map[string]float64{}
	if l.AccumulatedLagMin != nil {
		params["oracle-lag"] = *l.AccumulatedLagMin
	}
	if l.DowntimeMin != nil {
		params["oracle-downtime"] = *l.DowntimeMin
	}
	return params
}

// How prices are found that bring the schedule within limits.
const (
	limitRounds = 2 // the two prices in turn
	limitSteps  = 9
	lagDearest  = 100.0 // times the report's price of lag
	downDearest = 2.0   // GPU-hours for a minute of downtime
	dearer      = 100.0 // times these, where they do not do
	dearerSteps = 2
)

// playLimited is the cheapest schedule for one seed that the programme finds within the limits: lag and downtime are made dearer until it keeps to them, and what
// it costs is counted at the report's prices. Where no price does, it is the least number of workers that does, held from beginning to end. ok is false where the
// number that trains most does not either: nothing has less lag than that, or less downtime.
func (c *Comparison) playLimited(ctx context.Context, seed uint64, l Limits, trail *Trail) (sum *tally, ok bool) {
	play := c.priced(ctx, seed)
	price := prices{Weights: c.fig.weights}
	lag, down := l.lag, l.down
	if sum = c.playSteady(ctx, seed, smallest(c.capacity, math.Inf(1), max(c.j.Workers.Min, 1), c.j.Workers.Max), nil); !lag(sum) || !down(sum) {
		return sum, false
	}
	sum = play(price, nil)
	for range limitRounds {
		if lag(sum) && down(sum) {
			break
		}
		before := price
		if !lag(sum) || price.Lag > c.fig.weights.Lag {
			base := max(c.fig.weights.Lag, 1e-4)
			sum = dearest(play, &price, lagDearest, func(x float64) { price.Lag = base * x }, lag)
		}
		if !down(sum) || price.downtime > 0 {
			sum = dearest(play, &price, downDearest/0.001, func(x float64) { price.downtime = 0.001 * x }, down)
		}
		if price == before {
			break
		}
	}
	if lag(sum) && down(sum) {
		if trail != nil {
			sum = play(price, trail)
		}
		return sum, true
	}
	for w := max(c.j.Workers.Min, 1); w <= c.j.Workers.Max && ctx.Err() == nil; w++ {
		if sum = c.playSteady(ctx, seed, w, nil); lag(sum) && down(sum) {
			return c.playSteady(ctx, seed, w, trail), true
		}
	}
	return sum, false
}

// steady is so many workers from beginning to end.
type steady int

func (n steady) decide(r *run) (int, bool) { return int(n), r.q.t == 0 }

// playSteady plays so many workers from beginning to end.
func (c *Comparison) playSteady(ctx context.Context, seed uint64, workers int, trail *Trail) *tally {
	sum := &tally{}
	j := *c.j
	j.Autoscale.Mode, j.Autoscale.Tick = c.o.World.mode(), time.Minute
	for k := range c.course.Parts {
		c.playPart(ctx, k, &j, steady(workers), seed, trail, sum)
	}
	return sum
}

// priced is the oracle of one seed, to be solved for prices.
func (c *Comparison) priced(ctx context.Context, seed uint64) func(prices, *Trail) *tally {
	if !c.o.World.Live {
		g := restartGrid(c.j.SLO.MaxLag, c.o.World)
		return func(p prices, trail *Trail) *tally {
			sum, _ := c.playPriced(ctx, seed, g, p, trail)
			return sum
		}
	}
	var lags, tolls []float64 // the dearer lag is, the more rescales are worth: the search for a toll begins with what a lower price of lag led to
	return func(p prices, trail *Trail) *tally {
		hint := -1.0
		for k, lag := range lags {
			if lag <= p.Lag {
				hint = max(hint, tolls[k])
			}
		}
		sum, _, found := c.playLivePriced(ctx, seed, liveGrid(c.j.SLO.MaxLag), p, hint, trail)
		lags, tolls = append(lags, p.Lag), append(tolls, found)
		return sum
	}
}

// dearest sets the least factor, from 1 to most, with which the schedule keeps to its limit, and plays it. Where most does not do, it looks further, up to
// [dearer] times that, and again; the dearest where none does.
func dearest(play func(prices, *Trail) *tally, price *prices, most float64, set func(float64), within func(*tally) bool) *tally {
	lo, hi := 1.0, most
	set(hi)
	sum := play(*price, nil)
	for n := 0; n < dearerSteps && !within(sum); n++ {
		lo, hi = hi, hi*dearer
		set(hi)
		sum = play(*price, nil)
	}
	if !within(sum) {
		return sum
	}
	for range limitSteps {
		mid := math.Sqrt(lo * hi)
		set(mid)
		if t := play(*price, nil); within(t) {
			hi, sum = mid, t
		} else {
			lo = mid
		}
	}
	set(hi)
	return sum
}
