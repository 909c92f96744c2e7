package forecast

import "math"

// How opinions are stacked; see [stack].
const (
	stackRounds = 3     // opinions that are taken in, one after another
	stackGain   = 0.005 // by which share of the error one must be better to be looked at
	profileMost = 14    // seasons over which a phase is averaged

	hedgeOutcomes = 64  // outcomes that equal parts of stack and hedge count as much as
	hedgeMost     = 0.5 // share of the hedge, at most: equal parts
	hedgeWorst    = 0.2 // of hedgedWorse: where errors are half as large again. So bad a hedge is none
)

// stackShares are the shares that an opinion may have of what is forecast.
var stackShares = [...]float64{0.2, 0.4, 0.6, 0.8, 1}

// stack adds to a mixture what the mixture cannot say: what it was off by in the last bins goes on,
// the rate stays as it was lately, the season's course is that of many seasons together, with its noise or without, or what follows is a [linearMap] of the last bins; and what a
// [regression] makes of them all. How much
// of these opinions is taken in, is learnt at the past origins, per horizon: that one, at that share, after
// which the errors are least, once more on top of it, and again. A gain is taken in as far as it is proven: a share is
// made the smaller by (1 − (standard error / gain)²), as James and Stein shrink a mean.
//
// On a stream that keeps to its season nothing is taken in.
type stack struct {
	season  int
	peaks   []float64 // peaks[i]: the highest known bin before bin i
	profile []float64 // profile[i]: mean of the known bins at the phase of bin i up to it, over up to profileMost seasons, without the highest and the lowest
	smooth  []float64 // the profile, averaged over a few bins
	known   []sums    // over the bins before bin i that are known
	paired  []sums    // and over those of which the profile a season before is known too
	weights [opinions][]float64
	linear  *linearMap // nil: none
	from    int        // where its history begins
	rooted  rooted
	room    stackRoom
}

// sums are over known bins: of the rate, of the profile a season before, and how many they are.
type sums struct{ now, then, n float64 }

// The opinions. The weight at index 0 is the mixture's own.
const (
	theMix   = iota
	missedOn // + what the last bin was off by
	missed3On
	holdLast // the mean over the last bin
	hold3
	hold24th // and over the last 24th of a season, an hour of a day
	hold6th
	profiled      // the profile
	profiledLevel // at the level of the last quarter of a season
	profiledHour  // at that of the last 24th
	smooth        // the profile without its noise, at either
	smoothHour
	mapped // a linear map of the last bins: see linearmap.go
	hedged // the mean of maps of several lengths: how much of it is taken is not learnt as of the others, see hedge
	opinions

	together = opinions // what a regression makes of all of them: see regression.go
)

// held are the lengths of the holds, as a share of the season, from their least in bins.
func (s *stack) held(opinion int) int {
	switch opinion {
	case holdLast:
		return 1
	case hold3:
		return 3
	case hold24th:
		return max(6, s.season/24)
	}
	return max(12, s.season/6)
}

// opinion is all opinions at one origin, as far as they do not depend on the horizon: what is added to the mix,
// the rate that is held, what the profile is multiplied by. NaN where it has none.
type opinion [opinions]float64

// stackRoom is what a stack is learnt in: all are [probe][trial].
type stackRoom struct {
	actual, said   []float64
	others         [opinions + 1][]float64
	regression     regression
	loss           [][opinions + 1][len(stackShares)]float64 // by probe
	moved          []bool                                    // by probe: since loss was summed, what is said there has changed
	out            []float64
	best           []float64
	mapped, hedged []float64    // by probe
	rows           []int        // of the linear map, by probe
	off            []float64    // by row of the linear map
	courses        [2][]float64 // by horizon: what the linear map says, and its hedge
	which          []int
	horizons       []int     // justBefore and the probes
	foresaw        []float64 // there, at one trial
	share          []float64
}

