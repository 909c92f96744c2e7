package core

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

func TestFirstStartWithoutChiefIsNotUnknown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.beat()
	if d := r.decision(); d.Kind != plan.KindOut || d.Target != 1 {
		t.Errorf("first decision: %s to %d, want out to the least, 1: %s", d.Kind, d.Target, d.Reason)
	}
	r.beats(3)
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	if o := r.s.last.Observation; o.Hold.Unknown || o.Workers.Unknown > 0 || o.Workers.Pending != 1 {
		t.Errorf("while the first servers start: hold %+v, workers %+v", o.Hold, o.Workers)
	}
	v := r.s.View()
	if len(v.Problems) > 0 || v.Sample.Unknown != "" {
		t.Errorf("a start is no problem: %q, unknown %q", v.Problems, v.Sample.Unknown)
	}
	if s := v.Sample; s.Running == nil || *s.Running != 0 || *s.Trained != 0 || *s.Busy != 0 || *s.Capacity != 0 || *s.Pending != 1 || *s.Held != 1 {
		t.Errorf("of a job in which nobody trains yet that is not unknown: %+v", s)
	}
	for _, id := range []backend.ID{server(0, 1), server(1, 1), worker(0, 1)} {
		if n := r.cluster.Starts("ctr", id); n != 1 {
			t.Errorf("%s was started %d times", id, n)
		}
	}
}

// What a problem tells is no warning of the log where somebody reads both.
func TestWhatIsToldIsNoWarning(t *testing.T) {
	for _, told := range []bool{false, true} {
		r := newRig(t, rigOptions{})
		r.started(1)
		var log strings.Builder
		r.s.lg, r.s.opt.Told = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})), told
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
		r.chief.stop()
		r.beat()
		if p := r.s.View().Problems; len(p) == 0 || told != (log.Len() == 0) {
			t.Errorf("told %v: problems %q, log %s", told, p, &log)
		}
	}
}

// While the backend tells nothing, what does not answer else is told too: a server by the chief's word, with for how long, or the chief, with what it said last.
func TestWhoIsDarkBesideTheBackend(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	away := func() {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
		r.beat()
	}
	told := func(what string) bool {
		return slices.ContainsFunc(r.s.View().Problems, func(p string) bool { return strings.Contains(p, what) })
	}
	away()
	if p := r.s.View().Problems; len(p) != 1 {
		t.Errorf("all but the backend answer: %q", p)
	}
	r.chief.with(func(st *rpc.JobStatus) {
		st.Servers[1].Info.Up, st.Servers[1].LastBeatUnixMs = false, time.Now().UnixMilli()-34_000
	})
	away()
	if !told("ps-1-g1 has not answered for 34s, and training waits for it; it is started again once the backend tells") || !told("the backend does not answer") {
		t.Errorf("a server is down: %q", r.s.View().Problems)
	}
	at := r.s.saidAt.Format(time.TimeOnly)
	r.chief.stop()
	away()
	if !told("the chief does not answer: ") || !told("the backend does not answer") || told("ps-1-g1") {
		t.Errorf("the chief is away: %q", r.s.View().Problems)
	}
	for i, said := range []string{"up", "down"} {
		v := r.s.View().Servers[i]
		if v.Up != nil || !strings.HasSuffix(v.Reason, "; by the chief "+said+" at "+at+", and not heard of since") {
			t.Errorf("%s: up %v, %q", v.ID, v.Up, v.Reason)
		}
	}
	r.beat()
	if told("the backend") || told("started again once") || strings.Contains(r.s.View().Servers[0].Reason, "by the chief") {
		t.Errorf("the backend is back: %q, %q", r.s.View().Problems, r.s.View().Servers[0].Reason)
	}
}

