package forecast

// levelMaxRatio clips a level ratio to [1/5, 5]: a stream that grew by more
// within a season is better described by an earlier season or by the bound.
const levelMaxRatio = 5.0

// levels answers ratios of a series to itself lag bins before, over any window,
// from running sums over the bins that are known on both sides.
type levels struct {
	lag  int
	from int // sums cover the bins from…len(y)−1
	upTo []pairSums
}

// pairSums are over the bins i in [from, from+k) of which i and i−lag are known.
type pairSums struct {
	now, then float64 // Σ y(i) and Σ y(i−lag)
	n         int     // how many they are
}

// set prepares ratios over windows that lie at or after bin from. Windows
// are cut where i−lag would lie before the series.
func (l *levels) set(y []float64, lag, from int) {
	from = min(max(from, lag), len(y))
	l.lag, l.from, l.upTo = lag, from, grown(l.upTo, len(y)-from+1)
	var sum pairSums
	l.upTo[0] = sum
	before := y[from-min(lag, from):]
	for k, a := range y[from:] {
		if b := before[k]; a == a && b == b { // Both are known.
			sum.now += a
			sum.then += b
			sum.n++
		}
		l.upTo[k+1] = sum
	}
}

// sums over the known pairs of the bins [a, b).
func (l *levels) sums(a, b int) (now, then float64, n int) {
	i, j := &l.upTo[max(a-l.from, 0)], &l.upTo[max(b-l.from, 0)]
	return j.now - i.now, j.then - i.then, j.n - i.n
}

// ratio is the level of the window bins before origin o, relative to the level
// lag bins before. Where fewer than half of the window is known it looks back
// four windows, and where these hold less than half a window it is 1.
func (l *levels) ratio(o, window int) float64 {
	now, then, n := l.sums(o-window, o)
	if 2*n < window {
		now, then, n = l.sums(o-4*window, o)
	}
	switch {
	case 2*n < window || now == then:
		return 1
	case then <= 0:
		return levelMaxRatio
	}
	return min(max(now/then, 1/levelMaxRatio), levelMaxRatio)
}