// prepare looks over the history of m, for origins two seasons after bin from or later.
func (s *stack) prepare(m *mixture, from int) {
	s.season = m.cands[0].lag
	y := m.y
	s.profile = grown(s.profile, len(y))
	s.peaks, s.known, s.paired = grown(s.peaks, len(y)+1), grown(s.known, len(y)+1), grown(s.paired, len(y)+1)
	s.peaks[0], s.known[from], s.paired[from] = 0, sums{}, sums{}
	for i, v := range y {
		s.peaks[i+1] = s.peaks[i]
		if v > s.peaks[i] {
			s.peaks[i+1] = v
		}
	}
	for i := from; i < len(y); i++ {
		v := y[i]
		sum, n, least, most := 0.0, 0.0, math.Inf(1), 0.0
		for j, first := i, i-profileMost*s.season; j > first && j >= 0; j -= s.season {
			if v := y[j]; v == v {
				sum, n, least, most = sum+v, n+1, min(least, v), max(most, v)
			}
		}
		if n > 2 {
			sum, n = max(0, sum-least-most), n-2
		}
		s.profile[i] = sum / n
		s.known[i+1], s.paired[i+1] = s.known[i], s.paired[i]
		if v != v {
			continue
		}
		s.known[i+1].now += v
		s.known[i+1].n++
		if i >= from+s.season && s.profile[i-s.season] == s.profile[i-s.season] {
			s.paired[i+1].now += v
			s.paired[i+1].then += s.profile[i-s.season]
		}
	}
	s.soften(from)
}

// soften averages the profile over a 96th of a season on either side of each bin: a quarter of an hour of a day. It is looked up a season or more later,
// so that none of it is from after the moment of a forecast, save those bins just before that moment's season: they are averaged over what there is.
func (s *stack) soften(from int) {
	n, reach := len(s.profile), max(1, s.season/96)
	s.smooth = grown(s.smooth, n)
	for i := from; i < n; i++ {
		sum, count := 0.0, 0.0
		for j := max(from, i-reach); j <= min(n-1, i+reach); j++ {
			if v := s.profile[j]; v == v {
				sum, count = sum+v, count+1
			}
		}
		s.smooth[i] = sum / count
	}
}

// justBefore are the horizons of the last bins; see [mixture.foresaw].
var justBefore = [...]int{-3, -2, -1}

// ask gives the opinions at the origin of t, where the mix would have said foresaw of the bins justBefore.
func (s *stack) ask(m *mixture, t trial, foresaw []float64) (o opinion) {
	sum, n := 0.0, 0.0
	for back := 1; back <= 3; back++ {
		if t.origin >= back {
			if d := m.y[t.origin-back] - foresaw[3-back]; d == d {
				sum, n = sum+d, n+1
			}
		}
		switch back {
		case 1:
			o[missedOn] = sum / n
		case 3:
			o[missed3On] = sum / n
		}
	}
	for h := holdLast; h <= hold6th; h++ {
		from, to := s.known[max(0, t.origin-s.held(h))], s.known[t.origin]
		o[h] = max(0, to.now-from.now) / (to.n - from.n)
	}
	quarter, hour := s.level(t.origin, s.season/4), s.level(t.origin, max(6, s.season/24))
	o[profiled], o[profiledLevel], o[profiledHour], o[smooth], o[smoothHour] = 1, quarter, hour, quarter, hour
	return o
}

// level is the rate of the last bins over the profile's.
func (s *stack) level(origin, bins int) float64 {
	from, to := s.paired[max(0, origin-bins)], s.paired[origin]
	now, then := to.now-from.now, to.then-from.then
	if !(then > 0) {
		return 1
	}
	return math.Min(math.Max(now/then, 1/levelMaxRatio), levelMaxRatio)
}

// say turns the opinions o at an origin into what they say at horizon h after it, where the mix says mean: that itself where one has none.
func (s *stack) say(o *opinion, origin, h int, mean, most float64) {
	o[theMix] = mean
	o[missedOn] += mean
	o[missed3On] += mean
	profile, soft := math.NaN(), math.NaN()
	if at := s.phase(origin, h); at >= 0 {
		profile, soft = s.profile[at], s.smooth[at]
	}
	o[profiled] *= profile
	o[profiledLevel] *= profile
	o[profiledHour] *= profile
	o[smooth] *= soft
	o[smoothHour] *= soft
	most = max(mean, most)
	for k, v := range o {
		switch {
		case v != v:
			o[k] = mean
		case v > most:
			o[k] = most
		}
	}
}

