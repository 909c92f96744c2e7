package core

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
)

func TestVictims(t *testing.T) {
	soon, later := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, c := range map[string]struct {
		cs   []candidate
		want []int // all of them, in the order in which they leave
	}{
		"the highest ranks":        {[]candidate{{rank: 0, standing: trains}, {rank: 2, standing: trains}, {rank: 1, standing: trains}}, []int{2, 1, 0}},
		"who is not placed":        {[]candidate{{rank: 0, standing: notPlaced}, {rank: 1, standing: trains}, {rank: 2, standing: joining}}, []int{0, 2, 1}},
		"whose time is up":         {[]candidate{{rank: 0, standing: trains, deadline: soon}, {rank: 1, standing: trains, deadline: later}, {rank: 2, standing: trains}}, []int{0, 1, 2}},
		"placing beats time":       {[]candidate{{rank: 0, standing: trains, deadline: soon}, {rank: 1, standing: notPlaced}}, []int{1, 0}},
		"who is last in the queue": {[]candidate{{rank: 0, standing: notPlaced, queued: soon}, {rank: 1, standing: notPlaced, queued: later}, {rank: 2, standing: notPlaced, queued: soon}, {rank: 3, standing: notPlaced}}, []int{3, 1, 2, 0}},
		"stragglers":               {[]candidate{{rank: 0, standing: trains, slow: true}, {rank: 1, standing: trains}, {rank: 2, standing: trains, slow: true}}, []int{2, 0, 1}},
		"time beats being slow":    {[]candidate{{rank: 0, standing: trains, slow: true}, {rank: 1, standing: trains, deadline: later}}, []int{1, 0}},
		"one time, highest ranks":  {[]candidate{{rank: 3, standing: trains, deadline: soon}, {rank: 4, standing: trains, deadline: soon}}, []int{4, 3}},
	} {
		before := slices.Clone(c.cs)
		for n := range len(c.want) + 2 {
			want := c.want[:min(n, len(c.want))]
			if got := victims(n, c.cs); !slices.Equal(got, want) {
				t.Errorf("%s: %d of them are %v, want %v", name, n, got, want)
			}
		}
		if !slices.Equal(before, c.cs) {
			t.Errorf("%s: the candidates were changed", name)
		}
	}
}

func TestSetTargetKeepsASet(t *testing.T) {
	now := time.Unix(0, 0)
	d := newDesired("x")
	leave := func(ranks ...int) func(int) []int {
		return func(n int) []int {
			if n != len(ranks) {
				t.Fatalf("%d workers have to leave, want %d", n, len(ranks))
			}
			return slices.Clone(ranks)
		}
	}
	for i, step := range []struct {
		n       int
		leave   []int
		changed []int
		ranks   []int
		workers map[int]uint64
	}{
		{3, nil, []int{0, 1, 2}, []int{0, 1, 2}, map[int]uint64{0: 1, 1: 1, 2: 1}},
		{3, nil, nil, []int{0, 1, 2}, map[int]uint64{0: 1, 1: 1, 2: 1}},
		{1, []int{2, 0}, []int{0, 2}, []int{1}, map[int]uint64{0: 1, 1: 1, 2: 1}},
		{4, nil, []int{0, 2, 3}, []int{0, 1, 2, 3}, map[int]uint64{0: 2, 1: 1, 2: 2, 3: 1}},
		{0, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}, []int{}, map[int]uint64{0: 2, 1: 1, 2: 2, 3: 1}},
	} {
		got := d.setTarget(step.n, now, leave(step.leave...))
		if !slices.Equal(got, step.changed) || !slices.Equal(d.Ranks, step.ranks) || d.Target != step.n || !cmp.Equal(d.Workers, step.workers) {
			t.Errorf("step %d: changed %v, ranks %v, target %d, workers %v; want %+v", i, got, d.Ranks, d.Target, d.Workers, step)
		}
	}
	if len(d.Draining) != 6 {
		t.Errorf("draining are %+v", d.Draining)
	}
}

// A state that the program before this one wrote opens, in the middle of a rescale too, and nothing is started or released for it.
func TestStateOfVersion1Opens(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	var old map[string]any
	raw, err := json.Marshal(r.s.want)
	if err == nil {
		err = json.Unmarshal(raw, &old)
	}
	if err != nil {
		t.Fatal(err)
	}
	old["version"] = 1
	delete(old, "ranks")
	old["rescale"] = Rescale{Kind: plan.KindOut, From: 1, To: 3, Decided: r.now}
	if err := r.s.store.Put(desiredKey, old); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if !slices.Equal(r.s.want.Ranks, []int{0, 1, 2}) || r.s.want.Version != desiredVersion || !slices.Equal(r.s.want.Rescale.Ranks, []int{1, 2}) {
		t.Fatalf("it became %+v, rescale %+v", r.s.want, r.s.want.Rescale)
	}
	r.until("the rescale is done", r.settled(3))
	r.wantCalls()
}

