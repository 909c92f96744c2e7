//go:build cgo

package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// workstation is one machine with some GPUs, on which each job has a folder, and a plugin, of its own.
type workstation struct {
	server *dgxa100.Server
	claims claims
}

func newWorkstation(t *testing.T, gpus int) workstation {
	server := dgx()
	server.DeviceGetCountFunc = func() (int, nvml.Return) { return gpus, nvml.SUCCESS }
	return workstation{server: server, claims: newClaims(t)}
}

// tenant is one job there.
type tenant struct {
	cluster
	*local
	job string
}

func (w workstation) tenant(t *testing.T, job string) tenant {
	return w.at(t, newCluster(t), job)
}

// at is tenant with a folder that others may have too.
func (w workstation) at(t *testing.T, c cluster, job string) tenant {
	l := inProcess(t, &nvmlGPUs{lib: w.server})
	l.claims = w.claims
	configure(t, l, gpuConfig(c, job))
	return tenant{cluster: c, local: l, job: job}
}

// wants is a worker with some GPUs.
func (n tenant) wants(rank int, generation uint64, gpus int) backend.Workload {
	w := n.workload(n.job, backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}, conformance.Steady)
	w.Resources.GPUs = gpus
	return w
}

// refused wants that a worker is not started for want of a GPU, and gives why.
func (n tenant) refused(t *testing.T, w backend.Workload) string {
	t.Helper()
	st, err := n.Ensure(t.Context(), n.job, []backend.Workload{w})
	if err != nil || st[0].Err == nil || st[0].Err.Code != backend.NoCapacity {
		t.Fatalf("Ensure = %+v, %v; want code %q", st, err, backend.NoCapacity)
	}
	return st[0].Err.Message
}

func (n tenant) ensure(t *testing.T, w backend.Workload) backend.Status {
	t.Helper()
	return ensure(t, n, n.job, w)
}

func (n tenant) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(n.record(t, n.job).Supervisor.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, n, n.job, "the loss shows", func(st backend.Status) bool { return st.State == backend.StateFailed })
}

func (w workstation) awaitFree(t *testing.T, gpu int) {
	t.Helper()
	conformance.Eventually(t, "the GPU is free", func() error {
		if by, held, err := w.claims.look(uuidOf(w.server, gpu)); held || err != nil {
			return fmt.Errorf("it is held by %s, %w", by, err)
		}
		return nil
	})
}

// Jobs with folders of their own are not given the same GPU, and are told who has it.
func TestGPUIsGivenOutOnceOnAMachine(t *testing.T) {
	w := newWorkstation(t, 1)
	one, two := w.tenant(t, "first"), w.tenant(t, "second")
	st := one.ensure(t, one.wants(0, 1, 1))
	report, err := two.Plan(t.Context(), "second", []backend.Workload{two.wants(0, 1, 1)})
	if err != nil || report.Fits() || report.Shortage != "needs 1 GPU, 0 free; held by first" || report.Placements[0].Reason != "needs 1 GPU, 0 free of 1; held by first" {
		t.Errorf("Plan = %+v, %v", report, err)
	}
	inv, err := two.Inventory(t.Context())
	if err != nil || inv.Free != 0 || inv.Total != 1 || inv.Devices[0].HeldBy != "first/worker-0-g1" || inv.Devices[0].ID != st.Devices[0] {
		t.Errorf("Inventory = %+v, %v", inv, err)
	}
	if why := two.refused(t, two.wants(0, 1, 1)); !strings.HasSuffix(why, "needs 1 GPU, 0 free of 1; held by first") {
		t.Error(why)
	}
	if st := list(t, two, "second"); st != nil {
		t.Errorf("there is %+v", st)
	}
	two.ensure(t, two.wants(1, 1, 0)) // who wants none has none
	conformance.Drop(t, one, "first")
	if st := two.ensure(t, two.wants(0, 1, 1)); len(st.Devices) != 1 || st.Devices[0] != uuidOf(w.server, 0) {
		t.Errorf("then it is %+v", st)
	}
	conformance.Drop(t, two, "second")
	w.awaitFree(t, 0)
}

