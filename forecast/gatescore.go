package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// GateState is what a [Gate] remembers from one forecast to the next. It is plain
// data that encoding/json carries.
type GateState struct {
	Version           int
	Primary, Fallback string // identities of the forecasters that the rest is about
	FallenBack        bool
	Changed           time.Time // when FallenBack last changed; zero: never
	Left              int       // how often it fell back lately, which makes it slower to come back
	Untrusted         bool      // the forecaster in use was not trusted last: it has to be the better for it
	Using             string    // what the last forecast came from
	Kept              []KeptForecast
	Past              []PastScore // in order of time
}

// KeptForecast is what both forecasters said at one moment, to be scored when the
// bins arrive. It is in single precision: it decides between errors of percents.
type KeptForecast struct {
	At   time.Time
	Step time.Duration
	// Both are without the events of a [Calendar], which are not the forecasters' doing: see [Gate.scores].
	Primary  []float32 // nil when it gave none
	Fallback []float32 // nil when it gave none
	// Seen says that the primary had been trained on what then came, so that its
	// score says little.
	Seen bool
}

// State is a copy of what the gate remembers.
func (g *Gate) State() GateState {
	s := g.state
	s.Kept = slices.Clone(s.Kept) // What it holds is never written to again.
	s.Past = slices.Clone(s.Past)
	return s
}

// Restore continues from a saved state. What it says of a forecaster other than
// the gate's own, such as a model that was replaced since, is dropped. A state of
// another version, or one that cannot have come from a gate, is an error, and
// leaves the gate as it was.
func (g *Gate) Restore(s GateState) error {
	s.Left = min(max(s.Left, 0), mostLeft)
	if s.Version != gateStateVersion {
		return fmt.Errorf("restore forecast gate: the state is of version %d and this program reads %d: start the gate without it", s.Version, gateStateVersion)
	}
	kept := make([]KeptForecast, 0, len(s.Kept))
	for _, k := range s.Kept {
		if k.Step <= 0 || k.At.IsZero() || len(k.Primary) > maxModelBins || len(k.Fallback) > maxModelBins {
			return fmt.Errorf("restore forecast gate: a kept forecast at %v has a step of %v and %d and %d bins: start the gate without this state",
				k.At, k.Step, len(k.Primary), len(k.Fallback))
		}
		if s.Primary != g.state.Primary {
			k.Primary = nil
		}
		if s.Fallback != g.state.Fallback {
			k.Fallback = nil
		}
		kept = append(kept, k)
	}
	if s.Primary != g.state.Primary {
		s.FallenBack, s.Left, s.Changed, s.Untrusted = false, 0, time.Time{}, false
	}
	past, err := g.ownPast(s)
	if err != nil {
		return err
	}
	s.Primary, s.Fallback, s.Kept, s.Past = g.state.Primary, g.state.Fallback, kept, past
	g.state = s
	return nil
}

// Warm forecasts at past origins over the gate's window, as if the gate had been
// there, so that it can judge from the first forecast on: after a start with a
// back-filled history, or after [Gate.Replace]. Each forecast sees only what lay
// before its origin. Warm costs up to 24 forecasts of each forecaster, and keeps
// what was forecast live. It returns how many origins it added.
func (g *Gate) Warm(history Series, steps int) (int, error) {
	return g.WarmTold(history, steps, func(int, int) {})
}

// WarmTold is [Gate.Warm] that tells at how many of so many moments it is done, until the primary gives up.
func (g *Gate) WarmTold(history Series, steps int, tell func(done, total int)) (int, error) {
	if err := checkRequest("warm forecast gate", history, steps); err != nil {
		return 0, err
	}
	o := g.options.scaled(history.Step, steps)
	g.forget(history, o)
	n, every := len(history.Values), g.spacing(history.Step, o)
	added := 0
	for k := keptPerWindow; k >= 1; k-- {
		if done := keptPerWindow - k; done > 0 {
			tell(done, keptPerWindow)
		}
		origin := n - k*every
		if origin < 1 {
			continue
		}
		if i, ok := g.find(history.At(origin), history.Step, every); ok {
			if g.complete(i) {
				continue
			}
			origin = history.Bin(g.state.Kept[i].At) // Fill in what is missing there.
		}
		past := Series{Start: history.Start, Step: history.Step, Values: history.Values[:origin:origin]}
		second, _ := g.fallback.Forecast(past, steps) // One that has no answer yet
		first := Forecast{}                           // is not scored there.
		if g.primary != nil {
			var err error
			if first, err = g.primary.Forecast(past, steps); givesUp(err) {
				tell = func(int, int) {}
			}
		}
		if first.Mean == nil && second.Mean == nil {
			continue
		}
		g.put(kept(history.At(origin), history.Step, first, second, g.trainedUntil()))
		added++
	}
	tell(keptPerWindow, keptPerWindow)
	return added, nil
}