// Scale-in chooses who leaves: here whose walltime is up first. What stays need not be a prefix, across a restart too; growth fills the gap.
func TestScaleInLeavesAGap(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(4)
	if err := r.cluster.SetDeadline("ctr", worker(1, 1), r.now.Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.order("scale", 3)
	r.until("worker 1 is gone", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1 worker-3-g1"))
	r.until("the rescale is done", r.settled(3))
	r.reopen()
	r.beats(3)
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1 worker-3-g1")
	r.mark()
	r.order("scale", 4)
	r.until("it has grown", r.settled(4))
	r.wantCalls("ensure worker-1-g2")
	if rs := r.rescales(); !slices.Equal(rs[len(rs)-1].Ranks, []int{1}) || !slices.Equal(rs[len(rs)-2].Ranks, []int{1}) {
		t.Errorf("rescales %+v", rs)
	}
}

// Of those that wait for a place and those that train, the former go first; of those that train, stragglers.
func TestScaleInPrefersThePendingAndTheSlow(t *testing.T) {
	r := newRig(t, rigOptions{slots: 4, change: func(text string) string { // longer than this test's clock goes
		return strings.Replace(text, `tick         = "1s"`, "tick = \"1s\"\nplace_timeout = \"30d\"", 1)
	}})
	r.started(4)
	r.chief.with(func(s *rpc.JobStatus) {
		for _, m := range s.Members {
			m.Metrics.StepSeconds = 0.1
			if m.Rank == 2 {
				m.Metrics.StepSeconds = 0.2
			}
		}
	})
	r.order("scale", 6)
	r.beats(2)
	r.now = r.now.Add(rescaleTimeout) // what could not be placed keeps nobody from deciding otherwise
	r.beats(2)
	r.order("scale", 5)
	r.beats(2)
	if !slices.Equal(r.s.want.Ranks, []int{0, 1, 2, 3, 4}) {
		t.Errorf("wanted are %v", r.s.want.Ranks)
	}
	r.order("scale", 3)
	r.until("the rescale is done", r.settled(3))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-3-g1")
}

// What a scheduler that lost its state finds running is what is wanted, gap and all.
func TestAdoptKeepsTheGap(t *testing.T) {
	d := newDesired("x")
	if !d.adopt([]backend.Status{
		{ID: server(0, 2), State: backend.StateRunning}, {ID: worker(0, 3), State: backend.StateRunning}, {ID: worker(1, 1), State: backend.StateFailed},
		{ID: worker(2, 1), State: backend.StateStopping}, {ID: worker(4, 7), State: backend.StatePending},
	}) {
		t.Fatal("nothing was learnt")
	}
	if !slices.Equal(d.Ranks, []int{0, 4}) || d.Target != 2 || d.Servers[0] != 2 || d.Workers[4] != 7 || d.Workers[2] != 1 || !d.Trained {
		t.Errorf("it became %+v", d)
	}
}

// A scheduler that comes back to a job which another one, with a state folder of its own, has made smaller, starts nobody again.
func TestOlderStateStartsNobodyAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(4)
	r.order("auto", 0) // no person wants four
	own, trainer := r.state, r.s.opt.Trainer
	moveTo := func(state string) {
		t.Helper()
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		r.state = state
		r.open(trainer)
	}
	moveTo(t.TempDir())
	r.order("scale", 2)
	r.until("two are left", r.settled(2))
	moveTo(own)
	r.mark()
	r.beat()
	for _, c := range r.backend.Calls()[r.marked:] {
		if c.Op == fake.OpEnsure && slices.ContainsFunc(c.IDs, func(id backend.ID) bool { return id.Role == backend.RoleWorker && id.Rank >= 2 }) {
			t.Errorf("it starts %v", c.IDs)
		}
	}
	if n := r.s.want.Target; n != 2 {
		t.Errorf("it wants %d workers, and 2 run", n)
	}
	live := func(ids ...backend.ID) (out []backend.Status) {
		for _, id := range ids {
			out = append(out, backend.Status{ID: id, State: backend.StateRunning})
		}
		return out
	}
	for name, c := range map[string]struct {
		list []backend.Status
		want []int
	}{
		"nobody runs":            {nil, []int{0, 1, 2}},
		"one has been let go":    {live(worker(0, 1), worker(2, 1)), []int{0, 2}},
		"one waits in a queue":   {append(live(worker(0, 1), worker(1, 1)), backend.Status{ID: worker(2, 1), State: backend.StatePending}), []int{0, 1, 2}},
		"another is being ended": {append(live(worker(0, 1), worker(1, 1)), backend.Status{ID: worker(2, 1), State: backend.StateStopping}), []int{0, 1}},
	} {
		d := newDesired("x")
		d.Ranks, d.Workers, d.Target = []int{0, 1, 2}, map[int]uint64{0: 1, 1: 1, 2: 1}, 3
		if changed := d.giveUp(c.list); changed != (len(c.want) < 3) || !slices.Equal(d.Ranks, c.want) || d.Target != len(c.want) {
			t.Errorf("%s: %v of %v are wanted (changed: %v), want %v", name, d.Ranks, d.Target, changed, c.want)
		}
	}
}

// A scale-in gives up the places of those who came last into the cluster's queue, whatever their ranks.
func TestScaleInKeepsTheFirstInTheQueue(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	waits := func(rank int, since time.Time) {
		t.Helper()
		id := workerID(rank, 1)
		if err := r.cluster.SetState("ctr", id, backend.StatePending, "others come first"); err != nil {
			t.Fatal(err)
		}
		if err := r.cluster.SetTimes("ctr", id, since, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	r.order("scale", 3)
	r.beat()
	waits(1, r.now)
	waits(2, r.now.Add(-time.Minute))
	r.beat()
	r.mark()
	r.order("scale", 2)
	r.beats(2)
	r.wantCalls("release worker-1-g1 forced")
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-2-g1")
}

// A server on its way out, of whom the state knows nothing, is not taken for the job's: the next generation is.
func TestAdoptLeavesWhatIsOnItsWayOut(t *testing.T) {
	d := newDesired("token")
	if !d.adopt([]backend.Status{{ID: server(0, 3), State: backend.StateStopping, Away: true}, {ID: server(1, 2), State: backend.StateRunning}}) {
		t.Error("nothing was learnt")
	}
	if want := map[int]uint64{0: 4, 1: 2}; !maps.Equal(d.Servers, want) {
		t.Errorf("servers of generations %v are wanted, want %v", d.Servers, want)
	}
}
