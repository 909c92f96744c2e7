package core

import (
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// mostWorkers bounds the search for how many workers would do.
const mostWorkers = 4096

// CheckThroughput warns, as diagnostics of the job file, where by throughput.theta even workers.max workers cannot train what arrives, records/s, on average over
// some time: the job would fall behind for ever, or theta is not that of the job.
func CheckThroughput(j *job.Job, rate float64, over time.Duration) hcl.Diagnostics {
	model := Prior(j)
	most := model.Throughput(j.Workers.Max, j.Servers.Count)
	if most >= rate || most <= 0 {
		return nil
	}
	advice := "by this theta no number of workers trains that much"
	if w, saturated := model.Smallest(rate, j.Workers.Max, mostWorkers, func(int) int { return j.Servers.Count }); !saturated {
		advice = fmt.Sprintf("by this theta it takes %d", w)
	}
	return hcl.Diagnostics{j.WarningAt("throughput.theta", "More arrives than the workers can train",
		fmt.Sprintf("Topic %q had %s records/s on average over the last %s, and %s (workers.max) train %s records/s: the job would fall behind for ever. "+
			"Raise workers.max (%s), or correct theta, in seconds per record, if it is not what a worker takes.",
			j.Stream.Topic, wholeRate(rate), job.FormatDuration(over), job.Count(j.Workers.Max, "worker"), wholeRate(most), advice))}
}

func wholeRate(perSecond float64) string {
	if perSecond < 10 {
		return fmt.Sprintf("%.1f", perSecond)
	}
	return plan.Thousands(int64(math.Round(perSecond)))
}
