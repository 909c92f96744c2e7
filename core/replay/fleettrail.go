package replay

import "time"

// fleetTrail is what a fleet looked like, round by round, for pictures: all of its jobs together.
type fleetTrail struct {
	At         []time.Time
	Need, Held []float64 // GPUs: of the fewest workers that train more than arrives, and those that were held
	JobsOver   []float64 // how many jobs were over their objective, as a mean since the round before
	// The sums so far: minutes over the objective, lag in minutes, GPU-hours, cost.
	Over, LagSum, GPUHours, Cost []float64
}

// picture adds a moment, s since the beginning, to the trail, where there is one.
func (f *fleet) picture(t float64) {
	l := f.o.trail
	if l == nil {
		return
	}
	need, held, over, lag, hours, cost := 0, 0, 0.0, 0.0, 0.0, 0.0
	for _, m := range f.members {
		rate := m.part.Rates[min(int(seconds(t)/m.part.Step), len(m.part.Rates)-1)]
		need += smallest(m.capacity, rate, m.j.Workers.Min, len(m.capacity)-1) * m.now.GPUs
		held += m.held() * m.now.GPUs
		over, lag = over+m.tally.over, lag+m.tally.lagSum
		hours, cost = hours+m.hours(), cost+m.cost(f.o.Weights)
	}
	now := 0.0
	if n := len(l.At); n > 0 {
		now = (over - l.Over[n-1]) / (f.members[0].clock(t).Sub(l.At[n-1]).Minutes())
	}
	l.At = append(l.At, f.members[0].clock(t))
	l.Need, l.Held, l.JobsOver = append(l.Need, float64(need)), append(l.Held, float64(held)), append(l.JobsOver, now)
	l.Over, l.LagSum = append(l.Over, over), append(l.LagSum, lag)
	l.GPUHours, l.Cost = append(l.GPUHours, hours), append(l.Cost, cost)
}
