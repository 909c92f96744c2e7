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
	// PriorError is how far the prior is off at a worker count in its range, relative:
	// it counts for [Online.Confidence] only. Default 0.1 [ours]; Kale's own fits are
	// 2 to 7 % off (Fig. 7), and a job file's may come from other GPUs.
	PriorError float64
	// HalfLife is how much younger a measurement is that counts twice as much. Default
	// 24 h [ours], a season of load: what was measured yesterday at this hour is half
	// forgotten. A capacity that changed is noticed much earlier ([Change]).
	HalfLife time.Duration
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
	if o.PriorError == 0 {
		o.PriorError = 0.1
	}
	if o.HalfLife == 0 {
		o.HalfLife = 24 * time.Hour
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
	case !(o.PriorError > 0) || o.PriorError > 1:
		return fmt.Errorf("online throughput: prior error %v; expected above 0, at most 1", o.PriorError)
	case o.HalfLife < 0:
		return fmt.Errorf("online throughput: half-life %v; expected above 0", o.HalfLife)
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
// tried so far is expected to be 20 % slower at the others too. What is older counts
// less, and a capacity that changed at one count is taken to have changed at all that
// were not measured since (change.go, anew.go), unless other counts say that none did
// (elsewhere.go); one that drifts is followed (drift.go), at the other counts too (anchor.go).
// A fall that passed unmeasured is forgotten by what is trained since (recover.go), and a
// full load that is too short to be measured lowers the model for a while (strain.go).
//
// Memory is bounded by 3 × Points × Window rates. An Online is not safe for
// concurrent use: the goroutine that owns the job's state owns it.
type Online struct {
	opt    OnlineOptions
	prior  Model
	points []OnlinePoint // sorted by (Workers, Servers)
	change *Change       // the last one, nil for none
	// recovery is the rise of capacity that is followed, nil for none.
	recovery *Recovery
	fitted   Model   // of all that is remembered but strain
	strain   *Strain // to which it is lowered, nil for none
	model    Model   // in force
}

// OnlinePoint is what is remembered of one configuration.
type OnlinePoint struct {
	Workers int `json:"workers"`
	Servers int `json:"servers"`
	// Last is the end of the newest interval.
	Last time.Time `json:"last"`
	// Rates are the newest saturated rates, samples/s, oldest first.
	Rates []float64 `json:"rates"`
	// Times are when Rates were measured; where there are fewer, the others are as old
	// as Last.
	Times []time.Time `json:"times,omitempty"`
	// Level is what capacity became elsewhere since, as a share of what it was; 0 for
	// no change. See [Change].
	Level float64 `json:"level,omitempty"`
	// Old are the rates, samples/s, from which Level counts where Rates were measured
	// after the change and are too few yet to tell whether it holds here too.
	Old []float64 `json:"old,omitempty"`
	// Reached are the newest rates, samples/s, that were above F(w) in force in
	// intervals that were not saturated, since capacity itself was last measured.
	Reached []float64 `json:"reached,omitempty"`
	// Anchor is what a slow or small change is told by; none where too little was measured,
	// and in states of earlier programs.
	Anchor Anchor `json:"anchor,omitzero"`
}

// Median returns the median rate in samples per second, 0 without rates.
func (p OnlinePoint) Median() float64 { return median(p.Rates) }

// onlineVersion is the version of [OnlineState].
const onlineVersion = 1

// OnlineState is what [Online] needs to go on after a restart. It marshals to
// JSON; the prior and the options are not part of it, since the job file states
// them.
type OnlineState struct {
	Version int           `json:"version"`
	Points  []OnlinePoint `json:"points"`
	// Change is the last change of capacity that was noticed.
	Change *Change `json:"change,omitempty"`
	// Recovery is the rise of capacity that is followed.
	Recovery *Recovery `json:"recovery,omitempty"`
	// Strain is the full load to which the model is lowered.
	Strain *Strain `json:"strain,omitempty"`
}

// NewOnline starts from a prior, which the job file states or a profile measured.
func NewOnline(prior Model, opt OnlineOptions) (*Online, error) {
	if err := prior.Validate(); err != nil {
		return nil, fmt.Errorf("start online throughput from its prior: %w", err)
	}
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	return &Online{opt: opt.withDefaults(), prior: prior, fitted: prior, model: prior}, nil
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
		if err := o.restore(p); err != nil {
			return nil, fmt.Errorf("restore online throughput: %w", err)
		}
	}
	if s.Change != nil {
		c := *s.Change
		o.change = &c
	}
	if s.Recovery != nil {
		if err := s.Recovery.check(); err != nil {
			return nil, fmt.Errorf("restore online throughput: %w", err)
		}
		r := *s.Recovery
		o.recovery = &r
	}
	if s.Strain != nil {
		if err := s.Strain.check(prior.Form); err != nil {
			return nil, fmt.Errorf("restore online throughput: %w", err)
		}
		x := *s.Strain
		o.strain = &x
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
	relieved := o.relieve(s)
	if !s.Saturated && !o.contradicts(s) {
		return relieved, nil
	}
	if err := s.check(o.prior.Form); err != nil {
		return false, fmt.Errorf("observe throughput: %w", err)
	}
	o.record(s)
	_, err = o.Refit()
	return true, err
}

// restore takes up a point as it was saved, if it is possible.
func (o *Online) restore(p OnlinePoint) error {
	if math.IsNaN(p.Level) || math.IsInf(p.Level, 0) || p.Level < 0 {
		return fmt.Errorf("%d workers: a level of %v; expected a share above 0", p.Workers, p.Level)
	}
	known := slices.Concat(p.Rates, p.Reached, p.Old)
	if p.Anchor != (Anchor{}) {
		known = append(known, p.Anchor.Rate, p.Anchor.Own)
	}
	for _, r := range known {
		if err := (Sample{At: p.Last, Workers: p.Workers, Servers: p.Servers, Rate: r}).check(o.prior.Form); err != nil {
			return err
		}
	}
	if len(p.Rates)+len(p.Reached)+len(p.Old) == 0 {
		return nil
	}
	q := o.point(p.Workers, p.Servers)
	q.Last, q.Level, q.Anchor = p.Last, p.Level, p.Anchor
	q.Rates = newest(append(q.Rates, p.Rates...), o.opt.Window)
	q.Times = newest(append(q.Times, p.times()...), o.opt.Window)
	q.Reached = newest(append(q.Reached, p.Reached...), o.opt.Window)
	q.Old = newest(append(q.Old, p.Old...), o.opt.Window)
	o.forgetOldest()
	return nil
}

// times are when the rates were measured, one for each.
func (p *OnlinePoint) times() []time.Time {
	out := slices.Repeat([]time.Time{p.Last}, len(p.Rates))
	copy(out, p.Times)
	return out
}

// point finds the place's point, and makes it where there is none.
func (o *Online) point(workers, servers int) *OnlinePoint {
	i, ok := o.find(workers, servers)
	if !ok {
		o.points = slices.Insert(o.points, i, OnlinePoint{Workers: workers, Servers: o.told(servers)})
	}
	return &o.points[i]
}

// find is where the place's point is among all, or would be.
func (o *Online) find(workers, servers int) (i int, ok bool) {
	return slices.BinarySearchFunc(o.points, OnlinePoint{Workers: workers, Servers: o.told(servers)}, func(p, q OnlinePoint) int {
		return cmp.Or(cmp.Compare(p.Workers, q.Workers), cmp.Compare(p.Servers, q.Servers))
	})
}

// told is the servers as points tell them apart: 0 where the form cannot, of which there is one point for each number of workers.
func (o *Online) told(servers int) int {
	if !o.prior.Form.UsesServers() {
		return 0
	}
	return servers
}

// record stores a valid sample within the bounds.
func (o *Online) record(s Sample) {
	p := o.point(s.Workers, s.Servers)
	if s.At.After(p.Last) {
		p.Last = s.At
	}
	o.beginAnew(p)
	if s.Saturated {
		p.Times = newest(append(p.times(), s.At), o.opt.Window)
		p.Rates = newest(append(p.Rates, s.Rate), o.opt.Window)
		if p.anew() {
			o.confirm(p)
		} else {
			o.notice(p)
			o.confirmFirst(p)
			o.adrift(p)
		}
		o.undo()
		if len(p.Rates) >= o.opt.MinSamples {
			p.Reached = nil  // capacity itself is known, and by newer measurements
			o.recovery = nil // as is by how much it has risen
		}
	} else {
		p.Reached = newest(append(p.Reached, s.Rate), o.opt.Window)
		o.recover(p, s)
	}
	o.forgetOldest()
}

// forgetOldest drops the point that was measured longest ago where there are too many.
func (o *Online) forgetOldest() {
	if len(o.points) <= o.opt.Points {
		return
	}
	oldest := 0
	for k := range o.points {
		if o.points[k].Last.Before(o.points[oldest].Last) {
			oldest = k
		}
	}
	o.points = slices.Delete(o.points, oldest, oldest+1)
}

func newest[T any](v []T, n int) []T {
	if extra := len(v) - n; extra > 0 {
		return slices.Delete(v, 0, extra)
	}
	return v
}

// Refit computes the model from what is remembered. It is a function of the
// prior, the options and what [OnlineState] holds alone: the same state gives the
// same bits. On failure the earlier model stays.
func (o *Online) Refit() (Model, error) {
	m, err := o.fit()
	if err != nil {
		return o.model, fmt.Errorf("refit throughput: %w", err)
	}
	o.fitted = m
	o.clip()
	return o.Model(), nil
}

// fitMeasured fits the form to measured points and, where there are none, to the
// prior at their level.
func (o *Online) fitMeasured(measured []point) (Model, error) {
	if len(measured) == 0 && o.recovery == nil {
		return o.prior, nil
	}
	level := o.level(measured)
	return fitPoints(o.prior.Form, o.prior.Batch, append(slices.Clone(measured), o.pseudo(measured, level)...))
}

// level is what capacity was measured to be, as a share of the prior's: the weighted
// median over the points, 1 where nothing was measured.
func (o *Online) level(measured []point) float64 {
	if o.recovery != nil {
		return o.recovery.Level
	}
	var ratios, weights []float64
	for _, p := range measured {
		if f := o.prior.Throughput(p.w, p.p); f > 0 {
			ratios, weights = append(ratios, p.rate/f), append(weights, p.weight)
		}
	}
	if l := weightedMedian(ratios, weights); l > 0 {
		return l
	}
	return 1
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
		p := &pts[i]
		p.Rates, p.Times, p.Reached, p.Old = slices.Clone(p.Rates), slices.Clone(p.Times), slices.Clone(p.Reached), slices.Clone(p.Old)
	}
	return pts
}

// State returns a copy of what a restart needs.
func (o *Online) State() OnlineState {
	return OnlineState{Version: onlineVersion, Points: o.Points(), Change: o.LastChange(), Recovery: o.recovering(), Strain: o.Strain()}
}
