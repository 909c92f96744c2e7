package profile

import (
	"slices"
	"time"

	"github.com/kale-sched/kale/estimator"
)

// Ladder is the numbers of workers that are measured where nobody says which: doubling from 1 up to most, and most.
func Ladder(most int) []int {
	var out []int
	for w := 1; w < most; w *= 2 {
		out = append(out, w)
	}
	return append(out, max(1, most))
}

// worthwhile is by how much a further point must be expected to lower the error of F: below it, it is not measured. [ours]
const worthwhile = 0.8

// certain is the relative error of F that needs no further point: what intervals spread by anyway. [ours]
const certain = 0.02

// next is the number of workers whose measurement tells most about F from 1 to most workers, 0 where none is worth its time.
func next(samples []estimator.Sample, batch float64, most, servers, intervals int) int {
	model, _, err := estimator.Select(forms(samples, batch), batch, samples)
	if err != nil {
		return 0
	}
	tried := map[int]bool{}
	for _, s := range samples {
		tried[s.Workers] = tried[s.Workers] || s.Servers == servers
	}
	c := estimator.Assess(model, samples)
	p := c.Probe(counts(most), intervals, 1, most, func(int) int { return servers })
	if tried[p.Workers] || p.Before < certain || p.After > worthwhile*p.Before {
		return 0
	}
	return p.Workers
}

// mostShown is how many numbers of workers a table or a curve has at most.
const mostShown = 32

// counts are the numbers from 1 to most, evenly thinned out where they are many.
func counts(most int) []int {
	var out []int
	for w := 1; w <= most; w += (most-1)/mostShown + 1 {
		out = append(out, w)
	}
	if !slices.Contains(out, most) {
		out = append(out, most)
	}
	return out
}

// Estimate is how long a run takes where nothing has to be waited for but what is known: its start and end, the joins, and the intervals, of which the
// first of each point does not count.
func (o Options) Estimate() time.Duration {
	return time.Duration(len(o.Servers)) * (o.Start + time.Duration(len(o.Workers)+o.Extra)*o.each())
}

// Needs is how many records w workers train while they are measured, by a rate of one worker: those of the join too, since those that are there train.
func (o Options) Needs(w int, rateOfOne float64) float64 {
	return rateOfOne * float64(w) * (o.Join + time.Duration(o.Intervals+2)*o.Interval).Seconds()
}

// LeastRecords is what the fewest workers train in all intervals at least, however slow they are.
func (o Options) LeastRecords() int64 {
	return int64(o.Workers[0]) * int64(o.Intervals+1) * leastSteps * int64(o.Batch)
}
