package estimator

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Sample is one measured interval of a job.
type Sample struct {
	// At is the end of the interval.
	At time.Time `json:"at"`
	// Workers and Servers are the counts that trained throughout it.
	Workers int `json:"workers"`
	Servers int `json:"servers"`
	// Rate is what was trained, in samples per second.
	Rate float64 `json:"rate"`
	// Saturated tells that every member was busy, so that Rate is capacity and
	// not merely the arrival rate.
	Saturated bool `json:"saturated"`
	// Source names where the sample comes from, for people.
	Source string `json:"source,omitempty"`
}

// check reports why a sample cannot teach the form anything.
func (s Sample) check(form Form) error {
	switch {
	case s.Workers < 1 || s.Workers > MaxWorkers:
		return fmt.Errorf("sample at %s: %d workers; expected 1 to %d", s.At.Format(time.RFC3339), s.Workers, MaxWorkers)
	case form.UsesServers() && (s.Servers < 1 || s.Servers > MaxWorkers):
		return fmt.Errorf("sample at %s: %d servers; expected 1 to %d", s.At.Format(time.RFC3339), s.Servers, MaxWorkers)
	case !(s.Rate > 0) || math.IsInf(s.Rate, 0):
		return fmt.Errorf("sample at %s: rate %v records/s; a saturated interval trains a positive, finite number", s.At.Format(time.RFC3339), s.Rate)
	}
	return nil
}

// point is one (w, p) with its rate and its weight in a fit.
type point struct {
	w, p   int
	rate   float64
	weight float64 // of the squared relative error
}

// ErrTooFewPoints is wrapped by [Fit] when the samples cannot tell the form's
// terms apart. Measure more worker counts, or start [Online] from a prior.
var ErrTooFewPoints = errors.New("too few distinct points")

// Fit finds the θ ≥ 0 of a form that explains the saturated samples best. batch
// is M in samples, for the forms that need it; unsaturated samples are ignored.
//
// What is minimised is the squared *relative* error of the time of a step, so
// that a slow small configuration does not drown a fast large one. For the forms
// that are linear in it, one [NNLS] does that.
//
// It returns an error that wraps [ErrTooFewPoints] when there are fewer distinct
// (w, p) than the form has terms ([Form.Terms]).
func Fit(form Form, batch float64, samples []Sample) (Model, error) {
	if form.Terms() == 0 {
		return Model{}, fmt.Errorf("fit throughput: unknown form %q; use one of %s", form, formList())
	}
	if form.NeedsBatch() && (!(batch > 0) || math.IsInf(batch, 0)) {
		return Model{}, fmt.Errorf("fit throughput %q: batch = %v; the form needs the global batch in samples, above 0", form, batch)
	}
	var pts []point
	for _, s := range samples {
		if !s.Saturated {
			continue
		}
		if err := s.check(form); err != nil {
			return Model{}, fmt.Errorf("fit throughput %q: %w", form, err)
		}
		pts = append(pts, point{w: s.Workers, p: max(s.Servers, 1), rate: s.Rate, weight: 1})
	}
	if n := distinct(form, pts); n < form.Terms() {
		return Model{}, fmt.Errorf("fit throughput %q: saturated samples at %d distinct worker/server counts, %d needed (of %d samples, %d were saturated): %w",
			form, n, form.Terms(), len(samples), len(pts), ErrTooFewPoints)
	}
	return fitPoints(form, batch, pts)
}

// distinct counts the configurations that the form can tell apart.
func distinct(form Form, pts []point) int {
	keys := make([][2]int, 0, len(pts))
	for _, p := range pts {
		k := [2]int{p.w, 0}
		if form.UsesServers() {
			k[1] = p.p
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return len(slices.Compact(keys))
}

// fitPoints fits the form to valid points.
func fitPoints(form Form, batch float64, pts []point) (Model, error) {
	sp := form.spec()
	m := Model{Form: form}
	if sp.needsBatch {
		m.Batch = batch
	}
	var err error
	if m.Theta, err = sp.fit(observations(sp, m.Batch, pts)); err == nil {
		err = m.Validate()
	}
	if err != nil {
		return Model{}, fmt.Errorf("fit throughput %q to %d points: %w", form, len(pts), err)
	}
	return m, nil
}

// observations turns points into times of a step.
func observations(sp *spec, batch float64, pts []point) []observation {
	obs := make([]observation, len(pts))
	for i, pt := range pts {
		at := place{w: float64(pt.w), p: float64(pt.p), batch: batch}
		obs[i] = observation{place: at, seconds: sp.trains(at) / pt.rate, weight: pt.weight}
	}
	return obs
}

// MAPE is the mean absolute percentage error of the model on the saturated
// samples, in percent, and how many those were (Kale Fig. 7's measure).
func (m Model) MAPE(samples []Sample) (percent float64, n int) {
	sum := 0.0
	for _, s := range samples {
		if !s.Saturated || s.check(m.Form) != nil {
			continue
		}
		sum += math.Abs(m.Throughput(s.Workers, s.Servers)-s.Rate) / s.Rate
		n++
	}
	if n == 0 {
		return 0, 0
	}
	return 100 * sum / float64(n), n
}