// A plugin with jobs of several folders has the machine's GPUs once.
func TestInventoryCountsAMachinesGPUsOnce(t *testing.T) {
	w := newWorkstation(t, 2)
	one := w.tenant(t, "first")
	configure(t, one, gpuConfig(newCluster(t), "second"))
	one.ensure(t, one.wants(0, 1, 1))
	if inv, err := one.Inventory(t.Context()); err != nil || inv.Free != 1 || inv.Total != 2 || len(inv.Devices) != 2 {
		t.Errorf("Inventory = %+v, %v", inv, err)
	}
	conformance.Drop(t, one, "first")
}

// Whoever is faster: each GPU is given out, and once.
func TestPluginsOfManyFoldersAtOnce(t *testing.T) {
	const gpus, rounds = 2, 15
	w := newWorkstation(t, gpus)
	var tenants []tenant
	for _, job := range []string{"a", "b", "c"} {
		tenants = append(tenants, w.tenant(t, job))
	}
	for round := range rounds {
		var mu sync.Mutex
		given := map[string]string{}
		var all sync.WaitGroup
		for _, n := range tenants {
			all.Go(func() {
				sts, err := n.Ensure(t.Context(), n.job, []backend.Workload{n.wants(0, uint64(round+1), 1), n.wants(1, uint64(round+1), 1)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, st := range sts {
					who := n.job + "/" + st.ID.String()
					switch {
					case st.Err != nil && st.Err.Code == backend.NoCapacity:
					case st.Err != nil || len(st.Devices) != 1:
						t.Errorf("%s: %+v", who, st)
					case given[st.Devices[0]] != "":
						t.Errorf("%s and %s both have %s", given[st.Devices[0]], who, st.Devices[0])
					default:
						given[st.Devices[0]] = who
					}
				}
			})
		}
		all.Wait()
		if len(given) != gpus {
			t.Errorf("round %d: given out: %v", round, given)
		}
		for _, n := range tenants {
			conformance.Drop(t, n, n.job)
		}
	}
}

// Two schedulers of one job by mistake: the GPU is theirs, and one process runs on it.
func TestPluginsOfOneFolderStartOnce(t *testing.T) {
	w := newWorkstation(t, 1)
	c := newCluster(t)
	both := []tenant{w.at(t, c, "j"), w.at(t, c, "j")}
	for generation := range uint64(8) {
		var all sync.WaitGroup
		for _, n := range both {
			all.Go(func() {
				if st, err := n.Ensure(t.Context(), "j", []backend.Workload{n.wants(0, generation+1, 1)}); err != nil || st[0].Err != nil {
					t.Errorf("generation %d: %+v, %v", generation+1, st, err)
				}
			})
		}
		all.Wait()
		c.shell().AwaitStarts(t, "j", backend.ID{Role: backend.RoleWorker, Generation: generation + 1}, 1)
	}
	conformance.Drop(t, both[0], "j")
}

// The kernel frees a GPU with its supervisor; a successor claims it again.
func TestKilledSupervisorFreesItsGPU(t *testing.T) {
	w := newWorkstation(t, 1)
	n := w.tenant(t, "j")
	n.ensure(t, n.wants(0, 1, 1))
	before := waitFor(t, n, "j", "it runs", running)
	by, held, err := w.claims.look(uuidOf(w.server, 0))
	if rec := n.record(t, "j"); !held || err != nil || by.Supervisor != rec.Supervisor || by.Child != rec.Child || by.Child.PID != before.PID || by.User == "" {
		t.Errorf("held: %v, by %+v, %v; on record is %+v", held, by, err, rec)
	}
	n.kill(t)
	w.awaitFree(t, 0)
	n.ensure(t, n.wants(0, 1, 1))
	after := waitFor(t, n, "j", "it runs again", running)
	if by, held, err := w.claims.look(uuidOf(w.server, 0)); !held || err != nil || by.Child.PID != after.PID || after.PID == before.PID {
		t.Errorf("then held: %v, by %+v, %v; it is %+v, before %+v", held, by, err, after, before)
	}
	for range 5 { // at once, too
		if err := syscall.Kill(n.record(t, "j").Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitFor(t, n, "j", "the loss shows", func(st backend.Status) bool { return st.State == backend.StateFailed })
		n.ensure(t, n.wants(0, 1, 1))
	}
	conformance.Drop(t, n, "j")
}

// What another job has taken meanwhile is not shared: who had it waits, or a new generation has another.
func TestGPUTakenFromAKilledSupervisor(t *testing.T) {
	w := newWorkstation(t, 1)
	one, two := w.tenant(t, "first"), w.tenant(t, "second")
	one.ensure(t, one.wants(0, 1, 1))
	waitFor(t, one, "first", "it runs", running)
	one.kill(t)
	w.awaitFree(t, 0)
	two.ensure(t, two.wants(0, 1, 1))
	if why := one.refused(t, one.wants(0, 1, 1)); !strings.Contains(why, uuidOf(w.server, 0)+" is held by second/worker-0-g1") {
		t.Error(why)
	}
	if inv, err := one.Inventory(t.Context()); err != nil || inv.Devices[0].HeldBy != "second/worker-0-g1" {
		t.Errorf("Inventory = %+v, %v", inv, err)
	}
	if report, err := one.Plan(t.Context(), "first", []backend.Workload{one.wants(0, 2, 1)}); err != nil || report.Fits() {
		t.Errorf("Plan of the next generation = %+v, %v", report, err)
	}
	if err := two.Release(t.Context(), "second", []backend.ID{workerOne}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	w.awaitFree(t, 0)
	one.ensure(t, one.wants(0, 1, 1))
	waitFor(t, one, "first", "it runs again", running)
	if why := two.refused(t, two.wants(0, 2, 1)); !strings.Contains(why, "held by first") {
		t.Error(why)
	}
	one.kill(t)
	w.awaitFree(t, 0)
	two.ensure(t, two.wants(0, 3, 1))
	w.server.DeviceGetCountFunc = func() (int, nvml.Return) { return 2, nvml.SUCCESS }
	if st := one.ensure(t, one.wants(0, 2, 1)); len(st.Devices) != 1 || st.Devices[0] != uuidOf(w.server, 1) {
		t.Errorf("the next generation is %+v", st)
	}
	conformance.Drop(t, one, "first")
	conformance.Drop(t, two, "second")
}

// What was placed and never ran keeps its generation: when its GPU is gone it is given another, and none is waited for as for any place.
func TestGPUTakenBeforeTheFirstStart(t *testing.T) {
	w := newWorkstation(t, 2)
	one, two, three := w.tenant(t, "first"), w.tenant(t, "second"), w.tenant(t, "third")
	program := one.self
	one.self = "/no/such/program"
	if st, err := one.Ensure(t.Context(), "first", []backend.Workload{one.wants(0, 1, 1)}); err != nil || st[0].Err == nil || st[0].Err.Code != backend.Blocked {
		t.Fatalf("without the plugin's program: %+v, %v", st, err)
	}
	one.self = program
	w.awaitFree(t, 0)
	two.ensure(t, two.wants(0, 1, 1))
	three.ensure(t, three.wants(0, 1, 1))
	if why := one.refused(t, one.wants(0, 1, 1)); !strings.Contains(why, "0 free of 2; held by second, third") {
		t.Error(why)
	}
	if st := list(t, one, "first"); st != nil {
		t.Errorf("there is %+v", st)
	}
	conformance.Drop(t, three, "third")
	one.self = "/no/such/program"
	if st, err := one.Ensure(t.Context(), "first", []backend.Workload{one.wants(0, 1, 1)}); err != nil || st[0].Err == nil || st[0].Err.Code != backend.Blocked {
		t.Fatalf("without the plugin's program: %+v, %v", st, err)
	}
	one.self = program
	conformance.Drop(t, two, "second")
	three.ensure(t, three.wants(0, 2, 1)) // the first one
	two.ensure(t, two.wants(0, 2, 1))     // the one that was given
	conformance.Drop(t, three, "third")
	if st := one.ensure(t, one.wants(0, 1, 1)); len(st.Devices) != 1 || st.Devices[0] != uuidOf(w.server, 0) {
		t.Errorf("it is %+v", st)
	}
	st := waitFor(t, one, "first", "it runs", running)
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(st.PID), "environ"))
	if err != nil || !strings.Contains(string(env), "CUDA_VISIBLE_DEVICES="+uuidOf(w.server, 0)+"\x00") {
		t.Errorf("it sees otherwise: %v", err)
	}
	conformance.Drop(t, one, "first")
	conformance.Drop(t, two, "second")
}

// A new generation has its predecessor's GPU at once, however that ended.
func TestReplacedGenerationsGPU(t *testing.T) {
	w := newWorkstation(t, 1)
	n := w.tenant(t, "j")
	for generation := range uint64(10) {
		n.ensure(t, n.wants(0, generation+1, 1))
		if generation%2 == 0 {
			id := backend.ID{Role: backend.RoleWorker, Generation: generation + 1}
			v := root(filepath.Join(n.state(), "backend-local")).instance("j", id).look()
			if err := signalTo(v.record.Supervisor, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	conformance.Drop(t, n, "j")
	w.awaitFree(t, 0)
}

// The claims are the supervisor's alone: the program on the GPU, and what that leaves running, have none.
func TestChildHasNoClaims(t *testing.T) {
	w := newWorkstation(t, 2)
	n := w.tenant(t, "j")
	n.ensure(t, n.wants(0, 1, 2))
	st := waitFor(t, n, "j", "it runs", running)
	open := func(pid int) (files []string) {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, _ := os.Readlink(filepath.Join(dir, e.Name())); strings.HasPrefix(to, string(w.claims)) {
				files = append(files, to)
			}
		}
		return files
	}
	if got := open(n.record(t, "j").Supervisor.PID); len(got) != 2 {
		t.Errorf("the supervisor has %v", got)
	}
	if got := open(os.Getpid()); len(got) > 0 {
		t.Errorf("the plugin keeps %v", got)
	}
	conformance.Eventually(t, "the program has no claims", func() error { // it may be forked and not executed yet
		if got := open(st.PID); len(got) > 0 {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(st.PID), "environ"))
	if err != nil || strings.Contains(string(env), envClaims) {
		t.Errorf("its environment: %q, %v", env, err)
	}
	conformance.Drop(t, n, "j")
}

// Without a folder for the claims no GPU is given out; slots need none.
func TestNoClaimsNoGPUs(t *testing.T) {
	w := newWorkstation(t, 1)
	n := w.tenant(t, "j")
	if err := os.WriteFile(string(w.claims), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, ensured := n.Ensure(t.Context(), "j", []backend.Workload{n.wants(0, 1, 1)})
	_, planned := n.Plan(t.Context(), "j", []backend.Workload{n.wants(0, 1, 1)})
	_, took := n.Inventory(t.Context())
	for what, err := range map[string]error{"Ensure": ensured, "Plan": planned, "Inventory": took} {
		if err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), string(w.claims)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if st := list(t, n, "j"); st != nil {
		t.Errorf("there is %+v", st)
	}
	configure(t, n, n.config("j")) // gpus = "none"
	n.ensure(t, n.wants(0, 1, 1))
	conformance.Drop(t, n, "j")
}

// What a killed supervisor leaves for a moment is waited for, by its successor and by the next generation.
func TestLingeringClaimIsWaitedFor(t *testing.T) {
	w := newWorkstation(t, 1)
	n := w.tenant(t, "j")
	n.ensure(t, n.wants(0, 1, 1))
	for _, generation := range []uint64{1, 2} {
		waitFor(t, n, "j", "it runs", running)
		n.kill(t)
		w.awaitFree(t, 0)
		f := w.claims.mustTake(t, uuidOf(w.server, 0), root(filepath.Join(n.state(), "backend-local")).instance("j", workerOne).holder())
		time.AfterFunc(200*time.Millisecond, func() { f.Close() })
		n.ensure(t, n.wants(0, generation, 1))
	}
	conformance.Drop(t, n, "j")
}
