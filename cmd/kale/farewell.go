package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
)

// takeUp is how a job is taken up again: what comes first, the command, and what else that does.
type takeUp struct{ first, command, also string }

func (u takeUp) String() string { return u.of("it") }

func (u takeUp) of(what string) string {
	return fmt.Sprintf("%s\n  kale %s\ntakes %s up again%s", u.first, u.command, what, u.also)
}

// farewell is what is said of a job whose scheduler has ended.
type farewell struct {
	says  string // what has ended, and what goes on
	again takeUp // without a command: says has it
	stop  string // the command that stops what goes on; empty: there is nothing to stop, or a stop would only wait
}

func (f farewell) String() string {
	text := f.says
	if f.again.command != "" {
		text += f.again.String()
	}
	if f.stop != "" {
		text += fmt.Sprintf(",\n  %s\nstops it", f.stop)
	}
	return text
}

// farewell says what goes on of a job whose scheduler has ended, and how it is taken up or stopped.
func (a *app) farewell(l *loaded, v *core.View, again takeUp) farewell {
	if v != nil && v.Stopped {
		says := fmt.Sprintf("job %q has stopped; %s", l.Name, core.ModelWords(l.Checkpoint.Dir, l.Name))
		for _, more := range []string{v.Unwritten, v.LeftAway} {
			if more != "" {
				says += "; " + more
			}
		}
		if v.Stuck != "" {
			says += fmt.Sprintf("; %s: kale status %s%s says what to do about that first", v.Stuck, a.stateFlag(), l.Name)
		}
		return farewell{says: says, again: again}
	}
	if v == nil {
		return farewell{says: a.interrupted(l).Error()}
	}
	goesOn := "training goes on"
	switch {
	case v.Stuck != "":
		goesOn = v.Stuck + ": kale status " + a.stateFlag() + l.Name + " says what to do about it; what was started stays"
	case len(v.Workers)+len(v.Servers) == 0 && v.Unlisted == "":
		return farewell{says: fmt.Sprintf("the scheduler of job %q has ended; nothing of it runs", l.Name), again: again}
	case v.Manual.Paused:
		goesOn = "it stays paused"
	case v.State == core.StateStarting:
		goesOn = "what was started starts on"
	case v.Sample.Unknown != "" && v.State != core.StateRunning || v.Sample.Running == nil:
		goesOn = "whether training goes on is unknown; what was started stays"
	case *v.Sample.Running == 0 && v.Unlisted == "" && !slices.ContainsFunc(v.Workers, func(w core.WorkerView) bool { return backend.State(w.Backend).Live() }):
		goesOn = "no worker runs, so that nothing is trained until it is taken up again"
	case *v.Sample.Running == 0:
		goesOn = "no worker trains yet; what was started goes on trying"
	}
	goesOn += strings.Replace(lossesOf(v).String(), ",", "; so far", 1)
	f := farewell{says: fmt.Sprintf("the scheduler of job %q has ended; %s", l.Name, goesOn), again: again}
	if v.Stuck == "" || v.Unlisted == "" { // else a stop would only wait
		f.stop = "kale stop " + a.stateFlag() + l.Name
	}
	return f
}

// farewells says what goes on of jobs whose schedulers have ended together: what takes up several of them is said once.
func farewells(all []farewell) string {
	var text strings.Builder
	for len(all) > 0 {
		again := all[0].again
		var same, others []farewell
		for _, f := range all {
			if f.again == again {
				same = append(same, f)
			} else {
				others = append(others, f)
			}
		}
		all = others
		if len(same) == 1 || again.command == "" {
			for _, f := range same {
				fmt.Fprintln(&text, f)
			}
			continue
		}
		stops := ""
		for i, f := range same {
			if i > 0 {
				text.WriteString("\n")
			}
			text.WriteString(f.says)
			if f.stop != "" {
				stops += "\n  " + f.stop
			}
		}
		text.WriteString(again.of("them"))
		if stops != "" {
			fmt.Fprintf(&text, ",%s\nstops one", stops)
		}
		text.WriteString("\n")
	}
	return text.String()
}
