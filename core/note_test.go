package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// What a backend remarks on a process is a note, once: for the next scheduler too, and where more is remarked later.
func TestRemarksAreNotes(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	id, at := workerID(0, 1), r.now.Add(-time.Minute).Round(time.Millisecond)
	remark := func(n int) (out []backend.Remark) {
		for i := range n {
			out = append(out, backend.Remark{At: at.Add(time.Duration(i) * time.Second), Text: fmt.Sprintf("somebody stopped its job, time %d", i+1)})
		}
		if err := r.cluster.SetRemarks(r.job.Name, id, out...); err != nil {
			t.Fatal(err)
		}
		return out
	}
	wantNotes := func(n int) {
		t.Helper()
		r.beats(2)
		var got []string
		for _, note := range notes(r.now, nil, nil, r.s.want) {
			if strings.HasPrefix(note.Text, id.String()+": somebody stopped its job") {
				got = append(got, fmt.Sprint(note.Text, " ", note.At.Sub(at)))
			}
		}
		for i := range n {
			if want := fmt.Sprintf("%s: somebody stopped its job, time %d %v", id, i+1, time.Duration(i)*time.Second); i >= len(got) || got[i] != want {
				t.Errorf("note %d of %q is not %q", i, got, want)
			}
		}
		if len(got) != n {
			t.Errorf("the notes are %q, want %d", got, n)
		}
	}
	remark(1)
	wantNotes(1)
	r.reopen()
	wantNotes(1)
	remark(2)
	wantNotes(2)
	remark(0) // the backend has forgotten them: a note stands for a day
	wantNotes(2)
}

// Renewals that went as they should are told of for an hour, others for a day; and they do not crowd those out.
func TestRoutineNotesAgeOut(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	deadline := now.Add(time.Minute)
	warm, cold := &Renewed{Warm: true, At: now, Deadline: deadline}, &Renewed{At: now, Deadline: deadline}
	quick := &ServerRenewal{Released: now, Deadline: deadline, Done: now, Paused: time.Second}
	slow, ended := *quick, *quick
	slow.Paused, ended.Ended = time.Minute, true
	for after, want := range map[time.Duration][5]bool{0: {true, true, true, true, true}, 2 * time.Hour: {false, true, false, true, true}, 25 * time.Hour: {}} {
		then := now.Add(after)
		got := [5]bool{warm.shown(then) != nil, cold.shown(then) != nil, quick.shown(then) != nil, slow.shown(then) != nil, ended.shown(then) != nil}
		if got != want {
			t.Errorf("after %v: warm, cold, quick, slow, ended are shown: %v, want %v", after, got, want)
		}
	}
	d := newDesired("")
	d.remember(Note{At: now, Text: "restored with less"})
	for range handOversKept + 10 {
		d.remember(Note{At: now, Text: "gave way", Routine: true})
	}
	if got := notes(now.Add(2*time.Hour), nil, nil, d); len(d.HandOvers) != handOversKept || len(got) != 1 || got[0].Text != "restored with less" {
		t.Errorf("%d are kept; shown are %+v", len(d.HandOvers), got)
	}
	if got := notes(now, nil, nil, d); len(got) != handOversKept {
		t.Errorf("%d are shown at once", len(got))
	}
	var none *Renewed
	if none.shown(now) != nil || (*ServerRenewal)(nil).shown(now) != nil {
		t.Error("none is shown")
	}
}
