package core

import (
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
)

// hottest is the partition of which the oldest untrained record waits longest, of those that do not stand still, and how fast it grew and was trained in the
// last tick, or so long as that tells something.
func (s *Scheduler) hottest(now time.Time, but map[int32]bool) plan.Hottest {
	n := s.seen
	if n.chiefErr != nil || n.endsErr != nil || n.behind.nextErr != nil || n.chief.GetRepairing() {
		return plan.Hottest{}
	}
	h, age := plan.Hottest{}, time.Duration(0)
	parts, _ := s.arrivals.Lags(now, n.behind.next)
	for _, p := range parts {
		if p.Known && !but[p.Partition] && p.Age > age {
			h, age = plan.Hottest{Known: true, Partition: p.Partition, Waiting: p.Records}, p.Age
		}
	}
	if !h.Known {
		return h
	}
	h.Window = min(max(s.job.Autoscale.Tick, teachEvery), time.Minute)
	arriving, ok := s.arrivals.PartitionRate(now, h.Partition, h.Window)
	trained, known := s.progress.rate(h.Partition, now.Add(-h.Window), now)
	if !ok || !known {
		return plan.Hottest{}
	}
	h.Arriving, h.Trained, h.Advice = arriving, trained, hotAdvice(s.job)
	return h
}

// hotAdvice says what helps where one partition gets more than can be trained of it.
func hotAdvice(j *job.Job) string {
	if j.Workers.Forward == job.ForwardNone {
		return fmt.Sprintf(`with workers.forward = "none" only the worker that reads it trains it: set %q, or spread its keys over more partitions`, job.ForwardAdvanced)
	}
	return fmt.Sprintf("one worker reads it all and hands on what it cannot train: spread its keys over more partitions, or raise workers.queue (%d)", j.Workers.Queue)
}
