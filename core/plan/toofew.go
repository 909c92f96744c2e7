package plan

import (
	"fmt"
	"math"
	"time"
)

// shortfall is that Workers trained less than arrived, though F says that they train it: until it is over none of one more is let go for what F says.
//
// It counts from the moment at which others were added for the lag, for two cooldowns, and twice as long each time that it is seen again soon after that was over. Once a trial has shown
// that more workers do train more (Proven) it counts for ten, and as much longer.
type shortfall struct {
	Workers int       `json:"workers"`
	Load    float64   `json:"load"`
	Trained float64   `json:"trained"`
	Since   time.Time `json:"since"`
	Tries   int       `json:"tries"`
	Proven  bool      `json:"proven,omitempty"`
}

const (
	// fewFor is for how many cooldowns what was seen once is believed; a machine that is slow by moments is not slow for long. fewSoon is within how many of such times
	// it is seen again, and fewMost how often the time doubles at the most. [ours]
	fewFor, fewSoon, fewMost = 2, 4, 5
	// shortOf is the part of F below which what is trained under a lag is less than F says, and shortLoad the part of the load below which it is another load.
	shortOf, shortLoad = 0.9, 0.9
)

// alike says that a load is the same as that of which it was seen.
func (f *shortfall) alike(load float64) bool {
	return load >= shortLoad*f.Load && load*shortLoad <= f.Load
}

// lasts is for how long it is believed.
func (f *shortfall) lasts(o *Observation) time.Duration {
	if f.Proven {
		return o.retryIn(f.Tries)
	}
	return saturatingTimes(1<<min(max(f.Tries-1, 0), fewMost), o.cooled(fewFor))
}

// tooFew is what the workers in force show that others are added to for the lag, nil where they train what F says or what arrives, or that is not known.
func (s *sheet) tooFew() *shortfall {
	o, f := s.o, s.capacity(s.current)
	rate, ok := s.lastRate()
	if s.prev.Blind || s.prev.LagNew || !ok || !o.flowKnown() || !(s.load <= f) || o.Flow.Trained >= min(rate, shortOf*f) {
		return nil
	}
	return &shortfall{Workers: s.current, Load: rounded(s.load), Trained: rounded(o.Flow.Trained), Since: o.Now}
}

// noteShort remembers how many workers were just seen to be too few.
func (s *sheet) noteShort(d *Decision) {
	if d.Kind != KindOut || d.Source != "lag" || d.Current < 1 || s.settling() {
		return
	}
	f := s.tooFew()
	if f == nil {
		return
	}
	f.Tries = 1
	if was := s.prev.Short; was != nil && was.alike(f.Load) {
		age, lasts := f.Since.Sub(was.Since), was.lasts(s.o)
		if age < fewSoon*lasts {
			f.Tries = min(was.Tries+1, fewMost+1)
		}
		if age < lasts && f.Workers <= was.Workers {
			f.Workers, f.Proven = was.Workers, was.Proven
		}
	}
	s.next.Short = f
}

// proven notes that more workers than those have trained more.
func (s *sheet) proven(from int) {
	if f := s.next.Short; f != nil && f.Workers == from {
		next := *f
		next.Proven = true
		s.next.Short = &next
	}
}

// keepEnough lets no more workers go for a load than leave one more than were too few for it, though F says that they are enough: else they would be let
// go as soon as the lag has fallen, and added again when it has risen.
func (s *sheet) keepEnough(p *proposal) {
	short := s.next.Short
	if short == nil || math.IsNaN(p.load) {
		return
	}
	lasts := short.lasts(s.o)
	left := lasts - s.o.Now.Sub(short.Since)
	if left <= 0 || left > lasts || p.load < shortLoad*short.Load {
		return
	}
	least := min(short.Workers+1, s.current)
	if p.want >= least {
		return
	}
	why := fmt.Sprintf("%s trained %s while the lag rose, where F says %s, so that %s are kept for such a load for another %s",
		workers(short.Workers), formatRate(short.Trained), formatRate(s.capacity(short.Workers)), workers(least), formatDuration(left))
	s.note("too few before", float64(short.Workers), "workers", "trained less than arrived, and less than F says")
	p.want, p.source, p.reason = least, "lag", p.reason+"; "+why
	if least == s.current {
		p.hold = append(p.hold, why)
	}
}
