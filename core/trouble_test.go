package core

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// An end is counted once, with its reason, in whatever steps the backend tells of it and of the start that follows.
func TestEndsAreToldInSteps(t *testing.T) {
	id, began := worker(0, 1), time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return began.Add(time.Duration(minute) * time.Minute) }
	st := func(state backend.State, restarts int, finished time.Time, reason string) backend.Status {
		return backend.Status{ID: id, State: state, Restarts: restarts, Started: began, Finished: finished, Reason: reason}
	}
	const preempted = "it was stopped on n1 and waits for another place: preempted by alloc ID 1"
	runs, never := st(backend.StateRunning, 0, time.Time{}, ""), time.Time{}
	for _, tt := range []struct {
		name   string
		looks  []backend.Status
		times  int
		reason string
	}{
		{"it waits for another place, and runs there", []backend.Status{
			runs, st(backend.StatePending, 0, at(1), preempted), st(backend.StateRunning, 1, never, ""), st(backend.StateRunning, 1, never, ""),
		}, 1, preempted},
		{"that twice", []backend.Status{
			runs, st(backend.StatePending, 0, at(1), preempted), st(backend.StateRunning, 1, never, ""),
			st(backend.StatePending, 1, at(2), preempted), st(backend.StateStarting, 2, never, ""), st(backend.StateRunning, 2, never, ""),
		}, 2, preempted},
		{"it runs there and crashes before that was seen", []backend.Status{
			runs, st(backend.StatePending, 0, at(1), preempted), st(backend.StateStarting, 2, never, "it crashed with code 3"),
		}, 2, "it crashed with code 3"},
		{"it runs there when it is seen", []backend.Status{runs, st(backend.StateRunning, 1, never, "")}, 1, "it ended with code 0"},
		{"it crashes and is started again in its place", []backend.Status{
			runs, st(backend.StateStarting, 0, at(1), "it crashed"), st(backend.StateRunning, 1, at(1), ""), st(backend.StateStarting, 1, at(2), "it crashed again"),
		}, 2, "it crashed again"},
		{"it ends for good", []backend.Status{runs, st(backend.StateFailed, 0, at(1), "it crashed"), st(backend.StateFailed, 0, at(1), "it crashed")}, 1, "it crashed"},
	} {
		s := &Scheduler{lg: slog.New(slog.DiscardHandler), troubles: map[backend.ID]*trouble{}}
		var got *trouble
		for i, look := range tt.looks {
			got = s.compare(look, at(i))
		}
		if got.times != tt.times || got.reason != tt.reason {
			t.Errorf("%s: %d ends, the last since %q; want %d, %q", tt.name, got.times, got.reason, tt.times, tt.reason)
		}
	}
}

// One that is refused since the one before it is ending, as after a stop by force, is waited for; it is a problem only when that takes long.
func TestRefusalWhileTheOneBeforeEnds(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("scale", 2)
	const why = `start worker-1-g1 of job "ctr": generation 1 is still ending on node n1`
	refuse := func() {
		r.s.want.Ranks, r.s.want.Target, r.s.want.Workers[1] = []int{0, 1}, 2, 1
		r.s.refused(worker(1, 1), backend.Errorf(backend.Conflict, "%s", why), r.now)
		r.s.seen.at = r.now
	}
	told := func() bool {
		return slices.ContainsFunc(r.s.problems(), func(p string) bool { return strings.Contains(p, why) })
	}
	for began := r.now; r.now.Sub(began) < endsWithin; r.now = r.now.Add(time.Second) {
		if refuse(); told() {
			t.Fatalf("a problem after %v: %q", r.now.Sub(began), r.s.problems())
		}
		if w := r.s.allocationWaits(worker(1, 1)); !strings.Contains(w, why) {
			t.Fatalf("it waits for %q", w)
		}
	}
	if refuse(); !told() {
		t.Errorf("no problem after %v: %q", endsWithin, r.s.problems())
	}
}