// Of a job's picture, what cannot be known is left out: by whoever does not answer. What is known to be none is 0.
func TestUnknownIsLeftOut(t *testing.T) {
	broker := openBroker(t)
	for name, c := range map[string]struct {
		break_ func(*rig)
		lacks  string
	}{
		"nothing":                   {func(*rig) {}, ""},
		"chief is away":             {func(r *rig) { r.chief.stop() }, "dead_records lost_offsets sample.busy sample.capacity sample.pending sample.running sample.trained servers.memory_bytes servers.rows servers.up trained_records workers.busy workers.partitions workers.queue_records workers.records_per_second"},
		"backend fails":             {func(r *rig) { r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted")) }, "sample.held"},
		"backend's list is partial": {func(r *rig) { r.backend.PartialNext(worker(0, 1)) }, "sample.held"},
		"a server was not heard": {func(r *rig) { r.chief.with(func(st *rpc.JobStatus) { st.Servers[0].Metrics = nil }) },
			"dead_records lost_offsets servers.memory_bytes servers.rows trained_records"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			c.break_(r)
			r.beat()
			raw, err := json.Marshal(r.s.View())
			if err != nil {
				t.Fatal(err)
			}
			var v map[string]any
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			v["servers"], v["workers"] = v["servers"].([]any)[0], v["workers"].([]any)[0]
			var lacks []string
			for _, path := range []string{"dead_records", "lost_offsets", "sample.busy", "sample.capacity", "sample.held", "sample.pending", "sample.running", "sample.trained",
				"servers.memory_bytes", "servers.rows", "servers.up", "trained_records",
				"workers.busy", "workers.partitions", "workers.queue_records", "workers.records_per_second"} {
				in, key, deep := strings.Cut(path, ".")
				object := v
				if deep {
					object = v[in].(map[string]any)
				} else {
					key = in
				}
				if _, found := object[key]; !found {
					lacks = append(lacks, path)
				}
			}
			if got := strings.Join(lacks, " "); got != c.lacks {
				t.Errorf("left out is\n%q, want\n%q", got, c.lacks)
			}
		})
	}
}

// Whatever is unknown, an order to scale in to 1 waits, nothing is released and nothing is started twice. When all is known again it is followed.
func TestUnknownHolds(t *testing.T) {
	broker := openBroker(t)
	for name, c := range map[string]struct {
		break_, mend func(*rig)
		says         string
		state        State // "": unknown
	}{
		"backend fails": {
			break_: func(r *rig) {
				for range 4 {
					r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
				}
			}, mend: func(*rig) {}, says: "the backend does not answer", state: StateRunning,
		},
		"backend needs a person": {
			break_: func(r *rig) {
				for range 4 {
					r.backend.FailNext(fake.OpList, backend.Errorf(backend.Blocked, "scripted"))
				}
			}, mend: func(*rig) {}, says: "what runs cannot be seen: scripted", state: StateStuck,
		},
		"backend's list is partial": {
			break_: func(r *rig) {
				for range 4 {
					r.backend.PartialNext(worker(0, 1), worker(1, 1), worker(2, 1), server(0, 1))
				}
			}, mend: func(*rig) {}, says: "could not look everywhere", state: StateRunning,
		},
		"backend's list is partial, and says why": {
			break_: func(r *rig) {
				for range 4 {
					r.backend.UnansweredNext(backend.Errorf(backend.Unavailable, "scripted"))
				}
			}, mend: func(*rig) {}, says: "the backend could not look everywhere: scripted", state: StateRunning,
		},
		"chief is away": {
			break_: func(r *rig) { r.chief.stop() }, mend: func(r *rig) { r.chief.start() }, says: "the chief does not answer",
		},
		"chief refuses": {
			break_: func(r *rig) {
				r.chief.with(func(*rpc.JobStatus) { r.chief.refuse = status.Error(codes.Internal, "scripted") })
			},
			mend: func(r *rig) { r.chief.with(func(*rpc.JobStatus) { r.chief.refuse = nil }) }, says: "the chief does not answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(3)
			r.order("scale", 1)
			c.break_(r)
			for range 4 {
				r.beat()
				if d := r.decision(); d.Kind != plan.KindHold || d.Target != 3 {
					t.Fatalf("decision %s to %d while %s: %s", d.Kind, d.Target, name, d.Reason)
				}
				if _, err := r.problem(c.says); err != nil {
					t.Error(err)
				}
				if d := r.decision(); c.state == StateStuck && strings.Contains(d.Reason, "scripted") {
					t.Errorf("the decision repeats the problem: %s", d.Reason)
				}
			}
			v, want := r.s.View(), c.state
			if want == "" {
				want = StateUnknown
			}
			if v.State != want {
				t.Errorf("the job is %s while %s", v.State, name)
			}
			if v.Sample.Lag != nil && strings.HasPrefix(name, "chief") {
				t.Errorf("the lag is said to be %v s while %s", *v.Sample.Lag, name)
			}
			r.wantCalls()
			if asked := r.chief.asked(); len(asked) > 0 || len(r.s.want.Draining) > 0 {
				t.Fatalf("draining %v, asked for %q", r.s.want.Draining, asked)
			}
			c.mend(r)
			r.until("the order is followed", r.settled(1))
			r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
		})
	}
}

// While the backend tells nothing, what becomes of the job is what its chief says: it trains, or is paused; it is unknown where a server is down, or nobody trains.
func TestStateByTheChiefsWord(t *testing.T) {
	broker := openBroker(t)
	for name, c := range map[string]struct {
		change func(*rig)
		want   State
	}{
		"it trains":         {func(*rig) {}, StateRunning},
		"it is paused":      {func(r *rig) { r.order("pause", 0) }, StatePaused},
		"a server is down":  {func(r *rig) { r.chief.with(func(st *rpc.JobStatus) { st.Servers[1].Info.Up = false }) }, StateUnknown},
		"nobody trains":     {func(r *rig) { r.chief.with(func(st *rpc.JobStatus) { st.Members = nil }) }, StateUnknown},
		"the chief is away": {func(r *rig) { r.chief.stop() }, StateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			c.change(r)
			r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
			r.beat()
			if v := r.s.View(); v.State != c.want || v.Sample.Unknown == "" || r.decision().Kind != plan.KindHold {
				t.Errorf("the job is %s, unknown %q, decision %s; want %s and a hold", v.State, v.Sample.Unknown, r.decision().Kind, c.want)
			}
		})
	}
}

