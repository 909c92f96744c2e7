package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
)

// holder is the process that has a job's state on this machine open: its scheduler or, where it has none, a kale stop that is one for that long, or is about to be.
type holder struct {
	pid              int // 0: none is known to live
	stops, suspended bool
}

// holderOf is who has the state in a job's folder open.
func holderOf(dir string) holder {
	pid := state.Holder(dir)
	stopper, stops := noted(dir, stoppingFile)
	if pid == 0 && stops && stopper != os.Getpid() { // it has not opened it yet
		pid = stopper
	}
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		return holder{}
	}
	return holder{pid: pid, stops: stops && stopper == pid, suspended: backend.Suspended(pid)}
}

// holder is who has a job's state open.
func (a *app) holder(name string) holder {
	dir, err := a.jobDir(name)
	if err != nil {
		return holder{}
	}
	return holderOf(dir)
}

// words name the holder.
func (h holder) words() string {
	switch {
	case h.stops:
		return commandAt("stop", h.pid)
	case h.pid == 0:
		return "another scheduler"
	}
	return fmt.Sprintf("the scheduler in process %d", h.pid)
}

// silence says that the holder does not answer, and what its process does.
func (h holder) silence() string {
	says := "its scheduler does not answer"
	if h.stops {
		says = "the kale stop that stops it does not answer"
	}
	switch {
	case h.pid == 0:
		return says
	case h.suspended:
		return fmt.Sprintf("%s (pid %d is suspended: kill -CONT %d lets it go on, or fg in the shell that has it)", says, h.pid, h.pid)
	}
	return fmt.Sprintf("%s (pid %d runs)", says, h.pid)
}

// ends says how the holder is ended alone, and what becomes of the job: after silence, as the end of a sentence.
func (h holder) ends(a *app, name string) string {
	end := "" // where it is suspended, which has been said
	if !h.suspended {
		end = "where it is stuck, "
	}
	if h.stops {
		return end + h.endsStop(a, name)
	}
	what := "it"
	if h.suspended {
		what = "that scheduler"
	}
	return fmt.Sprintf("%skill -9 %d ends %s alone, training goes on, and %s takes it up", end, h.pid, what, a.runLine(name))
}

// endsStop says how a kale stop is ended, and how what it began goes on.
func (h holder) endsStop(a *app, name string) string {
	return fmt.Sprintf("kill -9 %d ends it, and kale stop %s%s goes on with what it began", h.pid, a.stateFlag(), name)
}

// stuck says how to end a holder that does not answer, as a sentence.
func (h holder) stuck(a *app, name string) string {
	switch {
	case h.stops && h.suspended:
		return fmt.Sprintf("It is suspended: kill -CONT %d lets it go on, or %s", h.pid, h.ends(a, name))
	case h.suspended:
		return core.EndWords(h.pid, true)
	case h.stops:
		return "Where it is stuck, " + h.endsStop(a, name)
	}
	return fmt.Sprintf("Where it is stuck, kill -9 %d ends it alone: training goes on", h.pid)
}
