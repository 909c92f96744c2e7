package core

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// A process that asks for more than any node has is an error at its line; on this machine, where CPUs are only shared, more of them are a warning.
func TestBeyondAnyNode(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	inv := backend.Inventory{NodeCPUMilli: 4000, NodeMemoryBytes: 8 << 30}
	for _, tt := range []struct {
		name   string
		change func(*job.Job)
		local  bool
		want   []string
	}{
		{"fits", func(j *job.Job) { j.Workers.CPU, j.Servers.Memory = 4, 8<<30 }, false, nil},
		{"memory", func(j *job.Job) { j.Workers.Memory, j.Servers.Memory = 9<<30, 3<<40 }, false, []string{
			"error workers.memory: A worker asks for 9GiB, and no node of backend \"slurm\" has more than 8GiB. Lower workers.memory.",
			"error servers.memory: A server asks for 3TiB, and no node of backend \"slurm\" has more than 8GiB. Lower servers.memory."}},
		{"cpus", func(j *job.Job) { j.Workers.CPU, j.Servers.CPU = 4.5, 64 }, false, []string{
			"error workers.cpu: A worker asks for 4.5 cores, and no node of backend \"slurm\" has more than 4. Lower workers.cpu.",
			"error servers.cpu: A server asks for 64 cores, and no node of backend \"slurm\" has more than 4. Lower servers.cpu."}},
		{"on this machine", func(j *job.Job) { j.Workers.CPU, j.Workers.Memory = 5, 9<<30 }, true, []string{
			"error workers.memory: A worker asks for 9GiB, and this machine has 8GiB. Lower workers.memory.",
			"warning workers.cpu: A worker asks for 5 cores, and this machine has 4. Lower workers.cpu."}},
	} {
		j := *r.job
		j.Workers.CPU, j.Servers.CPU, j.Workers.Memory, j.Servers.Memory = 1, 1, 1<<30, 1<<30
		if j.Backend.Name = "slurm"; tt.local {
			j.Backend.Name = job.BackendLocal
		}
		tt.change(&j)
		var got []string
		for _, d := range beyondAnyNode(&j, inv) {
			severity, path := "warning", ""
			if d.Severity == hcl.DiagError {
				severity = "error"
			}
			for _, p := range []string{"workers.memory", "workers.cpu", "servers.memory", "servers.cpu"} {
				if strings.Contains(d.Detail, "Lower "+p) && *d.Subject == j.Range(p) {
					path = p
				}
			}
			got = append(got, severity+" "+path+": "+d.Detail)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
		if diags := beyondAnyNode(&j, backend.Inventory{}); len(diags) > 0 {
			t.Errorf("%s: what the nodes have is not known, and it says %v", tt.name, diags)
		}
	}
}

// A checkpoint folder that is reached by a symbolic link is the same one, also before it is made.
func TestOneOwnerThroughALink(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	at := func(folder string) *job.Job {
		j := *r.job
		j.Checkpoint.Dir = filepath.Join(dir, folder)
		return &j
	}
	if jobOwner(at("real")).ID != jobOwner(at("link")).ID || jobOwner(at("real/deeper")).ID != jobOwner(at("link/deeper")).ID {
		t.Error("one folder has two owners")
	}
	if jobOwner(at("real")).ID == jobOwner(at("other")).ID {
		t.Error("two folders have one owner")
	}
}

// Whoever changes the checkpoint folder or the backend of a job that runs is told what that means, at the line. The job is still stopped as it was started.
func TestChangedWhileItRuns(t *testing.T) {
	r := newRig(t, rigOptions{slots: 8})
	r.started(1)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	was := r.job.Checkpoint.Dir
	moved, elsewhere, linked := *r.job, *r.job, *r.job
	moved.Checkpoint.Dir = t.TempDir()
	elsewhere.Backend.Name = "slurm"
	linked.Checkpoint.Dir = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(was, linked.Checkpoint.Dir); err != nil {
		t.Fatal(err)
	}
	if diags := append(CheckRunning(r.job, r.wanted()), CheckRunning(&linked, r.wanted())...); len(diags) > 0 {
		t.Errorf("of a job that is as it runs: %v", diags)
	}
	for path, j := range map[string]*job.Job{"checkpoint.dir": &moved, "backend": &elsewhere} {
		o := r.options("run")
		o.Job = j
		s, diags, err := Open(t.Context(), o)
		if s != nil || err != nil || len(diags) != 1 || *diags[0].Subject != j.Range(path) || !strings.Contains(diags[0].Detail, "kale stop "+j.Name) {
			t.Errorf("run with another %s: %v, %v", path, diags, err)
		}
	}
	if j := AsItRuns(&moved, r.state); j.Checkpoint.Dir != was || moved.Checkpoint.Dir == was {
		t.Errorf("as it runs it has its checkpoint in %s", j.Checkpoint.Dir)
	}
	if diags := CheckSameBackend(&moved, r.state); len(diags) > 0 {
		t.Errorf("it is on the same backend: %v", diags)
	}
	o := r.options("run")
	o.Job, o.Stop = &moved, true
	s, diags, err := Open(t.Context(), o)
	if err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	if s.job.Checkpoint.Dir != was || s.want.Checkpoint != was {
		t.Errorf("it would be stopped with its checkpoint in %s (%s)", s.job.Checkpoint.Dir, s.want.Checkpoint)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
