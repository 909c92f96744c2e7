package forecast

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// How the last bins are mapped on those that follow; see [linearMap].
const (
	mapLags   = 336    // bins that are seen: the input of the published NLinear
	mapRows   = 12_288 // bins that are learnt from, at most
	mapParts  = 2      // stretches of time that are left out in turn
	mapRidge  = 1e-3   // relative to the features' mean square
	mapMemory = 4      // a history has at least so many times the lags
	mapHalves = 3      // times that the lags are halved for the hedge
	mapEach   = 336    // horizons, from the first, of which it is learnt for each, and
	mapApart  = 24     // parts of a season: beyond them, those that it is learnt for are no further apart
	mapsKept  = 2      // of one forecaster
)

// linearMap is a linear map of the last bins, each less the last one, onto what follows, less the last one too: NLinear (Zeng et al., "Are Transformers Effective for Time
// Series Forecasting?", AAAI 2023), by ridge regression in closed form, for each of [mapProbes]. It is of the fourth root of the rates, so that a burst does not count for all the
// rest. It is an opinion of the [stack], and learnt anew once a season.
type linearMap struct {
	lags        int
	probes      []int
	first, last int // origins that it is learnt from, in the bins of its history
	// coefficients are probes × lags: of the bins from the earliest to the last but one, and the sum of them: without each part of these origins
	// in turn, and of all of them; nil: there are none.
	coefficients [mapParts + 1]*mat.Dense
	// hedges are likewise the means of them and of the coefficients of maps of fewer bins, half as many each time.
	hedges [mapParts + 1]*mat.Dense
}

// mapProbes are the horizons that a map is learnt for: each of the first mapEach, since what a map says of one horizon cannot be told from what it says of others: of a wave of a few
// bins, or of a few records now and then, nothing is right between them. It costs a job of two hours of minutes a sixth of its first forecast and some 3 % of those that follow [measured], since all
// sums of products are made anyway, and 2 MB. Beyond them it is the [probes], and more where these are so far apart that the season's course between them would be lost.
func mapProbes(season, steps int) (out []int) {
	reach := max(1, season/mapApart)
	for h := range min(steps, mapEach) {
		out = append(out, h)
	}
	for _, h := range probes(nil, steps, season) {
		if h < mapEach {
			continue
		}
		for n := len(out); n > 0 && h-out[n-1] > reach; n++ {
			out = append(out, out[n-1]+reach)
		}
		out = append(out, h)
	}
	return out
}

// root is what rates are mapped as.
func root(v float64) float64 { return math.Sqrt(math.Sqrt(max(v, 0))) }

// rooted is a history as a linear map sees it.
type rooted struct {
	z     []float64 // unknown bins are those of a season before, or the last known one
	known []int     // how many of the bins before each were known
}

// prepare looks at the bins from one on, and at those before it where one is unknown.
func (r *rooted) prepare(y []float64, from, season int) {
	r.z, r.known = grown(r.z, len(y)), grown(r.known, len(y)+1)
	r.known[from] = 0
	last := 0.0
	for i := from; i < len(y); i++ {
		v := y[i]
		r.known[i+1] = r.known[i]
		if v == v {
			r.known[i+1]++
		}
		for j := i - season; v != v && j >= 0; j -= season {
			v = y[j]
		}
		if v == v {
			last = root(v)
		}
		r.z[i] = last
	}
}

// seen says whether half of the bins before an origin were known.
func (r *rooted) seen(origin, lags int) bool {
	return origin >= lags && 2*(r.known[origin]-r.known[origin-lags]) >= lags
}

// linearMapOf finds the map that the forecaster has learnt from a history, or learns it.
func (s *seasonal) linearMapOf(past Series, season, steps int) (m *linearMap, from int) {
	from, to := milestones(past, season)
	past = Series{Start: past.At(from), Step: past.Step, Values: past.Values[from:to]}
	of := lessonOf{bins: len(past.Values), sum: digest(past), steps: steps}
	m = s.maps.get(of, mapsKept, func(m *linearMap) { m.learn(past.Values, season, mapProbes(season, steps)) })
	return m, from
}

// learn learns the map onto horizons in rising order.
func (m *linearMap) learn(y []float64, season int, probes []int) {
	n := len(y)
	m.lags, m.probes = min(mapLags, n/mapMemory), probes
	m.first, m.last = max(0, n-mapRows)+m.lags, n-probes[len(probes)-1]-1
	if m.lags < 2 || m.last-m.first < mapParts*m.lags {
		return
	}
	var r rooted
	r.prepare(y, 0, season)
	whole := newProducts(m.lags, probes)
	var of [mapParts]*products
	for p := range of {
		of[p] = newProducts(m.lags, probes)
		lo, hi := m.first+p*(m.last+1-m.first)/mapParts, m.first+(p+1)*(m.last+1-m.first)/mapParts
		for lo < hi { // the stretches that are known
			end := lo
			for end < hi && r.seen(end, m.lags) {
				end++
			}
			if end > lo {
				of[p].add(r.z, lo, end)
			}
			lo = end + 1
		}
		whole.plus(of[p], 1)
	}
	for p := range of {
		without := newProducts(m.lags, probes)
		without.plus(whole, 1)
		without.plus(of[p], -1)
		m.coefficients[p], m.hedges[p] = without.solve()
	}
	m.coefficients[mapParts], m.hedges[mapParts] = whole.solve()
}

