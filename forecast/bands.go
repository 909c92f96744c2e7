package forecast

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// The quantiles of Forecast.Lower and Forecast.Upper.
const (
	lowerQuantile = 0.1
	upperQuantile = 0.9
)

// spreadLevels are the levels of the quantiles that forecasters make from their
// own errors, and maxScenarios how many scenarios they keep: with more than a
// hundred past origins behind them, each stands for a few.
var spreadLevels = []float64{0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.99}

const maxScenarios = 32

// residuals collects, per past forecast and horizon, what arrived relative to
// what was said: (actual − said) / max(said, floor).
type residuals struct {
	floor float64
	at    [][]float64 // at[h]: the known errors at horizon h
	paths [][]float64 // paths[k][h]: those of the k-th forecast, NaN where unknown

	factors []float64 // by horizon; nil: 1. See [residuals.widen]
}

// outcomes is how many are known at that one of the first steps horizons which has the fewest.
func (r *residuals) outcomes(steps int) int {
	least := len(r.at[0])
	for _, e := range r.at[:steps] {
		least = min(least, len(e))
	}
	return least
}

// newResiduals makes an empty collection for the given number of horizons, with
// room for so many forecasts. floor, in samples/s, keeps a forecast of nearly nothing
// from making its error infinite.
func newResiduals(steps int, floor float64, forecasts int) *residuals {
	r := &residuals{floor: floor, at: make([][]float64, steps), paths: make([][]float64, 0, forecasts)}
	room := make([]float64, steps*forecasts)
	for h := range r.at {
		r.at[h] = room[h*forecasts : h*forecasts : (h+1)*forecasts]
	}
	return r
}

// begin says that what is added from now on belongs to another forecast.
func (r *residuals) begin() {
	path := make([]float64, len(r.at))
	for h := range path {
		path[h] = math.NaN()
	}
	r.paths = append(r.paths, path)
}

// add notes one outcome at horizon h of the forecast that [residuals.begin]
// began. Unknowns are skipped.
func (r *residuals) add(h int, actual, said float64) {
	r.note(h, (actual-said)/max(said, r.floor))
}

// note notes a relative error at horizon h of the forecast that [residuals.begin] began.
func (r *residuals) note(h int, e float64) {
	if e == e {
		r.at[h] = append(r.at[h], e)
		r.paths[len(r.paths)-1][h] = e
	}
}

// delay makes the errors those of forecasts whose first bin is so many bins further ahead; of the last bins, those of the furthest horizon.
func (r *residuals) delay(bins int) {
	last := len(r.at) - 1
	for h := range r.at {
		from := min(h+bins, last)
		r.at[h] = r.at[from]
		for _, path := range r.paths {
			path[h] = path[from]
		}
		if r.factors != nil {
			r.factors[h] = r.factors[from]
		}
	}
}

// How [residuals.temper] sees unrest.
const (
	unrestFloor = 0.01 // so much is always there, as a share of the rate
	unrestMost  = 4.0  // errors are scaled by this at most,
	unrestLeast = 0.5  // and this at least: after a calm a spike comes as it does
)

// temper scales the errors to an unrest of now, since they come in bursts: unrest[k] is
// how far off things were just before the k-th forecast, relative to the rate, and its
// error is taken to be ∝ (unrest + unrestFloor)^p. p, within 0 and 1, is the slope of
// log |error| over log unrest among the forecasts, as far as these prove it: where unrest
// tells nothing, nothing is scaled. An unknown unrest, NaN, scales nothing either.
func (r *residuals) temper(unrest []float64, now float64) {
	power := r.unrestPower(unrest)
	if power == 0 {
		return
	}
	for h := range r.at {
		r.at[h] = r.at[h][:0]
	}
	for k, u := range unrest {
		scale := 1.0
		if f := math.Pow((now+unrestFloor)/(u+unrestFloor), power); f == f {
			scale = min(max(f, unrestLeast), unrestMost)
		}
		for h, e := range r.paths[k] {
			if e == e {
				r.paths[k][h] = scale * e
				r.at[h] = append(r.at[h], scale*e)
			}
		}
	}
}