// phase is the last bin before an origin that is of the phase of the one at horizon h after it; negative: there is none.
func (s *stack) phase(origin, h int) int { return origin + h - (h/s.season+1)*s.season }

// most is the highest rate that was known a quarter of a season before the origin. An opinion that says more than that
// and than the mix goes by a burst of which nothing is known.
func (s *stack) most(origin int) float64 { return s.peaks[max(0, origin-s.season/4)] }

// learn finds the weights of the opinions at each probe from the trials of m.
func (s *stack) learn(m *mixture) {
	s.prepare(m, 0)
	trials, probes := len(m.trials), len(m.probes)
	room := &s.room
	room.actual, room.said = grown(room.actual, trials*probes), grown(room.said, trials*probes)
	room.others[together] = grown(room.others[together], trials*probes)
	for k := range opinions {
		room.others[k] = grown(room.others[k], trials*probes)
		s.weights[k] = grown(s.weights[k], probes)
		for i := range probes {
			s.weights[k][i] = 0
		}
	}
	s.rooted.prepare(m.y, 0, s.season)
	room.mapped, room.hedged = grown(room.mapped, probes), grown(room.hedged, probes)
	room.rows = s.linear.rowsOf(room.rows[:0], m.probes)
	room.horizons = append(append(room.horizons[:0], justBefore[:]...), m.probes...)
	room.foresaw = grown(room.foresaw, len(room.horizons))
	for k, t := range m.trials {
		m.foresaw(room.foresaw, t, room.horizons)
		asked, most := s.ask(m, t, room.foresaw), s.most(t.origin)
		s.mapAt(room.mapped, t.origin, true, room.rows, false)
		s.mapAt(room.hedged, t.origin, true, room.rows, true)
		for i, h := range m.probes {
			at := i*trials + k
			room.actual[at], room.said[at] = math.NaN(), room.foresaw[len(justBefore)+i]
			if t.origin+h < len(m.y) {
				room.actual[at] = m.y[t.origin+h]
			}
			if d := room.actual[at] - room.said[at]; d != d { // nothing is learnt here: all agree
				room.actual[at], room.said[at] = 0, 0
				for k := missedOn; k < opinions; k++ {
					room.others[k][at] = 0
				}
				continue
			}
			o := asked
			o[mapped], o[hedged] = room.mapped[i], room.hedged[i]
			s.say(&o, t.origin, h, room.said[at], most)
			for k := missedOn; k < opinions; k++ {
				room.others[k][at] = o[k]
			}
		}
	}
	for i := range probes {
		s.weights[theMix][i] = 1
	}
	room.regression.fit(m)
	room.loss, room.moved = grown(room.loss, probes), grown(room.moved, probes)
	for i := range room.moved {
		room.moved[i] = true
	}
	room.best, room.which, room.share = grown(room.best, probes), grown(room.which, probes), grown(room.share, probes)
	for range stackRounds {
		if !s.round(m) {
			break
		}
	}
	s.hedge(m)
}

// hedge gives a share of the forecast to the mean of linear maps of several lengths ([linearMap]). Weights that are learnt from few outcomes are mostly chance, and a mean of
// forecasts that differ is better than the one that seems best ("the combination puzzle": Smith and Wallis, 2009): equal parts count as much as hedgeOutcomes outcomes, of which the
// past origins have one for each horizon that fits between them. So a day ahead of three months of hours two fifths are hedged, two hours ahead of four weeks a sixth, and five
// minutes ahead of them a sixtieth. The less, the worse the hedge did there, and nothing from hedgeWorst on.
//
// hedgeOutcomes was chosen on the validation months of ETTh1 and ETTm2, 96 and 336 bins ahead, of which nothing is in the test: it is the least power of two whose MSE is within
// half a percent of the best one's in each of the four (0.0922, 0.1322, 0.0781 and 0.1634, and without a hedge 0.0955, 0.1342, 0.0832 and 0.1669).
func (s *stack) hedge(m *mixture) {
	if s.linear == nil || s.linear.hedges[mapParts] == nil {
		return
	}
	trials := len(m.trials)
	span := float64(m.trials[trials-1].origin - m.trials[0].origin + 1)
	for i, h := range m.probes {
		worse, known := s.hedgedWorse(m, i)
		if !known {
			continue
		}
		outcomes := min(float64(trials), span/float64(h+1))
		share := min(hedgeMost, hedgeOutcomes/(hedgeOutcomes+outcomes)) * min(max(1-worse/hedgeWorst, 0), 1)
		for k := range s.weights {
			s.weights[k][i] *= 1 - share
		}
		s.weights[hedged][i] += share
	}
}

