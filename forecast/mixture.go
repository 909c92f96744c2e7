package forecast

import (
	"math"
	"slices"
	"sync"
)

// How candidates are weighed; see the note at levelShares.
const (
	maxOrigins   = 4096    // past origins at which the candidates are tested, at some horizons: of a quarter of them too few are in a burst,
	maxTests     = 98_304  // origins times horizons at which they are tested: where these are many, the origins are fewer, whose outcomes overlap the more
	seasonProbes = 8       // horizons of a season at which they are tested, at least, from the first season on
	maxFollowed  = 256     // and those of them that are followed at every horizon, for the band
	spanSeasons  = 28      // over which these are spread: four weeks, if a season is a day,
	spanSteps    = 32      // and no fewer than so many times what is forecast: from outcomes that overlap little is learnt, of eight apart mostly chance,
	spanBins     = 2048    // nor than so many bins: four weeks of hours teach little
	pastSquares  = 2       // weight ∝ (error at past origins)^-4, squared so many times,
	lastSquares  = 1       //        · (error in the last bins)^-2
	recentShare  = 1. / 48 // the last bins: this share of the shortest lag,
	recentMin    = 6       // but no fewer than these
	errorFloor   = 1e-6    // errors below this share of the mean rate are equal
	scaleFloor   = 0.05    // residuals are relative to no less than this share of it; see also [leastMissed]
)

// mixture is a mix of candidates at work: over the trials when a [lesson] is learnt, at one origin when a forecast is
// made by it. What it needs room for is kept for the next one, since a scheduler makes a forecast at each tick.
type mixture struct {
	y      []float64
	steps  int
	cands  []candidate
	parts  [][]part  // parts[c]: the courses that candidate c consists of
	lags   []*levels // one for each lag that occurs
	unit   float64   // mean known rate, samples/s; 1 when there is no traffic
	trials []trial
	probes []int       // the horizons at which trials are looked at, in rising order
	past   [][]float64 // past[c][h]: weight of candidate c at horizon h by past origins
	stack  stack
	room   room
	count  int // parts of all candidates together
}

// part is a stretch of a candidate's course: horizons from … to − 1 are those of
// lag bins before.
type part struct {
	from, to, lag int
	levels        *levels
}

// trial is a past origin: the level ratios of the candidates there, part by part,
// NaN for one that was not defined, how they were doing just then, and how far off that
// was: see [mixture.recent].
type trial struct {
	origin int
	ratios []float64
	recent []float64
	unrest float64
}

// room is what a mixture computes in.
type room struct {
	ratios, recent           []float64 // of all trials
	first                    []float64 // errors of candidate 0: [trial][probe]
	e, f, n                  []float64 // by probe, and their running sums
	firstRecent, otherRecent []float64
	sum, some                []float64
}

var mixtures = sync.Pool{New: func() any { return new(mixture) }}

// grown has n elements, whose values do not matter.
func grown[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	return buf[:n]
}

// study weighs the candidates at so many past origins. Who began it calls [mixture.done] after.
func study(y []float64, cands []candidate, steps, origins int) *mixture {
	m := mixtures.Get().(*mixture)
	m.y, m.steps, m.cands, m.unit = y, steps, cands, meanKnown(y)
	if m.unit <= 0 {
		m.unit = 1
	}
	m.probes = probes(m.probes[:0], steps, cands[0].lag)
	lo, hi := m.span()
	m.divide(lo)
	count := min(hi-lo+1, origins, max(maxFollowed, maxTests/len(m.probes)))
	m.trials = grown(m.trials, count)
	m.room.ratios, m.room.recent = grown(m.room.ratios, count*m.count), grown(m.room.recent, count*len(cands))
	for k := range count {
		o := hi
		if count > 1 {
			o = lo + k*(hi-lo)/(count-1)
		}
		t := trial{origin: o, ratios: m.room.ratios[k*m.count : (k+1)*m.count], recent: m.room.recent[k*len(cands) : (k+1)*len(cands)]}
		m.say(t)
		t.unrest = m.recent(o, t.recent)
		m.trials[k] = t
	}
	m.weigh()
	return m
}

