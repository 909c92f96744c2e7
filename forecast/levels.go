package forecast

import "math"

// levelMaxRatio clips a level ratio to [1/5, 5]: a stream that grew by more
// within a season is better described by an earlier season or by the bound.
const levelMaxRatio = 5.0

// levels answers ratios of a series to itself lag bins before, over any window,
// from running sums over the bins that are known on both sides.
type levels struct {
	lag, from int       // sums cover the bins from…len(y)−1
	now, then []float64 // now[k] = Σ y(i), then[k] = Σ y(i−lag), i in [from, from+k)
	n         []int32   // how many bins were known on both sides
}

// newLevels prepares ratios over windows that lie at or after bin from. Windows
// are cut where i−lag would lie before the series.
func newLevels(y []float64, lag, from int) *levels {
	from = min(max(from, lag), len(y))
	l := &levels{lag: lag, from: from,
		now: make([]float64, len(y)-from+1), then: make([]float64, len(y)-from+1), n: make([]int32, len(y)-from+1)}
	for k := range len(y) - from {
		a, b := y[from+k], y[from+k-lag]
		l.now[k+1], l.then[k+1], l.n[k+1] = l.now[k], l.then[k], l.n[k]
		if a == a && b == b { // Both are known.
			l.now[k+1] += a
			l.then[k+1] += b
			l.n[k+1]++
		}
	}
	return l
}

// sums over the known pairs of the bins [a, b).
func (l *levels) sums(a, b int) (now, then float64, n int) {
	i, j := max(a-l.from, 0), max(b-l.from, 0)
	return l.now[j] - l.now[i], l.then[j] - l.then[i], int(l.n[j] - l.n[i])
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
	return math.Min(math.Max(now/then, 1/levelMaxRatio), levelMaxRatio)
}
