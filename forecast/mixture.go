package forecast

import "math"

// How candidates are weighed; see the note at levelShares.
const (
	maxOrigins  = 128     // past origins at which the candidates are tested
	spanSeasons = 14      // over which these are spread: two weeks, if a season is a day
	pastPower   = 4.0     // weight ∝ (error at past origins)^-pastPower
	recentPower = 2.0     //        · (error in the last bins)^-recentPower
	recentShare = 1. / 48 // the last bins: this share of the shortest lag,
	recentMin   = 6       // but no fewer than these
	errorFloor  = 1e-6    // errors below this share of the mean rate are equal
	scaleFloor  = 0.05    // residuals are relative to no less than this share of it
)

// mixture is one seasonal forecast under way.
type mixture struct {
	y      []float64
	steps  int
	cands  []candidate
	levels map[int]*levels // by lag
	unit   float64         // mean known rate, samples/s; 1 when there is no traffic
	trials []trial
	past   [][]float64 // past[c][h]: weight of candidate c at horizon h by past origins
}

// trial is a past origin: what each candidate would have said, said[c][h], and
// how it was doing just then.
type trial struct {
	origin int
	said   [][]float64
	recent []float64
}

func newMixture(y []float64, cands []candidate, steps int) *mixture {
	m := &mixture{y: y, steps: steps, cands: cands, levels: map[int]*levels{}, unit: meanKnown(y)}
	if m.unit <= 0 {
		m.unit = 1
	}
	lo, hi := m.span()
	reach := 0 // how far before an origin a ratio looks
	for _, c := range cands {
		reach = max(reach, 4*c.level+m.recentBins())
	}
	for _, c := range cands {
		for from := 0; from < steps; from += c.lag {
			lag := (from/c.lag + 1) * c.lag
			if m.levels[lag] == nil {
				m.levels[lag] = newLevels(y, lag, lo-reach)
			}
		}
	}
	count := min(hi-lo+1, maxOrigins)
	for k := range count {
		o := hi
		if count > 1 {
			o = lo + k*(hi-lo)/(count-1)
		}
		m.trials = append(m.trials, trial{origin: o, said: m.said(o), recent: m.recent(o)})
	}
	m.past = m.weigh()
	return m
}

// span is where the trials' origins lie: over the last spanSeasons of the
// shortest season, as far as the history allows, and so that every horizon
// has arrived where that leaves enough of them.
func (m *mixture) span() (lo, hi int) {
	n := len(m.y)
	shortest := m.cands[0]
	lo = max(shortest.first(), n-spanSeasons*shortest.lag)
	hi = n - 1
	if n-m.steps-lo >= maxOrigins {
		hi = n - m.steps
	}
	return lo, hi
}

// recentBins is how many of the last bins count as recent.
func (m *mixture) recentBins() int {
	return max(recentMin, int(recentShare*float64(m.cands[0].lag)))
}

// continueFrom fills out with what c expects from origin o on. NaN where the bin
// that it looks up is unknown or lies before the history.
func (m *mixture) continueFrom(o int, c candidate, out []float64) {
	for from := 0; from < len(out); from += c.lag {
		lag := (from/c.lag + 1) * c.lag
		to := min(from+c.lag, len(out))
		r := m.levels[lag].ratio(o, c.level)
		for h := from; h < to; h++ {
			if i := o + h - lag; i >= 0 {
				out[h] = m.y[i] * r
			} else {
				out[h] = math.NaN()
			}
		}
	}
}

// said is what each candidate expects from origin o on.
func (m *mixture) said(o int) [][]float64 {
	said := make([][]float64, len(m.cands))
	buf := make([]float64, len(m.cands)*m.steps)
	for c, cand := range m.cands {
		said[c] = buf[c*m.steps : (c+1)*m.steps]
		if o < cand.first() {
			for h := range said[c] {
				said[c][h] = math.NaN()
			}
			continue
		}
		m.continueFrom(o, cand, said[c])
	}
	return said
}

// recent weighs the candidates by how they did in the last bins before origin
// o, as seen from a few origins within these bins.
func (m *mixture) recent(o int) []float64 {
	bins := m.recentBins()
	first, mine := make([]float64, bins), make([]float64, bins)
	weights := make([]float64, len(m.cands))
	for c, cand := range m.cands {
		e, f, n := 0.0, 0.0, 0.0
		for back := bins; back >= 1 && o-back >= cand.first(); back /= 2 {
			m.continueFrom(o-back, cand, mine[:min(back, m.steps)])
			m.continueFrom(o-back, m.cands[0], first[:min(back, m.steps)])
			for h := range min(back, m.steps) {
				a := m.y[o-back+h]
				if d, d0 := math.Abs(a-mine[h]), math.Abs(a-first[h]); d+d0 == d+d0 {
					e, f, n = e+d, f+d0, n+1
				}
			}
		}
		weights[c] = m.weight(e, f, n, recentPower, 1)
	}
	return weights
}