// unrestPower is p of [residuals.temper], 0 where unrest tells nothing.
func (r *residuals) unrestPower(unrest []float64) float64 {
	xs, ys := make([]float64, 0, len(unrest)), make([]float64, 0, len(unrest))
	for k, u := range unrest {
		sum, n := 0.0, 0.0
		for _, e := range r.paths[k] {
			if e == e {
				sum, n = sum+math.Abs(e), n+1
			}
		}
		if u == u && n > 0 {
			xs, ys = append(xs, math.Log(u+unrestFloor)), append(ys, math.Log(sum/n+unrestFloor))
		}
	}
	if len(xs) < minOrigins {
		return 0
	}
	if power := provenSlope(xs, ys); power > 0 { // NaN where there was always the same unrest
		return min(power, 1)
	}
	return 0
}

// provenSlope is the slope of y over x less two of its standard errors; NaN where all x
// are the same.
func provenSlope(x, y []float64) float64 {
	offset, slope := stat.LinearRegression(x, y, nil, false)
	mean, missed, spread := stat.Mean(x, nil), 0.0, 0.0
	for i, v := range x {
		e := y[i] - offset - slope*v
		missed, spread = missed+e*e, spread+(v-mean)*(v-mean)
	}
	return slope - 2*math.Sqrt(missed/float64(len(x)-2)/spread)
}

// quantiles are the relative errors at the levels, rows[i][h] for levels[i] and
// horizon h. A horizon with fewer than minOrigins outcomes takes those of the
// horizon before it, or, where there is none, of all outcomes together; without
// any outcome all are 0.
func (r *residuals) quantiles(levels []float64) (rows [][]float64) {
	rows = make([][]float64, len(levels))
	for i := range rows {
		rows[i] = make([]float64, len(r.at))
	}
	var sorted []float64 // as far as the ranks of the levels need it
	var keys []uint64
	var ranks []int
	if len(r.at[0]) < minOrigins {
		sorted = slices.Concat(r.at...)
		slices.Sort(sorted)
	}
	for h, e := range r.at {
		if len(e) >= minOrigins {
			if len(e) != len(keys) {
				ranks = conformalRanks(len(e), levels)
			}
			keys, sorted = keys[:0], sorted[:0]
			for _, v := range e {
				keys = append(keys, keyOf(v))
			}
			selectRanks(keys, 0, ranks)
			for _, k := range keys {
				sorted = append(sorted, valueOf(k))
			}
		}
		middle := conformal(sorted, 0.5)
		for i, q := range levels {
			rows[i][h] = r.widened(h, conformal(sorted, q), middle)
		}
	}
	return rows
}

