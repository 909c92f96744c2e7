package estimator

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Form names a throughput formula.
type Form string

// The formulas, with θ ≥ 0 in the order of [Model.Theta]. w is the number of
// workers, p of parameter servers, M the global batch in samples; θ is in
// seconds (sync: per step; async: per sample and worker).
const (
	// FormAsync is Kale Eq. 9, w:p fixed: f(w) = w / (θ0 + θ1/w + θ2·w).
	FormAsync Form = "async"
	// FormSync is Kale Eq. 6, w:p fixed: f(w) = M / (θ0 + θ1/w + θ2/w² + θ3·w).
	// The paper prints it without M; its worked example needs the factor.
	FormSync Form = "sync"
	// FormAsyncWP is Kale Eq. 8: f(w, p) = w / (θ0 + θ1/p + θ2·p + θ3·w).
	FormAsyncWP Form = "async-wp"
	// FormSyncWP is Kale Eq. 5: f(w, p) = M / (θ0 + θ1/w + θ2/p + θ3·w/p +
	// θ4/(w·p) + θ5·p + θ6·w).
	FormSyncWP Form = "sync-wp"
	// FormOptimusAsync is Optimus (EuroSys '18) for asynchronous training:
	// f(w, p) = w / (θ0 + θ1·w/p + θ2·w + θ3·p).
	FormOptimusAsync Form = "optimus-async"
	// FormOptimusSync is Optimus for synchronous training: f(w, p) =
	// M / (θ0·M/w + θ1 + θ2·w/p + θ3·w + θ4·p).
	FormOptimusSync Form = "optimus-sync"
	// FormErnest is Ernest (NSDI '16) at one scale of data, the time for one
	// sample: f(w) = 1 / (θ0 + θ1/w + θ2·ln w + θ3·w).
	FormErnest Form = "ernest"
	// FormUSL is Gunther's universal scalability law (2007), contention and coherency as terms of
	// their own: f(w) = w / (θ0 + θ1·w + θ2·w²).
	FormUSL Form = "usl"
	// FormMixed is ours: what the times of Kale, Ernest and of the universal scalability
	// law have in common, with w:p fixed: f(w) = w / (θ0 + θ1/w + θ2·ln w + θ3·w + θ4·w²).
	FormMixed Form = "mixed"
	// FormPollux is Pollux (OSDI '21) without its distinction of nodes:
	// f(w) = M / (Tgrad^γ + Tnet^γ)^(1/γ), Tgrad = θ0 + θ1·M/w, Tnet = 0 for one
	// worker, else θ2 + θ3·(w−2), γ = θ4 from 1 to 10.
	FormPollux Form = "pollux"
)

// Forms lists the known forms in a fixed order.
func Forms() []Form {
	return []Form{FormAsync, FormSync, FormAsyncWP, FormSyncWP, FormOptimusAsync, FormOptimusSync, FormErnest, FormPollux, FormUSL, FormMixed}
}

// formula is what a form computes: the time of a step as a function of θ.
type formula interface {
	// seconds is the time of a step.
	seconds(theta []float64, at place) float64
	// slopes writes the derivative of seconds by each θ into dst.
	slopes(dst, theta []float64, at place)
	// fit finds the θ ≥ 0 with the least weighted squared relative error of
	// seconds. The result is deterministic.
	fit(obs []observation) ([]float64, error)
}

// place is a configuration: w workers and p servers, at least 1 each, and the
// global batch in samples.
type place struct{ w, p, batch float64 }

// observation is a measured time of a step.
type observation struct {
	place
	seconds, weight float64
}

// spec is a formula and what is to be known of it from outside.
type spec struct {
	formula
	terms      int
	perStep    unit
	needsBatch bool
	servers    bool // p counts by itself
}

// unit is what one step of a formula trains.
type unit uint8

const (
	oneSample unit = iota
	oneEach        // one sample on every worker
	oneBatch       // M samples
)

// trains is what one step trains, in samples.
func (sp *spec) trains(at place) float64 {
	switch sp.perStep {
	case oneEach:
		return at.w
	case oneBatch:
		return at.batch
	}
	return 1
}

