package core

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// A server that was rolled back is a problem while it is taught again what it lost, a note with its time afterwards, and stays in the state.
func TestRollbackIsShownAndKept(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	at := time.UnixMilli(r.now.UnixMilli())
	told := &rpc.Rollback{Server: 1, Incarnation: 7, UnixMs: at.UnixMilli(), SnapshotUnixMs: at.Add(-55 * time.Second).UnixMilli(), Offsets: 12345, Remaining: 3000}
	say := func(rs ...*rpc.Rollback) { r.chief.with(func(s *rpc.JobStatus) { s.Rollbacks = rs }) }
	says := "parameter server 1 was restored from a snapshot that was 55s old; 12,345 offsets are trained again for it"
	say(told)
	r.beat()
	if _, err := r.problem("since " + at.UTC().Format(time.RFC3339) + ": " + says + ", 3,000 are left; until that is done lag counts them too"); err != nil {
		t.Error(err)
	}
	told.Remaining, told.DoneUnixMs = 0, at.Add(4*time.Second).UnixMilli()
	say(told)
	r.beats(2)
	v := r.s.View()
	if len(v.Problems) > 0 {
		t.Errorf("what is made good is still a problem: %q", v.Problems)
	}
	want := []Rollback{{Server: 1, Incarnation: 7, At: at, Snapshot: at.Add(-55 * time.Second), Offsets: 12345, Done: at.Add(4 * time.Second)}}
	if diff := cmp.Diff(want, v.Rollbacks); diff != "" {
		t.Errorf("in the view (-want +got):\n%s", diff)
	}
	if got := v.Rollbacks[0].String(); got != says+", done after 4s" {
		t.Errorf("it says %q", got)
	}
	// Another chief does not know of it; one that was not done then is lost sight of.
	say(&rpc.Rollback{Server: 0, Incarnation: 8, UnixMs: at.UnixMilli(), Offsets: 5, Remaining: 5})
	r.beat()
	say()
	r.beat()
	want = append(want, Rollback{Server: 0, Incarnation: 8, At: at, Offsets: 5, Remaining: 5, Unknown: true})
	if diff := cmp.Diff(want, r.s.View().Rollbacks); diff != "" {
		t.Errorf("after another chief came (-want +got):\n%s", diff)
	}
	kept, err := Rollbacks(r.s.store, time.Time{})
	if diff := cmp.Diff(want, kept); diff != "" || err != nil {
		t.Errorf("in the state, %v (-want +got):\n%s", err, diff)
	}
	raw, err := state.Last[Rollback](r.s.store, state.Rollbacks, 100)
	if err != nil || len(raw) != 4 {
		t.Errorf("%d entries, %v: want the beginning and the end of each, whatever the number of looks", len(raw), err)
	}
	if got := want[1].String(); !strings.Contains(got, "without a snapshot") || !strings.HasSuffix(got, "the chief was replaced before it was done") {
		t.Errorf("it says %q", got)
	}
}

// A server that was replaced once more was not taught all that it had lost, and nobody says so; nor when the job stops before that is done.
func TestRepairThatIsNotDoneIsNotCalledDone(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	at := time.UnixMilli(r.now.UnixMilli())
	over := &rpc.Rollback{Server: 1, Incarnation: 7, UnixMs: at.UnixMilli(), Offsets: 500, Remaining: 435, DoneUnixMs: at.Add(4 * time.Second).UnixMilli()}
	next := &rpc.Rollback{Server: 1, Incarnation: 8, UnixMs: at.Add(4 * time.Second).UnixMilli(), Offsets: 1500, Remaining: 1435}
	r.chief.with(func(s *rpc.JobStatus) { s.Rollbacks = []*rpc.Rollback{over, next} })
	r.beat()
	if got := r.s.View().Rollbacks[0].String(); !strings.HasSuffix(got, "; when it was replaced after 4s, 435 were left, which are part of its next repair") {
		t.Errorf("it says %q", got)
	}
	if got := r.s.View().Rollbacks[1].String(); !strings.HasSuffix(got, "1,500 offsets are trained again for it, 1,435 are left") {
		t.Errorf("it says %q", got)
	}
	r.chief.with(func(*rpc.JobStatus) { next.Remaining = 1000 })
	r.order("stop", 0)
	for range 20 {
		if r.beat(); r.s.want.Stopped {
			break
		}
	}
	if !r.s.want.Stopped {
		t.Fatal("the job does not stop")
	}
	want := []string{"of the 1,500 offsets that parameter server 1 had lost, 1,000 were not trained again when the job stopped; the next run trains them"}
	if diff := cmp.Diff(want, Unrepaired(r.s.View().Rollbacks)); diff != "" {
		t.Error(diff)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil)
	if diff := cmp.Diff(want, g.Problems); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// A rollback that was over before the scheduler began, of which its state does not know, is kept and shown with its time, and is no warning of now.
func TestRollbackOfBeforeIsNoWarning(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	var log strings.Builder
	r.s.lg = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	at := time.UnixMilli(r.s.started.Add(-10 * time.Minute).UnixMilli())
	over := &rpc.Rollback{Server: 1, Incarnation: 7, UnixMs: at.UnixMilli(), Offsets: 500, DoneUnixMs: at.Add(4 * time.Second).UnixMilli()}
	r.chief.with(func(s *rpc.JobStatus) { s.Rollbacks = []*rpc.Rollback{over} })
	r.beat()
	if v := r.s.View(); len(v.Rollbacks) != 1 || !v.Rollbacks[0].At.Equal(at) || strings.Contains(log.String(), "msg=rollback") {
		t.Errorf("in the view: %+v; in the log: %s", v.Rollbacks, &log)
	}
	under := &rpc.Rollback{Server: 0, Incarnation: 8, UnixMs: at.UnixMilli(), Offsets: 500, Remaining: 400}
	r.chief.with(func(s *rpc.JobStatus) { s.Rollbacks = []*rpc.Rollback{over, under} })
	r.beat()
	if !strings.Contains(log.String(), "level=WARN msg=rollback") {
		t.Errorf("one that is not made good yet: %s", &log)
	}
}

// A job that a scheduler kills which has never looked at it has what the one before saw of its repair.
func TestKilledJobTellsWhatIsNotRepaired(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.with(func(s *rpc.JobStatus) {
		s.Rollbacks = []*rpc.Rollback{{Server: 1, Incarnation: 8, UnixMs: r.now.UnixMilli(), Offsets: 1500, Remaining: 1500}}
	})
	r.beat()
	r.reopen()
	if err := r.s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"of the 1,500 offsets that parameter server 1 had lost, 1,500 were not trained again when the job stopped; the next run trains them"}
	if diff := cmp.Diff(want, Unrepaired(r.s.Rollbacks())); diff != "" {
		t.Error(diff)
	}
}
