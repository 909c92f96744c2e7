// Package local is the backend for one machine: each workload is a process under a small supervisor of its own.
//
// Input: workloads, by the contract of core/backend. Output: processes, and a folder for each that says what became
// of it. Nothing is kept in memory: the folders are the truth, so the plugin and the scheduler may end at any time,
// and what comes after them finds everything again.
//
//	/run/lock/kale-gpus/GPU-….claim      held by the supervisor of who has that GPU; below /tmp where not everybody may write to /run/lock
//	DIR/lock                             held while devices are given out, by whatever plugin shares DIR
//	DIR/jobs/JOB/owner.json              whose the job's name is (backend.Owner), until nothing of the job is left
//	DIR/jobs/JOB/worker-3-g2/spec.json   what to run, and on which devices
//	                        /lock        held by the supervisor for as long as it lives: the one proof that it does
//	                        /status.json what the supervisor last knew
//	                        /released    present once the workload was given up: it never starts again
//	                        /reserved    the room that released takes, for when the disk is full
//	                        /spare       the room that status.json takes, for when the disk is full
//	                        /output.log  what the workload wrote, with one older part beside it
//	                        /alloc/      the workload's own folder and working directory (KALE_ALLOC_DIR)
//
// A workload's devices are GPUs (or MIG instances) when NVML finds some and the block does not say gpus = "none", and
// numbered slots otherwise. A workload that asks for no GPU takes none of either. CPU and memory are not enforced.
// GPUs are given out once on the machine, whatever folders, schedulers and users there are: see claims. Slots are those of DIR, and only jobs that share DIR share them.
//
// DIR is what the block names. Where it names none, it is in the state folder of the scheduler that started the first of the job's processes which may live,
// and stays there for as long as one may: a file beside the job's checkpoint (backend.Home) says so to the schedulers and commands with another state folder.
// Where a folder is moved away under a supervisor that lives, its working directory tells where to, and nothing is started before it is back.
package local

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// local implements backend.Backend.
type local struct {
	lg   *slog.Logger
	self string // the program that is started again as a supervisor
	gpus gpuSource

	claims claims
	jobs   backend.Jobs[settings]

	homes  homes
	starts backend.Starts
}

// New gives the backend. The program that calls it must run Supervise when its arguments are SuperviseCommand and a
// folder. lg may be nil.
func New(lg *slog.Logger) backend.Backend { return newLocal(lg, newGPUs()) }

func newLocal(lg *slog.Logger, gpus gpuSource) *local {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	return &local{lg: lg, self: backend.Executable(), gpus: gpus, claims: machineClaims()}
}

// Info implements backend.Backend.
func (l *local) Info(context.Context) (backend.Info, error) {
	return backend.Info{Name: "local", Version: backend.BuildVersion(), Drains: true, GPUs: true, Survives: true}, nil
}

// Configure implements backend.Backend.
func (l *local) Configure(ctx context.Context, cfg backend.Config) (backend.Diagnostics, error) {
	diags, err := l.jobs.Configure(ctx, cfg, decode)
	if err != nil || diags.HasErrors() {
		return diags, err
	}
	s, err := l.jobs.Of(ctx, cfg.Job)
	if err == nil {
		_, err = l.lodging(s, cfg.Job)
	}
	return diags, err
}

// List implements backend.Backend.
func (l *local) List(ctx context.Context, job string) ([]backend.Status, bool, error) {
	s, err := l.at(ctx, job)
	if err != nil {
		return nil, false, err
	}
	if err := s.mine(job); err != nil {
		return nil, false, err
	}
	began := time.Now()
	views, err := s.root().scanJob(job)
	if err != nil {
		return nil, false, err
	}
	if err := s.found(job, views); err != nil {
		return nil, false, err
	}
	var out []backend.Status
	for _, v := range views {
		if v.reaped() {
			if err := v.forget(); err != nil {
				l.lg.Warn("cannot remove what a released workload was given; trying again", "job", job, "id", v.id.String(), "err", err)
			}
			continue
		}
		st := v.status()
		if v.unbegun() && l.starts.Since(began, job, v.id) {
			st.State, st.Reason = backend.StateStarting, ""
		}
		out = append(out, st)
	}
	l.moveOut(job, s)
	return out, true, nil
}

// Release implements backend.Backend.
func (l *local) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	if how != backend.Drained && how != backend.Forced {
		return backend.Invalidf("how", "release %d workloads of job %q: %v is no way to release", len(ids), job, how)
	}
	if len(ids) == 0 && how == backend.Forced {
		return l.endBereft(ctx, job)
	}
	s, err := l.at(ctx, job)
	if err != nil {
		return err
	}
	if err := s.mine(job); err != nil {
		return err
	}
	var views []view
	for _, id := range ids {
		if err := id.Validate(); err != nil {
			return err
		}
		views = append(views, s.root().instance(job, id).look())
	}
	if err := s.found(job, views); err != nil {
		return err
	}
	var first error
	for _, v := range views {
		// Each is tried, whatever came of the ones before.
		if err := v.release(how); err != nil && first == nil {
			first = err
		}
	}
	l.moveOut(job, s) // at once, where none of them lived: nobody may look again
	return first
}

// endBereft ends by force what of the job is not listed, since its folder is away.
func (l *local) endBereft(ctx context.Context, job string) error {
	s, err := l.jobs.Of(ctx, job)
	if err != nil {
		return err
	}
	at, err := l.lodging(s, job)
	if err == nil {
		err = at.mine(job)
	}
	if err == nil {
		err = at.root().endBereft(ctx, job)
	}
	return err
}

// Inventory implements backend.Backend. It covers every folder that a configured job uses.
func (l *local) Inventory(ctx context.Context) (backend.Inventory, error) {
	if err := ctx.Err(); err != nil {
		return backend.Inventory{}, backend.Errorf(backend.Unavailable, "take the inventory: %w", err)
	}
	byDir := map[string]settings{}
	for job, s := range l.jobs.All() {
		at, err := l.lodge(s, job)
		if err != nil {
			return backend.Inventory{}, err
		}
		// Jobs that share a folder share its slots: the most generous block counts.
		if old, ok := byDir[at.dir]; !ok || s.slots > old.slots {
			byDir[at.dir] = at.settings
		}
	}
	inv := backend.Inventory{CPUMilli: 1000 * runtime.NumCPU(), MemoryBytes: machineMemory()}
	inv.NodeCPUMilli, inv.NodeMemoryBytes = inv.CPUMilli, inv.MemoryBytes
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		p, err := l.pool(byDir[dir])
		if err != nil {
			return backend.Inventory{}, err
		}
		for _, d := range p.devices {
			if p.gpus && slices.ContainsFunc(inv.Devices, func(other backend.Device) bool { return other.ID == d.ID }) {
				continue // the machine's, whatever the folder
			}
			inv.Total++
			if d.HeldBy == "" {
				inv.Free++
			}
			inv.Devices = append(inv.Devices, d)
		}
	}
	return inv, nil
}

// Close implements backend.Backend. The workloads go on.
func (l *local) Close() error {
	l.gpus.close()
	return nil
}

// machineMemory gives the machine's memory in bytes, 0 when it cannot be told.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// hostName gives the node's name for statuses.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}
