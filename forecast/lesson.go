package forecast

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"sync"
)

// What a seasonal forecast has learnt is kept, since it changes slowly and costs a hundred times what a forecast by it does.
const (
	lessonShare = 12 // of the shortest season: two hours of a day. So long a lesson serves.
	lessonsKept = 4  // of one forecaster

	floorFell = 0.99 // what is more than this share of it is the same, to [leastMissed]
)

// lesson is what past origins teach: how the candidates weigh, what is stacked on them, and how far off that was. It is
// learnt from the bins up to the last milestone, of which there are lessonShare a season: so that it is the same
// whether it was kept or is learnt again, and a forecast depends on nothing but its history. Only the weights are so old: level ratios, what was
// recent and what is stacked are taken at the origin itself.
type lesson struct {
	steps   int
	cands   []candidate
	unit    float64
	floor   float64 // of the residuals, samples/s: scaleFloor of the unit, or what forecasts of nearly nothing missed by: see [leastMissed]
	probes  []int
	past    [][]float64
	weights [opinions][]float64
	linear  *linearMap
	errors  [][]float64 // of past forecasts, relative to what they said; see [residuals]
	unrest  []float64   // at their origins
	widths  []float64   // [probe]: by which they are to be multiplied, for a band that holds what it should; see [residuals.widths]
}

// lessonOf is what a lesson depends on.
type lessonOf struct {
	bins  int
	sum   uint64 // of the history: digest
	steps int
}

// memory has the last things of a kind that were learnt, each of one history and once, whoever asks.
type memory[T any] struct {
	mu  sync.Mutex
	all []*learnt[T] // newest first
}

type learnt[T any] struct {
	of   lessonOf
	once sync.Once
	what T
}

// get finds what was learnt of something, or learns it. At most so many are kept.
func (k *memory[T]) get(of lessonOf, most int, learn func(*T)) *T {
	k.mu.Lock()
	i := slices.IndexFunc(k.all, func(one *learnt[T]) bool { return one.of == of })
	if i < 0 {
		i = 0
		k.all = slices.Insert(k.all, 0, &learnt[T]{of: of})[:min(len(k.all)+1, most)]
	}
	one := k.all[i]
	k.mu.Unlock()
	one.once.Do(func() { learn(&one.what) })
	return &one.what
}

// forget drops what get gave.
func (k *memory[T]) forget(what *T) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(one *learnt[T]) bool { return &one.what == what })
}

// lesson finds what the forecaster has learnt by the history, or learns it. y is the history without the bins before its first milestone.
func (s *seasonal) lesson(history Series, steps int) (l *lesson, y []float64, err error) {
	cands, err := s.candidates(history)
	if err != nil {
		return nil, nil, err
	}
	from, to := milestones(history, max(cands[0].lag/lessonShare, 1))
	past := Series{Start: history.At(from), Step: history.Step, Values: history.Values[from:to]}
	marked, err := s.candidates(past)
	if err != nil || len(marked) < len(cands) { // every bin counts
		past, from, marked = history, 0, cands
	}
	of := lessonOf{bins: len(past.Values), sum: digest(past), steps: steps}
	l = s.lessons.get(of, lessonsKept, func(l *lesson) {
		linear, at := s.linearMapOf(past, cands[0].lag, steps)
		l.learn(past.Values, marked, steps, s.origins, linear, at)
	})
	return l, history.Values[from:], nil
}

// milestones are the first and the last one of the history, where there is one every so many bins, counted from the epoch.
func milestones(history Series, bins int) (from, to int) {
	every := int64(bins)
	first := history.Start.UnixNano() / int64(history.Step)
	from = int(every - (first%every+every)%every)
	to = len(history.Values)
	to -= int(((first+int64(to))%every + every) % every)
	return min(from, to), to
}

// digestSeed is of this process: lessons are kept nowhere else.
var digestSeed = maphash.MakeSeed()

// digest stands for a series' step and values.
func digest(s Series) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	var raw [8192]byte
	binary.LittleEndian.PutUint64(raw[:], uint64(s.Step))
	_, _ = h.Write(raw[:8]) // it takes everything
	for part := range slices.Chunk(s.Values, len(raw)/8) {
		for i, v := range part {
			binary.LittleEndian.PutUint64(raw[8*i:8*i+8], math.Float64bits(v))
		}
		_, _ = h.Write(raw[:8*len(part)])
	}
	return h.Sum64()
}

