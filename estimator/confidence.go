package estimator

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Confidence says how sure a model is of F, at worker counts that were measured and
// at others.
//
// A fit minimises relative errors, and to first order F changes by the share
// −g·Δθ, where g is the slopes of the time of a step over that time. So the
// covariance of θ is that of a linear regression, (Σ g·gᵀ/v + Λ)⁻¹, with v the
// variance of a measurement: the noise of an interval over the number of intervals,
// plus the misfit. Λ says what is known without measurements: that a term of the
// form is between nothing and the whole of a step, or a prior ([Online]). Terms that
// the fit put at 0 count too, since they might not be 0: that makes the error at
// counts beyond those measured large, as it is. The misfit, by how much more the
// measurements deviate from the form than noise explains, is added everywhere, since
// more intervals do not mend a form that is wrong; what is old tells little of it.
type Confidence struct {
	model  Model
	scale  []float64     // of each term
	cov    *mat.SymDense // of θ over scale; nil: nothing is known
	noise  float64       // relative standard deviation of one interval
	misfit float64       // relative
	here   []reading     // where capacity was measured lately
}

// The noise of an interval before it was measured, relative, and how many intervals
// that is worth. [ours]
const (
	assumedNoise   = 0.03
	assumedNoiseIn = 4
)

// termError is the standard deviation of a term's share of a step of which nothing
// is known but that it is between 0 and 1. [ours]
const termError = 0.5

// reading is one configuration that was measured, or that a prior speaks of.
type reading struct {
	w, p int
	rate float64
	n    float64 // how many intervals it is worth
	// trust is how much it tells of the form's misfit, 0 to 1.
	trust float64
	// moved is by how much capacity may be another since, relative.
	moved float64
}

// Assess says how sure a model is that [Fit] found for these samples.
func Assess(m Model, samples []Sample) Confidence {
	var seen []reading
	squares, free := 0.0, 0
	for _, g := range byPlace(m.Form.UsesServers(), samples) {
		mean := meanRate(g)
		for _, s := range g {
			squares += (s.Rate/mean - 1) * (s.Rate/mean - 1)
		}
		free += len(g) - 1
		seen = append(seen, reading{w: g[0].Workers, p: g[0].Servers, rate: mean, n: float64(len(g)), trust: 1})
	}
	return assess(m, seen, nil, 0, noiseOf(squares, float64(free)))
}

// noiseOf is the relative standard deviation of one interval, from the sum of squared
// relative deviations of so many that were free to deviate.
func noiseOf(squares, free float64) float64 {
	return math.Sqrt((assumedNoiseIn*assumedNoise*assumedNoise + squares) / (assumedNoiseIn + free))
}

// byPlace groups the saturated samples that are possible by configuration, in the
// order of workers, then servers; servers says whether those with other servers stand
// apart.
func byPlace(servers bool, samples []Sample) [][]Sample {
	var kept []Sample
	for _, s := range samples {
		if s.Saturated && s.check(FormAsync) == nil {
			if s.Servers = max(s.Servers, 1); !servers {
				s.Servers = 1
			}
			kept = append(kept, s)
		}
	}
	slices.SortStableFunc(kept, func(a, b Sample) int {
		if a.Workers != b.Workers {
			return a.Workers - b.Workers
		}
		return a.Servers - b.Servers
	})
	var groups [][]Sample
	for i, s := range kept {
		if i == 0 || s.Workers != kept[i-1].Workers || s.Servers != kept[i-1].Servers {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], s)
	}
	return groups
}

func meanRate(samples []Sample) float64 {
	sum := 0.0
	for _, s := range samples {
		sum += s.Rate / float64(len(samples))
	}
	return sum
}

// assess computes the covariance. The prior's readings together make its mean error over
// them priorError.
func assess(m Model, seen, prior []reading, priorError, noise float64) Confidence {
	c := Confidence{model: m, noise: noise}
	if m.Validate() != nil {
		return c
	}
	c.scale = scales(m, slices.Concat(seen, prior))
	n := len(c.scale)
	known := mat.NewSymDense(n, nil)
	for j := range n {
		known.SetSym(j, j, 1/(termError*termError))
	}
	for _, s := range prior {
		known.SymRankOne(known, float64(n)/(float64(len(prior))*priorError*priorError), c.share(s.w, s.p))
	}
	variance := func(s reading) float64 { return noise*noise/s.n + s.moved*s.moved }
	fit := func(misfit float64) *mat.SymDense {
		h := mat.NewSymDense(n, nil)
		h.CopySym(known)
		for _, s := range seen {
			h.SymRankOne(h, 1/(variance(s)+misfit*misfit), c.share(s.w, s.p))
		}
		return inverse(h)
	}
	if c.cov = fit(0); c.cov == nil || len(seen) == 0 {
		return c
	}
	excess, free := 0.0, 0.0
	for _, s := range seen {
		v := variance(s)
		left := max(1-mat.Inner(c.share(s.w, s.p), c.cov, c.share(s.w, s.p))/v, 0)
		e := m.Throughput(s.w, s.p)/s.rate - 1
		excess, free = excess+s.trust*(e*e-v*left), free+s.trust*left
	}
	if excess > 0 && free > 0 {
		c.misfit = math.Sqrt(excess / max(free, 1))
		c.cov = fit(c.misfit)
	}
	return c
}