// weigh weighs the candidates by their errors at the trials, per horizon,
// pooled over neighbouring horizons. Candidate c is compared with candidate 0 on
// the bins for which both said something, so that one which was defined only on
// an easy part gains nothing by it.
func (m *mixture) weigh() [][]float64 {
	weights := make([][]float64, len(m.cands))
	e, f, n := make([]float64, m.steps), make([]float64, m.steps), make([]float64, m.steps)
	for c := range m.cands {
		clear(e)
		clear(f)
		clear(n)
		for _, t := range m.trials {
			mine, first := t.said[c], t.said[0]
			for h := range min(m.steps, len(m.y)-t.origin) {
				a := m.y[t.origin+h]
				if d, d0 := math.Abs(a-mine[h]), math.Abs(a-first[h]); d+d0 == d+d0 {
					e[h], f[h], n[h] = e[h]+d, f[h]+d0, n[h]+1
				}
			}
		}
		prior := 0.0 // A candidate that was never tested weighs nothing,
		if c == 0 {
			prior = 1 // save the first.
		}
		weights[c] = make([]float64, m.steps)
		for h := range m.steps {
			r, es, fs, ns := h/4+1, 0.0, 0.0, 0.0
			for j := max(0, h-r); j <= min(m.steps-1, h+r); j++ {
				es, fs, ns = es+e[j], fs+f[j], ns+n[j]
			}
			if ns < minOrigins {
				ns = 0
			}
			weights[c][h] = m.weight(es, fs, ns, pastPower, prior)
		}
	}
	return weights
}

// weight is (f/e)^power for the summed errors e of a candidate and f of the
// first one over n bins, or prior without any.
func (m *mixture) weight(e, f, n, power, prior float64) float64 {
	if n == 0 {
		return prior
	}
	floor := errorFloor * m.unit * n
	return math.Pow((f+floor)/(e+floor), power)
}

// at is the mix at origin o; NaN where no candidate knows.
func (m *mixture) at(o int) []float64 {
	out := make([]float64, m.steps)
	m.blend(out, m.said(o), m.recent(o))
	return out
}

// blend writes the weighted mean of what is known into out. Where nothing that
// is known has a weight, the first that is known is better than nothing.
func (m *mixture) blend(out []float64, said [][]float64, recent []float64) {
	for h := range out {
		sum, total, some := 0.0, 0.0, math.NaN()
		for c := range said {
			v := said[c][h]
			if v != v {
				continue
			}
			if some != some {
				some = v
			}
			w := m.past[c][h] * recent[c]
			sum += w * v
			total += w
		}
		out[h] = some
		if total > 0 {
			out[h] = sum / total
		}
	}
}

// residuals replays the mix at the trials' origins, each with the recent
// weights of its own moment, and collects how far off it was.
func (m *mixture) residuals() *residuals {
	res := newResiduals(m.steps, scaleFloor*m.unit)
	mean := make([]float64, m.steps)
	for _, t := range m.trials {
		m.blend(mean, t.said, t.recent)
		res.begin()
		for h := range min(m.steps, len(m.y)-t.origin) {
			res.add(h, m.y[t.origin+h], mean[h])
		}
	}
	return res
}

// meanKnown is the mean of the known bins; 0 when there is none.
func meanKnown(y []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range y {
		if v == v {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return 0
	}
	return sum / float64(n)
}

// fillGaps interpolates unknown elements between known neighbours, and carries
// the outermost known ones outward. It reports false, and changes nothing, when
// no element is known.
func fillGaps(y []float64) bool {
	last := -1
	for i, v := range y {
		if v != v {
			continue
		}
		for j := last + 1; j < i; j++ {
			if last < 0 {
				y[j] = v
			} else {
				y[j] = y[last] + (v-y[last])*float64(j-last)/float64(i-last)
			}
		}
		last = i
	}
	if last < 0 {
		return false
	}
	for j := last + 1; j < len(y); j++ {
		y[j] = y[last]
	}
	return true
}
