package core

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// Observe decides and records, and the backend is only looked at.
func TestObserveTouchesNothing(t *testing.T) {
	r := newRig(t, rigOptions{mode: job.ModeObserve})
	r.beats(4)
	r.observed()
	if d := r.decision(); d.Kind != plan.KindOut || d.Target != 1 || !r.s.last.ObserveOnly {
		t.Errorf("decision %s to %d, observed only %v", d.Kind, d.Target, r.s.last.ObserveOnly)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 3}}); err == nil || !strings.Contains(err.Error(), `autoscale.mode is "observe"`) {
		t.Errorf("scale: %v", err)
	}
}

// Of a job of which nothing runs observe says that, and no lag, which only a job that trains can have. What it would do is told when that changes, by the next
// scheduler too, and what it did not do starts no cooldown.
func TestObserveOfNothing(t *testing.T) {
	r := newRig(t, rigOptions{mode: job.ModeObserve, change: func(text string) string {
		return strings.Replace(text, `cooldown_out = "0s"`, `cooldown_out = "1h"`, 1)
	}})
	r.chief.stop()
	r.produce(0, 10)
	r.beats(3)
	first := r.s.View().LastChange
	r.reopen()
	r.beats(3)
	v := r.s.View()
	if d := v.Decision; first == nil || !v.LastChange.Decision.At.Equal(first.Decision.At) || !d.Decision.At.After(first.Decision.At) {
		t.Fatalf("the same decision is told again: %+v, then %+v", first, v.LastChange)
	}
	if v.State != StateObserved || v.Sample.Target != 1 {
		t.Errorf("state %q, %d workers wanted", v.State, v.Sample.Target)
	}
	if s := v.Sample; s.Lag != nil || s.LagRecords != nil || !strings.Contains(s.LagUnknown, "nothing of the job runs") {
		t.Errorf("lag %v, %v records, %q", s.Lag, s.LagRecords, s.LagUnknown)
	}
	if state := string(r.s.want.Policy); strings.Contains(state, "last_out") {
		t.Errorf("a cooldown began: %s", state)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "pause"}}); err == nil || !strings.Contains(err.Error(), `nothing of it runs, and its scheduler starts nothing: autoscale.mode is "observe"`) {
		t.Errorf("pause: %v", err)
	}
	r.job.Workers.Min = 2
	r.reopen()
	r.beats(3)
	if d := r.s.View().LastChange.Decision; d.Target != 2 {
		t.Errorf("what it would do now is not told: %+v", d)
	}
	var told []int
	if err := state.Scan(r.s.store, state.Decisions, time.Time{}, func(rec Record) bool {
		if rec.Changes() {
			told = append(told, rec.Decision.Target)
		}
		return true
	}); err != nil || !slices.Equal(told, []int{1, 2}) {
		t.Errorf("told were decisions for %v workers: %v", told, err)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	g, err := GlanceAt(t.Context(), r.state, r.job.Name, nil)
	if err != nil || g.State != StateNeverStarted || !strings.Contains(g.Says, "only observed it") {
		t.Errorf("a glance: %+v, %v", g, err)
	}
}

// A job that runs is seen as it is, also in the middle of a rescale that another mode has begun.
func TestObserveOfAJobThatRuns(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.order("auto", 0)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	r.s.aim(r.now, plan.Decision{Kind: plan.KindIn, Target: 2})
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	r.job.Autoscale.Mode = job.ModeObserve
	for _, again := range []func(){r.reopen, r.forget} {
		again()
		r.beats(3)
		r.observed()
		if r.s.seen.chiefErr != nil {
			t.Fatal(r.s.seen.chiefErr)
		}
		if v := r.s.View(); v.State != StateRunning {
			t.Errorf("state %q", v.State)
		}
		if o := r.s.last.Observation; o.Workers.Running < 2 || o.Target != o.Workers.Running || o.Action.Kind != "" {
			t.Errorf("observed: target %d, %+v, action %+v", o.Target, o.Workers, o.Action)
		}
	}
	if asked := r.chief.asked(); len(asked) > 0 {
		t.Errorf("asked to drain: %q", asked)
	}
}

func (r *rig) observed() {
	r.t.Helper()
	for _, c := range r.backend.Calls() {
		if !slices.Contains([]fake.Op{fake.OpConfigure, fake.OpPlan, fake.OpList, fake.OpInventory, fake.OpLogs}, c.Op) {
			r.t.Errorf("observe mode called %s %v", c.Op, c.IDs)
		}
	}
}

// The paper's pause-and-restart: everybody leaves before the first of the new number starts.
func TestRestartModeDrainsAllAndStartsTheNewNumber(t *testing.T) {
	for _, to := range []int{4, 1} {
		t.Run(fmt.Sprint(to), func(t *testing.T) {
			m := &mortal{}
			r := newRig(t, rigOptions{mode: job.ModeRestart, wrap: func(b backend.Backend) backend.Backend { m.Backend = b; return m }})
			m.before = r.mustBeSaved
			r.started(2)
			r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
			r.order("scale", to)
			r.beats(3)
			r.wantCalls()
			if o := r.s.last.Observation; o.Target != to {
				t.Errorf("while everybody leaves the target in force is %d, want %d", o.Target, to)
			}
			r.reopen() // in the middle
			r.beat()
			r.s.tickAt = r.now.Add(time.Hour) // so that no decision saves what the rest must
			r.chief.set(0, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
			r.beats(2)
			r.wantCalls("release worker-0-g1 drained")
			r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
			r.until("the new number runs", r.settled(to))
			want := []string{"release worker-0-g1 drained", "release worker-1-g1 drained", "ensure worker-0-g2", "ensure worker-1-g2", "ensure worker-2-g1", "ensure worker-3-g1"}
			r.wantCalls(want[:2+to]...)
			all := r.rescales()
			if got := all[len(all)-1]; got.From != 2 || got.To != to || got.Aborted {
				t.Errorf("recorded %+v", got)
			}
		})
	}
}

// A scheduler that is asked to end in the midst of a restart starts the workers first: nobody else would, and training goes on without a scheduler.
func TestARestartIsFinishedBeforeTheSchedulerEnds(t *testing.T) {
	r := newRig(t, rigOptions{mode: job.ModeRestart})
	r.started(2)
	r.chief.with(func(*rpc.JobStatus) { r.chief.slow = true })
	ctx, end := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- r.s.Run(ctx) }()
	if err := r.s.Do(ctx, Order{Kind: "scale", Target: 3}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all are asked to drain", func() error {
		if got := r.chief.asked(); len(got) < 2 {
			return fmt.Errorf("asked %q", got)
		}
		return nil
	})
	end()
	for rank := range 2 {
		r.chief.set(rank, 1, rpc.MemberState_MEMBER_STATE_DRAINED)
	}
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g2 worker-1-g2 worker-2-g1")
	if v := r.s.View(); len(v.Workers) != 3 {
		t.Errorf("shown at the end: %+v", v.Workers)
	}
}