// Lacking are the moments of the past, in order, at which the primary has made no forecast that it is scored by, while it was not ready.
func (g *Gate) Lacking(history Series) (out []time.Time) {
	for _, k := range g.state.Kept {
		if k.Primary == nil && g.primary != nil && k.of(history) {
			out = append(out, k.At)
		}
	}
	return out
}

// Moments are the moments of the past, in order, at which forecasts are kept. One that is to [Gate.Replace] the primary can be asked for its own beforehand, and they
// be filled in then: see [Gate.Fill].
func (g *Gate) Moments(history Series) (out []time.Time) {
	for _, k := range g.state.Kept {
		if k.of(history) {
			out = append(out, k.At)
		}
	}
	return out
}

// of says whether a kept forecast is one of a history's bins, and from within it.
func (k KeptForecast) of(history Series) bool {
	return k.Step == history.Step && !k.At.After(history.End()) && k.At.After(history.Start)
}

// Fill puts a forecast of the primary where it was lacking, made at the end of what was known then. Elsewhere it does nothing.
func (g *Gate) Fill(f Forecast) {
	for i, k := range g.state.Kept {
		if k.Primary == nil && f.Mean != nil && k.At.Equal(f.At) && k.Step == f.Step {
			g.state.Kept = slices.Clone(g.state.Kept) // a copy of the state may hold it
			g.state.Kept[i].Primary, g.state.Kept[i].Seen = singles(f.usual()), k.At.Before(g.trainedUntil())
		}
	}
}

// complete reports that nothing can be added to the i-th kept forecast.
func (g *Gate) complete(i int) bool {
	k := g.state.Kept[i]
	return k.Fallback != nil && (k.Primary != nil || g.primary == nil)
}

// spacing is how many bins apart forecasts are kept.
func (g *Gate) spacing(step time.Duration, o GateOptions) int {
	return max(1, int(o.Window/step)/keptPerWindow)
}

// trainedUntil is the end of what the primary was trained on, where it says so.
func (g *Gate) trainedUntil() time.Time {
	if m, ok := g.primary.(interface{ TrainedUntil() time.Time }); ok {
		return m.TrainedUntil()
	}
	return time.Time{}
}

func kept(at time.Time, step time.Duration, first, second Forecast, trained time.Time) KeptForecast {
	return KeptForecast{At: at, Step: step, Primary: singles(first.usual()), Fallback: singles(second.usual()), Seen: at.Before(trained)}
}

