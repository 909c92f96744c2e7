package main

import (
	"strings"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
)

// A job that trains by its chief's word is said to run, and to train on when its scheduler has ended, though the backend does not tell what it has.
func TestRunsByItsChiefsWord(t *testing.T) {
	v := &core.View{Job: "ctr", State: core.StateRunning, Sample: core.Sample{Running: new(2), Unknown: "the backend does not answer"}, Unlisted: "the backend does not answer"}
	a, l := &app{}, &loaded{Job: &job.Job{Name: "ctr"}}
	for _, tt := range []struct {
		state       core.State
		words, says string
	}{
		{core.StateRunning, "running (by its chief's word; what the backend has is not known)", "training goes on"},
		{core.StateUnknown, "unknown", "whether training goes on is unknown"},
	} {
		v.State = tt.state
		if got := stateWords(v); got != tt.words {
			t.Errorf("its state is %q, want %q", got, tt.words)
		}
		if got := a.farewell(l, v, takeUp{}).says; !strings.Contains(got, "; "+tt.says) {
			t.Errorf("%s: its scheduler's last words are %q, want %q", tt.state, got, tt.says)
		}
	}
}

// Of a job that has stopped without its last snapshot, or has left something behind, that is said.
func TestFarewellOfAStopThatLacksSomething(t *testing.T) {
	v := &core.View{Job: "ctr", Stopped: true, Unwritten: "at noon the last snapshot was not written", LeftAway: "at noon worker-0-g1 may still have run"}
	got := (&app{}).farewell(&loaded{Job: &job.Job{Name: "ctr", Checkpoint: job.Checkpoint{Dir: "/c"}}}, v, takeUp{}).says
	for _, want := range []string{`job "ctr" has stopped; `, "; " + v.Unwritten, "; " + v.LeftAway} {
		if !strings.Contains(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// Of jobs that end together, what takes up several is said once, after what goes on of each.
func TestFarewells(t *testing.T) {
	both := takeUp{command: "run a b c"}
	a := farewell{says: `the scheduler of job "a" has ended; training goes on`, again: both, stop: "kale stop a"}
	b := farewell{says: `the scheduler of job "b" has ended; it stays paused`, again: both, stop: "kale stop b"}
	gone := farewell{says: `the scheduler of job "c" has ended; nothing of it runs`, again: both}
	stopped := farewell{says: `job "d" has stopped`, again: takeUp{command: "run d"}}
	early := farewell{says: "interrupted\n  kale run e\nstarts it"}
	for _, c := range []struct {
		what string
		all  []farewell
		want string
	}{
		{"none", nil, ""},
		{"one", []farewell{a}, a.says + "\n  kale run a b c\ntakes it up again,\n  kale stop a\nstops it\n"},
		{"several", []farewell{a, stopped, b, gone, early, early}, a.says + "\n" + b.says + "\n" + gone.says +
			"\n  kale run a b c\ntakes them up again,\n  kale stop a\n  kale stop b\nstops one\n" +
			"job \"d\" has stopped\n  kale run d\ntakes it up again\ninterrupted\n  kale run e\nstarts it\ninterrupted\n  kale run e\nstarts it\n"},
		{"nothing of several", []farewell{gone, gone}, gone.says + "\n" + gone.says + "\n  kale run a b c\ntakes them up again\n"},
	} {
		if got := farewells(c.all); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
