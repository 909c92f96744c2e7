package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
)

// A stop that takes long says each of its problems once, whatever figures change in them, and what does without; its lines stay short.
func TestStopSaysAProblemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs strings.Builder
		bar := (&app{err: &errs}).stopBar("ctr")
		began := time.Now()
		for i := range 32 {
			v := &core.View{Waits: "the last snapshot, which fails", Problems: []string{fmt.Sprintf("parameter server 0: snapshots fail: mkdir /ro/tablets/%06d: read-only file system", i)}}
			if i > 15 {
				v.Problems = append(v.Problems, "another one")
			}
			bar.stops(time.Since(began), v)
			time.Sleep(time.Second)
		}
		want := `problem: parameter server 0: snapshots fail: mkdir /ro/tablets/000005: read-only file system
waiting for the last snapshot, which fails; kale stop -force ctr does without
stopping job "ctr", 10s: waiting for the last snapshot, which fails
problem: another one
stopping job "ctr", 20s: waiting for the last snapshot, which fails
stopping job "ctr", 30s: waiting for the last snapshot, which fails
`
		if diff := cmp.Diff(want, errs.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Who does not answer a stop shows in one way after another: the first is told in full, each other shortly.
func TestStopTellsASilenceShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs strings.Builder
		bar := (&app{err: &errs}).stopBar("ctr")
		const refused = `the backend does not answer: list workloads of job "ctr": Nomad cannot be reached: dial tcp 10.0.0.7:4646: connect: connection refused; is the server up? (unavailable)`
		const late = `the backend does not answer: list workloads of job "ctr": list allocations: Nomad at http://10.0.0.7:4646 does not answer: context deadline exceeded; is the server up? (unavailable)`
		for _, p := range []string{refused, late, refused, late} {
			bar.stops(2*stopTakesLong, &core.View{Unlisted: "x", Waits: "the backend", Problems: []string{p}})
		}
		want := "problem: " + refused + "\nstill: the backend does not answer: context deadline exceeded\n"
		if errs.String() != want {
			t.Errorf("it says\n%swant\n%s", errs.String(), want)
		}
	})
}

// Who stopped a job reads at the end what the stop did without, what was undone meanwhile, and what it left.
func TestStopSaysWhatItDidWithout(t *testing.T) {
	const unwritten, left, restored = "at noon the last snapshot was not written", "at noon worker-1-g1 may still have run", core.Restored + "9 records, and had 10"
	began := time.Unix(100, 0)
	notes := func(at time.Time) []core.Note {
		return []core.Note{{At: began.Add(-time.Second), Text: core.Restored + "1 record"}, {At: at, Text: restored}, {At: at, Text: "another"}}
	}
	for _, c := range []struct {
		undone          time.Time
		unwritten, left string
		changed         bool
		want            string
	}{
		{time.Unix(99, 0), "", "", true, "job \"ctr\" has stopped\n"},
		{time.Unix(99, 0), unwritten, "", true, "job \"ctr\" has stopped\n" + unwritten + "\n"},
		{time.Unix(101, 0), "", "", true, "job \"ctr\" has stopped\n" + restored + "\n"},
		{time.Unix(99, 0), unwritten, left, false, "job \"ctr\" has stopped already\n" + unwritten + "\n" + left + "\n"},
	} {
		var out strings.Builder
		if err := (&app{out: &out}).sayStopped("ctr", c.changed, nil, undone(began, notes(c.undone)), c.unwritten, c.left); err != nil || out.String() != c.want {
			t.Errorf("it says %q, %v; want %q", out.String(), err, c.want)
		}
	}
}

// A stop that has just been ordered is not said to have nothing left while something runs.
func TestWhatAStopWaitsFor(t *testing.T) {
	runs := []core.WorkerView{{ID: "worker-0-g1"}}
	for want, v := range map[string]*core.View{"": {Workers: runs}, ": waiting for worker-0-g1": {Workers: runs, Waits: "worker-0-g1"}, ": nothing is left": {}} {
		if got := remaining(v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Who forces a stop is not told that force does without.
func TestAForcedStopIsNotToldToForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for forced, want := range map[bool]bool{false: true, true: false} {
			var errs strings.Builder
			bar := (&app{err: &errs}).stopBar("ctr")
			bar.stops(2*stopTakesLong, &core.View{Forced: forced, Waits: "worker-0-g1 to end"})
			if got := errs.String(); strings.Contains(got, "does without") != want {
				t.Errorf("forced %v: it says %q", forced, got)
			}
		}
	})
}

// Where what runs cannot be seen it is not said that force does without: the problem says what helps.
func TestStopOfWhatCannotBeSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs strings.Builder
		bar := (&app{err: &errs}).stopBar("ctr")
		bar.stops(2*stopTakesLong, &core.View{Waits: "what runs to be seen again", Unlisted: "its folder was moved", Problems: []string{"put it back"}})
		if got := errs.String(); !strings.Contains(got, "problem: put it back\n") || strings.Contains(got, "does without") {
			t.Errorf("it says %q", got)
		}
	})
}
