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

// That the end of the log was cut off is told while the job stands at it, by that; then as a problem for a while and as a note; and with the totals throughout, also
// without a scheduler.
func TestALogThatWasCutOffIsCounted(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		s.CutOff = []*rpc.Span{{Partition: 0, Begin: 11668, End: 11796}, {Partition: 1, Begin: 11857, End: 11987}}
		s.Problems = []*rpc.PartitionProblem{{Partition: 0, Kind: rpc.PartitionProblem_KIND_TRUNCATED, Needed: 11796, LogStart: 11668}}
	})
	r.beat()
	const note = "offsets that were trained before the end of the topic's log was cut off, where it has, or will have, other records, which are not trained: 258"
	told := func(when string, problem string) {
		t.Helper()
		v := r.s.View()
		if len(v.Notes) != 1 || v.Notes[0].Text != note || v.CutOff == nil || *v.CutOff != 258 {
			t.Errorf("%s: notes %+v, cut off %v", when, v.Notes, v.CutOff)
		}
		if problem == "" && len(v.Problems) > 0 || problem != "" && (len(v.Problems) != 1 || !strings.Contains(v.Problems[0], problem)) {
			t.Errorf("%s: problems %q, want %q", when, v.Problems, problem)
		}
	}
	told("while it stands there", "the brokers lost the end of the log of partition 0")
	r.chief.with(func(s *rpc.JobStatus) { s.Problems = nil })
	r.beat()
	told("when it goes on", "the end of the topic's log was cut off: what it has there now, at 258 offsets that were trained already, is not trained; kale audit ctr counts it")
	r.now = r.now.Add(lossRest)
	r.beat()
	told("later", "")
	r.reopen()
	r.beat()
	told("to the next scheduler", "")
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil); err != nil || len(g.Notes) != 1 || g.CutOff == nil || *g.CutOff != 258 {
		t.Errorf("without a scheduler: %+v, %v", g, err)
	}
}

// Records in a dead-letter topic are told of as those that are skipped, and are not taken for these when the topic is given up.
func TestRecordsInADeadLetterTopicAreToldOf(t *testing.T) {
	r := newRig(t, rigOptions{change: deadLettered})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) { s.DeadRecords = 7 })
	r.beat()
	const problem, note = `records cannot be decoded: 7 in topic "dead" (dead_letter), each with its reason (header kale-reason)`, `records that could not be decoded and were put into topic "dead" (dead_letter): 7`
	if v := r.s.View(); len(v.Problems) != 1 || v.Problems[0] != problem || len(v.Notes) != 1 || v.Notes[0].Text != note || !v.Notes[0].UnderWay {
		t.Errorf("problems %q, notes %+v", v.Problems, v.Notes)
	}
	r.now = r.now.Add(lossRest)
	r.beat()
	if v := r.s.View(); len(v.Problems) > 0 || len(v.Notes) != 1 || v.Notes[0].UnderWay {
		t.Errorf("long after the last: problems %q, notes %+v", v.Problems, v.Notes)
	}
	r.job.Stream.DeadLetter, r.job.Stream.OnUndecodable = "", job.OnLostSkip
	r.reopen()
	r.chief.with(func(s *rpc.JobStatus) { s.DeadRecords = 9 })
	r.beat()
	if n := r.s.View().Notes; len(n) != 2 || n[0].Text != note || n[1].Text != `records that could not be decoded and were skipped (on_undecodable = "skip"): 2, 9 since the job began` {
		t.Errorf("notes %+v", n)
	}
}

func deadLettered(text string) string {
	return strings.Replace(text, `start   = "earliest"`, "start = \"earliest\"\n dead_letter = \"dead\"", 1)
}

// Where most of what arrives cannot be decoded, that is said, and what may be the cause; not where a few records do, nor before there are some.
func TestMostRecordsCannotBeDecoded(t *testing.T) {
	r := newRig(t, rigOptions{change: deadLettered})
	r.started(1)
	said := func(trained, dead uint64) string {
		t.Helper()
		r.chief.with(func(s *rpc.JobStatus) { s.TrainedRecords, s.DeadRecords = trained, dead })
		r.beat()
		ps := r.s.View().Problems
		if len(ps) != 1 || Behind(ps[0]) != "records cannot be decoded" {
			t.Fatalf("%d trained, %d dead: problems %q", trained, dead, ps)
		}
		return strings.TrimSuffix(strings.TrimPrefix(ps[0], "records cannot be decoded: "), ` in topic "dead" (dead_letter), each with its reason (header kale-reason)`)
	}
	const asks = ` in topic "dead" (dead_letter), each with its reason (header kale-reason). Are they as features.format ("json") and features.label ("click") say? kale validate reads the newest`
	for _, c := range []struct {
		after         time.Duration
		trained, dead uint64
		want          string
	}{
		{0, 0, 1, "1"},
		{0, 0, 19, "19"},
		{0, 0, 20, "nearly all of the newest, so that hardly anything is trained; 20" + asks},
		{time.Minute, 20_000, 30, "30"},
		{time.Minute, 20_000, 10_000, "nearly all of the newest, so that hardly anything is trained; 10,000" + asks},
		{time.Minute, 28_000, 20_000, "most of the newest, which are not trained; 20,000" + asks},
		{time.Minute, 28_000, 20_000, "most of the newest, which are not trained; 20,000" + asks}, // nothing has arrived since
		{time.Second, 900, 20, "20,000"}, // a server was rolled back
	} {
		r.now = r.now.Add(c.after)
		if got := said(c.trained, c.dead); got != c.want {
			t.Errorf("%d trained, %d dead: it says %q, want %q", c.trained, c.dead, got, c.want)
		}
	}
}