func singles(v []float64) []float32 {
	if v == nil {
		return nil
	}
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// find looks for a kept forecast less than every bins from at.
func (g *Gate) find(at time.Time, step time.Duration, every int) (int, bool) {
	for i, k := range g.state.Kept {
		if k.At.Sub(at).Abs() < time.Duration(every)*step {
			return i, true
		}
	}
	return 0, false
}

// put inserts k in order of time, in place of one at the same moment.
func (g *Gate) put(k KeptForecast) {
	i, same := slices.BinarySearchFunc(g.state.Kept, k, func(a, b KeptForecast) int { return a.At.Compare(b.At) })
	if same {
		g.state.Kept[i] = k
		return
	}
	g.state.Kept = slices.Insert(g.state.Kept, i, k)
}

// keep remembers a live forecast, when it is time for one.
func (g *Gate) keep(at time.Time, step time.Duration, o GateOptions, first, second Forecast) {
	if first.Mean == nil && second.Mean == nil {
		return
	}
	if n := len(g.state.Kept); n > 0 {
		last := g.state.Kept[n-1]
		if d := at.Sub(last.At); d < time.Duration(g.spacing(step, o))*step && d != 0 {
			return
		}
	}
	g.put(kept(at, step, first, second, g.trainedUntil()))
}

// forget drops what can no longer be scored: forecasts that lie outside the
// window, that were made of other bins, or after the history's end.
func (g *Gate) forget(history Series, o GateOptions) {
	from := history.End().Add(-o.Window)
	g.state.Kept = slices.DeleteFunc(slices.Clone(g.state.Kept), func(k KeptForecast) bool {
		end := k.At.Add(time.Duration(max(len(k.Primary), len(k.Fallback))) * k.Step)
		return k.Step != history.Step || k.At.Sub(history.Start)%k.Step != 0 || end.Before(from) || k.At.After(history.End())
	})
}

// gateScores are the errors of the kept forecasts over the window: paired over
// what both forecast, and each alone.
type gateScores struct {
	primary, fallback, primaryAlone, fallbackAlone Score
	quiet                                          bool // next to nothing arrived in the bins of primary and fallback
	lead                                           Lead // of the primary over the fallback, over the same bins
}

// came says by what the events of the forecasters' calendar multiplied each bin of the history.
func (g *Gate) came(history Series) func(bin int) float64 {
	if c, ok := g.fallback.(interface{ came(Series) []float64 }); ok {
		if factors := c.came(history); factors != nil {
			return func(i int) float64 { return factors[i] }
		}
	}
	return func(int) float64 { return 1 }
}

// usual is what a forecast says without events.
func (f Forecast) usual() []float64 {
	if f.Usual != nil {
		return f.Usual
	}
	return f.Mean
}

// scores compares the kept forecasts with what came. An event counts by as much as it came, so that one which did not, or more strongly than was declared, is
// not charged to a forecaster that had nothing but the declaration. Bins that the primary was
// not trained on are preferred, as soon as there are enough of them.
func (g *Gate) scores(history Series, o GateOptions) gateScores {
	var p, f, unseenP, unseenF, aloneP, aloneF misses
	var all, unseen contest
	n := len(history.Values)
	from := history.Bin(history.End().Add(-o.Window))
	came := g.came(history)
	for _, k := range g.state.Kept {
		origin, seen := history.Bin(k.At), 0
		all.begin(origin, len(k.Primary))
		unseen.begin(origin, len(k.Primary))
		if k.Seen {
			seen = 1
		}
		for h := range max(len(k.Primary), len(k.Fallback)) {
			i := origin + h
			if i < max(from, 0) || i >= n || math.IsNaN(history.Values[i]) {
				continue
			}
			actual, times := history.Values[i], float32(came(i))
			if h < len(k.Fallback) {
				aloneF.add(i, actual, times*k.Fallback[h])
			}
			if h < len(k.Primary) {
				aloneP.add(i, actual, times*k.Primary[h])
				aloneP.seen += seen
			}
			if h < len(k.Primary) && h < len(k.Fallback) {
				p.add(i, actual, times*k.Primary[h])
				p.seen += seen
				f.add(i, actual, times*k.Fallback[h])
				all.add(actual, float64(times*k.Primary[h]), float64(times*k.Fallback[h]))
				if !k.Seen {
					unseenP.add(i, actual, times*k.Primary[h])
					unseenF.add(i, actual, times*k.Fallback[h])
					unseen.add(actual, float64(times*k.Primary[h]), float64(times*k.Fallback[h]))
				}
			}
		}
	}
	if unseenP.bins >= o.MinBins {
		p, f, all = unseenP, unseenF, unseen
	}
	return gateScores{p.score(), f.score(), aloneP.score(), aloneF.score(), quiet(p.actual/float64(p.bins), meanOrNaN(history.Values)), all.lead()}
}

// contest is a duel over kept forecasts, those of which bins have come.
type contest struct {
	duel
	origins []int
	steps   int
	next    int  // the origin that is looked at
	opened  bool // it is in the duel
}

// begin looks at an origin, from which so many steps were forecast.
func (c *contest) begin(origin, steps int) {
	c.next, c.opened, c.steps = origin, false, max(c.steps, steps)
}

// add takes in what both said of a bin after the origin.
func (c *contest) add(actual, own, other float64) {
	if !c.opened {
		c.duel.begin()
		c.origins, c.opened = append(c.origins, c.next), true
	}
	c.duel.add(actual, own, other)
}

func (c *contest) lead() Lead { return c.duel.lead(overlapping(c.origins, c.steps)) }

// misses sums errors for a Score.
type misses struct {
	bins, seen     int
	of             map[int]struct{} // bins
	actual, missed float64
}

// add notes what was said of the bin with an index.
func (m *misses) add(bin int, actual float64, said float32) {
	if m.of == nil {
		m.of = map[int]struct{}{}
	}
	m.of[bin] = struct{}{}
	m.bins++
	m.actual += actual
	m.missed += math.Abs(actual - float64(said))
}

func (m misses) score() Score {
	s := Score{Bins: m.bins, Distinct: len(m.of), Seen: m.seen}
	switch {
	case m.actual > 0:
		s.WAPE = m.missed / m.actual
	case m.missed > 0:
		s.WAPE = 1
	}
	return s
}
