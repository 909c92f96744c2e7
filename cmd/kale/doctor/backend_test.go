package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/backend/fake"
)

// What the backend has is held against what workers ask for, and the least and the most of them against what is free.
func TestBackend(t *testing.T) {
	for _, c := range []struct {
		name  string
		slots int
		fail  map[fake.Op]error
		gpus  int
		want  []string
		says  string
	}{
		{"room for all", 4, nil, 1, []string{"ok backend block", "warn devices", "ok room for 2 workers", "ok room for 4 workers"}, "there is"},
		{"room for some", 3, nil, 1, []string{"ok backend block", "warn devices", "ok room for 2 workers", "warn room for 4 workers"}, "workers.max"},
		{"no room", 1, nil, 1, []string{"ok backend block", "warn devices", "fail room for 2 workers", "warn room for 4 workers"}, "needs"},
		{"less than one worker", 1, nil, 2, []string{"ok backend block", "fail devices", "fail room"}, "has more than 1. Lower workers.gpus."},
		{"without GPUs", 0, nil, 0, []string{"ok backend block", "ok devices", "ok room for 2 workers", "ok room for 4 workers"}, "workers use none"},
		{"a cluster that is away", 4, map[fake.Op]error{fake.OpInventory: errors.New("no route"), fake.OpPlan: errors.New("no route")}, 1,
			[]string{"ok backend block", "fail devices", "fail room for 2 workers"}, "no route"},
		{"one that cannot tell", 4, map[fake.Op]error{fake.OpInventory: backend.Errorf(backend.Unsupported, "x"), fake.OpPlan: backend.Errorf(backend.Unsupported, "x")}, 1,
			[]string{"ok backend block", "skip devices", "skip room"}, "cannot tell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := patient(t)
			p.Job.Workers.GPUs = c.gpus
			b := fake.New(nil, fake.NewCluster(c.slots))
			got := p.configure(t.Context(), b)
			for op, err := range c.fail {
				b.FailNext(op, err)
			}
			before := len(b.Calls())
			got = append(got, p.has(t.Context(), b)...)
			if calls := b.Calls()[before:]; slices.IndexFunc(calls, asksWhatThereIs) != 0 || slices.ContainsFunc(calls[1:], asksWhatThereIs) {
				t.Errorf("what the backend has is to be asked once: %v", calls)
			}
			got = append(got, p.room(t.Context(), b)...)
			if diff := cmp.Diff(c.want, says(got)); diff != "" {
				t.Errorf("%s\n%+v", diff, got)
			}
			if all := fmt.Sprint(got); !strings.Contains(all, c.says) {
				t.Errorf("nothing says %q: %s", c.says, all)
			}
			for _, f := range got {
				if f.State != OK && f.State != Skip && f.Do == "" {
					t.Errorf("no advice: %+v", f)
				}
			}
			if calls := b.Calls(); slices.ContainsFunc(calls, func(c fake.Call) bool { return c.Op == fake.OpEnsure || c.Op == fake.OpRelease }) {
				t.Errorf("it did something: %v", calls)
			}
		})
	}
	p := patient(t)
	p.Launch = func(context.Context) (*backend.Client, error) { return nil, errors.New("no such program") }
	if got := run(t.Context(), []group{p.backend()}, nil); !slices.Equal(says(got), []string{"fail backend plugin", "skip backend block", "skip devices", "skip room"}) {
		t.Errorf("no plugin: %q", says(got))
	}
}

func asksWhatThereIs(c fake.Call) bool { return c.Op == fake.OpInventory }