// conformalRanks are the indices that [conformal] reads of n sorted outcomes at the levels and at the median, in order, each once.
func conformalRanks(n int, levels []float64) []int {
	out := []int{(n - 1) / 2, n / 2}
	for _, q := range levels {
		if q > 0.5 {
			out = append(out, rank(n, q)-1)
		} else if q < 0.5 {
			out = append(out, n-rank(n, 1-q))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sortBelow is up to how many keys [selectRanks] sorts what it has.
const sortBelow = 24

// selectRanks puts at each of the ranks the key that would be there if all were sorted, by quickselect into all of them at once. keys begin at rank first, and ranks are in order.
func selectRanks(keys []uint64, first int, ranks []int) {
	for len(ranks) > 0 && len(keys) > sortBelow {
		// The pivot is the median of three.
		a, b, c := 0, len(keys)/2, len(keys)-1
		if keys[a] > keys[b] {
			a, b = b, a
		}
		if keys[b] > keys[c] {
			b = c
		}
		if keys[a] > keys[b] {
			b = a
		}
		keys[0], keys[b] = keys[b], keys[0]
		last := partition(keys, keys[0]) // those below the pivot are behind it
		keys[0], keys[last] = keys[last], keys[0]
		if last == 0 { // it is the least, as where many are the same: all of those have their ranks
			last = partition(keys, keys[0]+1)
			below, _ := slices.BinarySearch(ranks, first+last+1)
			keys, first, ranks = keys[last+1:], first+last+1, ranks[below:]
			continue
		}
		below, _ := slices.BinarySearch(ranks, first+last)
		above := below
		if above < len(ranks) && ranks[above] == first+last {
			above++
		}
		selectRanks(keys[:last], first, ranks[:below])
		keys, first, ranks = keys[last+1:], first+last+1, ranks[above:]
	}
	if len(ranks) > 0 {
		slices.Sort(keys)
	}
}

// partition moves the keys below limit to where the second one is and behind it, and says how many they are, the first one apart. It has no branch to be guessed.
func partition(keys []uint64, limit uint64) (last int) {
	for i := 1; i < len(keys); i++ {
		v := keys[i]
		keys[i] = keys[last+1]
		keys[last+1] = v
		_, below := bits.Sub64(v, limit, 0)
		last += int(below)
	}
	return last
}

// spread puts quantiles, band and scenarios around f's Mean, which has as many
// bins as there are horizons.
func (r *residuals) spread(f *Forecast) {
	rows := r.quantiles(spreadLevels)
	r.put(f, rows, r.scenarios(rows[slices.Index(spreadLevels, 0.5)]))
	f.Outcomes = r.outcomes(len(f.Mean))
}

// put is spread with the quantiles, at spreadLevels, and scenarios of r at hand,
// which may reach further than f.
func (r *residuals) put(f *Forecast, quantiles, scenarios [][]float64) {
	around := func(rows [][]float64) [][]float64 {
		out := make([][]float64, len(rows))
		for i, row := range rows {
			out[i] = slices.Clone(row[:len(f.Mean)])
			r.onto(f.Mean, out[i])
		}
		return out
	}
	f.Levels, f.Quantiles, f.Scenarios = slices.Clone(spreadLevels), around(quantiles), around(scenarios)
	f.bound()
}

// bound makes Lower and Upper of the quantiles.
func (f *Forecast) bound() {
	f.Lower, f.Upper = make([]float64, len(f.Mean)), make([]float64, len(f.Mean))
	lower, upper := f.quantile(lowerQuantile), f.quantile(upperQuantile)
	for h, m := range f.Mean {
		f.Lower[h], f.Upper[h] = min(lower[h], m), max(upper[h], m)
	}
}

// onto turns relative errors into rates around mean.
func (r *residuals) onto(mean, row []float64) {
	for h, m := range mean {
		row[h] = max(m+row[h]*max(m, r.floor), 0)
	}
}

// scenarios are the errors of up to maxScenarios past forecasts, spread over all
// that were followed for more than half of the horizon, in relative terms.
// Unknown bins are interpolated. middle are the medians by horizon.
func (r *residuals) scenarios(middle []float64) [][]float64 {
	var full [][]float64
	for _, p := range r.paths {
		known := 0
		for _, e := range p {
			if e == e {
				known++
			}
		}
		if 2*known > len(p) {
			full = append(full, p)
		}
	}
	n := min(len(full), maxScenarios)
	out := make([][]float64, 0, n)
	for k := range n {
		// The newest is always among them, and the others are evenly apart.
		path := slices.Clone(full[len(full)-1-k*len(full)/n])
		fillGaps(path)
		for h, e := range path {
			path[h] = r.widened(h, e, middle[h])
		}
		out = append(out, path)
	}
	return out
}

// conformal is the quantile of the sorted outcomes by the conformal rank: for a
// level above one half the ⌈(n+1)·q⌉-th smallest, below it the same from the
// other end, so that with few outcomes the band is too wide rather than too
// narrow. Without outcomes it is 0.
func conformal(sorted []float64, level float64) float64 {
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case level == 0.5:
		return (sorted[(n-1)/2] + sorted[n/2]) / 2
	case level > 0.5:
		return sorted[rank(n, level)-1]
	}
	return sorted[n-rank(n, 1-level)]
}

// rank is ⌈(n+1)·q⌉, at most n. What floating point adds to a whole number does
// not make it the next one.
func rank(n int, q float64) int {
	return min(int(math.Ceil(float64(n+1)*q-1e-9)), n)
}

// inOrderOfLevel sorts rows by their levels, drops all but the first row of a
// level, and sorts each bin's values so that they do not cross.
func inOrderOfLevel(levels []float64, rows [][]float64) ([]float64, [][]float64) {
	order := make([]int, len(levels))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(levels[a], levels[b]) })
	order = slices.CompactFunc(order, func(a, b int) bool { return levels[a] == levels[b] })
	sorted, out := make([]float64, len(order)), make([][]float64, len(order))
	for i, k := range order {
		sorted[i], out[i] = levels[k], slices.Clone(rows[k])
	}
	bin := make([]float64, len(out))
	for h := range out[0] {
		for i := range out {
			bin[i] = out[i][h]
		}
		slices.Sort(bin)
		for i := range out {
			out[i][h] = bin[i]
		}
	}
	return sorted, out
}

// keyOf orders as its number does; integers sort faster than numbers, of which one may be NaN.
func keyOf(v float64) uint64 {
	k := math.Float64bits(v)
	return k ^ (uint64(int64(k)>>63) | 1<<63)
}

func valueOf(k uint64) float64 { return math.Float64frombits(k ^ (^uint64(int64(k)>>63) | 1<<63)) }
