package core

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kale-sched/kale/forecast"
)

// levelBins are the bins after an outage and what was written late that forecasts take the level of the traffic from: before they are there none is trusted.
const levelBins = 3

// outages are times in which the brokers answered nobody. Who writes to them waits then, and writes late, or gives it up: what the end offsets tell of such a time
// and of the one after it says nothing of the traffic.
type outages struct {
	last    time.Time // when the brokers answered last
	vain    int       // how often they have been asked in vain since
	failing time.Time // when that was first
	missed  time.Time // when they were asked in vain last
	past    []outage  // oldest first
}

// outage ends with an answer; from then to settled, producers write what has waited.
type outage struct{ from, back, settled time.Time }

// heard takes in whether the brokers answered a question. An outage that is shorter than a bin of step distorts none, and one answer that is missing may have come
// while the scheduler itself was suspended; most bounds how long producers write late.
func (o *outages) heard(at time.Time, err error, step, most time.Duration) {
	at = at.Round(0) // by the wall clock, as arrivals are
	if err != nil {
		if o.vain++; o.vain == 1 {
			o.failing = at
		}
		o.missed = at
		return
	}
	if o.vain > 1 && at.Sub(o.failing) >= step {
		from := o.failing
		if !o.last.IsZero() && o.last.Before(from) {
			from = o.last
		}
		o.past = append(o.past, outage{from: from, back: at, settled: at.Add(min(at.Sub(from), most))})
	}
	o.vain, o.last = 0, at
}

// reconnecting is how long workers may take to notice that brokers answer again.
const reconnecting = 10 * time.Second

// away says that the brokers do not answer the scheduler, or have just begun to again: that they do not answer a worker either is the same.
func (o *outages) away(now time.Time) bool {
	return o.vain > 0 || !o.missed.IsZero() && now.Sub(o.missed) < reconnecting
}

// forget drops the outages that were over before a time.
func (o *outages) forget(before time.Time) {
	o.past = slices.DeleteFunc(o.past, func(x outage) bool { return x.settled.Before(before) })
}

// blank makes the bins unknown that an outage distorts.
func (o *outages) blank(s forecast.Series) {
	for i := range s.Values {
		begins, ends := s.At(i), s.At(i+1)
		if slices.ContainsFunc(o.past, func(x outage) bool { return x.from.Before(ends) && begins.Before(x.settled) }) {
			s.Values[i] = math.NaN()
		}
	}
}

// doubt says why no forecast is trusted at now, "" where no outage is the reason. The text stays the same while time passes: it stands in decisions.
func (o *outages) doubt(now time.Time, step time.Duration) string {
	if len(o.past) == 0 {
		return ""
	}
	x := o.past[len(o.past)-1]
	until := x.settled.Add(levelBins * step).Truncate(step).Add(step) // bins are whole
	if !now.Before(until) {
		return ""
	}
	const clock = "15:04:05"
	return fmt.Sprintf("the brokers did not answer from %s to %s, and what was to be written then may be written late: until %s the traffic is not foretold, workers are added as it demands, and none is let go",
		x.from.Local().Format(clock), x.back.Local().Format(clock), until.Local().Format(clock))
}
