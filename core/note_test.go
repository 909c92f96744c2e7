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