// Of a process that was ended by the cluster, or by somebody there, what its log says last is no cause.
func TestLogOfWhatOthersEndedIsNotQuoted(t *testing.T) {
	const why = "somebody cancelled its job, on node n1 (Slurm job 7: CANCELLED, by uid 1000)"
	for _, code := range []int{0, 137, 143, 3} {
		r := newRig(t, rigOptions{})
		r.started(1)
		id := serverID(1, 1)
		for _, err := range []error{
			r.cluster.Print("ctr", id, "level=WARN msg=\"a worker is slow\"\n"), r.cluster.Exit("ctr", id, code), r.cluster.SetState("ctr", id, backend.StateFailed, why),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.beat()
		p, err := r.problem("ps-1-g1 has ended 1×: " + why)
		if quoted := strings.Contains(p, LogEnds); err != nil || quoted != (code == 3) {
			t.Errorf("with code %d: %q, %v", code, p, err)
		}
	}
}

// Whoever has new credentials for a cluster that knows the old ones no more is told to give the order that is at work.
func TestReplacedCredentials(t *testing.T) {
	for stopping, want := range map[bool]string{
		false: "what runs cannot be seen: no. Where its credentials were replaced, end this scheduler (Ctrl-C) and give the same kale run again with the new ones: training goes on",
		true:  "what runs cannot be seen: no. Where its credentials were replaced, end this scheduler (Ctrl-C) and give kale stop again with the new ones",
	} {
		if got := (&seen{listErr: backend.Errorf(backend.Unauthorised, "no"), stopping: stopping}).unlisted(); got != want {
			t.Errorf("says %q, want %q", got, want)
		}
	}
}

// A server that has its place and does not come up is a problem once that lasts longer than a start does: nothing is trained meanwhile, and the job is not said to run.
func TestServerThatDoesNotComeUpIsAProblem(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.serverIs(1, false, 6)
	if err := r.cluster.Exit("ctr", server(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.until("the server has a successor", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1"))
	if err := r.cluster.SetState("ctr", server(1, 2), backend.StateStarting, "its script has written nothing yet"); err != nil {
		t.Fatal(err)
	}
	down := func(lasts time.Duration) {
		r.chief.with(func(st *rpc.JobStatus) { st.Servers[1].LastBeatUnixMs = time.Now().Add(-lasts).UnixMilli() })
		r.beats(2)
	}
	down(downLate / 2)
	if text, err := r.problem("parameter server 1"); err == nil {
		t.Errorf("a start is a problem: %s", text)
	}
	down(34 * time.Second)
	const want = "parameter server 1 has been down for 34s, and nothing is trained until it is back: ps-1-g2 is starting (its script has written nothing yet)"
	if text, err := r.problem("parameter server 1 has been"); err != nil || text != want {
		t.Errorf("says %q (%v), want %q", text, err, want)
	}
	if v := r.s.View(); v.State != StateStarting {
		t.Errorf("the job is %s", v.State)
	}
	r.chief.with(func(st *rpc.JobStatus) { // the next chief, which has never heard it
		st.Servers[1].LastBeatUnixMs, st.NowUnixMs = 0, time.Now().UnixMilli()
		st.StartedUnixMs = st.NowUnixMs - 21_000
	})
	r.beats(2)
	if text, err := r.problem("parameter server 1 has been"); err != nil || !strings.HasPrefix(text, "parameter server 1 has been down for at least 21s, and ") {
		t.Errorf("under the next chief it says %q (%v)", text, err)
	}
	r.chief.with(func(st *rpc.JobStatus) { st.NowUnixMs = 0 })
	r.serverIs(1, true, 7)
	r.beats(2)
	if text, err := r.problem("parameter server 1"); err == nil || r.s.View().State != StateRunning {
		t.Errorf("once it is up the job is %s: %s", r.s.View().State, text)
	}
}
