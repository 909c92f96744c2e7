package replay

import "math"

// Limits are what the oracle may be asked to keep to besides: a day's accumulated lag and downtime in minutes; 0 is no limit. What a trace does not allow at the
// oracle's cost, the oracle within that very limit shows.
type Limits struct{ AccumulatedLagMin, DowntimeMin float64 }

// How prices are found that bring the schedule within limits.
const (
	limitRounds = 2 // the two prices in turn
	limitSteps  = 9
	lagDearest  = 100.0 // times the report's price of lag
	downDearest = 2.0   // GPU-hours for a minute of downtime
)

// playLimited is the cheapest schedule for one seed that the programme finds within the limits: lag and downtime are made dearer until it keeps to them, and what
// it costs is counted at the report's prices. ok is false where no price does.
func (c *Comparison) playLimited(seed uint64, l Limits, trail *Trail) (sum *tally, ok bool) {
	play := c.priced(seed)
	price := prices{Weights: c.o.Weights}
	lag := func(t *tally) bool {
		return l.AccumulatedLagMin == 0 || t.lagSum/(t.seconds/day.Seconds()) <= l.AccumulatedLagMin
	}
	down := func(t *tally) bool {
		return l.DowntimeMin == 0 || t.downtime/60/(t.seconds/day.Seconds()) <= l.DowntimeMin
	}
	sum = play(price, nil)
	for range limitRounds {
		if lag(sum) && down(sum) {
			break
		}
		before := price
		if !lag(sum) || price.Lag > c.o.Weights.Lag {
			base := max(c.o.Weights.Lag, 1e-4)
			sum = dearest(play, &price, lagDearest, func(x float64) { price.Lag = base * x }, lag)
		}
		if !down(sum) || price.downtime > 0 {
			sum = dearest(play, &price, downDearest/0.001, func(x float64) { price.downtime = 0.001 * x }, down)
		}
		if price == before {
			break
		}
	}
	if trail != nil {
		sum = play(price, trail)
	}
	return sum, lag(sum) && down(sum)
}

// priced is the oracle of one seed, to be solved for prices.
func (c *Comparison) priced(seed uint64) func(prices, *Trail) *tally {
	if !c.o.World.Live {
		g := restartGrid(c.j.SLO.MaxLag, c.o.World)
		return func(p prices, trail *Trail) *tally {
			sum, _ := c.playPriced(seed, g, p, trail)
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
		sum, _, found := c.playLivePriced(seed, liveGrid(c.j.SLO.MaxLag), p, hint, trail)
		lags, tolls = append(lags, p.Lag), append(tolls, found)
		return sum
	}
}

// dearest sets the least factor, from 1 to most, with which the schedule keeps to its limit, and plays it; most where none does.
func dearest(play func(prices, *Trail) *tally, price *prices, most float64, set func(float64), within func(*tally) bool) *tally {
	lo, hi := 1.0, most
	set(hi)
	sum := play(*price, nil)
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