// part is the part of the map's history that an origin is in, or is next to.
func (m *linearMap) part(origin int) int {
	return min(max((origin-m.first)*mapParts/max(m.last+1-m.first, 1), 0), mapParts-1)
}

// rowsOf appends where horizons of the map, in rising order, are among its probes. nil has none.
func (m *linearMap) rowsOf(out, horizons []int) []int {
	if m == nil {
		return out
	}
	row := 0
	for _, h := range horizons {
		for m.probes[row] < h {
			row++
		}
		out = append(out, row)
	}
	return out
}

// says gives the forecast from an origin at those of the map's probes that are in rows, by coefficients of its own; NaN: it has none.
func (m *linearMap) says(out []float64, r *rooted, origin int, by *mat.Dense, rows []int) {
	if by == nil || !r.seen(origin, m.lags) {
		for i := range out {
			out[i] = math.NaN()
		}
		return
	}
	last, seen := r.z[origin-1], r.z[origin-m.lags:origin-1]
	c := by.RawMatrix()
	for i, at := range rows {
		row := c.Data[at*c.Stride : at*c.Stride+c.Cols]
		v := max(0, last+floats.Dot(row[:len(seen)], seen)-row[len(seen)]*last)
		out[i] = v * v * v * v
	}
}

// products are sums over origins t: of z[t−1−i]·z[t−1−j], and of z[t−1−i]·z[t+h] for each probe h.
type products struct {
	lags   int
	probes []int
	gram   []float64 // lags × lags, the upper half
	then   []float64 // probes × lags
}

func newProducts(lags int, probes []int) *products {
	return &products{lags: lags, probes: probes, gram: make([]float64, lags*lags), then: make([]float64, len(probes)*lags)}
}

func (p *products) plus(o *products, times float64) {
	for i, v := range o.gram {
		p.gram[i] += times * v
	}
	for i, v := range o.then {
		p.then[i] += times * v
	}
}

// add adds the origins lo … hi−1. A sum of products of bins that are k apart differs from the one of origins that are one bin earlier by what comes in at one end and
// leaves at the other: all of it costs the bins times the lags and horizons, and not times the lags' square.
func (p *products) add(z []float64, lo, hi int) {
	l, ahead := p.lags, p.probes[len(p.probes)-1]
	apart := func(from, to, k int) (s float64) {
		x, y := z[from:to], z[from+k:to+k]
		for i, v := range x {
			s += v * y[i]
		}
		return s
	}
	for k := range l {
		s := apart(lo-1-k, hi-1-k, k)
		for i := range l - k {
			p.gram[i*l+i+k] += s
			if i+1 < l-k {
				s += z[lo-2-i]*z[lo-2-i-k] - z[hi-2-i]*z[hi-2-i-k]
			}
		}
	}
	probeOf := make([]int, ahead+1)
	for i, h := range p.probes {
		probeOf[h] = i + 1
	}
	for k := 1; k <= ahead+l; k++ {
		i := max(0, k-1-ahead)
		s := apart(lo-1-i, hi-1-i, k)
		for ; i < min(l, k); i++ {
			if probe := probeOf[k-1-i]; probe > 0 {
				p.then[(probe-1)*l+i] += s
			}
			if i+1 < min(l, k) {
				s += z[lo-2-i]*z[lo-2-i+k] - z[hi-2-i]*z[hi-2-i+k]
			}
		}
	}
}

// solve gives the coefficients of the map of all lags, and the mean of these and of those of shorter ones, down to lags halved mapHalves times; nil where there is nothing to
// tell them by. The sums of a shorter map are among those of the longer one.
func (p *products) solve() (all, hedge *mat.Dense) {
	if all = p.of(p.lags); all == nil {
		return nil, nil
	}
	hedge = mat.DenseCopyOf(all)
	count := 1.0
	for lags := p.lags / 2; lags >= max(2, p.lags>>mapHalves); lags /= 2 {
		if shorter := p.of(lags); shorter != nil {
			hedge.Add(hedge, shorter)
			count++
		}
	}
	hedge.Scale(1/count, hedge)
	return all, hedge
}

// of gives the coefficients of the differences from the last bin, as a [linearMap] has them, of a map of the last lags bins: those of the bins before are 0. nil where there is
// nothing to tell them by.
func (p *products) of(lags int) *mat.Dense {
	l, n := p.lags, lags-1
	last := p.gram[:l] // products with the last bin
	gram, right := mat.NewSymDense(n, nil), mat.NewDense(n, len(p.probes), nil)
	for i := range n {
		for j := i; j < n; j++ {
			gram.SetSym(i, j, p.gram[(i+1)*l+j+1]-last[i+1]-last[j+1]+last[0])
		}
		for k := range p.probes {
			right.Set(i, k, p.then[k*l+i+1]-p.then[k*l]-last[i+1]+last[0])
		}
	}
	shrink := mapRidge * mat.Trace(gram) / float64(n)
	for i := range n {
		gram.SetSym(i, i, gram.At(i, i)+shrink)
	}
	var chol mat.Cholesky
	b := new(mat.Dense)
	if !(shrink > 0) || !chol.Factorize(gram) || chol.SolveTo(b, right) != nil {
		return nil
	}
	out := mat.NewDense(len(p.probes), l, nil)
	for i := range p.probes {
		sum := 0.0
		for k := range n {
			v := b.At(k, i)
			out.Set(i, l-2-k, v)
			sum += v
		}
		out.Set(i, l-1, sum)
	}
	return out
}
