package forecast

import (
	"math"
	"slices"
)

// What counts as a fault of measuring: see [Series.Faults]. On the six public traces that the forecasters were chosen by, of 4,000 to 125,000 bins, the
// highest bin is at most 2.5 times what lasted.
const (
	faultTimes  = 10       // as high as any rate that lasted, and as its neighbours, or as low
	faultKnown  = 32       // bins at least, that tell what lasts
	faultsLeast = 3        // so many in a history at most: what is there more often is how this stream is,
	faultShare  = 1. / 1e3 // or this share of its known bins
	faultLevel  = 0.5      // of the mean rate: out of less a low bin is chance, as of few records, and does no harm
	faultPhase  = 96       // what comes again a season later, up to this part of it sooner or later, is none either: a batch, each day at its hour
)

// Faults are the bins, in rising order, whose rate is no traffic but an error of measuring: a producer that sent everything again, a counter that
// jumped or stood still. What is real lasts for three bins. A rate that is ten times the highest which lasted so long, for a bin or two, and that comes
// out of a level and falls back to a level that are no tenth of it, is a fault: no more than two bins, since what is counted late or twice lies in one, or across the border of
// two. One that is a tenth of the lowest which lasted is one likewise, where it comes out of half the mean rate or more. In the last bin, of which it is not known yet what follows, it is
// one until the next bin is alike.
//
// A burst, a ramp or a new level is none, and neither is what comes often, or at the same phase of the season before or after. season is in bins; 0: none.
func (s Series) Faults(season int) []int {
	e := extremesOf(s.Values)
	if e.known < faultKnown {
		return nil
	}
	var out []int
	if e.highest > 0 && e.most > faultTimes*e.highest {
		out = faultsAbove(s.Values, faultTimes*e.highest, math.Inf(1), season)
	}
	if e.least < e.lowest/faultTimes && !math.IsInf(e.lowest, 1) {
		upside := make([]float64, len(s.Values)) // where what is lowest is highest
		sum, known := 0.0, 0.0
		for i, v := range s.Values {
			upside[i] = 1 / v
			if v == v {
				sum, known = sum+min(v, e.highest), known+1
			}
		}
		out = append(out, faultsAbove(upside, faultTimes/e.lowest, known/(faultLevel*sum), season)...)
		slices.Sort(out)
	}
	return out
}

// Fell says of a bin that lies below the known one before it, or after it where there is none before.
func (s Series) Fell(bin int) bool {
	for i := bin - 1; i >= 0; i-- {
		if v := s.Values[i]; v == v {
			return s.Values[bin] < v
		}
	}
	for _, v := range s.Values[bin+1:] {
		if v == v {
			return s.Values[bin] < v
		}
	}
	return false
}

// extremes are the highest and the lowest rate of a history that has so many known bins, and of those that lasted: that none of some three known bins in a row was below, or above.
type extremes struct {
	most, highest, least, lowest float64
	known                        int
}

func extremesOf(y []float64) extremes {
	e := extremes{least: math.Inf(1), lowest: math.Inf(1)}
	a, b := math.NaN(), math.NaN() // the two known rates before
	for _, v := range y {
		if v != v {
			continue
		}
		if v > e.highest { // most bins are no higher than what is known to last
			e.most = max(e.most, v)
			if e.known >= 2 {
				e.highest = max(e.highest, min(a, b, v))
			}
		}
		if v < e.lowest {
			e.least = min(e.least, v)
			if e.known >= 2 {
				e.lowest = min(e.lowest, max(a, b, v))
			}
		}
		a, b = b, v
		e.known++
	}
	return e
}

// faultsAbove are the faults among the values above a limit, which no three known ones in a row are, out of levels up to the one given.
func faultsAbove(y []float64, limit, level float64, season int) (out []int) {
	runs, known := runsAbove(y, limit)
	runs = slices.DeleteFunc(runs, func(r faultRun) bool {
		least := math.Inf(1)
		for _, v := range y[r.first : r.last+1] {
			if v == v {
				least = min(least, v)
			}
		}
		highest := min(level, least/faultTimes)
		return r.before > highest || r.after > highest || r.after != r.after && r.first != r.last // two last bins: it goes on
	})
	if len(runs) > max(faultsLeast, int(faultShare*float64(known))) {
		return nil
	}
	for _, r := range runs {
		again := func(o faultRun) bool {
			apart := max(r.first-o.first, o.first-r.first)
			return max(apart-season, season-apart) <= season/faultPhase
		}
		if season > 0 && slices.ContainsFunc(runs, again) {
			continue
		}
		for i := r.first; i <= r.last; i++ {
			if y[i] == y[i] {
				out = append(out, i)
			}
		}
	}
	return out
}

// faultRun is bins first … last, and what is known before and after them; NaN: nothing.
type faultRun struct {
	first, last   int
	before, after float64
}

// runsAbove are the runs of known values above a limit, and how many values are known.
func runsAbove(y []float64, limit float64) (runs []faultRun, known int) {
	last, within := math.NaN(), false
	for i, v := range y {
		if v != v {
			continue
		}
		known++
		switch above := v > limit; {
		case above && within:
			runs[len(runs)-1].last = i
		case above:
			runs, within = append(runs, faultRun{first: i, last: i, before: last, after: math.NaN()}), true
		case within:
			runs[len(runs)-1].after, within = v, false
		}
		last = v
	}
	return runs, known
}

// withoutFaults is the history with its faults unknown, by which forecasts are scored. It shares Values where there are none.
func (s Series) withoutFaults(season int) Series {
	return s.without(s.Faults(season))
}

// mended is the history that every forecaster learns from and goes by: a fault lies on the straight line between its neighbours, and one in the last bin
// goes on from the bin before as that did a season earlier. What is a season old alone would be of that day's level. It shares Values where there are no faults.
func (s Series) mended(season int) Series {
	faults := s.Faults(season)
	if len(faults) == 0 {
		return s
	}
	out := s.without(faults)
	if n := len(faults); faults[n-1] == len(s.Values)-1 {
		out.Values[len(s.Values)-1] = continued(out.Values[:len(s.Values)-1], season)
	}
	lines := slices.Clone(out.Values)
	fillGaps(lines)
	for _, i := range faults {
		out.Values[i] = lines[i]
	}
	return out
}

// continued is what follows y when it goes on from its last known bin as it did a season earlier, by a factor of 2 at most; NaN: none is known.
func continued(y []float64, season int) float64 {
	last := len(y) - 1
	for last >= 0 && y[last] != y[last] {
		last--
	}
	if last < 0 {
		return math.NaN()
	}
	if season > 0 && last >= season && len(y)-season >= 0 {
		if by := y[len(y)-season] / y[last-season]; by > 0 && !math.IsInf(by, 1) {
			return y[last] * min(max(by, 1./2), 2)
		}
	}
	return y[last]
}

// without is the series with some bins unknown. It shares Values where there are none.
func (s Series) without(bins []int) Series {
	if len(bins) == 0 {
		return s
	}
	s.Values = slices.Clone(s.Values)
	for _, i := range bins {
		s.Values[i] = math.NaN()
	}
	return s
}
