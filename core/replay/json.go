package replay

import (
	"encoding/json"
	"io"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
)

// WriteJSON writes the report as one JSON object.
func WriteJSON(w io.Writer, r *Report) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// PastNeeded is how much history the job's forecasters want before they can be trusted: two of the shortest season, as far as the job looks back.
func PastNeeded(j *job.Job) time.Duration {
	need := time.Duration(0)
	if len(j.Forecast.Season) > 0 {
		need = 2 * j.Forecast.Season[0]
	}
	return min(need, j.Forecast.Past())
}

// RateOf is what so many workers of the job train, samples/s; a fraction lies on a straight line between its neighbours. 0 workers are 0.
func RateOf(j *job.Job, workers float64) float64 {
	m := core.Prior(j)
	lo := int(workers)
	f := m.Throughput(lo, j.Servers.Count)
	if share := workers - float64(lo); share > 0 {
		f += share * (m.Throughput(lo+1, j.Servers.Count) - f)
	}
	return f
}
