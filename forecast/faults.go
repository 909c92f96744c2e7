package forecast

import (
	"math"
	"slices"
)

// What counts as a fault of measuring: see [Series.Faults]. On the six public traces that the forecasters were chosen by, of 4,000 to 125,000 bins, the
// highest bin is at most 2.5 times what lasted.
const (
	faultTimes  = 10       // as high as any rate that lasted, and as its neighbours, or as low
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

// extremes are the highest and the lowest rate of a history, and of those that lasted: that none of some three known bins in a row was below, or above.
type extremes struct{ most, highest, least, lowest float64 }

func extremesOf(y []float64) extremes {
	e := extremes{least: math.Inf(1), lowest: math.Inf(1)}
	a, b, known := math.NaN(), math.NaN(), 0 // a and b: the two known rates before
	for _, v := range y {
		if v != v {
			continue
		}
		if v > e.highest { // most bins are no higher than what is known to last
			e.most = max(e.most, v)
			if known >= 2 {
				e.highest = max(e.highest, min(a, b, v))
			}
		}
		if v < e.lowest {
			e.least = min(e.least, v)
			if known >= 2 {
				e.lowest = min(e.lowest, max(a, b, v))
			}
		}
		a, b, known = b, v, known+1
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

// withoutFaults is the history with its faults unknown, which is what every forecaster learns and forecasts from. It shares Values where there are none.
func (s Series) withoutFaults(season int) Series {
	faults := s.Faults(season)
	if len(faults) == 0 {
		return s
	}
	s.Values = slices.Clone(s.Values)
	for _, i := range faults {
		s.Values[i] = math.NaN()
	}
	return s
}
