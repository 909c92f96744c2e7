package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// A rescale and a stop do not wait for the next look of autoscale.watch: with one an hour, they would not end within this test.
func TestRescaleAndStopHaveAPaceOfTheirOwn(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.job.Autoscale.Watch = time.Hour
	r.started(1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	if err := r.s.Do(ctx, Order{Kind: "scale", Target: 3}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three workers train and the rescale is over", func() error {
		r.joinAll()
		if v := r.s.View(); v == nil || running(v) != 3 || v.Rescale != nil {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	if err := r.s.Do(ctx, Order{Kind: "stop"}); err != nil {
		t.Fatal(err)
	}
	if err := <-ran; err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if v := r.s.View(); !v.Stopped {
		t.Error("not stopped")
	}
}

func TestPace(t *testing.T) {
	now := time.Now()
	watch := 5 * time.Second
	for name, c := range map[string]struct {
		want  desired
		since time.Duration // of the stop
		pace  time.Duration
	}{
		"nothing changes":   {pace: watch},
		"a stop begins":     {want: desired{Stopping: true}, pace: quickPace},
		"a stop takes long": {want: desired{Stopping: true}, since: 20 * time.Second, pace: 2 * time.Second},
		"for very long":     {want: desired{Stopping: true}, since: time.Hour, pace: watch},
		"a rescale":         {want: desired{Rescale: &Rescale{Decided: now.Add(-time.Second)}}, pace: quickPace},
		"one that is stuck": {want: desired{Rescale: &Rescale{Decided: now.Add(-time.Hour)}}, pace: watch},
		"somebody leaves":   {want: desired{Draining: []leaving{{Since: now}}}, pace: quickPace},
	} {
		r := newRig(t, rigOptions{})
		r.job.Autoscale.Watch = watch
		r.s.want, r.s.stopSince = &c.want, now.Add(-c.since)
		if got := r.s.pace(now); got != c.pace {
			t.Errorf("%s: looked at again after %s, want %s", name, got, c.pace)
		}
	}
	r := newRig(t, rigOptions{}) // watch is 100ms
	r.s.want.Stopping = true
	if got := r.s.pace(time.Now()); got != r.job.Autoscale.Watch {
		t.Errorf("a stop of a job that is looked at every %s: %s", r.job.Autoscale.Watch, got)
	}
}

// What people read of the past outlives the scheduler.
func TestLastChangeOutlivesTheScheduler(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.beats(3)
	before := r.s.View()
	if before.LastChange == nil || before.LastChange.Decision.Target != 3 {
		t.Fatalf("last change %+v", before.LastChange)
	}
	r.reopen()
	if r.s.last == nil || !r.s.last.Decision.At.Equal(before.Decision.Decision.At) {
		t.Errorf("the last decision is %+v, want that of %s", r.s.last, before.Decision.Decision.At)
	}
	if r.s.lastRescale == nil || !r.s.lastRescale.Decided.Equal(before.LastRescale.Decided) {
		t.Errorf("the last rescale is %+v, want %+v", r.s.lastRescale, before.LastRescale)
	}
	r.beat()
	if diff := cmp.Diff(before.LastChange.Decision.Explain(), r.s.View().LastChange.Decision.Explain()); diff != "" {
		t.Errorf("last change (-before +after):\n%s", diff)
	}
}

// warnings counts what is logged at warning level or above.
type warnings struct {
	slog.Handler
	seen *[]string
}

func (w warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w warnings) WithAttrs([]slog.Attr) slog.Handler       { return w }
func (w warnings) Handle(_ context.Context, rec slog.Record) error {
	if rec.Level >= slog.LevelWarn {
		*w.seen = append(*w.seen, rec.Message)
	}
	return nil
}

// A job that was stopped and is run again meets the record of its last chief, where nobody answers, and servers that were released: neither is worth
// a warning, and the servers are started at the first look.
func TestRunAfterStopIsQuietAndStartsAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("stop", 0)
	r.stops()
	r.chief.stop()
	r.reopen()
	var seen []string
	r.s.lg = slog.New(warnings{seen: &seen})
	r.mark()
	r.beat()
	if len(seen) > 0 {
		t.Errorf("warnings: %q", seen)
	}
	r.wantCalls("ensure ps-0-g2", "ensure ps-1-g2", "ensure worker-0-g2", "ensure worker-1-g2")
}

// The view says what a change under way, or a stop, waits for.
func TestWaits(t *testing.T) {
	r := newRig(t, rigOptions{trainer: "run"})
	waits := func(want string) {
		t.Helper()
		if got := r.s.View().Waits; got != want {
			t.Errorf("waits for %q, want %q", got, want)
		}
	}
	r.order("scale", 1)
	r.beat()
	waits("ps-0-g1 to start; ps-1-g1 to start; and 1 more")
	r.beat()
	waits("ps-0-g1 to be up")
	r.started(1)
	waits("")
	r.order("scale", 3)
	r.beats(2)
	waits("worker-1-g1 to join; worker-2-g1 to join")
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_JOINING)
	r.chief.join(2, 1)
	r.beat()
	waits("worker-1-g1 to be ready")
	r.started(3)
	if err := r.cluster.SetState("ctr", worker(1, 1), backend.StateStopping, "released, forced"); err != nil {
		t.Fatal(err)
	}
	r.beat()
	waits("worker-1-g1 to end (released, forced)")
	if err := r.cluster.SetState("ctr", worker(1, 1), backend.StateRunning, ""); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.order("scale", 2)
	r.beats(2)
	waits("worker-2-g1 to drain")
	r.chief.set(2, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	hold := make(chan struct{})
	r.chief.with(func(*rpc.JobStatus) { r.chief.hold = hold })
	r.order("stop", 0)
	r.beats(2)
	waits("worker-0-g1 to drain; worker-1-g1 to drain")
	for rank := range 2 {
		r.chief.set(rank, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	}
	r.beats(4)
	waits("the last snapshot")
	close(hold)
	r.stops()
	waits("")
}

func TestWaitsForRoom(t *testing.T) {
	r := newRig(t, rigOptions{slots: 1})
	r.order("scale", 2)
	r.until("the view says why a worker does not start", func() error {
		r.joinAll()
		if w := r.s.View(); w == nil || !strings.Contains(w.Waits, "worker-1-g1 to start (") {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
}

// Without a scheduler a job is what its state, its chief and its backend say.
func TestGlance(t *testing.T) {
	r := newRig(t, rigOptions{})
	glance := func(list Lister) *Glance {
		t.Helper()
		g, err := GlanceAt(t.Context(), r.state, "ctr", list)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	is := func(g *Glance, want State, says string) {
		t.Helper()
		if g.State != want || !strings.Contains(g.Says, says) || g.Scheduler {
			t.Errorf("%q: %q, want %q: %q", g.State, g.Says, want, says)
		}
	}
	if g, err := GlanceAt(t.Context(), t.TempDir(), "ctr", nil); err != nil || g.State != StateNeverStarted {
		t.Errorf("without any state: %+v, %v", g, err)
	}
	if _, err := GlanceAt(t.Context(), r.state, "ctr", nil); !errors.Is(err, state.ErrLocked) {
		t.Errorf("while a scheduler has the state: %v", err)
	}
	listed := func(context.Context) ([]backend.Status, bool, error) { return r.list(), true, nil }
	away := func(f func()) { // with the scheduler closed
		t.Helper()
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		f()
		r.open("run")
	}
	never := newRig(t, rigOptions{broker: r.broker})
	if err := never.s.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err := GlanceAt(t.Context(), never.state, "ctr", nil); err != nil || g.State != StateNeverStarted {
		t.Errorf("opened and never run: %+v, %v", g, err)
	}
	r.started(2)
	r.beat()
	last := r.s.View()
	away(func() {
		g := glance(nil)
		is(g, StateRunning, "trains on without a scheduler, with 2 of 2 workers")
		if g.Trained == nil || *g.Running != 2 || g.LastChange == nil || g.LastSample == nil || !g.LastSample.At.Equal(last.Now) || len(g.Workers) > 0 {
			t.Errorf("%+v", g)
		}
		if g = glance(listed); len(g.Workers) != 2 || g.Workers[1].Member != "ready" || len(g.Servers) != 2 || g.Servers[0].Up == nil || !*g.Servers[0].Up {
			t.Errorf("processes %+v %+v", g.Workers, g.Servers)
		}
		killed := r.list()
		for i := range killed {
			if killed[i].ID.Role == backend.RoleWorker && killed[i].ID.Rank == 1 {
				killed[i].State = backend.StateFailed
			}
		}
		is(glance(func(context.Context) ([]backend.Status, bool, error) { return killed, true, nil }), StateRunning, "with 1 of 2 workers")
		r.chief.with(func(s *rpc.JobStatus) {
			s.StartedUnixMs, s.NowUnixMs = 1_000_000, 1_040_000
			s.Partitions = []*rpc.PartitionStatus{{LastAdvanceUnixMs: 1_002_000}}
			s.Problems = []*rpc.PartitionProblem{{Partition: -1, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Detail: "worker-0-g1: no broker has answered it for 38s"}}
			for _, m := range s.Members {
				m.LastBeatUnixMs = s.NowUnixMs
			}
		})
		is(glance(nil), StateUnknown, "nothing has been trained for 38s")
		r.chief.with(func(s *rpc.JobStatus) { s.Partitions[0].LastAdvanceUnixMs = s.NowUnixMs })
		is(glance(nil), StateRunning, "with 2 of 2 workers")
		r.chief.with(func(s *rpc.JobStatus) { s.Members[0].LastBeatUnixMs -= 10_000; s.Problems = nil })
		is(glance(nil), StateRunning, "with 1 of 2 workers")
		r.chief.with(func(s *rpc.JobStatus) {
			s.StartedUnixMs, s.NowUnixMs, s.Partitions = 0, 0, nil
			for _, m := range s.Members {
				m.LastBeatUnixMs = 0
			}
		})
		r.chief.with(func(s *rpc.JobStatus) { s.Paused = true })
		is(glance(nil), StatePaused, "no scheduler")
		r.chief.with(func(s *rpc.JobStatus) { s.Servers[1].Metrics = nil })
		if g := glance(nil); g.Trained != nil {
			t.Errorf("a server was not heard of yet, and %d records are trained", *g.Trained)
		}
		r.chief.with(func(s *rpc.JobStatus) { s.Paused, s.Servers[1].Metrics = false, &rpc.ServerMetrics{} })
		r.chief.stop()
		is(glance(nil), StateUnknown, "its chief does not answer")
		is(glance(listed), StateUnknown, "4 of its processes live")
		is(glance(func(context.Context) ([]backend.Status, bool, error) { return nil, false, nil }), StateUnknown, "neither does the backend")
		g = glance(func(context.Context) ([]backend.Status, bool, error) { return nil, false, errors.New("no squeue") })
		if is(g, StateUnknown, "neither does the backend"); len(g.Problems) != 1 || !strings.Contains(g.Problems[0], "no squeue") {
			t.Errorf("problems %q", g.Problems)
		}
		is(glance(func(context.Context) ([]backend.Status, bool, error) { return nil, true, nil }), StateGone, "nothing of it runs")
		r.chief.start()
	})
	r.until("the chief is found again", func() error { return r.s.seenErr() })
	r.s.want.Stopping = true
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	away(func() {
		is(glance(listed), StateStopping, "no scheduler goes on with it; 2 workers still train")
		r.chief.stop()
		is(glance(func(context.Context) ([]backend.Status, bool, error) { return nil, true, nil }), StateGone, "its stop was interrupted, and nothing of it runs")
		r.chief.start()
	})
	r.until("the chief is found again", func() error { return r.s.seenErr() })
	r.s.want.Stopping, r.s.want.Forced = true, true
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	away(func() {
		is(glance(listed), StateStopping, "its stop by force was interrupted, and no scheduler goes on with it")
	})
	r.until("the chief is found again", func() error { return r.s.seenErr() })
	hold := make(chan struct{})
	r.chief.with(func(*rpc.JobStatus) { r.chief.hold = hold })
	r.order("stop", 0)
	r.beats(4)
	r.s.endSnapshot()
	away(func() { is(glance(nil), StateStopping, "interrupted") })
	close(hold)
	r.s.want.Stopping = true // as Run does with Options.Stop
	r.stops()
	away(func() { is(glance(nil), StateStopped, "released") })
}

// seenErr is why the last look did not find the chief.
func (s *Scheduler) seenErr() error {
	if s.seen == nil {
		return errors.New("it has not looked")
	}
	return s.seen.chiefErr
}

// A job that is released by force has stopped, and that is written down.
func TestKillIsAStop(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := r.s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if g, err := GlanceAt(t.Context(), r.state, "ctr", nil); err != nil || g.State != StateStopped {
		t.Errorf("%+v, %v", g, err)
	}
}