// scales are the largest share of a step that one second of each term would be, at
// the places that are spoken of and at twice the most workers.
func scales(m Model, readings []reading) []float64 {
	one := Confidence{model: m, scale: slices.Repeat([]float64{1}, len(m.Theta))}
	out := make([]float64, len(m.Theta))
	far := reading{w: 2, p: 1}
	for _, s := range readings {
		far.w, far.p = min(max(far.w, 2*s.w), MaxWorkers), max(far.p, s.p)
	}
	for _, s := range append(slices.Clone(readings), far) {
		g := one.share(s.w, s.p)
		for j := range out {
			out[j] = max(out[j], math.Abs(g.AtVec(j)))
		}
	}
	for j := range out {
		if out[j] == 0 {
			out[j] = 1
		}
	}
	return out
}

// share is g at a place: by what share of itself the time of a step changes with θ,
// in units of scale.
func (c Confidence) share(w, p int) *mat.VecDense {
	at := place{w: float64(w), p: float64(max(p, 1)), batch: c.model.Batch}
	g := make([]float64, max(len(c.scale), mostTerms))
	sp := c.model.Form.spec()
	sp.slopes(g, c.model.Theta, at)
	t := sp.seconds(c.model.Theta, at)
	g = g[:len(c.scale)]
	for j := range g {
		g[j] /= t * c.scale[j]
	}
	return mat.NewVecDense(len(g), g)
}

// inverse is that of a positive definite matrix, nil where numbers do not allow it.
func inverse(h *mat.SymDense) *mat.SymDense {
	var ch mat.Cholesky
	if !ch.Factorize(h) {
		return nil
	}
	out := mat.NewSymDense(h.SymmetricDim(), nil)
	if err := ch.InverseTo(out); err != nil {
		return nil
	}
	return out
}

// Error is the relative standard error of F(w, p), 0 to 1: 0.05 means that capacity is
// believed to be within 5 % of F in two of three cases. It is 1 where nothing is known.
func (c Confidence) Error(w, p int) float64 {
	if w < 1 || c.cov == nil {
		return 1
	}
	g := c.share(w, p)
	if e := math.Sqrt(min(mat.Inner(g, c.cov, g)+c.misfit*c.misfit, c.measuredVariance(w, p))); e < 1 {
		return e
	}
	return 1
}

// measuredVariance is the square of the relative error of F(w, p) by what was measured
// there lately and by nothing else: its own, and how far the model is from it. It is
// +Inf where nothing was.
func (c Confidence) measuredVariance(w, p int) float64 {
	for _, r := range c.here {
		if r.w == w && (r.p == max(p, 1) || !c.model.Form.UsesServers()) {
			off := r.rate/c.model.Throughput(r.w, r.p) - 1
			return off*off + c.noise*c.noise/r.n + r.moved*r.moved
		}
	}
	return math.Inf(1)
}

// ThetaErrors are the standard errors of the model's parameters, each in the unit of its own; nil where nothing is known.
func (c Confidence) ThetaErrors() []float64 {
	if c.cov == nil {
		return nil
	}
	out := make([]float64, len(c.scale))
	for j := range out {
		out[j] = math.Sqrt(c.cov.At(j, j)) / c.scale[j]
	}
	return out
}

// Noise is the relative standard deviation of one interval's rate.
func (c Confidence) Noise() float64 { return c.noise }

// Misfit is the relative error that more measurements would not mend: that of the form.
func (c Confidence) Misfit() float64 { return c.misfit }

// Doubt is the relative standard error of F at one number of workers.
type Doubt struct {
	Workers int     `json:"workers"`
	Error   float64 `json:"error"`
}

// Doubts is the error of F by workers, in their order.
type Doubts []Doubt

// doubtsKept is how many tell the error at other numbers of workers well enough.
const doubtsKept = 16

// Doubts tabulates the error from min to max workers, at no more than doubtsKept
// of them, which stand the closer the fewer they are. servers is as for [Model.Curve]. Errors
// have four digits, so that a record of them stays short.
func (c Confidence) Doubts(min, max int, servers func(w int) int) Doubts {
	min = clip(min, 1, MaxWorkers)
	max = clip(max, min, MaxWorkers)
	var out Doubts
	for i := range doubtsKept {
		w := int(math.Round(float64(min) * math.Pow(float64(max)/float64(min), float64(i)/(doubtsKept-1))))
		if max-min < doubtsKept {
			w = clip(min+i, min, max)
		}
		if len(out) > 0 && w <= out[len(out)-1].Workers {
			continue
		}
		p := w
		if servers != nil {
			p = servers(w)
		}
		out = append(out, Doubt{Workers: w, Error: math.Round(1e4*c.Error(w, p)) / 1e4})
	}
	return out
}

// At is the error at w, between and beyond the tabulated ones that of a straight line
// or of the nearest; 0 without any.
func (d Doubts) At(w int) float64 {
	for i, x := range d {
		if w <= x.Workers {
			if i == 0 || w == x.Workers {
				return x.Error
			}
			b := d[i-1]
			return b.Error + (x.Error-b.Error)*float64(w-b.Workers)/float64(x.Workers-b.Workers)
		}
	}
	if len(d) == 0 {
		return 0
	}
	return d[len(d)-1].Error
}
