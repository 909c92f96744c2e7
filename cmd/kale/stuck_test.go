package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// A job that needs a person is said to, and what happened is told with its time.
func TestStuckIsSaid(t *testing.T) {
	now := time.Date(2026, 1, 31, 6, 0, 0, 0, time.Local)
	v := &core.View{
		Job: "ctr", State: core.StateStuck, Stuck: "partition 3 stands still", Now: now, Started: now, Sample: core.Sample{Running: new(2), Target: 2},
		Dead: new(uint64(1200)), Lost: new(uint64), DeadLetter: "ctr-dead", Trained: new(uint64(5)), Problems: []string{"partition 3: a bad record"},
		Notes: []core.Note{{At: now.Add(-time.Hour), Text: "the topic grew from 4 to 6 partitions"}},
	}
	var b strings.Builder
	if err := writeStatus(&b, v, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ctr, stuck", "partition 3 stands still: see the problems", "5 records, 1,200 could not be decoded (such go into topic ctr-dead now)\n",
		"2026-01-31 05:00:00  the topic grew from 4 to 6 partitions\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("status does not say %q:\n%s", want, b.String())
		}
	}
	a := newApp(nil, io.Discard, io.Discard)
	if got := a.farewell(&loaded{Job: &job.Job{Name: "ctr"}}, v, takeUp{command: a.again()}).String(); strings.Contains(got, "training goes on") || !strings.Contains(got, "partition 3 stands still: kale status ctr says what to do about it") {
		t.Errorf("the farewell says %q", got)
	}
}

// What a job had trained is told when it does not run any more, and whether that is the last word.
func TestGlanceTellsWhatWasTrained(t *testing.T) {
	for past, want := range map[bool]string{
		false: "trained  1,200 records, AUC so far 0.7123 (each record scored before it is trained), 7 could not be decoded (such go into topic dead now), 3 offsets lost to retention\n",
		true:  "3 offsets lost to retention, when that was last asked\n",
	} {
		auc := 0.71234
		totals := &core.Totals{Trained: 1200, Dead: 7, Lost: 3, AUC: &auc, DeadLetter: "dead"}
		var b strings.Builder
		if err := writeGlance(&b, &core.Glance{Job: "ctr", State: core.StateStopped, LastSample: &core.Sample{}, Trained: &totals.Trained, Totals: totals, Past: past}, "", 0); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "workers train") || strings.Contains(b.String(), "unknown") {
			t.Errorf("what nobody needs of a job that has stopped:\n%s", b.String())
		}
		if said := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(said+" ", strings.Join(strings.Fields(want), " ")+" ") {
			t.Errorf("past %v: it does not say %q:\n%s", past, want, b.String())
		}
	}
}

// Of a job of which nothing was ever started, as in mode observe, nothing goes on, and there is nothing to stop.
func TestFarewellOfNothing(t *testing.T) {
	a := &app{args: []string{"run", "ctr.hcl"}}
	v := &core.View{}
	zero := 0
	v.Sample.Running = &zero
	if got := a.farewell(&loaded{Job: &job.Job{Name: "ctr"}}, v, takeUp{command: a.again()}).String(); !strings.Contains(got, "nothing of it runs") || strings.Contains(got, "goes on") || strings.Contains(got, "kale stop") {
		t.Errorf("the farewell says %q", got)
	}
}

// A job whose topic was created again is not said to be taken up by a run as it is.
func TestFarewellOfAnotherTopic(t *testing.T) {
	a := &app{args: []string{"run", "g3.hcl"}}
	j := &job.Job{Name: "g3"}
	j.Checkpoint.Dir = t.TempDir()
	got := a.farewell(&loaded{Job: j}, &core.View{Stopped: true, Stuck: "the topic was deleted or created again"}, takeUp{command: a.again()}).String()
	if !strings.Contains(got, "; the topic was deleted or created again: kale status g3 says what to do about that first\n  kale run g3.hcl\ntakes it up again") {
		t.Errorf("the farewell says %q", got)
	}
}

// Of one that is stuck and not seen it is said as of others how it is taken up: without the jobs that have stopped.
func TestFarewellOfWhatIsNotSeen(t *testing.T) {
	a := &app{args: []string{"run", "g1.hcl", "g2.hcl", "g3.hcl"}}
	v := &core.View{State: core.StateStuck, Stuck: "its folder is gone", Unlisted: "its folder was removed"}
	got := a.farewell(&loaded{Job: &job.Job{Name: "g2"}}, v, takeUp{command: a.again("g3.hcl")}).String()
	if !strings.Contains(got, "kale run g1.hcl g2.hcl\ntakes it up again") || strings.Contains(got, "kale stop") {
		t.Errorf("the farewell says %q", got)
	}
}

// Whoever ends a scheduler is told whether anything is trained without it, and whether something holds GPUs.
func TestFarewellSaysWhatRuns(t *testing.T) {
	server := []core.ServerView{{ID: "ps-0-g1", Backend: string(backend.StateRunning)}}
	for name, c := range map[string]struct {
		v    core.View
		want string
	}{
		"no worker lives": {core.View{State: core.StateRunning, Servers: server, Workers: []core.WorkerView{{Backend: string(backend.StateExited)}}, Sample: core.Sample{Running: new(0)}},
			"no worker runs, so that nothing is trained until it is taken up again\n"},
		"a worker lives": {core.View{State: core.StateRunning, Servers: server, Workers: []core.WorkerView{{Backend: string(backend.StateRunning)}}, Sample: core.Sample{Running: new(0)}},
			"no worker trains yet; what was started goes on trying\n"},
		"all starts": {core.View{State: core.StateStarting, Servers: server, Sample: core.Sample{Unknown: "the chief does not answer"}}, "what was started starts on\n"},
	} {
		a := newApp(nil, io.Discard, io.Discard)
		got := a.farewell(&loaded{Job: &job.Job{Name: "ctr"}}, &c.v, takeUp{command: "run ctr.hcl"}).String()
		if !strings.Contains(got, `the scheduler of job "ctr" has ended; `+c.want) || !strings.Contains(got, "kale stop ctr") {
			t.Errorf("%s: %q, want %q and how it is stopped", name, got, c.want)
		}
	}
}
