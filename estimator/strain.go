package estimator

import (
	"fmt"
	"slices"
	"time"
)

// What a full load says that is too short to measure capacity by. For seconds all members were
// busy, and records waited that became more: then no more can be trained than was.
// Where that is clearly less than the model says, the model is lowered to it at once, by
// the same factor everywhere, since what slows one worker count down is most often the same
// at others. It holds until intervals say better: it is a bound, and no measurement.

// Strain is a rate that was the most that could be trained.
type Strain struct {
	// At is when that was last seen, at Workers and Servers; Servers is 0 for forms with a fixed ratio.
	At      time.Time `json:"at"`
	Workers int       `json:"workers"`
	Servers int       `json:"servers,omitempty"`
	// Rate is the most that was trained, in samples per second.
	Rate float64 `json:"rate"`
}

// strainLeast is by which share of F(w) a short full load must be below it to count: several
// times what intervals deviate by. strainLasts is for how long it holds where nothing
// contradicts or confirms it, which a load below it never does. [ours]
const (
	strainLeast = 0.2
	strainLasts = 10 * time.Minute
)

// Strained takes up that a sample's rate was the most that could be trained in it, though it
// was too short to be measured by. used tells that the model is lowered to it.
func (o *Online) Strained(s Sample) (used bool, err error) {
	if err := s.check(o.prior.Form); err != nil {
		return false, fmt.Errorf("observe a full load: %w", err)
	}
	f := o.fitted.Throughput(s.Workers, max(s.Servers, 1))
	if !(s.Rate < f*(1-strainLeast)) {
		return false, nil
	}
	o.strain = &Strain{At: s.At, Workers: s.Workers, Servers: o.told(s.Servers), Rate: s.Rate}
	o.clip()
	return true, nil
}

// Strain is the full load to which the model is lowered, nil for none.
func (o *Online) Strain() *Strain {
	if o.strain == nil {
		return nil
	}
	s := *o.strain
	return &s
}

// relieve ends the strain where a sample shows that more is trained, or it is long ago. It
// reports whether it did.
func (o *Online) relieve(s Sample) bool {
	x := o.strain
	if x == nil {
		return false
	}
	most := o.model.Throughput(s.Workers, max(s.Servers, 1)) * (1 + changeLeast)
	if !(s.Rate > most) && s.At.Sub(x.At) < strainLasts {
		return false
	}
	o.strain = nil
	o.clip()
	return true
}

// clip makes the model in force from the one that was fitted. A strain with which that agrees by
// now has been measured, and ends.
func (o *Online) clip() {
	o.model = o.fitted
	x := o.strain
	if x == nil {
		return
	}
	f := o.fitted.Throughput(x.Workers, max(x.Servers, 1))
	if !(f > x.Rate) {
		o.strain = nil
		return
	}
	o.model.Theta = slices.Clone(o.fitted.Theta)
	for i := range o.model.Theta {
		if o.fitted.Form != FormPollux || i < polluxGamma {
			o.model.Theta[i] *= f / x.Rate
		}
	}
}

func (x *Strain) check(form Form) error {
	if err := (Sample{At: x.At, Workers: x.Workers, Servers: max(x.Servers, 1), Rate: x.Rate}).check(form); err != nil {
		return fmt.Errorf("a full load: %w", err)
	}
	return nil
}
