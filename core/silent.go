package core

import (
	"context"
	"fmt"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// GlanceSilent is GlanceAt for a job whose scheduler is there and does not answer: nobody else can read its state, so this is what the chief and, unless
// list is nil, the backend say now. silence says for people what is known of the scheduler.
func GlanceSilent(ctx context.Context, j *job.Job, silence string, list Lister) *Glance {
	return glanceNow(ctx, j, silence, unheard{"nor does its chief", "nor do its chief and the backend"}, list)
}

// unheard says that the chief, or both, do not answer.
type unheard struct{ chief, both string }

// glanceNow is what the chief and the backend say now, after what is said of the scheduler.
func glanceNow(ctx context.Context, j *job.Job, scheduler string, no unheard, list Lister) *Glance {
	s := &Scheduler{job: j, want: &desired{}, seen: &seen{}}
	s.glance(ctx, list)
	return s.glanceOf(scheduler, no, list != nil)
}

// glanceOf is glanceNow of who has asked, the backend too or not.
func (s *Scheduler) glanceOf(scheduler string, no unheard, listed bool) *Glance {
	j, n := s.job, s.seen
	g := &Glance{Job: j.Name, State: StateUnknown, Scheduler: true, Now: time.Now(), Checkpoint: j.Checkpoint.Dir}
	g.Workers, g.Servers = s.processes()
	whole := listed && n.listErr == nil && n.complete
	switch {
	case n.chiefErr == nil:
		g.Manual.Paused = n.chief.GetPaused()
		g.count(totalsOf(n.chief))
		ready := n.ready(whole)
		g.Running = &ready
		g.Problems = append(g.Problems, chiefProblems(n.chief.GetProblems())...)
		g.judgeSilent(n.idle())
	case whole:
		g.Says = fmt.Sprintf("%s; the backend says that %d of its processes live", no.chief, n.alive())
	case listed:
		g.Says = no.both
	default:
		g.Says = no.chief
	}
	g.Says = scheduler + ", " + g.Says
	if n.chiefErr != nil && !silent(n.chiefErr) {
		g.Problems = append(g.Problems, "the chief: "+n.chiefErr.Error())
	}
	if n.listErr != nil {
		g.Problems = append(g.Problems, n.unlisted())
	}
	if n.blind() {
		g.State, g.Stuck = StateStuck, unseen
	}
	return g
}

// alive counts the processes that the backend lists as such.
func (n *seen) alive() int { return n.aliveAs(backend.RoleServer) + n.aliveAs(backend.RoleWorker) }

func (n *seen) aliveAs(role string) (alive int) {
	for _, st := range n.list {
		if st.State.Live() && st.ID.Role == role {
			alive++
		}
	}
	return alive
}

// judgeSilent says what the chief of a job makes of it that has trained nothing for so long (0: it trains, or there is nothing to train).
func (g *Glance) judgeSilent(idle time.Duration) {
	switch {
	case g.Manual.Paused:
		g.State, g.Says = StatePaused, "and by its chief the job is paused"
	case *g.Running == 0:
		g.Says = "and by its chief no worker trains"
	case idle > 0:
		g.Says = fmt.Sprintf("and by its chief %s are there and nothing has been trained for %s", job.Count(*g.Running, "worker"), job.Length(idle))
	default:
		g.State, g.Says = StateRunning, fmt.Sprintf("and by its chief training goes on with %s", job.Count(*g.Running, "worker"))
	}
}
