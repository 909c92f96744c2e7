package forecast

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// linearPlan is the architecture of the linear model: which candidates it mixes
// and how long its windows are, all in bins.
//
// At origin T, for the bin h bins after it, the features are, in units of level:
//
//	c(T+h) = y(T+h−lag) · M(T,w) / M(T−lag,w)
//	                                   for every lag and window w: level-corrected
//	                                   seasonal naive, as NewSeasonal's candidates
//	Σ c(T+h) / e(c)² / Σ 1/e(c)²       the candidates weighed by what they would have
//	                                   got wrong in the last bins
//	the same of S(T+h−lag)             where S is the season smoothed over a few bins
//	S(T+h−lag)                         for every lag: the season at the level that it had
//	M(T,r)                             for short windows r: how the rate moves now
//	1
//
// where M(t,w) is the mean of the w bins before t, and level is M(T, recent). The
// forecast is linear in the features, with a column of coefficients per horizon;
// the division by level is what makes one column fit a stream that grows. All
// ratios are between means to which a share of the window's mean is added, so that
// a silent night divides nothing by zero.
type linearPlan struct {
	lags    []int // each at least horizon + smooth
	windows []int // level windows
	short   []int // recent windows, shortest first
	recent  int   // the window of level
	smooth  int   // S is over 2·smooth+1 bins
	check   int   // e(c) is the mean error over so many last bins, forecast before them
	horizon int
	input   int // bins that all of this reaches back
}

// The shape of the linear model, as shares of the shortest season, like
// levelShares. See the note there on how constants were chosen.
const (
	linearFloor      = 0.02 // share of the window's mean that is added to a level
	mixtureFloor     = 0.05 // share of that floor below which errors are alike
	linearCycles     = 4    // seasons back
	linearShortTimes = 2    // each recent window is so many times the last
)

// planLinear chooses the lags and windows that leave at least half of n bins to
// learn from. seasons are in bins.
func planLinear(who string, history Series, seasons []int, o LinearOptions) (linearPlan, error) {
	n := len(history.Values)
	season := slices.Min(seasons)
	p := linearPlan{horizon: o.Horizon, smooth: max(1, season/288), check: max(recentMin, int(recentShare*float64(season)))}
	var levels []int
	for _, share := range levelShares {
		levels = append(levels, max(levelMinBins, int(share*float64(season))))
	}
	p.recent = levels[0]
	if len(levels) > 1 {
		p.recent = max(levels[0], min(levels[1], 60))
	}
	limit := n / 2
	if o.Input > 0 {
		limit = o.Input
	}
	var lags []int
	for _, s := range seasons {
		for c := 1; c <= linearCycles; c++ {
			if lag := c * s; lag >= o.Horizon+p.smooth {
				lags = append(lags, lag)
			}
		}
	}
	if len(lags) == 0 {
		return p, fmt.Errorf("%s: a horizon of %d bins is longer than %d seasons of %d: choose a shorter one", who, o.Horizon, linearCycles, season)
	}
	slices.Sort(lags)
	lags = slices.Compact(lags)
	for w := 1; w <= p.recent; w *= linearShortTimes {
		p.short = append(p.short, w)
	}
	p.lags, p.windows = lags[:1], []int{p.recent}
	p.input = lags[0] + p.recent + p.check
	need := p.input + p.horizon + minOrigins*4
	if n < need {
		return p, shortHistory(who, history, need, fmt.Sprintf("an input of %d bins (a season of %d and a level window), the horizon of %d, and something to learn from",
			p.input, lags[0], p.horizon))
	}
	if o.Input > 0 && p.input > o.Input {
		return p, fmt.Errorf("%s: an input of %d bins holds no season and level window: it needs %d, that is %v", who, o.Input, p.input, length(time.Duration(p.input)*history.Step))
	}
	for _, w := range levels {
		if !slices.Contains(p.windows, w) && p.lags[0]+w+p.check <= limit {
			p.windows = append(p.windows, w)
		}
	}
	slices.Sort(p.windows)
	widest := p.windows[len(p.windows)-1]
	for _, lag := range lags[1:] {
		if lag+widest+p.check <= limit {
			p.lags = append(p.lags, lag)
		}
	}
	p.input = p.lags[len(p.lags)-1] + max(widest+p.check, p.smooth)
	return p, nil
}

