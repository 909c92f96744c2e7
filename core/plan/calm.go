package plan

import (
	"math"
	"slices"
	"time"
)

// Calm is what a job needs by its traffic on the whole, where that jumps, so that no other job of a pool drains for one jump of it. The zero value is of traffic that
// does not: what is asked for then is what is needed.
type Calm struct {
	// Needs is how many workers carry what comes on the whole, with headroom; at least 1 where the traffic jumps.
	Needs int
	// Most is how many carry as much as that may be: what is beyond is of no use but for the next jump.
	Most int
}

const (
	// calmTurns is how often traffic that jumps turns in what is looked at, and calmTurn by which share of its mean at least: a step turns once, a ramp that
	// comes and goes twice.
	calmTurns = 3
	calmTurn  = 0.1
	// calmSure is how many standard errors a mean must lie off to be believed.
	calmSure = 2
	// calmParts is how many times as long as a stretch of which a mean is taken the rates must reach.
	calmParts = 4
	// calmNear is how many moves before a stretch count for how much traffic varies there.
	calmNear = 16
	// calmAlike is of how many times as many values as vary together a mean is taken at the least: one of a single jump is of that jump alone.
	calmAlike = 3
	// calmEven is for how many times as many values as vary together a row must be even, with a variance of no more than calmEvenPart of what was just before, for
	// how it varied before to count no more: jumps are not so even by chance.
	calmEven, calmEvenPart = 5, 0.01
	// calmMoves is how many moves of a worker what is looked at takes at the least, and calmBins how many bins it has, where there are so many.
	calmMoves = 64
	calmBins  = 240
)

// CalmOf reads the traffic of an observation calmly, of which past is the arrivals up to now, for a pool in which it takes so long to move a worker. It is of
// jobs without a forecast to trust: what jumps within one that is trusted is no surprise. That a forecast knows how wrong it is makes nothing of what jumps a need: what it plans for, with room for the next jump, others do not drain for.
//
// It is the mean of the longest stretch up to now that is of one level (Lepski's method): of stretches as long as a move and ever longer, as long as each mean lies no further from those of the shorter ones than
// chance gives, by how much the traffic varies within the stretch and just before it. So a step of smooth traffic counts as a whole when it has lasted for a move, and one of
// traffic that jumps the later the more that jumps; where it is even from the step on, once that is more than chance.
func CalmOf(o Observation, past Series, move time.Duration) Calm {
	f := o.Forecast
	if o.problem() != "" || f.Trusted && len(f.Mean) > 0 || past.Step <= 0 {
		return Calm{}
	}
	rates, step := thinned(past, max(move, past.Step))
	n := len(rates)
	if n < 2*calmParts || turnsOf(rates) < calmTurns {
		return Calm{}
	}
	s := &sheet{o: &o, current: max(o.current(), 0), curve: curve(o.Model, o.Limits, o.Servers)}
	least := int(math.Ceil(max(move, 0).Seconds() / step))
	level, most := levels(rates, min(max(least, 1), n/calmParts))
	var out Calm
	out.Needs, _ = s.curve.Smallest(s.withHeadroom(level))
	out.Most, _ = s.curve.Smallest(s.withHeadroom(most))
	out.Needs = max(out.Needs, 1)
	out.Most = max(out.Most, out.Needs)
	return out
}

// thinned is the last rates of a past, as far back as calmMoves moves of that length or calmBins bins of it, whichever is longer, in no more bins than calmBins; step is how long one of them is, in s.
func thinned(past Series, move time.Duration) (rates []float64, step float64) {
	values := past.Values
	if n := int(min(max(int64(calmMoves*(move/past.Step+1)), calmBins), int64(len(values)))); n < len(values) {
		values = values[len(values)-n:]
	}
	per := (len(values)-1)/calmBins + 1
	for len(values) >= per { // the newest first
		sum, n := 0.0, 0
		for _, v := range values[len(values)-per:] {
			if finite(v) && v >= 0 {
				sum, n = sum+v, n+1
			}
		}
		if values = values[:len(values)-per]; n > 0 {
			rates = append(rates, sum/float64(n))
		}
	}
	slices.Reverse(rates)
	return rates, past.Step.Seconds() * float64(per)
}

// turnsOf is how often a row turns by more than a share of its mean.
func turnsOf(row []float64) (n int) {
	mean := 0.0
	for _, v := range row {
		mean += v / float64(len(row))
	}
	least, way, low, high := calmTurn*mean, 0, row[0], row[0] // low and high are since the last turn
	for _, v := range row {
		low, high = min(low, v), max(high, v)
		turned := way
		switch {
		case way <= 0 && v-low > least:
			turned = 1
		case way >= 0 && high-v > least:
			turned = -1
		}
		if turned == way {
			continue
		}
		if way != 0 {
			n++
		}
		way, low, high = turned, v, v
	}
	return n
}

// levels are the level of a row at its end, by stretches of so many values at least, and the most that it may be.
func levels(row []float64, least int) (level, most float64) {
	n := len(row)
	sum, squares := make([]float64, n+1), make([]float64, n+1)
	for i, v := range row {
		sum[i+1], squares[i+1] = sum[i]+v, squares[i]+v*v
	}
	within := func(from, to int) float64 { // the sum of squares around the mean
		if to == from {
			return 0
		}
		s := sum[to] - sum[from]
		return max(squares[to]-squares[from]-s*s/float64(to-from), 0)
	}
	// Only what is near counts for how traffic varies: the level may have been another before.
	near := func(k int) int { return max(n-k-max(k, calmNear*least), 0) }
	start := max(n-2*calmNear*least, 0)
	split, best := n, within(start, n) // where the row changes most, if it does
	for k := least; k <= n-start-least; k++ {
		if v := within(start, n-k) + within(n-k, n); v < best {
			split, best = n-k, v
		}
	}
	rest := make([]float64, 0, n-start)
	for i := start; i < n; i++ {
		from, to := start, split
		if i >= split {
			from, to = split, n
		}
		rest = append(rest, row[i]-(sum[to]-sum[from])/float64(to-from))
	}
	alike := together(rest)
	least = min(max(least, int(math.Round(calmAlike*alike))), max(least, n/calmParts))
	even := 0 // how long it has been even, if it was not before
	for k := max(least, int(math.Ceil(calmEven*alike))); k <= n-calmNear; k++ {
		from := near(k)
		if before := within(from, n-k) / float64(n-k-from); within(n-k, n) <= calmEvenPart*before*float64(k) {
			even = k
		}
	}
	low, high := math.Inf(-1), math.Inf(1)
	for k := least; k <= n; k++ {
		mean, from := (sum[n]-sum[n-k])/float64(k), near(k)
		if k <= even {
			from = n - even
		}
		varies := (within(from, n-k) + within(n-k, n)) / float64(n-from)
		off := calmSure * math.Sqrt(varies*alike/float64(k)) * (1 + alike/float64(4*k)) // chance gives more where there are few
		if mean+off < low || mean-off > high {
			break
		}
		level, low, high = mean, max(low, mean-off), min(high, mean+off)
	}
	return min(max(level, low), high), high
}

// together is how many values in succession vary as one, of a row around 0.
func together(row []float64) float64 {
	n := len(row)
	of := func(lag int) (sum float64) {
		for i := lag; i < n; i++ {
			sum += row[i] * row[i-lag]
		}
		return sum
	}
	all, out := of(0), 1.0
	for lag := 1; all > 0 && lag < n/calmParts; lag++ {
		r := of(lag) / all
		if r <= 0 {
			break
		}
		out += 2 * r
	}
	return out
}