// hedgedWorse is by how much the hedge was worse than what the stack says at probe i, from -1 to 1: the mean over the past origins of (its error - the stack's) / (the sum of both),
// so that a burst, which nobody foresees, counts no more than any other bin. Not known where nothing is.
func (s *stack) hedgedWorse(m *mixture, i int) (worse float64, known bool) {
	trials, room := len(m.trials), &s.room
	from, to := m.around(i)
	sum, n := 0.0, 0.0
	for at := from * trials; at < to*trials; at++ {
		a := room.actual[at]
		own, other := math.Abs(a-room.said[at]), math.Abs(a-room.others[hedged][at])
		if own+other > 0 {
			sum, n = sum+(other-own)/(other+own), n+1
		}
	}
	return sum / n, n > 0
}

// round takes in one opinion more at each probe, where one is proven to help.
func (s *stack) round(m *mixture) (helped bool) {
	trials, room := len(m.trials), &s.room
	// What each share of opinion k would leave of the errors is summed in one pass over them.
	try := func(k int, shares [len(stackShares)]float64) {
		for i, moved := range room.moved {
			if !moved {
				continue
			}
			at := i * trials
			actual, said, other := room.actual[at:at+trials], room.said[at:at+trials], room.others[k][at:at+trials]
			said, other = said[:len(actual)], other[:len(actual)]
			var s0, s1, s2, s3, s4 float64
			f0, f1, f2, f3, f4 := shares[0], shares[1], shares[2], shares[3], shares[4]
			for j, a := range actual { // an unknown bin is not worth a branch in here: see learn
				said := said[j]
				off, by := a-said, other[j]-said
				s0 += math.Abs(off - f0*by)
				s1 += math.Abs(off - f1*by)
				s2 += math.Abs(off - f2*by)
				s3 += math.Abs(off - f3*by)
				s4 += math.Abs(off - f4*by)
			}
			room.loss[i][k] = [len(stackShares)]float64{s0, s1, s2, s3, s4}
		}
		for n, share := range shares {
			for i := range m.probes {
				from, to := m.around(i)
				loss := 0.0
				for p := from; p < to; p++ {
					loss += room.loss[p][k][n]
				}
				switch {
				case k == theMix:
					room.best[i], room.which[i], room.share[i] = (1-stackGain)*loss, theMix, 0
				case loss < room.best[i]:
					room.best[i], room.which[i], room.share[i] = loss, k, share
				}
			}
		}
	}
	try(theMix, [len(stackShares)]float64{})
	for k := missedOn; k <= mapped; k++ {
		try(k, stackShares)
	}
	try(together, stackShares)
	for i := range m.probes {
		if room.share[i] > 0 {
			room.share[i] *= s.proven(m, i)
		}
		helped = helped || room.share[i] > 0
	}
	for i, k := range room.which {
		share := room.share[i]
		room.moved[i] = share != 0
		if share == 0 {
			continue
		}
		for j := range s.weights {
			s.weights[j][i] *= 1 - share
		}
		s.add(k, i, share)
		at := i * trials
		said, other := room.said[at:at+trials], room.others[k][at:at+trials]
		for j := range said {
			said[j] += share * (other[j] - said[j])
		}
	}
	return helped
}

// add gives opinion k a share at probe i.
func (s *stack) add(k, i int, share float64) {
	if k != together {
		s.weights[k][i] += share
		return
	}
	s.weights[theMix][i] += share
	for j, b := range s.room.regression.coefficients[i] {
		s.weights[missedOn+j][i] += share * b
		s.weights[theMix][i] -= share * b
	}
}

