package forecast

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// CalibratedOutcomes is on how many past outcomes, at every horizon, a band rests that is called calibrated: with fewer the conformal ranks of the
// quantiles 0.05 and 0.95, n+1−⌈0.95·(n+1)⌉ and ⌈0.95·(n+1)⌉, lie outside of what was seen, and no 90 % are proven.
const CalibratedOutcomes = 19

// Calibrated says that the quantiles were made, at each horizon, from CalibratedOutcomes or more past outcomes that the forecaster had not been trained on.
func (f Forecast) Calibrated() bool { return f.Outcomes >= CalibratedOutcomes }

// How a model is tried on the past.
const (
	replaysMost  = 256  // past origins: the forecasts made there are kept, so that a new origin costs one run
	flattery     = 1.1  // errors on what a model was not trained on that are larger by this than the others show that these flatter it:
	unseenEnough = 64   // as soon as there are so many of the former, the others do not count
	narrowest    = 1e-3 // a half-width counts as no less than this share of the forecast: a file may list none at all
)

// calibration makes honest quantiles of what a model says, by conformalised quantile regression (Romano, Patterson and Candès, NeurIPS 2019): the
// model's own band is only a shape. At past origins the model is run again, and where what came lay is told in half-widths of the band that it gave
// there; the quantiles of that, per horizon, times the half-widths of now, are those of the forecast. Their width follows the coverage in
// time: see widths.go. So a band that is always too narrow, or too wide, by some factor is mended by it, and one that is wide where it should be stays so.
//
// It is the same whether the runs were kept or are made again. It may be used by several goroutines.
type calibration struct {
	input, season int       // bins; a season of 0: there is none
	lends         int       // bins of history that a run looks at for its gaps, before those of the input
	trained       time.Time // what came before is flattering; zero: nothing is
	replays       int       // replaysMost, or fewer
	// before are errors that were made out of sample before the end of the training, as [residuals.paths] has them, of a model without a band of its own. With them, it is
	// not run on what it was trained on.
	before [][]float64
	// progress, where set, is told of the runs.
	progress func(done, total int)

	learnt memory[offsets]
	mu     sync.Mutex // guards runs
	runs   map[replayOf]*replay
	pass   int
}

// shape is what a model says: below and above are the distances to its quantiles 0.1 and 0.9, in samples/s; nil where it has none.
type shape struct{ mean, below, above []float64 }

// shapeOf is the shape of a forecast's own band.
func shapeOf(f Forecast) shape {
	s := shape{mean: f.Mean, below: make([]float64, len(f.Mean)), above: make([]float64, len(f.Mean))}
	for h, mean := range f.Mean {
		s.below[h], s.above[h] = mean-f.Lower[h], f.Upper[h]-mean
	}
	return s
}

// replayOf is what a run depends on: its end and the bins before.
type replayOf struct {
	end  int64
	sum  uint64
	bins int
}

type replay struct {
	said shape
	err  error
	pass int // in which it was used last
}

// offsets are the quantiles of the past outcomes, in half-widths, and courses of them.
type offsets struct {
	floor     float64     // samples/s; see [residuals]
	rows      [][]float64 // rows[i][h] for spreadLevels[i]
	scenarios [][]float64
	outcomes  []int // by horizon: unseen ones
	err       error // the model gave up; then there is nothing else
}

// spread gives f, whose Mean is that of now, its band, quantiles and scenarios. run makes a forecast of as many bins at the end of a history. Levels that the model
// lists besides spreadLevels are those of own, with their rows. An error is one of run that [givesUp]: what was learnt until then is kept, and gone on with.
func (c *calibration) spread(f *Forecast, history Series, now shape, own *Forecast, run func(Series) (shape, error)) error {
	steps := len(now.mean)
	t := c.trials(history, steps)
	from, to := milestones(history, min(t.apart, t.unseen))
	if to-from < c.input {
		from, to = 0, len(history.Values)
	}
	past := Series{Start: history.At(from), Step: history.Step, Values: history.Values[from:to]}
	of := lessonOf{bins: len(past.Values), sum: digest(past), steps: steps}
	o := c.learnt.get(of, lessonsKept, func(o *offsets) { c.learn(o, past, steps, run) })
	if o.err != nil {
		c.learnt.forget(o)
		return o.err
	}
	o.onto(f, now, own)
	if own == nil && !f.Calibrated() {
		f.reach(history.Values)
	}
	return nil
}

// trials are the past origins at which a model is tried: every so many bins from one on and, since the training, every so many. These numbers are powers of
// two, and origins are counted from the epoch, so that they stay the same while the history moves on and grows.
type trials struct{ from, apart, unseen int }

