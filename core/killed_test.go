package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/kale-sched/kale/core/backend"
)

// The scheduler is killed before or after each call that changes the cluster, and between beats, and always ends where it would have, having started
// every process once and released every worker in order.
func TestSchedulerKilledAtEveryStep(t *testing.T) {
	broker := openBroker(t)
	after := "ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1"
	most := 0
	for dieAt := 0; dieAt <= most; dieAt++ {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, done %v", dieAt, done), func(t *testing.T) {
				m := &mortal{dieAt: dieAt, done: done}
				r := newRig(t, rigOptions{broker: broker, wrap: func(b backend.Backend) backend.Backend { m.Backend = b; return m }})
				m.before = r.mustBeSaved
				r.survive(func() { r.started(1) })
				r.survive(func() { r.order("scale", 4); r.until("out", r.settledBetweenKills(4)) })
				r.survive(func() { r.order("scale", 2); r.until("in", r.settledBetweenKills(2)) })
				r.mustBeLive(after)
				for _, id := range []backend.ID{server(0, 1), server(1, 1), worker(0, 1), worker(1, 1), worker(2, 1), worker(3, 1)} {
					if n := r.cluster.Starts("ctr", id); n != 1 {
						t.Errorf("%s was started %d times", id, n)
					}
				}
				if m.forced {
					t.Error("a worker was released by force")
				}
				var got []string
				for _, rs := range r.rescales() {
					got = append(got, fmt.Sprintf("%s %d→%d %v", rs.Kind, rs.From, rs.To, rs.Aborted))
				}
				if want := []string{"out 0→1 false", "out 1→4 false", "in 4→2 false"}; !slices.Equal(got, want) {
					t.Errorf("rescales %q, want %q", got, want)
				}
				most = max(most, m.calls)
			})
		}
	}
	if most < 3 {
		t.Fatalf("only %d calls were seen", most)
	}
}

// mustBeSaved checks that what is wanted is on disk: it is saved before it is acted on.
func (r *rig) mustBeSaved() {
	r.t.Helper()
	saved := &desired{}
	if _, err := r.s.store.Get(desiredKey, saved); err != nil {
		r.t.Fatal(err)
	}
	ids := func(ls []leaving) (out []backend.ID) {
		for _, l := range ls {
			out = append(out, l.id())
		}
		return out
	}
	w := r.s.want
	if saved.Target != w.Target || saved.Restart != w.Restart || !maps.Equal(saved.Workers, w.Workers) || !maps.Equal(saved.Servers, w.Servers) {
		r.t.Errorf("acting on target %d, restart %d, workers %v, servers %v while the disk has %d, %d, %v, %v",
			w.Target, w.Restart, w.Workers, w.Servers, saved.Target, saved.Restart, saved.Workers, saved.Servers)
	}
	if gone := slices.DeleteFunc(ids(w.Draining), func(id backend.ID) bool { return slices.Contains(ids(saved.Draining), id) }); len(gone) > 0 {
		r.t.Errorf("%v leave without a record of it", gone)
	}
}

// settledBetweenKills reopens the scheduler before every look.
func (r *rig) settledBetweenKills(workers int) func() error {
	done := r.settled(workers)
	return func() error {
		r.reopen()
		r.beat()
		return done()
	}
}

// survive does something again after the scheduler was killed in the middle.
func (r *rig) survive(f func()) {
	for r.killed(f) {
		r.reopen()
	}
}

func (r *rig) killed(f func()) (dead bool) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case errKilled:
			dead = true
		default:
			panic(v)
		}
	}()
	f()
	return false
}

// mortal is a backend whose caller dies at the dieAt-th call that changes something, before or after it was carried out.
type mortal struct {
	backend.Backend
	calls, dieAt int
	done         bool
	forced       bool
	before       func() // every such call
}

func (m *mortal) die(work func() error) error {
	m.calls++
	if m.before != nil {
		m.before()
	}
	if m.calls == m.dieAt && !m.done {
		panic(errKilled)
	}
	err := work()
	if m.calls == m.dieAt {
		panic(errKilled)
	}
	return err
}

func (m *mortal) Ensure(ctx context.Context, job string, ws []backend.Workload) (sts []backend.Status, err error) {
	err = m.die(func() error {
		sts, err = m.Backend.Ensure(ctx, job, ws)
		return err
	})
	return sts, err
}

func (m *mortal) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	m.forced = m.forced || how == backend.Forced
	return m.die(func() error { return m.Backend.Release(ctx, job, ids, how) })
}