// proven is the share of the gain at probe i that is proven, from 0 to 1.
func (s *stack) proven(m *mixture, i int) float64 {
	trials, room := len(m.trials), &s.room
	from, to := m.around(i)
	k, share := room.which[i], room.share[i]
	sum, squares, n := 0.0, 0.0, 0.0
	for j := range trials { // neighbouring horizons of one origin are no further proof
		gain := 0.0
		for p := from; p < to; p++ {
			at := p*trials + j
			a, said := room.actual[at], room.said[at]
			gain += math.Abs(a-said) - math.Abs(a-said-share*(room.others[k][at]-said))
		}
		if gain != 0 { // else nothing is known there, or both say the same
			sum, squares, n = sum+gain, squares+gain*gain, n+1
		}
	}
	if n < minOrigins || sum <= 0 {
		return 0
	}
	mean := sum / n
	return max(0, 1-(squares/n-mean*mean)/n/(mean*mean))
}

// mapAt is what the linear map, or its hedge, says in those rows from an origin; of a past one, by the coefficients that have not seen it.
func (s *stack) mapAt(out []float64, origin int, past bool, rows []int, hedge bool) {
	if s.linear == nil {
		for i := range out {
			out[i] = math.NaN()
		}
		return
	}
	part := mapParts
	if past {
		part = s.linear.part(origin - s.from)
	}
	by := s.linear.coefficients[part]
	if hedge {
		by = s.linear.hedges[part]
	}
	s.linear.says(out, &s.rooted, origin, by, rows)
}

// mapFrom is what the linear map, or its hedge, says of every bin from an origin. Between its own horizons it is off the smooth profile as it is at these: not off the mix, of which
// each bin has a noise of its own, which would be that of three bins then. It has the room of course.
func (s *stack) mapFrom(course []float64, steps, origin int, past, hedge bool) []float64 {
	room := &s.room
	course = grown(course, steps)
	if s.linear == nil {
		for h := range course {
			course[h] = math.NaN()
		}
		return course
	}
	at := s.linear.probes
	room.off, room.rows = grown(room.off, len(at)), s.linear.rowsOf(room.rows[:0], at)
	s.mapAt(room.off, origin, past, room.rows, hedge)
	for i, from := range at {
		next := min(i+1, len(at)-1)
		to := max(from+1, at[next])
		course[from] = room.off[i]
		if to == from+1 {
			continue
		}
		first, last := room.off[i]-s.soft(origin, from), room.off[next]-s.soft(origin, to)
		for h := from + 1; h < to; h++ {
			part := float64(h-from) / float64(to-from)
			if course[h] = s.soft(origin, h) + first + (last-first)*part; course[h] != course[h] { // no profile
				course[h] = room.off[i] + (room.off[next]-room.off[i])*part
			}
			course[h] = max(0, course[h])
		}
	}
	return course
}

// soft is the smooth profile at horizon h after an origin; NaN: there is none.
func (s *stack) soft(origin, h int) float64 {
	if at := s.phase(origin, h); at >= 0 {
		return s.smooth[at]
	}
	return math.NaN()
}

// onto makes of mean, which is the mix at the origin of t, the forecast there. Between the probes
// the weights go over into each other. An origin of the past is forecast as if its outcome were not known.
func (s *stack) onto(m *mixture, mean []float64, t trial, past bool) {
	var foresaw [len(justBefore)]float64
	m.foresaw(foresaw[:], t, justBefore[:])
	asked := s.ask(m, t, foresaw[:])
	most := s.most(t.origin)
	courses := &s.room.courses
	courses[0] = s.mapFrom(courses[0], len(mean), t.origin, past, false)
	courses[1] = s.mapFrom(courses[1], len(mean), t.origin, past, true)
	for i, from := range m.probes {
		next := min(i+1, len(m.probes)-1)
		to := max(from+1, m.probes[next])
		out := grown(s.room.out, to-from)
		for h := range out {
			o, part := asked, float64(h)/float64(to-from)
			o[mapped], o[hedged] = courses[0][from+h], courses[1][from+h]
			s.say(&o, t.origin, from+h, mean[from+h], most)
			out[h] = 0
			for k, v := range o {
				out[h] += (s.weights[k][i] + (s.weights[k][next]-s.weights[k][i])*part) * v
			}
		}
		for h, v := range out {
			mean[from+h] = max(0, v)
		}
		s.room.out = out
	}
}