// A backend that has slots and no GPUs runs a job whose workers ask for GPUs, so that it is no failure.
func TestBackendWithoutGPUs(t *testing.T) {
	program, err := conformance.Build(t.TempDir(), "github.com/kale-sched/kale/examples/backend-processes")
	if err != nil {
		t.Fatal(err)
	}
	p := patient(t)
	p.Job.Backend.Name = "processes"
	p.Launch = func(context.Context) (*backend.Client, error) {
		return conformance.Launch(t, program, backend.Options{}), nil
	}
	if _, f := p.launch(t.Context()); f.State != Warn || !strings.Contains(f.Do, "slots") {
		t.Errorf("workers.gpus is 1: %+v", f)
	}
	p.Job.Workers.GPUs = 0
	if _, f := p.launch(t.Context()); f.State != OK {
		t.Errorf("workers.gpus is 0: %+v", f)
	}
}

// away is a cluster that refuses connections, until it is back.
type away struct {
	backend.Backend
	asked, back int
}

func (a *away) Inventory(context.Context) (backend.Inventory, error) {
	if a.asked++; a.back > 0 && a.asked >= a.back {
		return backend.Inventory{}, nil
	}
	return backend.Inventory{}, backend.Errorf(backend.Unavailable, "dial tcp 192.0.2.1:4646: connection refused")
}

// mute is a cluster that is away and says so of what it has, and lets who asks for a placement wait.
type mute struct {
	backend.Backend
	away
}

func (m *mute) Inventory(ctx context.Context) (backend.Inventory, error) {
	return m.away.Inventory(ctx)
}

func (m *mute) Plan(ctx context.Context, _ string, _ []backend.Workload) (backend.Report, error) {
	<-ctx.Done()
	return backend.Report{}, backend.Errorf(backend.Unavailable, "%w", ctx.Err())
}

// What is wrong in the block by the cluster's word is not waited for where the cluster is away.
func TestNoWordOfAClusterThatIsAway(t *testing.T) {
	p := patient(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := &mute{Backend: fake.New(nil, fake.NewCluster(4))}
		p.Waits = func(check string, answer, _ time.Duration) func() {
			return func() {
				if took := time.Since(began); took > answer { // of the test's own clock
					t.Errorf("%s: it was to be waited for up to %v, and took %v", check, answer, took)
				}
			}
		}
		g := p.backend()
		g.trials = g.trials[1:4] // of the plugin that answers already, up to devices
		g.trials[0].try = func(ctx context.Context) []Finding { return p.configure(ctx, b) }
		g.trials[1].try = func(ctx context.Context) []Finding { return p.cluster(ctx, b) }
		got := g.run(t.Context(), p.Waits)
		if diff := cmp.Diff([]string{"ok backend block", "fail cluster", "skip devices"}, says(got)); diff != "" {
			t.Errorf("%s\n%+v", diff, got)
		}
		if took := time.Since(began); took > answerLimit+time.Second { // of the test's own clock
			t.Errorf("it took %v", took)
		}
	})
}

// A cluster that is away is said once, within seconds, with the address that was tried, and nothing is tried that needs it. One that is slow for a moment is not away.
func TestClusterIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := false
		for _, c := range []struct {
			b    *away
			want []string
		}{
			{&away{}, []string{"fail cluster", "skip devices"}},
			{&away{back: 3}, []string{"ok devices"}},
		} {
			began := time.Now()
			g := group{trials: []trial{
				{check: clusterCheck, limit: answerLimit, vital: true, faultsOnly: true, try: func(ctx context.Context) []Finding { return answers(ctx, c.b) }},
				{check: "devices", limit: pluginLimit, try: func(context.Context) []Finding { tried = true; return []Finding{ok("devices", "")} }},
			}}
			got := g.run(t.Context(), nil)
			if diff := cmp.Diff(c.want, says(got)); diff != "" || tried != (c.b.back > 0) {
				t.Errorf("%s\n%+v", diff, got)
			}
			if c.b.back > 0 {
				continue
			}
			if took := time.Since(began); took > 10*time.Second { // of the test's own clock
				t.Errorf("it took %v", took)
			}
			if !strings.Contains(got[0].Says, "192.0.2.1:4646") || !strings.Contains(got[0].Do, "servers are up") || !strings.Contains(got[1].Says, `because of "cluster"`) {
				t.Errorf("%+v", got)
			}
		}
	})
}