// learn learns the lesson from a history.
func (l *lesson) learn(y []float64, cands []candidate, steps, origins int, linear *linearMap, from int) {
	m := study(y, cands, steps, origins)
	defer m.done()
	m.stack.linear, m.stack.from = linear, from
	m.stack.learn(m)
	l.linear = linear
	l.steps, l.cands, l.unit, l.probes = steps, cands, m.unit, slices.Clone(m.probes)
	for c := range cands {
		l.past = append(l.past, slices.Clone(m.past[c]))
	}
	for k, w := range m.stack.weights {
		l.weights[k] = slices.Clone(w)
	}
	// The forecast is made again at origins of the trials, each with the recent weights of its own moment.
	every := (len(m.trials) + maxFollowed - 1) / maxFollowed
	var said, came [][]float64
	for k := (len(m.trials) - 1) % every; k < len(m.trials); k += every { // the newest is among them
		t, mean := m.trials[k], make([]float64, steps)
		m.blend(mean, t)
		m.stack.onto(m, mean, t, true)
		l.unrest = append(l.unrest, t.unrest)
		said, came = append(said, mean), append(came, y[t.origin:min(t.origin+steps, len(y))])
	}
	l.floor = leastMissed(said, came, scaleFloor*l.unit)
	res := l.residuals()
	for k, mean := range said {
		res.begin()
		for h, v := range came[k] {
			res.add(h, v, mean[h])
		}
	}
	l.errors = res.paths
	l.widths = res.widths(l.unrest, m.probes)
	res.seenBefore(l.widths, m.probes)
}

func (l *lesson) residuals() *residuals { return newResiduals(l.steps, l.floor, maxFollowed) }

// leastMissed is what relative errors are relative to at least, samples/s: what forecasts of no more than that missed by, as a mean, or least where that is less. Where a bin holds a record
// or none, nearly nothing is said and all of a record missed: relative to what was said an error is of any size, and where a little more is said a band reaches to many times what was
// ever seen. A quiet night is another matter, since of little said little is missed.
// [measured: of 0.5 records a minute, 95 % quantiles reached to 16 times the most that was seen]
func leastMissed(said, came [][]float64, least float64) float64 {
	floor := math.Inf(1)
	for {
		sum, n := 0.0, 0.0
		for k, row := range came {
			for h, v := range row {
				if d := math.Abs(v - said[k][h]); d == d && said[k][h] <= floor {
					sum, n = sum+d, n+1
				}
			}
		}
		missed := sum / n // NaN where so little was never said
		if !(missed > least) {
			return least
		}
		if missed > floorFell*floor {
			return min(missed, floor)
		}
		floor = missed
	}
}

// forecast is what follows y, NaN where nothing is known, and the errors to expect, as much as there is unrest now. Where the last bins of y are not known, it is as of the last
// that is: these are first forecast themselves, since else a stream that has left its season would be expected to be back in it at once, and errors are those so much further ahead.
// A longer gap, than which a lesson serves, is left as it is.
func (l *lesson) forecast(y []float64) (mean []float64, _ *residuals) {
	late := 0
	for late < len(y) && y[len(y)-1-late] != y[len(y)-1-late] {
		late++
	}
	if late == 0 || late > min(l.steps, max(l.cands[0].lag/lessonShare, levelMinBins)) {
		return l.follow(y)
	}
	known := len(y) - late
	mean, _ = l.follow(y[:known])
	mean, errors := l.follow(append(slices.Clone(y[:known]), mean[:late]...))
	errors.delay(late)
	return mean, errors
}

// follow is what follows y, with the errors to expect, as the last bin of y were known.
func (l *lesson) follow(y []float64) (mean []float64, _ *residuals) {
	m := mixtures.Get().(*mixture)
	own, probes, weights := m.past, m.probes, m.stack.weights // the lesson's are not to be written to
	m.y, m.steps, m.cands, m.unit, m.past, m.probes, m.stack.weights = y, l.steps, l.cands, l.unit, l.past, l.probes, l.weights
	defer func() {
		m.past, m.probes, m.stack.weights = own, probes, weights
		m.done()
	}()
	m.divide(len(y))
	mean, t := m.mix(len(y))
	m.stack.linear = l.linear
	if l.linear != nil {
		m.stack.rooted.prepare(y, max(0, len(y)-l.linear.lags), l.cands[0].lag)
	}
	m.stack.prepare(m, max(0, len(y)-2*l.cands[0].lag))
	m.stack.onto(m, mean, t, false)
	res := l.residuals()
	for _, path := range l.errors {
		res.begin()
		for h, e := range path {
			res.note(h, e)
		}
	}
	res.temper(l.unrest, t.unrest)
	res.widen(l.probes, l.widths)
	return mean, res
}