// trials are those of a history.
func (c *calibration) trials(history Series, steps int) trials {
	fit := func(bins, most int) int {
		if bins < most {
			return 1
		}
		return 1 << bits.Len(uint(bins/most)) // so that there are at least half of most
	}
	n := len(history.Values)
	from := c.input
	if c.season > 0 {
		from = max(from, n-max(spanSeasons*c.season, spanSteps*steps, spanBins))
	}
	trained := history.Bin(c.trained)
	since, bins := n-trained, max(0, n-from)
	switch {
	case c.before != nil:
		apart := fit(since, c.replays)
		return trials{max(from, trained), apart, apart}
	case c.trained.IsZero() || since <= 0 || trained <= from:
		apart := fit(bins, c.replays)
		return trials{from, apart, apart}
	}
	return trials{from, fit(bins, c.replays), fit(since, c.replays/2)}
}

// origins are those of the past, in order of time.
func (c *calibration) origins(past Series, t trials) (out []int) {
	first, trained := past.Start.UnixNano()/int64(past.Step), past.Bin(c.trained)
	for o := t.from; o < len(past.Values); o++ {
		if at := int(first) + o; at%t.apart == 0 || o >= trained && at%t.unseen == 0 {
			out = append(out, o)
		}
	}
	return out
}

// learn runs the model at the past origins.
func (c *calibration) learn(out *offsets, past Series, steps int, run func(Series) (shape, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[replayOf]*replay{}
	}
	c.pass++
	y := past.Values
	origins := c.origins(past, c.trials(past, steps))
	out.floor = scaleFloor * max(meanKnown(y), math.SmallestNonzeroFloat64)
	every, honest := newResiduals(steps, out.floor, len(origins)), newResiduals(steps, out.floor, len(origins))
	for _, path := range c.before {
		every.begin()
		honest.begin()
		for h := range steps {
			every.note(h, path[h])
			honest.note(h, path[h])
		}
	}
	tell := c.told(past, origins, steps)
	for i, o := range origins {
		said, err := c.replay(past.Until(past.At(o)), steps, run)
		if tell(i + 1); err != nil {
			if givesUp(err) {
				out.err = err
				return
			}
			continue // A gap there; the others say enough.
		}
		every.begin()
		honest.begin()
		for h := range min(steps, len(y)-o) {
			e := offset(y[o+h], said, h, out.floor)
			every.note(h, e)
			if !past.At(o + h).Before(c.trained) {
				honest.note(h, e)
			}
		}
	}
	for h := range steps {
		out.outcomes = append(out.outcomes, len(honest.at[h]))
	}
	from, flattered := every, isFlattered(every, honest)
	if flattered && slices.Min(out.outcomes) >= unseenEnough {
		from = honest
	}
	out.rows = from.adapted()
	if flattered && from == every {
		outermost(out.rows, honest.adapted())
	}
	out.scenarios = from.scenarios(out.rows[slices.Index(spreadLevels, 0.5)])
}

// isFlattered says that what a model was trained on flatters it: that its errors elsewhere, which are honest, are larger than the others.
func isFlattered(every, honest *residuals) bool {
	mean := func(r *residuals) (sum, n float64) {
		for _, at := range r.at {
			for _, e := range at {
				sum, n = sum+math.Abs(e), n+1
			}
		}
		return sum, n
	}
	all, n := mean(every)
	proper, m := mean(honest)
	return m > 0 && m < n && proper/m > flattery*(all-proper)/(n-m)
}

// told is what progress is told by, of how many origins are done; nothing where few runs are to be made.
func (c *calibration) told(past Series, origins []int, steps int) func(done int) {
	if c.progress == nil {
		return func(int) {}
	}
	missing := 0
	for _, o := range origins {
		if r := c.runs[c.runAt(past.Until(past.At(o)))]; r == nil || !r.of(steps) {
			missing++
		}
	}
	if missing < tellFrom {
		return func(int) {}
	}
	c.progress(0, len(origins))
	return func(done int) { c.progress(done, len(origins)) }
}

// runAt names the run at the end of past.
func (c *calibration) runAt(past Series) replayOf {
	seen := past
	if first := len(past.Values) - c.input - c.lends; first > 0 {
		seen = Series{Start: past.At(first), Step: past.Step, Values: past.Values[first:]}
	}
	return replayOf{end: past.End().UnixNano(), sum: digest(seen), bins: len(seen.Values)}
}

// of says whether a run tells of so many bins, or why of none.
func (r *replay) of(steps int) bool { return r.err != nil || len(r.said.mean) >= steps }

// replay is what the model says after past, from memory where it can be. The caller holds mu.
func (c *calibration) replay(past Series, steps int, run func(Series) (shape, error)) (shape, error) {
	of := c.runAt(past)
	r := c.runs[of]
	if r == nil || !r.of(steps) {
		said, err := run(past)
		if err != nil && givesUp(err) {
			return shape{}, err // which tells nothing of this moment
		}
		r = &replay{said: said, err: err}
		if len(c.runs) >= 2*replaysMost {
			for of, r := range c.runs {
				if r.pass < c.pass {
					delete(c.runs, of)
				}
			}
		}
		c.runs[of] = r
	}
	r.pass = c.pass
	return r.said, r.err
}