// A scheduler whose state was lost, and that cannot see what runs, does not say that none of the members of which the chief tells train.
func TestMembersOfALostStateAreNotNone(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.s.want = newDesired("")
	for range 4 {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Blocked, "their folder was removed"))
	}
	r.beat()
	if s := r.s.View().Sample; s.Running != nil || s.Trained != nil {
		t.Errorf("%d workers train %v records/s", *s.Running, *s.Trained)
	}
}

// While the backend does not answer, or not for all, the processes that it had listed are shown as unknown, with what was seen of them last.
func TestUnseenProcessesAreShownAsUnknown(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	states := func() map[string]string {
		got := map[string]string{}
		v := r.s.View()
		for _, w := range v.Workers {
			got[w.ID] = w.Backend
			if unseen := strings.HasPrefix(w.Reason, "not seen since ") && strings.HasSuffix(w.Reason, ", when it was running"); unseen != (w.Backend == "unknown") {
				t.Errorf("%s is %s: %q", w.ID, w.Backend, w.Reason)
			}
		}
		for _, sv := range v.Servers {
			got[sv.ID] = sv.Backend
		}
		return got
	}
	for range 2 {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
		r.beat()
		want := map[string]string{"ps-0-g1": "unknown", "ps-1-g1": "unknown", "worker-0-g1": "unknown", "worker-1-g1": "unknown"}
		if diff := cmp.Diff(want, states()); diff != "" {
			t.Errorf("without an answer (-want +got):\n%s", diff)
		}
		if v := r.s.View(); v.Listed.IsZero() || !v.Listed.Equal(r.s.listedAt) || !v.Listed.Before(r.now) {
			t.Errorf("at %v the cluster had last told at %v", r.now, v.Listed)
		}
	}
	r.backend.PartialNext(worker(0, 1))
	r.beat()
	want := map[string]string{"ps-0-g1": "running", "ps-1-g1": "running", "worker-0-g1": "unknown", "worker-1-g1": "running"}
	if diff := cmp.Diff(want, states()); diff != "" {
		t.Errorf("with half an answer (-want +got):\n%s", diff)
	}
	r.beat()
	if v := r.s.View(); !v.Listed.IsZero() {
		t.Errorf("with an answer it had last told at %v", v.Listed)
	}
	want["worker-0-g1"] = "running"
	if diff := cmp.Diff(want, states()); diff != "" {
		t.Errorf("with an answer (-want +got):\n%s", diff)
	}
}

func TestKafkaAwayHolds(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("scale", 1)
	r.broker.Close()
	for wait := 300 * time.Millisecond; ; wait *= 2 { // the look's own patience is longer than a test's; the others must have answered in it
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		r.s.seen = r.s.look(ctx)
		cancel()
		if r.s.seen.listErr == nil && r.s.seen.chiefErr == nil || wait > time.Minute {
			break
		}
	}
	if r.s.seen.endsErr == nil {
		t.Fatal("the end offsets are known without a broker")
	}
	r.lost = r.s.step(t.Context(), r.now.Add(time.Second))
	if d := r.decision(); d.Kind != plan.KindHold || d.Target != 2 || !strings.Contains(d.Reason, "Kafka") {
		t.Errorf("decision %s to %d: %s", d.Kind, d.Target, d.Reason)
	}
	// A broker that is dead must not read as perfect freshness.
	smp := r.s.sample(r.now.Add(time.Second))
	if smp.Lag != nil || smp.Rate != nil {
		t.Errorf("lag %v and rate %v are shown although the ends of the log are unknown", smp.Lag, smp.Rate)
	}
	if smp.Running == nil || *smp.Running != 2 || smp.Trained == nil { // the chief answers
		t.Errorf("%v workers train, %v records/s", smp.Running, smp.Trained)
	}
	r.wantCalls()
}

// Rule 23 of EXACTLY_ONCE: hold on unknown freezes how many, never the repair of what is wanted.
func TestRepairGoesOnWhileTheChiefIsAway(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.chief.stop()
	for _, id := range []backend.ID{server(0, 1), worker(1, 1)} {
		if err := r.cluster.Exit("ctr", id, 137); err != nil {
			t.Fatal(err)
		}
	}
	r.beats(3)
	r.mustBeLive("ps-0-g2 ps-1-g1 worker-0-g1 worker-1-g2")
	if d := r.decision(); d.Kind != plan.KindHold {
		t.Errorf("decision %s: %s", d.Kind, d.Reason)
	}
	r.until("all is well again", r.settled(2))
}

// What ends while the backend cannot be asked is repaired when it can.
func TestRepairGoesOnWhenTheBackendAnswersAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := r.cluster.Exit("ctr", worker(0, 1), 1); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
	}
	r.beats(3)
	r.wantCalls()
	r.beat()
	r.wantCalls("ensure worker-0-g2")
}
