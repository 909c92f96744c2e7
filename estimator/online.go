package estimator

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// OnlineOptions bound what [Online] remembers and how it weighs its prior. The
// zero value means the defaults.
type OnlineOptions struct {
	// Window is how many saturated rates are kept per (w, p); their median is the
	// point's rate. Default 15, so that one stalled interval does not move it.
	Window int
	// Points is how many (w, p) are kept; the one measured longest ago goes
	// first. Default 64.
	Points int
	// MinSamples is how many saturated rates a (w, p) needs before it replaces
	// the prior there. Default 3.
	MinSamples int
	// PriorMin and PriorMax are the worker counts at which the prior stands in
	// until they are measured. Default 1 and 32.
	PriorMin, PriorMax int
	// PriorServers gives the servers that go with w workers in the prior's
	// pseudo-observations; nil means one per worker.
	PriorServers func(w int) int
	// PriorWeight is the weight of all pseudo-observations together beside one
	// measured point's 1, when one point is measured; with n points it is
	// PriorWeight to the n-th power. So the prior settles what measurements leave
	// open and does not contradict them. Default 0.3.
	PriorWeight float64
}

func (o OnlineOptions) withDefaults() OnlineOptions {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Window, 15)
	def(&o.Points, 64)
	def(&o.MinSamples, 3)
	def(&o.PriorMin, 1)
	def(&o.PriorMax, 32)
	if o.PriorWeight == 0 {
		o.PriorWeight = 0.3
	}
	return o
}

// Validate reports the first option that makes no sense.
func (o OnlineOptions) Validate() error {
	o = o.withDefaults()
	switch {
	case o.Window < 1 || o.Window > 10_000:
		return fmt.Errorf("online throughput: window of %d samples; expected 1 to 10000", o.Window)
	case o.Points < 1 || o.Points > 10_000:
		return fmt.Errorf("online throughput: %d points; expected 1 to 10000", o.Points)
	case o.MinSamples < 1 || o.MinSamples > o.Window:
		return fmt.Errorf("online throughput: %d samples needed per point; expected 1 to the window, %d", o.MinSamples, o.Window)
	case o.PriorMin < 1 || o.PriorMax < o.PriorMin || o.PriorMax > MaxWorkers:
		return fmt.Errorf("online throughput: prior over %d to %d workers; expected a range within 1 to %d", o.PriorMin, o.PriorMax, MaxWorkers)
	case !(o.PriorWeight > 0) || o.PriorWeight > 1:
		return fmt.Errorf("online throughput: prior weight %v; expected above 0, at most 1", o.PriorWeight)
	}
	return nil
}

// Online refits a throughput model as a job runs. It starts from a stated prior
// and learns capacity from saturated samples only. An unsaturated rate above F(w)
// teaches that F(w) is at least that much (bounds.go), and no more.
//
// Where a (w, p) has been measured often enough, its median replaces the prior
// there. Elsewhere the prior stays as a lightly weighted pseudo-observation:
// its shape is kept and its level follows the median ratio of measured to prior
// rates, so that a GPU that is 20 % slower than stated at the worker counts
// tried so far is expected to be 20 % slower at the others too.
//
// Memory is bounded by Points × Window rates. An Online is not safe for
// concurrent use: the goroutine that owns the job's state owns it.
type Online struct {
	opt    OnlineOptions
	prior  Model
	points []OnlinePoint // sorted by (Workers, Servers)
	model  Model
}

// OnlinePoint is what is remembered of one configuration.
type OnlinePoint struct {
	Workers int `json:"workers"`
	Servers int `json:"servers"`
	// Last is the end of the newest interval.
	Last time.Time `json:"last"`
	// Rates are the newest saturated rates, samples/s, oldest first.
	Rates []float64 `json:"rates"`
	// Reached are the newest rates, samples/s, that were above F(w) in force in
	// intervals that were not saturated, since capacity itself was last measured.
	Reached []float64 `json:"reached,omitempty"`
}

// Median returns the median rate in samples per second, 0 without rates.
func (p OnlinePoint) Median() float64 {
	if len(p.Rates) == 0 {
		return 0
	}
	s := slices.Clone(p.Rates)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return s[n/2-1] + (s[n/2]-s[n/2-1])/2
	}
	return s[len(s)/2]
}

// onlineVersion is the version of [OnlineState].
const onlineVersion = 1

// OnlineState is what [Online] needs to go on after a restart. It marshals to
// JSON; the prior and the options are not part of it, since the job file states
// them.
type OnlineState struct {
	Version int           `json:"version"`
	Points  []OnlinePoint `json:"points"`
}

// NewOnline starts from a prior, which the job file states or a profile measured.
func NewOnline(prior Model, opt OnlineOptions) (*Online, error) {
	if err := prior.Validate(); err != nil {
		return nil, fmt.Errorf("start online throughput from its prior: %w", err)
	}
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return &Online{opt: opt.withDefaults(), prior: prior, model: prior}, nil
}