// adapted are the quantiles at spreadLevels of errors to which [residuals.adapt] was done.
func (r *residuals) adapted() [][]float64 {
	r.adapt()
	return r.quantiles(spreadLevels)
}

// adapt has the errors' width follow the coverage, as nothing is known of the unrest.
func (r *residuals) adapt() {
	unknown := make([]float64, len(r.paths))
	for k := range unknown {
		unknown[k] = math.NaN()
	}
	at := probes(nil, len(r.at), 0)
	r.widen(at, r.widths(unknown, at))
}

// outermost moves rows, at spreadLevels, away from the middle as far as others lie.
func outermost(rows, others [][]float64) {
	for i, q := range spreadLevels {
		for h, v := range others[i] {
			rows[i][h] = further(q, rows[i][h], v)
		}
	}
}

// further is that one of two values of the quantile q which lies further from the middle.
func further(q, a, b float64) float64 {
	switch {
	case q < 0.5:
		return min(a, b)
	case q > 0.5:
		return max(a, b)
	}
	return a
}

// unit is what an offset of one means at horizon h, in samples/s, above the forecast or below it.
func (s shape) unit(h int, above bool, floor float64) float64 {
	usual := max(s.mean[h], floor)
	switch {
	case s.below == nil:
		return usual
	case above:
		return max(s.above[h], narrowest*usual)
	}
	return max(s.below[h], narrowest*usual)
}

// offset is where a rate lies, in half-widths from the forecast; NaN of one that is unknown.
func offset(actual float64, s shape, h int, floor float64) float64 {
	d := actual - s.mean[h]
	return d / s.unit(h, d > 0, floor)
}

// onto puts the offsets around f's Mean, which stays. As long as they are too few for it to be calibrated, no quantile lies nearer to the middle than the model's own.
func (o *offsets) onto(f *Forecast, now shape, own *Forecast) {
	f.Outcomes = slices.Min(o.outcomes)
	few := !f.Calibrated()
	levels := slices.Clone(spreadLevels)
	if own != nil {
		levels = append(levels, own.Levels...)
		slices.Sort(levels)
		levels = slices.Compact(levels)
	}
	rate := func(h int, e float64) float64 { return max(0, now.mean[h]+e*now.unit(h, e > 0, o.floor)) }
	f.Levels, f.Quantiles = levels, make([][]float64, len(levels))
	for i, q := range levels {
		row := make([]float64, len(now.mean))
		below, above, part := between(spreadLevels, q)
		for h, mean := range now.mean {
			e := o.rows[below][h] + part*(o.rows[above][h]-o.rows[below][h])
			row[h] = rate(h, e)
			switch {
			case few && q == 0.5:
				row[h] = mean
			case few && own != nil:
				row[h] = further(q, row[h], own.own(q, h))
			}
			if few {
				row[h] = further(q, row[h], mean)
			}
		}
		f.Quantiles[i] = row
	}
	f.bound()
	f.Scenarios = nil
	for _, path := range o.scenarios {
		row := make([]float64, len(now.mean))
		for h, e := range path {
			row[h] = rate(h, e)
		}
		f.Scenarios = append(f.Scenarios, row)
	}
}

// own is the quantile q at horizon h by what f lists: between two of its levels by the normal distribution's z, and beyond the outermost as far as
// that grows from the middle.
func (f *Forecast) own(q float64, h int) float64 {
	below, above, part := between(f.Levels, q)
	if below != above {
		return f.Quantiles[below][h] + part*(f.Quantiles[above][h]-f.Quantiles[below][h])
	}
	edge := f.Quantiles[below][h]
	return max(0, f.Mean[h]+(edge-f.Mean[h])*max(1, zOf(q)/zOf(f.Levels[below])))
}

// between are the levels on either side of q, and how far along it lies by the normal distribution's z; the outermost one twice where it lies beyond.
func between(levels []float64, q float64) (below, above int, part float64) {
	i, found := slices.BinarySearch(levels, q)
	switch {
	case found || i == 0:
		return i, i, 0
	case i == len(levels):
		return i - 1, i - 1, 0
	}
	from := zOf(levels[i-1])
	return i - 1, i, (zOf(q) - from) / (zOf(levels[i]) - from)
}

func zOf(q float64) float64 { return distuv.UnitNormal.Quantile(q) }

// reach widens a band to what was ever seen: nothing better is known of a model that lists none, and was hardly tried.
func (f *Forecast) reach(y []float64) {
	least, most := math.Inf(1), math.Inf(-1)
	for _, v := range y {
		if v == v {
			least, most = min(least, v), max(most, v)
		}
	}
	for i, q := range f.Levels {
		for h, v := range f.Quantiles[i] {
			f.Quantiles[i][h] = further(q, further(q, v, least), most)
		}
	}
	f.bound()
}
