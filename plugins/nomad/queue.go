package nomad

import (
	"context"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// queue is what a look at a job showed of the time that its workloads waited to run. Nomad keeps it: their jobs' times of
// submission and their first allocations, those of some that were released too.
type queue struct {
	at    time.Time // of the look
	waits []backend.Wait
}

// waitsFor is how long a look is good for learning the wait from it. Who has a job's workloads listed renews it all the time.
const waitsFor = time.Minute

// learn keeps how long the job's workloads waited.
func (n *nomad) learn(job string, p picture) {
	q := queue{at: time.Now()}
	for _, v := range p.views {
		if w, ok := v.wait(); ok {
			q.waits = append(q.waits, w)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waits[job] = q
}

// wait gives the workload's time from its submission until its process ran first; false when that is not known and will
// not be.
func (v view) wait() (w backend.Wait, ok bool) {
	w = backend.Wait{ID: v.id, Submitted: v.submitted()}
	if len(v.allocs) == 0 {
		return w, !v.released && !v.job.Stop && v.job.Status != "dead"
	}
	first := v.allocs[0]
	task := first.TaskStates[taskName]
	switch {
	case task != nil && !task.StartedAt.IsZero() && task.Restarts == 0:
		w.Started = task.StartedAt
	case task != nil && !task.StartedAt.IsZero(), len(v.allocs) > 1: // the first start is forgotten; it was placed then
		w.Started = time.Unix(0, first.CreateTime)
	default:
		return w, !ended(first) && !v.released && first.ClientStatus != api.AllocClientStatusUnknown
	}
	return w, true
}

// queueWait gives how long one more workload waits, as far as the jobs' workloads tell. It looks for those of which
// nothing new is known; what cannot be seen now teaches nothing.
func (n *nomad) queueWait(ctx context.Context, jobs map[string]settings) time.Duration {
	var all []backend.Wait
	for job, s := range jobs {
		n.mu.Lock()
		q := n.waits[job]
		n.mu.Unlock()
		if time.Since(q.at) > waitsFor {
			p, err := s.look(ctx, job)
			if err != nil {
				n.lg.Debug("cannot tell how long workloads wait", "job", job, "err", err)
				continue
			}
			n.learn(job, p)
			n.mu.Lock()
			q = n.waits[job]
			n.mu.Unlock()
		}
		all = append(all, q.waits...)
	}
	return backend.LearnQueueWait(time.Now(), all)
}
