package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

const clusterJob = `job "clicks" {
  stream "kafka" {
    brokers = [%q]
    topic   = "clicks"
  }
  features {
    label = "click"
  }
  model {
    kind = "counting"
  }
  workers {
    max  = 2
    gpus = 1
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  checkpoint {
    dir = %q
  }
  backend %q {
%s  }
}
`

// site is a cluster whose nodes share one folder and differ in another.
type site struct {
	backend         string
	shared, private string
	block           func(sharedPaths string) string // the backend block's lines
	idle            func(t *testing.T)              // fails unless nothing is left on the cluster
	kill            func(n int)                     // ends the daemon of node n as kill -9 does
}

// withPlugin adds a cluster's plugin to the programs.
func (s *shell) withPlugin(name string) *shell {
	s.t.Helper()
	s.withPrograms()
	build, _ := plugins.LoadOrStore(name, sync.OnceValue(func() error {
		return conformance.BuildAll(binDir, "github.com/kale-sched/kale/cmd/"+name)
	}))
	if err := build.(func() error)(); err != nil {
		s.t.Fatalf("build %s: %v", name, err)
	}
	return s
}

// plugins are the builds of clusters' plugins, by name.
var plugins sync.Map

// privateSlurm starts a Slurm for a test, or skips it.
func privateSlurm(t *testing.T, o slurmtest.Options) *slurmtest.Cluster {
	t.Helper()
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	c, err := slurmtest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func slurmSite(t *testing.T) site {
	t.Helper()
	c := privateSlurm(t, slurmtest.Options{Nodes: 2, GPUsPerNode: 2})
	if !c.Apart() {
		t.Skip("nodes have folders of their own only as root")
	}
	t.Setenv("SLURM_CONF", c.Conf())
	return site{
		backend: "slurm", shared: c.Shared(), private: c.Private(), kill: c.KillNode,
		block: func(paths string) string {
			return fmt.Sprintf("    shared_dir = %q\n%s", c.Shared(), paths)
		},
		idle: func(t *testing.T) {
			out, err := c.Run(context.WithoutCancel(t.Context()), "squeue", "--noheader", "-t", "PENDING,RUNNING,SUSPENDED")
			if err != nil || strings.TrimSpace(out) != "" {
				t.Errorf("left in the queue: %s %v", out, err)
			}
			if _, err := os.Stat(filepath.Join(c.Shared(), "clicks")); err == nil {
				t.Errorf("left in shared_dir: %v", under(t, filepath.Join(c.Shared(), "clicks")))
			}
		},
	}
}

// privateNomad starts a Nomad for a test, or skips it.
func privateNomad(t *testing.T, o nomadtest.Options) *nomadtest.Cluster {
	t.Helper()
	if why := nomadtest.Missing(); why != "" {
		t.Skip(why)
	}
	c, err := nomadtest.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func nomadSite(t *testing.T) site {
	t.Helper()
	c := privateNomad(t, nomadtest.Options{Clients: 2, GPUs: 2})
	if !c.IsPrivate() {
		t.Skip("nodes have folders of their own only as root")
	}
	return site{
		backend: "nomad", shared: c.Shared(), private: c.Private(), kill: c.KillClient,
		block: func(paths string) string {
			if paths == "" {
				paths = fmt.Sprintf("    shared_paths = [%q]\n", c.Shared())
			}
			return fmt.Sprintf("    address = %q\n%s", c.Address(), paths)
		},
		idle: func(t *testing.T) {
			client, err := c.Client()
			if err != nil {
				t.Fatal(err)
			}
			jobs, _, err := client.Jobs().List(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				t.Errorf("left in Nomad: %s is %s", j.ID, j.Status)
			}
			variables, _, err := client.Variables().List(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range variables {
				t.Errorf("left in Nomad: the variable %s", v.Path)
			}
		},
	}
}

var mark = regexp.MustCompile(`\^+`)

func TestDoctorOnSlurm(t *testing.T) { testDoctorOn(t, slurmSite) }
func TestDoctorOnNomad(t *testing.T) {
	t.Parallel()
	testDoctorOn(t, nomadSite)
}

// On a real cluster the doctor proves what nodes share, whatever the job file says of it; and no command accepts a checkpoint folder that the job file
// itself does not say is shared.
func testDoctorOn(t *testing.T, start func(*testing.T) site) {
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("ONNX Runtime is missing, so that no set-up is sound: make deps installs it (%v)", err)
	}
	on := start(t)
	s := newShell(t).withPlugin("kale-backend-" + on.backend)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	job := func(checkpoints, paths string) string {
		return write(t, fmt.Sprintf(clusterJob, addr, checkpoints, on.backend, on.block(paths)))
	}
	fails := func(e examined) (out []string, says string) {
		for _, c := range e.Checks {
			if c.State == "fail" {
				out, says = append(out, c.Check), says+c.Says+" "+c.Do
			}
		}
		return out, says
	}
	clean := func(t *testing.T, checkpoints string) {
		on.idle(t)
		for _, dir := range []string{on.shared, checkpoints} {
			if left, _ := filepath.Glob(filepath.Join(dir, ".kale-doctor-*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		}
	}
	const patience = "-probe-timeout=5m" // it bounds a failure
	t.Run("shared", func(t *testing.T) {
		s := &shell{t: t, env: s.env, exe: s.exe}
		checkpoints := filepath.Join(on.shared, "checkpoints")
		_, e := s.examine(job(checkpoints, ""), patience)
		if bad, says := fails(e); len(bad) > 0 {
			t.Fatalf("%v: %s", bad, says)
		}
		want := map[string]string{
			"nodes": "n1, n2", "checkpoint folder on nodes": "2 nodes wrote and read", "between nodes": "reach each other", "clocks of nodes": "apart",
			"trainer on n1, n2": "runs", "ONNX Runtime on n1, n2": "computes", "network of n1": "1 broker and the scheduler at",
		}
		for _, c := range e.Checks {
			if c.Check == "trainer" {
				t.Errorf("%s of what runs on nodes: %s", c.State, c.Says)
			}
			sorted := strings.NewReplacer("n2, n1", "n1, n2")
			check := sorted.Replace(c.Check)
			says, wanted := want[check]
			if delete(want, check); wanted && (c.State != "ok" || !strings.Contains(sorted.Replace(c.Says), says)) {
				t.Errorf("%s is %s: %s; want %q", c.Check, c.State, c.Says, says)
			}
		}
		if len(want) > 0 {
			t.Errorf("not tried: %v", want)
		}
		clean(t, checkpoints)
		if _, err := os.Stat(checkpoints); err == nil {
			t.Error("the checkpoint folder is left")
		}
	})
	t.Run("said to be shared", func(t *testing.T) {
		s := &shell{t: t, env: s.env, exe: s.exe}
		checkpoints := filepath.Join(on.private, "checkpoints")
		_, e := s.examine(job(checkpoints, fmt.Sprintf("    shared_paths = [%q]\n", on.private)), patience)
		bad, says := fails(e)
		if strings.Join(bad, " ") != "checkpoint folder on nodes" {
			t.Errorf("failed: %q: %s", bad, says)
		}
		for _, want := range []string{"node n1 does not see what n2 wrote in " + checkpoints, "node n2 does not see what n1 wrote", "checkpoint.dir is not shared", "job.hcl:"} {
			if !strings.Contains(says, want) {
				t.Errorf("it says %q, want %q", says, want)
			}
		}
		clean(t, checkpoints)
	})
	t.Run("interrupted", func(t *testing.T) {
		s := &shell{t: t, env: s.env, exe: s.exe}
		checkpoints := filepath.Join(on.shared, "checkpoints")
		b := s.start("doctor", job(checkpoints, ""), patience)
		b.eventually("a probe has written", func() bool {
			found, _ := filepath.Glob(filepath.Join(checkpoints, ".kale-doctor-*"))
			return len(found) > 0
		})
		b.interrupt()
		if r := b.end(); r.code == exitDone {
			t.Errorf("an interrupted look is well: %s%s", r.out, r.err)
		}
		clean(t, checkpoints)
	})
	t.Run("not said to be shared", func(t *testing.T) {
		s := &shell{t: t, env: s.env, exe: s.exe}
		file := job(filepath.Join(on.private, "checkpoints"), "")
		var all strings.Builder
		for _, args := range [][]string{{"validate", file}, {"plan", file}, {"run", file}, {"doctor", "-no-probe", file}} {
			r := s.run(args...)
			if r.code != exitFailed {
				t.Errorf("kale %s: exit code %d", args[0], r.code)
			}
			text := r.err
			if args[0] == "doctor" {
				text = ""
				for line := range strings.Lines(r.out) {
					if strings.Contains(line, "not shared") {
						text += line
					}
				}
			}
			// Where lines are wrapped and how long the mark is depends on the folders' names.
			fmt.Fprintf(&all, "$ kale %s job.hcl\n%s\n", args[0], mark.ReplaceAllString(strings.Join(strings.Fields(text), " "), "^"))
		}
		got := strings.NewReplacer(on.shared, "/shared", on.private, "/private", filepath.Dir(file)+"/", "").Replace(all.String())
		golden(t, "notshared_"+on.backend, got)
		on.idle(t)
	})
	if on.backend == "slurm" {
		t.Run("no such partition", func(t *testing.T) { absentPartition(&shell{t: t, env: s.env, exe: s.exe}, on, addr) })
	}
}

// A name that the cluster does not have is an error where it stands, for every command that would start the job; and the job can be stopped all the same.
func absentPartition(s *shell, on site, addr string) {
	t := s.t
	file := write(t, fmt.Sprintf(clusterJob, addr, filepath.Join(on.shared, "cp"), on.backend, on.block("    partition  = \"kalle\"\n")))
	for _, args := range [][]string{{"validate", file}, {"plan", file}, {"run", file}, {"doctor", "-no-probe", file}} {
		r := s.run(args...)
		if r.code != exitFailed {
			t.Errorf("kale %s: exit code %d", args[0], r.code)
		}
		says := strings.Join(strings.Fields(r.err+r.out), " ")
		for _, want := range []string{"job.hcl:24:18", "No such partition", `Did you mean "kale"? There is kale.`} {
			if !strings.Contains(says, want) {
				t.Errorf("kale %s says %q; want %q", args[0], says, want)
			}
		}
		if strings.Contains(says, "would not find room") || strings.Contains(says, "GPUs, 0 free") {
			t.Errorf("kale %s tells of room and devices too: %s", args[0], says)
		}
	}
	on.idle(t)
}

// Nothing to be shared, and nothing to be placed: a probe that finds no place is a finding, and is taken back.
func TestDoctorOnAFullCluster(t *testing.T) {
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	on := slurmSite(t)
	s := newShell(t).withPlugin("kale-backend-slurm")
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	for range 2 {
		out, err := exec.Command("sbatch", "--exclusive", "--nodes=1", "--output=/dev/null", "--wrap=sleep 600").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	began := time.Now()
	_, e := s.examine(write(t, fmt.Sprintf(clusterJob, addr, filepath.Join(on.shared, "cp"), "slurm", on.block(""))), "-probe-timeout=5s")
	found := false
	for _, c := range e.Checks {
		if c.Check == "nodes" {
			found = c.State == "fail" && strings.Contains(c.Says, "did not place a probe") && c.Do != ""
			t.Logf("after %v: %s", time.Since(began), c.Says)
		}
	}
	if !found {
		t.Errorf("%+v", e.Checks)
	}
	out, err := exec.Command("squeue", "--noheader", "-o", "%j").CombinedOutput()
	if err != nil || strings.Contains(string(out), "doctor") {
		t.Errorf("left in the queue: %s %v", out, err)
	}
}

func TestDoctorBesideADeadNodeOfSlurm(t *testing.T) { testDoctorBesideADeadNode(t, slurmSite) }
func TestDoctorBesideADeadNodeOfNomad(t *testing.T) {
	t.Parallel()
	testDoctorBesideADeadNode(t, nomadSite)
}

// A node whose daemon is dead is named, whether the cluster knows that already or has placed a probe there; the other one is tried all the same.
func testDoctorBesideADeadNode(t *testing.T, start func(*testing.T) site) {
	on := start(t)
	s := newShell(t).withPlugin("kale-backend-" + on.backend)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	on.kill(2)
	text := strings.ReplaceAll(clusterJob, "  workers {\n    max ", "  workers {\n    min  = 2\n    max ") // which one node has room for, and its two GPUs
	r, e := s.examine(write(t, fmt.Sprintf(text, addr, filepath.Join(on.shared, "cp"), on.backend, on.block(""))), "-probe-timeout=1m")
	named, tried := false, false
	for _, c := range e.Checks {
		t.Logf("%s %s: %s → %s", c.State, c.Check, c.Says, c.Do)
		named = named || c.State == "warn" && c.Do != "" && (c.Check == "probe on n2" || c.Check == "nodes that answer" && strings.Contains(c.Says, "n2"))
		if c.State == "fail" && strings.Contains(c.Check+c.Says, "n2") {
			t.Errorf("n1 has room for all of the job, and yet it fails")
		}
		tried = tried || c.Check == "nodes" && strings.Contains(c.Says, "n1")
	}
	if !named || !tried {
		t.Errorf("n2 is named: %v; n1 is tried: %v", named, tried)
	}
	if e.Warnings == 0 || e.OK != (r.code == exitDone) || e.OK != (e.Failed == 0) {
		t.Errorf("%d warnings, %d failed, ok is %v, and the exit code %d", e.Warnings, e.Failed, e.OK, r.code)
	}
}

// Where shared_dir itself is another folder on every node, no process of a job would start: that is what the doctor says, and where to change it.
func TestDoctorOnNodesWithoutTheSharedFolder(t *testing.T) {
	on := slurmSite(t)
	s := newShell(t).withPlugin("kale-backend-slurm")
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	for name, checkpoints := range map[string]string{"checkpoints beside it": filepath.Join(on.private, "kale", "cp"), "checkpoints are shared": filepath.Join(on.shared, "cp")} {
		t.Run(name, func(t *testing.T) {
			s := &shell{t: t, env: s.env, exe: s.exe}
			block := fmt.Sprintf("    shared_dir = %q\n    shared_paths = [%q]\n", filepath.Join(on.private, "kale"), on.shared)
			_, e := s.examine(write(t, fmt.Sprintf(clusterJob, addr, checkpoints, "slurm", block)), "-probe-timeout=5m")
			says := ""
			for _, c := range e.Checks {
				if c.State != "fail" {
					continue
				}
				says += strings.NewReplacer("n2, n1", "n1, n2").Replace(c.Check) + ": " + c.Says + " → " + c.Do + "\n"
			}
			for _, want := range []string{"start on n1, n2: ", "shared_dir (" + filepath.Join(on.private, "kale") + ")", "not the same folder", "every node mount at the same path", "job.hcl:"} {
				if !strings.Contains(says, want) {
					t.Errorf("it does not say %q: %s", want, says)
				}
			}
			if strings.Contains(says, "trainer") || strings.Count(says, "\n") != 1 {
				t.Errorf("it sends its reader elsewhere: %s", says)
			}
		})
	}
}