// done gives the mixture's room back; what it returned stays.
func (m *mixture) done() {
	m.y, m.cands, m.stack.linear = nil, nil, nil
	mixtures.Put(m)
}

// divide finds the parts of the candidates, and the levels that these need from
// origin lo on.
func (m *mixture) divide(lo int) {
	m.count = 0
	reach := 0 // how far before an origin a ratio looks
	for _, c := range m.cands {
		reach = max(reach, 4*c.level+m.recentBins())
	}
	m.parts = grown(m.parts, len(m.cands))
	used := 0
	for i, c := range m.cands {
		m.parts[i] = m.parts[i][:0]
		for from := 0; from < m.steps; from += c.lag {
			lag := (from/c.lag + 1) * c.lag
			k := slices.IndexFunc(m.lags[:used], func(l *levels) bool { return l.lag == lag })
			if k < 0 {
				if k = used; k == len(m.lags) {
					m.lags = append(m.lags, new(levels))
				}
				m.lags[k].set(m.y, lag, lo-reach)
				used++
			}
			m.parts[i] = append(m.parts[i], part{from: from, to: min(from+c.lag, m.steps), lag: lag, levels: m.lags[k]})
			m.count++
		}
	}
}

// span is where the trials' origins lie: over the last spanSeasons of the
// shortest season, or spanSteps horizons or spanBins where these are longer, as far as the history allows, and so that every horizon
// has arrived where that leaves enough of them.
func (m *mixture) span() (lo, hi int) {
	n := len(m.y)
	shortest := m.cands[0]
	lo = max(shortest.first(), n-max(spanSeasons*shortest.lag, spanSteps*m.steps, spanBins))
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

// say fills in the ratios of a trial, or of the forecast itself.
func (m *mixture) say(t trial) {
	i := 0
	for c, cand := range m.cands {
		for _, p := range m.parts[c] {
			t.ratios[i] = math.NaN()
			if t.origin >= cand.first() {
				t.ratios[i] = p.levels.ratio(t.origin, cand.level)
			}
			i++
		}
	}
}

// recent weighs the candidates by how they did in the last bins before origin
// o, as seen from a few origins within these bins, and returns the unrest: how far off
// they were there, by these weights and relative to the rate; NaN where that is unknown.
func (m *mixture) recent(o int, weights []float64) (unrest float64) {
	bins := m.recentBins()
	off, total := 0.0, 0.0
	room := &m.room
	var all float64
	room.firstRecent, all = m.missed(room.firstRecent, 0, o, bins)
	first := room.firstRecent
	for c := range m.cands {
		errors, e := first, all
		if c > 0 {
			room.otherRecent, e = m.missed(room.otherRecent, c, o, bins)
			errors = room.otherRecent
		}
		f, n := all, float64(len(errors))
		if len(errors) == 0 || e+all != e+all { // what is not known of either does not count
			e, f, n = 0, 0, 0
			for k, d := range errors {
				if d0 := first[k]; d+d0 == d+d0 {
					e, f, n = e+d, f+d0, n+1
				}
			}
		}
		weights[c] = m.weight(e, f, n, lastSquares, 1)
		if n > 0 {
			off, total = off+weights[c]*e/n, total+weights[c]
		}
	}
	return off / total / max(meanKnown(m.y[max(0, o-bins):o]), scaleFloor*m.unit)
}

// missed is what candidate c was off by in the bins before origin o, as seen from a few origins within these bins, and the sum of it.
func (m *mixture) missed(room []float64, c, o, bins int) (errors []float64, sum float64) {
	cand, n := m.cands[c], 0
	for back := bins; back >= 1 && o-back >= cand.first(); back /= 2 {
		from := o - back
		actual := m.y[from : from+min(back, m.steps)]
		room = slices.Grow(room[:n], len(actual))[:n+len(actual)]
		errors := room[n:]
		n += len(actual)
		for _, p := range m.parts[c] {
			if p.from >= len(actual) {
				break
			}
			actual, errors := actual[p.from:min(p.to, len(actual))], errors[p.from:]
			said, ratio := m.y[from+p.from-p.lag:][:len(actual)], p.levels.ratio(from, cand.level)
			for h, a := range actual {
				d := math.Abs(a - said[h]*ratio)
				errors[h] = d
				sum += d
			}
		}
	}
	return room[:n], sum
}

// probes appends the horizons that stand for all of them: neighbours are about as hard to
// foresee as each other, the more so the further away. From a season on they
// leave out no more than a few bins of it at a time: what the last bins are worth a whole number of seasons on is not what they are worth half a season before that. A season
// of 0: there is none.
func probes(out []int, steps, season int) []int {
	most := steps
	for h, apart := 0, 1; h < steps-1; h += min(apart, most) {
		out = append(out, h)
		if season > 0 && h+1 >= season {
			most = max(1, season/seasonProbes)
		}
		if h+1 >= 4*apart {
			apart *= 2
		}
	}
	return append(out, steps-1)
}

// around are the probes from … to − 1 that are pooled with probe i: those that are at most a quarter
// of its distance away, or a bin.
func around(probes []int, i int) (from, to int) {
	reach := probes[i]/4 + 1
	for from = i; from > 0 && probes[i]-probes[from-1] <= reach; from-- {
	}
	for to = i + 1; to < len(probes) && probes[to]-probes[i] <= reach; to++ {
	}
	return from, to
}

func (m *mixture) around(i int) (from, to int) { return around(m.probes, i) }

// weigh weighs the candidates by their errors at the trials, per horizon,
// pooled over neighbouring horizons. Candidate c is compared with candidate 0 on
// the bins for which both said something, so that one which was defined only on
// an easy part gains nothing by it.
func (m *mixture) weigh() {
	room := &m.room
	count := len(m.probes)
	m.past = grown(m.past, len(m.cands))
	room.first = grown(room.first, len(m.trials)*count)
	room.e, room.f, room.n = grown(room.e, count+1), grown(room.f, count+1), grown(room.n, count+1)
	at := 0
	for c := range m.cands {
		m.compare(c, at)
		at += len(m.parts[c])
		prior := 0.0 // A candidate that was never tested weighs nothing,
		if c == 0 {
			prior = 1 // save the first.
		}
		m.past[c] = grown(m.past[c], m.steps)
		begin := 0 // of the horizons that are nearer to this probe than to the ones beside it
		for i, h := range m.probes {
			from, to := m.around(i)
			es, fs, ns := room.e[to]-room.e[from], room.f[to]-room.f[from], room.n[to]-room.n[from]
			if ns < minOrigins {
				ns = 0
			}
			weight, end := m.weight(es, fs, ns, pastSquares, prior), m.steps
			if i+1 < count {
				end = (h+m.probes[i+1])/2 + 1
			}
			for ; begin < end; begin++ {
				m.past[c][begin] = weight
			}
		}
	}
}

// compare leaves in e, f and n of the room the running sums over the probes of the
// errors of candidate c, those of candidate 0, and how many they are. at is where the
// candidate's ratios begin in a trial.
func (m *mixture) compare(c, at int) {
	room := &m.room
	clear(room.e)
	clear(room.f)
	clear(room.n)
	e, f, n := room.e[1:], room.f[1:], room.n[1:]
	for k, t := range m.trials {
		first := room.first[k*len(m.probes):]
		known := min(m.steps, len(m.y)-t.origin)
		actual := m.y[t.origin : t.origin+known]
		i := 0
		for j, p := range m.parts[c] {
			if p.from >= known {
				break
			}
			r := t.ratios[at+j]
			if r != r { // not defined here
				for ; i < len(m.probes) && m.probes[i] < p.to; i++ {
					if c == 0 {
						first[i] = r
					}
				}
				continue
			}
			said := m.y[t.origin-p.lag+p.from:]
			for ; i < len(m.probes) && m.probes[i] < min(p.to, known); i++ {
				h := m.probes[i]
				d := math.Abs(actual[h] - said[h-p.from]*r)
				if c == 0 {
					first[i] = d
				}
				if d0 := first[i]; d+d0 == d+d0 {
					e[i], f[i], n[i] = e[i]+d, f[i]+d0, n[i]+1
				}
			}
		}
	}
	for i := range m.probes {
		room.e[i+1], room.f[i+1], room.n[i+1] = room.e[i]+room.e[i+1], room.f[i]+room.f[i+1], room.n[i]+room.n[i+1]
	}
}

// weight is f/e for the summed errors e of a candidate and f of the first one over n
// bins, squared so many times, or prior without any.
func (m *mixture) weight(e, f, n float64, squares int, prior float64) float64 {
	if n == 0 {
		return prior
	}
	floor := errorFloor * m.unit * n
	r := (f + floor) / (e + floor)
	for range squares {
		r *= r
	}
	return r
}

// mix is what the candidates say together at origin o; NaN where none knows.
func (m *mixture) mix(o int) ([]float64, trial) {
	t := trial{origin: o, ratios: make([]float64, m.count), recent: make([]float64, len(m.cands))}
	m.say(t)
	t.unrest = m.recent(o, t.recent)
	out := make([]float64, m.steps)
	m.blend(out, t)
	return out, t
}

// foresaw leaves in out what the mix says of bins beside the origin of t, in rising order: of the one h bins after the first that is forecast, by the
// weights there, or, with h below 0, of one that has arrived, by those of the first. NaN where no candidate knows.
func (m *mixture) foresaw(out []float64, t trial, horizons []int) {
	room := &m.room
	room.sum, room.some = grown(room.sum, len(out)), grown(room.some, len(out))
	sum, some, total := room.sum[:len(out)], room.some[:len(out)], out
	for i := range total {
		sum[i], some[i], total[i] = 0, math.NaN(), 0
	}
	at := 0
	for c, parts := range m.parts {
		past, recent, p := m.past[c], t.recent[c], 0
		ratios := t.ratios[at : at+len(parts)]
		at += len(parts)
		if t.origin < m.cands[c].first() {
			continue // it knows nothing
		}
		from := t.origin - parts[0].lag
		for i, h := range horizons[:len(out)] {
			if h >= parts[p].to {
				p++
				for h >= parts[p].to {
					p++
				}
				from = t.origin - parts[p].lag
			}
			if from+h < 0 {
				continue
			}
			v := m.y[from+h] * ratios[p]
			if v != v {
				continue
			}
			if total[i] == 0 && some[i] != some[i] {
				some[i] = v
			}
			w := past[max(h, 0)] * recent
			sum[i] += w * v
			total[i] += w
		}
	}
	for i, w := range total {
		if w > 0 {
			out[i] = sum[i] / w
		} else {
			out[i] = some[i]
		}
	}
}

// blend writes the weighted mean of what is known into out. Where nothing that
// is known has a weight, the first that is known is better than nothing.
func (m *mixture) blend(out []float64, t trial) {
	room := &m.room
	room.sum, room.some = grown(room.sum, m.steps), grown(room.some, m.steps)
	sum, some, total := room.sum, room.some, out
	for h := range total {
		sum[h], some[h], total[h] = 0, math.NaN(), 0
	}
	i := 0
	for c := range m.cands {
		recent := t.recent[c]
		for _, p := range m.parts[c] {
			r := t.ratios[i]
			i++
			if r != r {
				continue
			}
			past, sum, some, total := m.past[c][p.from:p.to], sum[p.from:p.to], some[p.from:p.to], total[p.from:p.to]
			for h, y := range m.y[t.origin+p.from-p.lag : t.origin+p.to-p.lag] {
				v := y * r
				if v != v {
					continue
				}
				if some[h] != some[h] {
					some[h] = v
				}
				w := past[h] * recent
				sum[h] += w * v
				total[h] += w
			}
		}
	}
	for h := range out {
		if total[h] > 0 {
			out[h] = sum[h] / total[h]
		} else {
			out[h] = some[h]
		}
	}
}

// meanKnown is the mean of the known bins; 0 when there is none.
func meanKnown(y []float64) float64 {
	if mean := meanOrNaN(y); mean == mean {
		return mean
	}
	return 0
}

// meanOrNaN is the mean of the known bins; NaN when there is none.
func meanOrNaN(y []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range y {
		if v == v {
			sum, n = sum+v, n+1
		}
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
