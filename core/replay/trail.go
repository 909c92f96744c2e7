package replay

import "time"

// Trail is what one run looked like, minute by minute, for pictures.
type Trail struct {
	At       []time.Time
	Held     []int
	Capacity []float64 // samples/s
	Lag      []float64 // s
	// The sums so far: of lag in minutes, minutes over the objective, minutes of downtime, GPU-hours of workers.
	LagSum, Over, Downtime, WorkerHours []float64
}

func (t *Trail) add(at time.Time, held int, capacity, lag float64, sums *tally) {
	t.At, t.Held, t.Capacity, t.Lag = append(t.At, at), append(t.Held, held), append(t.Capacity, capacity), append(t.Lag, lag)
	t.LagSum, t.Over = append(t.LagSum, sums.lagSum), append(t.Over, sums.over)
	t.Downtime, t.WorkerHours = append(t.Downtime, sums.downtime/60), append(t.WorkerHours, sums.held/3600)
}
