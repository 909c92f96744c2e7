package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/rpc"
)

// What a job does without, as its policies say, is a problem while it goes on, a note throughout, and in the state with its figures: also when the next scheduler
// finds more.
func TestLossesAreToldAndKept(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `start   = "earliest"`, "start = \"earliest\"\n on_lost = \"skip\"\n on_undecodable = \"skip\"", 1)
	}})
	r.started(1)
	count := func(lost, dead uint64) {
		t.Helper()
		r.chief.with(func(s *rpc.JobStatus) { s.LostOffsets, s.DeadRecords = lost, dead })
		r.beat()
	}
	notes := func(want ...string) {
		t.Helper()
		var got []string
		for _, n := range r.s.View().Notes {
			got = append(got, n.Text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
	}
	count(0, 0)
	notes()
	began := r.now.Add(time.Second)
	count(1000, 0)
	count(380201, 0)
	const losing = "retention removes records before they are trained: 380,201 offsets were given up; raise the topic's retention.ms or retention.bytes, or give the job more workers"
	if _, err := r.problem(losing); err != nil {
		t.Error(err)
	}
	const lost = "offsets that retention removed before they were trained, and that were given up: 380,201"
	notes(lost)
	if n := r.s.View().Notes[0]; !n.UnderWay || !n.At.Equal(began) {
		t.Errorf("while it goes on: %+v, want it under way since %v", n, began)
	}
	count(380201, 7)
	if _, err := r.problem(`records cannot be decoded: 7 were skipped (on_undecodable = "skip"); kale logs ctr names them`); err != nil {
		t.Error(err)
	}
	const skipped = `records that could not be decoded and were skipped (on_undecodable = "skip"): 7`
	notes(lost, skipped)

	r.now = r.now.Add(lossRest)
	r.beat()
	if v := r.s.View(); len(v.Problems) > 0 || slices.ContainsFunc(v.Notes, func(n Note) bool { return n.UnderWay }) {
		t.Errorf("long after the last: problems %q, notes %+v", v.Problems, v.Notes)
	}
	notes(lost, skipped)

	r.reopen()
	count(380201, 7)
	notes(lost, skipped) // nothing is told twice
	count(100, 7)        // a server was rolled back
	count(380301, 7)
	notes(lost, skipped, "offsets that retention removed before they were trained, and that were given up: 100, 380,301 since the job began")
	kept, err := Losses(r.s.store, time.Time{})
	if err != nil || len(kept) != 3 || kept[0].Records != 380201 || kept[1].Records != 7 || kept[2].Total != 380301 {
		t.Errorf("in the state: %+v, %v", kept, err)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil); err != nil || len(g.Notes) != 3 {
		t.Errorf("without a scheduler: %+v, %v", g.Notes, err)
	}
}

// Records in a dead-letter topic are not lost, and are not taken for skipped when the topic is given up.
func TestRecordsInADeadLetterTopicAreNotLost(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `start   = "earliest"`, "start = \"earliest\"\n dead_letter = \"dead\"", 1)
	}})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) { s.DeadRecords = 7 })
	r.beat()
	if v := r.s.View(); len(v.Problems)+len(v.Notes) > 0 {
		t.Errorf("problems %q, notes %+v", v.Problems, v.Notes)
	}
	r.job.Stream.DeadLetter, r.job.Stream.OnUndecodable = "", job.OnLostSkip
	r.reopen()
	r.chief.with(func(s *rpc.JobStatus) { s.DeadRecords = 9 })
	r.beat()
	if n := r.s.View().Notes; len(n) != 1 || n[0].Text != `records that could not be decoded and were skipped (on_undecodable = "skip"): 2, 9 since the job began` {
		t.Errorf("notes %+v", n)
	}
}