var (
	specAsync        = &spec{formula: linear(FormAsync), terms: 3, perStep: oneEach}
	specSync         = &spec{formula: linear(FormSync), terms: 4, perStep: oneBatch, needsBatch: true}
	specAsyncWP      = &spec{formula: linear(FormAsyncWP), terms: 4, perStep: oneEach, servers: true}
	specSyncWP       = &spec{formula: linear(FormSyncWP), terms: 7, perStep: oneBatch, needsBatch: true, servers: true}
	specOptimusAsync = &spec{formula: linear(FormOptimusAsync), terms: 4, perStep: oneEach, servers: true}
	specOptimusSync  = &spec{formula: linear(FormOptimusSync), terms: 5, perStep: oneBatch, needsBatch: true, servers: true}
	specErnest       = &spec{formula: linear(FormErnest), terms: 4, perStep: oneSample}
	specUSL          = &spec{formula: linear(FormUSL), terms: 3, perStep: oneEach}
	specMixed        = &spec{formula: linear(FormMixed), terms: 5, perStep: oneEach}
	specPollux       = &spec{formula: pollux{}, terms: polluxGamma + 1, perStep: oneBatch, needsBatch: true}
)

// mostTerms is the most that any form has.
const mostTerms = 7

// spec finds what the form's name stands for, nil for an unknown one.
func (f Form) spec() *spec {
	switch f {
	case FormAsync:
		return specAsync
	case FormSync:
		return specSync
	case FormAsyncWP:
		return specAsyncWP
	case FormSyncWP:
		return specSyncWP
	case FormOptimusAsync:
		return specOptimusAsync
	case FormOptimusSync:
		return specOptimusSync
	case FormErnest:
		return specErnest
	case FormPollux:
		return specPollux
	case FormUSL:
		return specUSL
	case FormMixed:
		return specMixed
	}
	return nil
}

// Terms returns the number of parameters of the form, 0 for an unknown one.
func (f Form) Terms() int {
	if sp := f.spec(); sp != nil {
		return sp.terms
	}
	return 0
}

// NeedsBatch tells whether a model of this form needs the global batch.
func (f Form) NeedsBatch() bool { sp := f.spec(); return sp != nil && sp.needsBatch }

// UsesServers tells whether F depends on the number of parameter servers by
// itself, and not only through a fixed ratio.
func (f Form) UsesServers() bool { sp := f.spec(); return sp != nil && sp.servers }

// linear is a form whose time of a step is θ times a basis.
type linear Form

// basis writes the form's basis into dst, which holds as many values as the form
// has terms.
func (l linear) basis(dst []float64, at place) {
	w, p := at.w, at.p
	switch Form(l) {
	case FormAsync:
		dst[0], dst[1], dst[2] = 1, 1/w, w
	case FormSync:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/w, 1/(w*w), w
	case FormAsyncWP:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/p, p, w
	case FormSyncWP:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/w, 1/p, w/p
		dst[4], dst[5], dst[6] = 1/(w*p), p, w
	case FormOptimusAsync:
		dst[0], dst[1], dst[2], dst[3] = 1, w/p, w, p
	case FormOptimusSync:
		dst[0], dst[1], dst[2], dst[3], dst[4] = at.batch/w, 1, w/p, w, p
	case FormUSL:
		dst[0], dst[1], dst[2] = 1, w, w*w
	case FormMixed:
		dst[0], dst[1], dst[2], dst[3], dst[4] = 1, 1/w, math.Log(w), w, w*w
	case FormErnest:
		dst[0], dst[1], dst[2], dst[3] = 1, 1/w, math.Log(w), w
	}
}

func (l linear) seconds(theta []float64, at place) float64 {
	var buf [mostTerms]float64
	l.basis(buf[:], at)
	t := 0.0
	for i, v := range theta {
		t += v * buf[i]
	}
	return t
}

func (l linear) slopes(dst, _ []float64, at place) { l.basis(dst, at) }

// fit divides each row by its time, so that the error is relative, and lets one
// [NNLS] solve the lot.
func (l linear) fit(obs []observation) ([]float64, error) {
	n := Form(l).Terms()
	a := mat.NewDense(len(obs), n, nil)
	b := make([]float64, len(obs))
	for i, o := range obs {
		row := a.RawRowView(i)
		l.basis(row, o.place)
		s := math.Sqrt(o.weight)
		for j := range row {
			row[j] *= s / o.seconds
		}
		b[i] = s
	}
	return NNLS(a, b)
}