// candidates is the number of level-corrected features.
func (p linearPlan) candidates() int { return len(p.lags) * len(p.windows) }

// features is the number of columns: candidates, their two mixes, smoothed seasons, recent means,
// one.
func (p linearPlan) features() int { return p.candidates() + 2 + len(p.lags) + len(p.short) + 1 }

// prior is the coefficients towards which the fit is pulled: the candidates weighed
// by their last errors, smooth and not in equal parts, which is a forecaster in
// its own right.
func (p linearPlan) prior() []float64 {
	b := make([]float64, p.features())
	b[p.candidates()], b[p.candidates()+1] = 0.5, 0.5
	return b
}

// linearData gives features at any origin of a series without gaps, from running
// sums.
type linearData struct {
	linearPlan
	y   []float64
	sum []float64 // sum[i] = Σ y[:i]
}

func newLinearData(p linearPlan, y []float64) *linearData {
	d := &linearData{linearPlan: p, y: y, sum: make([]float64, len(y)+1)}
	for i, v := range y {
		d.sum[i+1] = d.sum[i] + v
	}
	return d
}

// mean is M(t,w).
func (d *linearData) mean(t, w int) float64 { return max(0, d.sum[t]-d.sum[t-w]) / float64(w) }

// linearOrigin is what the features of one origin share.
type linearOrigin struct {
	t      int
	level  float64   // samples/s, floor included
	floor  float64   // what is added to means
	ratios []float64 // per candidate, divided by level
	mix    []float64 // per candidate, its weight in the mix; their sum is 1
}

// origin prepares the features at t. t is at least the plan's input.
func (d *linearData) origin(t int) linearOrigin {
	o := linearOrigin{t: t, floor: linearFloor * d.mean(t, d.input)}
	o.level = d.mean(t, d.recent) + o.floor
	for _, lag := range d.lags {
		for _, w := range d.windows {
			r := (d.mean(t, w) + o.floor) / (d.mean(t-lag, w) + o.floor)
			o.ratios = append(o.ratios, r/o.level)
		}
	}
	o.mix = d.mixture(t, o.floor)
	return o
}

// mixture weighs the candidates by how well they would have forecast the last
// bins before t from the bins before these.
func (d *linearData) mixture(t int, floor float64) []float64 {
	past, total := t-d.check, 0.0
	var weights []float64
	for _, lag := range d.lags {
		for _, w := range d.windows {
			r := (d.mean(past, w) + floor) / (d.mean(past-lag, w) + floor)
			e := 0.0
			for i := past; i < t; i++ {
				e += math.Abs(d.y[i] - r*d.y[i-lag])
			}
			e = e/float64(d.check) + mixtureFloor*floor
			weights = append(weights, 1/(e*e))
			total += 1 / (e * e)
		}
	}
	for i := range weights {
		weights[i] /= total
	}
	return weights
}

// fill writes the features of horizon h into x.
func (d *linearData) fill(o linearOrigin, h int, x []float64) {
	i, mix, smoothed := 0, 0.0, 0.0
	base := d.candidates() + 2
	for k, lag := range d.lags {
		from, to := o.t+h-lag-d.smooth, o.t+h-lag+d.smooth+1
		season := (d.sum[to] - d.sum[from]) / float64(to-from)
		x[base+k] = season / o.level
		for range d.windows {
			x[i] = d.y[o.t+h-lag] * o.ratios[i]
			mix += x[i] * o.mix[i]
			smoothed += season * o.ratios[i] * o.mix[i]
			i++
		}
	}
	x[i], x[i+1] = mix, smoothed
	i = base + len(d.lags)
	for _, w := range d.short {
		x[i] = d.mean(o.t, w) / o.level
		i++
	}
	x[i] = 1
}

// predict is the model in float64: coefficients[h] on the features, at origin t,
// in samples/s. The ONNX graph computes the same.
func (d *linearData) predict(t int, coefficients [][]float64) []float64 {
	out := make([]float64, len(coefficients))
	if d.mean(t, d.input) == 0 {
		return out // As ONNXModel does for a silent window.
	}
	o, x := d.origin(t), make([]float64, d.features())
	for h, b := range coefficients {
		d.fill(o, h, x)
		for i, v := range x {
			out[h] += b[i] * v
		}
		out[h] = max(0, out[h]*o.level)
	}
	return out
}