// RestoreOnline takes up a saved state again; the model is refitted from it, so
// it is the one that was saved. A state of another version or with impossible
// values is an error; the caller then starts afresh with [NewOnline] and says so.
func RestoreOnline(prior Model, opt OnlineOptions, s OnlineState) (*Online, error) {
	o, err := NewOnline(prior, opt)
	if err != nil {
		return nil, err
	}
	if s.Version != onlineVersion {
		return nil, fmt.Errorf("restore online throughput: state has version %d, this program writes %d; start again from the prior", s.Version, onlineVersion)
	}
	for _, p := range s.Points {
		for _, r := range slices.Concat(p.Rates, p.Reached) {
			if err := (Sample{At: p.Last, Workers: p.Workers, Servers: p.Servers, Rate: r}).check(prior.Form); err != nil {
				return nil, fmt.Errorf("restore online throughput: %w", err)
			}
		}
		for _, r := range p.Rates {
			o.record(Sample{At: p.Last, Workers: p.Workers, Servers: p.Servers, Rate: r, Saturated: true})
		}
		for _, r := range p.Reached {
			o.record(Sample{At: p.Last, Workers: p.Workers, Servers: p.Servers, Rate: r})
		}
	}
	if _, err := o.Refit(); err != nil {
		return nil, err
	}
	return o, nil
}

// Observe learns from one interval and refits. used is false for an unsaturated
// sample whose rate the model allows: it teaches nothing and is no error. An
// error means that the sample is impossible, or that the refit failed and the
// model before it stays.
func (o *Online) Observe(s Sample) (used bool, err error) {
	if !s.Saturated && !o.contradicts(s) {
		return false, nil
	}
	if err := s.check(o.prior.Form); err != nil {
		return false, fmt.Errorf("observe throughput: %w", err)
	}
	o.record(s)
	_, err = o.Refit()
	return true, err
}

// record stores a valid sample within the bounds.
func (o *Online) record(s Sample) {
	if !o.prior.Form.UsesServers() {
		s.Servers = 0 // one point per worker count: the form cannot tell servers apart
	}
	i, ok := slices.BinarySearchFunc(o.points, s, func(p OnlinePoint, s Sample) int {
		return cmp.Or(cmp.Compare(p.Workers, s.Workers), cmp.Compare(p.Servers, s.Servers))
	})
	if !ok {
		o.points = slices.Insert(o.points, i, OnlinePoint{Workers: s.Workers, Servers: s.Servers})
	}
	p := &o.points[i]
	if s.At.After(p.Last) {
		p.Last = s.At
	}
	if s.Saturated {
		p.Rates = newest(append(p.Rates, s.Rate), o.opt.Window)
		if len(p.Rates) >= o.opt.MinSamples {
			p.Reached = nil // capacity itself is known, and by newer measurements
		}
	} else {
		p.Reached = newest(append(p.Reached, s.Rate), o.opt.Window)
	}
	if len(o.points) > o.opt.Points {
		oldest := 0
		for k := range o.points {
			if o.points[k].Last.Before(o.points[oldest].Last) {
				oldest = k
			}
		}
		o.points = slices.Delete(o.points, oldest, oldest+1)
	}
}

func newest(v []float64, n int) []float64 {
	if extra := len(v) - n; extra > 0 {
		return slices.Delete(v, 0, extra)
	}
	return v
}

// Refit computes the model from what is remembered. It is a function of the
// prior, the options and the remembered points alone: the same points give the
// same bits. On failure the earlier model stays.
func (o *Online) Refit() (Model, error) {
	m, err := o.fit()
	if err != nil {
		return o.model, fmt.Errorf("refit throughput: %w", err)
	}
	o.model = m
	return m, nil
}

// fitMeasured fits the form to measured points and, where there are none, to the
// prior at their level.
func (o *Online) fitMeasured(measured []point) (Model, error) {
	if len(measured) == 0 {
		return o.prior, nil
	}
	ratios := make([]float64, 0, len(measured))
	for _, p := range measured {
		if f := o.prior.Throughput(p.w, p.p); f > 0 {
			ratios = append(ratios, p.rate/f)
		}
	}
	level := OnlinePoint{Rates: ratios}.Median()
	if level == 0 {
		level = 1
	}
	return fitPoints(o.prior.Form, o.prior.Batch, append(slices.Clone(measured), o.pseudo(measured, level)...))
}

// pseudo returns the prior's observations at the worker counts that are not
// measured, its rates times level.
func (o *Online) pseudo(measured []point, level float64) []point {
	// At most 64 counts, evenly spread, so that a wide range costs no more.
	step := max(1, int(math.Ceil(float64(o.opt.PriorMax-o.opt.PriorMin+1)/64)))
	var pts []point
	for w := o.opt.PriorMin; w <= o.opt.PriorMax; w += step {
		p := w
		if o.opt.PriorServers != nil {
			p = o.opt.PriorServers(w)
		}
		known := slices.ContainsFunc(measured, func(m point) bool {
			return m.w == w && (!o.prior.Form.UsesServers() || m.p == p)
		})
		f := o.prior.Throughput(w, p) * level
		if known || !(f > 0) || math.IsInf(f, 0) {
			continue
		}
		pts = append(pts, point{w: w, p: max(p, 1), rate: f})
	}
	// The floor keeps the problem well-conditioned for bases that the
	// measurements cannot tell apart, such as p and w at a fixed ratio.
	total := max(math.Pow(o.opt.PriorWeight, float64(len(measured))), 1e-6)
	for i := range pts {
		pts[i].weight = total / float64(len(pts))
	}
	return pts
}

// Model returns the model as last fitted, the prior before any measurement.
func (o *Online) Model() Model {
	m := o.model
	m.Theta = slices.Clone(m.Theta)
	return m
}

// Points returns what has been measured, sorted by workers, then servers.
func (o *Online) Points() []OnlinePoint {
	pts := slices.Clone(o.points)
	for i := range pts {
		pts[i].Rates, pts[i].Reached = slices.Clone(pts[i].Rates), slices.Clone(pts[i].Reached)
	}
	return pts
}

// State returns a copy of what a restart needs.
func (o *Online) State() OnlineState {
	return OnlineState{Version: onlineVersion, Points: o.Points()}
}
