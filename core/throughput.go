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
		fmt.Sprintf("Topic %q had %s records/s on average over the last %s, and %s (workers.max) train %s records/s by the file's theta: where that is right, the job falls behind for ever. "+
			"Raise workers.max (%s), or correct theta, in seconds per record: kale profile measures it, and status says what a job that runs has measured.",
			j.Stream.Topic, wholeRate(rate), job.FormatDuration(over), job.Count(j.Workers.Max, "worker"), wholeRate(most), advice))}
}

// superlinear is how many times a worker's share more workers may train each and still be taken for what is possible: caches and rounding do a little.
const superlinear = 1.1

// CheckSuperlinear warns, as diagnostics of the job file, where by throughput.theta workers train more each the more there are: no data parallel job does, so that theta
// is another's, or its coefficients are in the wrong places.
func CheckSuperlinear(j *job.Job) hcl.Diagnostics {
	model := Prior(j)
	one := model.Throughput(1, j.Servers.Count)
	most, w := 0.0, 0
	for n := 2; n <= j.Workers.Max; n++ {
		if share := model.Throughput(n, j.Servers.Count) / (float64(n) * one); share > most {
			most, w = share, n
		}
	}
	if one <= 0 || !(most > superlinear) {
		return nil
	}
	return hcl.Diagnostics{j.WarningAt("throughput.theta", "More workers train more each, by theta",
		fmt.Sprintf("By the file's theta one worker trains %s records/s, and %d train %s: %.1f times as much each, which no job does. Too few would be planned. "+
			"kale help jobfile says what each coefficient of the form %q is; kale profile measures them.", wholeRate(one), w, wholeRate(most*one*float64(w)), most, j.Throughput.Form))}
}

// falls is by which part the throughput of workers.max must be below the most for it to be said. [ours]
const falls = 0.01

// CheckPeak warns, as diagnostics of the job file, where by throughput.theta fewer workers than workers.max train more than those: none of the others is ever worth its
// cost, or theta is another's.
func CheckPeak(j *job.Job) hcl.Diagnostics {
	model := Prior(j)
	top := model.Throughput(j.Workers.Max, j.Servers.Count)
	most, best := top, j.Workers.Max
	for n := 1; n < j.Workers.Max; n++ {
		if f := model.Throughput(n, j.Servers.Count); f > most {
			most, best = f, n
		}
	}
	if !(top < (1-falls)*most) {
		return nil
	}
	advice := fmt.Sprintf("Lower workers.max to %d", best)
	if best < j.Workers.Min {
		advice = fmt.Sprintf("Lower workers.max, and workers.min = %d, to %d", j.Workers.Min, best)
	}
	return hcl.Diagnostics{j.WarningAt("workers.max", "More workers train less, by theta",
		fmt.Sprintf("By throughput.theta the most is trained by %s, %s records/s, and %d (workers.max) train %s. %s, or correct theta: "+
			"kale help jobfile says what each coefficient of the form %q is; kale profile measures them.",
			job.Count(best, "worker"), wholeRate(most), j.Workers.Max, wholeRate(top), advice, j.Throughput.Form))}
}

// emulatedSlack is by how much theta may round what an emulated accelerator lets a worker train.
const emulatedSlack = 1.02

// CheckEmulated warns, as diagnostics of the job file, where by throughput.theta a worker trains more than its emulated accelerator lets it: too few workers
// would be planned until that is measured.
func CheckEmulated(j *job.Job) hcl.Diagnostics {
	step := j.Workers.EmulateStep
	if step <= 0 {
		return nil
	}
	n := j.Workers.Min
	believed, most := Prior(j).Throughput(n, j.Servers.Count)/float64(n), float64(j.Model.Batch)/step.Seconds()
	if !(believed > emulatedSlack*most) {
		return nil
	}
	return hcl.Diagnostics{j.WarningAt("workers.emulate_step", "The emulated accelerator is slower than theta",
		fmt.Sprintf("A step of up to %s takes at least %s, so that a worker trains %s records/s at most; throughput.theta promises %s (at workers.min = %d), and too few would be planned. "+
			"Correct theta ([%.4g, 0, 0] for async), or shorten emulate_step.", job.Count(j.Model.Batch, "record"), job.Length(step), wholeRate(most),
			wholeRate(believed), n, 1/most))}
}

func wholeRate(perSecond float64) string {
	switch {
	case perSecond < 10:
		return fmt.Sprintf("%.1f", perSecond)
	case !(perSecond < 1e15): // more than anybody counts, and maybe than an int64 holds
		return fmt.Sprintf("%.4g", perSecond)
	}
	return plan.Thousands(int64(math.Round(perSecond)))
}
