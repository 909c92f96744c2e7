package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func (c cluster) harness() conformance.Harness {
	return conformance.Harness{
		Config: c.config, BadConfig: c.badConfig, Workload: c.workload, Starts: c.starts, Crash: c.shell().Crash, Slots: slots,
		Stall: c.stall, Lose: c.lose, Obscure: c.obscure, Keeps: func() []string { return []string{c.state()} },
	}
}

// stall takes the folder's lock, without which nothing can be placed.
func (c cluster) stall(t testing.TB) func() {
	t.Helper()
	unlock, err := root(filepath.Join(c.state(), "backend-local")).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

// lose ends a workload's supervisor, and its process with it.
func (c cluster) lose(t testing.TB, job string, id backend.ID) {
	t.Helper()
	v := root(filepath.Join(c.state(), "backend-local")).instance(job, id).look()
	if err := signalTo(v.record.Supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// half is the first half of a record, without the blanks that fill its room.
func half(record []byte) []byte {
	text := bytes.TrimRight(record, " ")
	return text[:len(text)/2]
}

// obscure breaks off a workload's record in the middle.
func (c cluster) obscure(t testing.TB, job string, id backend.ID) func() {
	t.Helper()
	status := filepath.Join(root(filepath.Join(c.state(), "backend-local")).instance(job, id).dir, statusFile)
	good, err := os.ReadFile(status)
	if err == nil {
		err = os.WriteFile(status, half(good), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.WriteFile(status, good, 0o600); err != nil {
			t.Error(err)
		}
	}
}

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		h := newCluster(t).harness()
		h.Open = func(t testing.TB) backend.Backend { return inProcess(t, newGPUs()) }
		return h
	})
}

func TestConformanceOverPlugin(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Harness {
		h := newCluster(t).harness()
		h.Open = func(t testing.TB) backend.Backend { return launch(t) }
		h.Kill = conformance.KillPlugin
		return h
	})
}

// Two schedulers by mistake: they share the folder, and no slot is given out twice.
func TestTwoBackendsAtOnce(t *testing.T) {
	c := newCluster(t)
	both := []*local{inProcess(t, newGPUs()), inProcess(t, newGPUs())}
	for _, b := range both {
		configure(t, b, c.config("j"))
	}
	var callers sync.WaitGroup
	var mu sync.Mutex
	holders := map[string]backend.ID{}
	refused := 0
	for rank := range 2 * slots {
		callers.Go(func() {
			w := c.workload("j", backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: 1}, conformance.Steady)
			w.Resources.GPUs = 1
			st, err := both[rank%2].Ensure(t.Context(), "j", []backend.Workload{w})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case st[0].Err != nil && st[0].Err.Code == backend.NoCapacity:
				refused++
			case st[0].Err != nil || len(st[0].Devices) != 1:
				t.Errorf("Ensure = %+v", st[0])
			default:
				if other, taken := holders[st[0].Devices[0]]; taken {
					t.Errorf("%s and %s both have %s", other, w.ID, st[0].Devices[0])
				}
				holders[st[0].Devices[0]] = w.ID
			}
		})
	}
	callers.Wait()
	if len(holders) != slots || refused != slots {
		t.Errorf("%d slots are held and %d workloads were refused, want %d each", len(holders), refused, slots)
	}
	conformance.Drop(t, both[0], "j")
}

// A scheduler that hangs with the folder's lock must not hang others.
func TestFolderLockedForLong(t *testing.T) {
	c := newCluster(t)
	b := inProcess(t, newGPUs())
	configure(t, b, c.config("j"))
	unlock, err := root(filepath.Join(c.state(), "backend-local")).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = b.Ensure(ctx, "j", []backend.Workload{c.workload("j", workerOne, conformance.Steady)})
	if !errors.Is(err, context.DeadlineExceeded) || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("Ensure = %v, want its deadline with code %q", err, backend.Unavailable)
	}
}

// How long it takes from asking for a workload to a process, supervisor included, and to give it up again.
func BenchmarkEnsureRelease(b *testing.B) {
	c := cluster{dir: b.TempDir()}
	l := inProcess(b, newGPUs())
	configure(b, l, c.config("j"))
	generation := uint64(0)
	for b.Loop() {
		generation++
		id := backend.ID{Role: backend.RoleWorker, Generation: generation}
		w := c.workload("j", id, conformance.Steady)
		ensure(b, l, "j", w)
		if err := l.Release(b.Context(), "j", []backend.ID{id}, backend.Forced); err != nil {
			b.Fatal(err)
		}
	}
	conformance.Drop(b, l, "j")
}

// What one look at a job of sixteen workloads costs: the scheduler does that every few seconds.
func BenchmarkList(b *testing.B) {
	c := cluster{dir: b.TempDir()}
	l := inProcess(b, newGPUs())
	configure(b, l, c.config("j"))
	for rank := range 16 {
		ensure(b, l, "j", c.workload("j", backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: 1}, conformance.Steady))
	}
	for b.Loop() {
		if _, _, err := l.List(b.Context(), "j"); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	conformance.Drop(b, l, "j")
}

// What has its folder and is only being started has not ended; where nobody starts it any more, it has failed.
func TestBeingStartedHasNotEnded(t *testing.T) {
	c := newCluster(t)
	l := inProcess(t, newGPUs())
	configure(t, l, c.config("j"))
	w := backend.Workload{ID: backend.ID{Role: backend.RoleWorker, Generation: 1}}
	at, err := l.at(t.Context(), "j")
	if err != nil {
		t.Fatal(err)
	}
	i := at.root().instance("j", w.ID)
	if err := errors.Join(os.MkdirAll(i.dir, 0o700), backend.WriteJSON(filepath.Join(i.dir, specFile), spec{Job: "j", ID: w.ID})); err != nil {
		t.Fatal(err)
	}
	end := l.starts.Begin("j", []backend.Workload{w})
	if st := list(t, l, "j"); st == nil || st.State != backend.StateStarting {
		t.Errorf("while it is being started it is %+v", st)
	}
	end()
	if st := list(t, l, "j"); st == nil || st.State != backend.StateFailed {
		t.Errorf("when nobody starts it it is %+v", st)
	}
}
