package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// trainee is a living kale-trainer of a rig.
type trainee struct {
	id    backend.ID
	pid   int
	start string // of the process, in ticks since boot: with it, the pid is no other's
}

func (p trainee) name() string { return fmt.Sprintf("%s at %d", p.id, p.pid) }

// lives says whether that very process does, stopped or not.
func (p trainee) lives() bool { return startOf(p.pid) == p.start }

func (p trainee) signal(s syscall.Signal) {
	if p.lives() {
		_ = syscall.Kill(p.pid, s) // it may have ended just now
	}
}

// startOf is when the process with the pid began, "" when it has ended.
func startOf(pid int) string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return ""
	}
	return f[19]
}

// trainees finds the trainers below a rig's folder, ordered by id: what runs, asked of the system and of nobody else.
func trainees(dir string) []trainee {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []trainee
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		start := startOf(pid)
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // it may have ended
		args := strings.Split(string(cmdline), "\x00")
		if start == "" || filepath.Base(args[0]) != "kale-trainer" || len(args) < 2 || !belongs(pid, dir) {
			continue
		}
		if id, ok := idOf(pid, args[1:]); ok {
			out = append(out, trainee{id: id, pid: pid, start: start})
		}
	}
	slices.SortFunc(out, func(a, b trainee) int {
		if c := a.id.Compare(b.id); c != 0 {
			return c
		}
		return a.pid - b.pid
	})
	return out
}

// idOf reads which workload a trainer is: from the name of its folder, or else from its arguments, where a server has no generation.
func idOf(pid int, args []string) (id backend.ID, ok bool) {
	if args[0] != backend.RoleServer && args[0] != backend.RoleWorker {
		return id, false
	}
	for _, part := range strings.Split(variable(pid, backend.EnvAllocDir), "/") {
		if id, err := backend.ParseID(part); err == nil && id.Role == args[0] {
			return id, true
		}
	}
	id = backend.ID{Role: args[0], Generation: 1}
	for i, a := range args[:len(args)-1] {
		n, err := strconv.Atoi(args[i+1])
		switch {
		case err != nil:
		case a == "--rank", a == "--index":
			id.Rank = n
		case a == "--generation":
			id.Generation = uint64(n)
		}
	}
	return id, true
}

// variable is the value of a variable in a process's environment, "" when it is not set or the process has ended.
func variable(pid int, name string) string {
	env, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ")) // it may have ended
	for _, kv := range strings.Split(string(env), "\x00") {
		if value, found := strings.CutPrefix(kv, name+"="); found {
			return value
		}
	}
	return ""
}

// twins gives two processes that are the same workload and live at the same time.
func twins(all []trainee) (one, other trainee, found bool) {
	for i, p := range all {
		// Both are seen to live, and the first again after the second: then they lived together, whenever each was found.
		if i > 0 && all[i-1].id == p.id && all[i-1].lives() && p.lives() && all[i-1].lives() {
			return all[i-1], p, true
		}
	}
	return one, other, false
}

// observer looks at a rig from beside its test: at its progress, and for workloads that run twice.
type observer struct {
	rig  *rig
	stop context.CancelFunc
	done sync.WaitGroup

	samples []chaos.Sample // valid when done
	doubled []string
	looks   int
}

const (
	progressEvery = 250 * time.Millisecond
	twinsEvery    = 50 * time.Millisecond
)

// observe begins. The job's token must be known, and cleanUp or end ends it.
func observe(r *rig) *observer {
	ctx, stop := context.WithCancel(r.t.Context())
	o := &observer{rig: r, stop: stop}
	dir, token, root := r.spec.GetCheckpointDir(), r.token, r.dir
	o.done.Go(func() { // ends with ctx; owns samples
		for every(ctx, progressEvery) {
			at, err := rpc.FindChief(dir, jobName)
			if err != nil {
				continue
			}
			_ = callChief(at.Address, token, time.Second, func(ctx context.Context, c rpc.ChiefClient) error {
				st, err := c.Status(ctx, &rpc.StatusRequest{})
				if err != nil {
					return err // no chief, no progress
				}
				sum := int64(0)
				for _, n := range applied(st) {
					sum += n
				}
				o.samples = append(o.samples, chaos.Sample{At: time.Now(), Applied: sum})
				return nil
			})
		}
	})
	o.done.Go(func() { // ends with ctx; owns doubled and looks
		for every(ctx, twinsEvery) {
			o.looks++
			if a, b, found := twins(trainees(root)); found {
				o.doubled = append(o.doubled, fmt.Sprintf("%s at %s: process %d of %q and %d of %q", a.id, time.Now().Format("15:04:05.000"),
					a.pid, variable(a.pid, backend.EnvAllocDir), b.pid, variable(b.pid, backend.EnvAllocDir)))
			}
		}
	})
	r.t.Cleanup(func() { stop(); o.done.Wait() })
	return o
}

func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// end ends the observation, and judges what was seen from one moment to another.
func (o *observer) end(j *chaos.Journal, from, to time.Time) {
	o.rig.t.Helper()
	o.stop()
	o.done.Wait()
	if len(o.doubled) > 0 {
		o.rig.t.Errorf("workloads ran twice at one time, in %d of %d looks: %s", len(o.doubled), o.looks, strings.Join(o.doubled, "; "))
	}
	began, lasted := chaos.LongestStop(o.samples, j.Windows(to), from, to)
	j.Note(to, "%d samples of progress, %d looks for twins; training stood still for %v at most while nothing was broken, from %.3fs on",
		len(o.samples), o.looks, lasted.Round(time.Millisecond), began.Sub(from).Seconds())
	if lasted > mostStopped {
		o.rig.fatalf("training stood still for %v, from %v after the first fault on, though nothing was broken; at most %v are in order", lasted, began.Sub(from), mostStopped)
	}
}

// The look for twins can find some.
func TestTwins(t *testing.T) {
	self := trainee{id: backend.ID{Role: "worker", Generation: 1}, pid: os.Getpid(), start: startOf(os.Getpid())}
	parent := trainee{id: self.id, pid: os.Getppid(), start: startOf(os.Getppid())}
	other := parent
	other.id.Generation = 2
	dead := parent
	dead.start = "0"
	for _, tt := range []struct {
		name string
		all  []trainee
		want bool
	}{
		{"two that live", []trainee{self, parent}, true},
		{"other generations", []trainee{self, other}, false},
		{"one is dead", []trainee{self, dead}, false},
		{"one alone", []trainee{self}, false},
	} {
		if _, _, found := twins(tt.all); found != tt.want {
			t.Errorf("%s: found %v, want %v", tt.name, found, tt.want)
		}
	}
}
