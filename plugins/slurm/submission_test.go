package slurm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// wrapped gives a bin_dir in which sbatch is another script around the real one; $real is its path.
func wrapped(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"squeue", "scontrol", "scancel", "sbatch"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(slurmtest.Missing())
		}
		if name == "sbatch" {
			if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "#!/bin/sh\nreal=%s\nhere=%s\n%s\n", path, dir, script), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// While slurmctld is down nothing is gone and nothing has ended: all is unknown, and the list says that it is not complete. When it is back, all is as it
// was, and what was asked for meanwhile starts once.
func TestControllerKilled(t *testing.T) {
	s := newSite(t, "")
	s.ensure(s.workload(s.job, worker(0, 1), conformance.Steady))
	s.waitState(worker(0, 1), backend.StateRunning)
	s.started(t, s.job, worker(0, 1), 1) // before it is ended
	if err := cluster.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.KillController()
	conformance.Eventually(t, "the outage shows", func() error {
		all, complete, err := s.b.List(t.Context(), s.job)
		if err != nil {
			t.Fatalf("List without slurmctld: %v; the folders are there", err)
		}
		if len(all) != 1 || all[0].State != backend.StateUnknown || complete {
			return fmt.Errorf("List = %+v, complete %v", all, complete)
		}
		if all[0].Reason != silence || all[0].Err == nil || !strings.Contains(all[0].Err.Message, silence+": squeue: ") {
			t.Errorf("its reason is %q, and why it is unknown %v", all[0].Reason, all[0].Err)
		}
		return nil
	})
	if _, err := s.b.Ensure(t.Context(), s.job, []backend.Workload{s.workload(s.job, worker(1, 1), conformance.Steady)}); err == nil || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("Ensure without slurmctld: %v; want code %q", err, backend.Unavailable)
	}
	if _, err := s.b.Inventory(t.Context()); err == nil || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("Inventory without slurmctld: %v; want code %q", err, backend.Unavailable)
	}
	// What is released meanwhile is released when Slurm is back, though nobody asks again.
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(0, 1)}, backend.Drained); err != nil {
		t.Errorf("Release without slurmctld: %v; it can be put on record", err)
	}
	if raw, err := os.ReadFile(filepath.Join(s.shared(), s.job, "worker-0-g1", statusFile)); err != nil || !strings.Contains(string(raw), "state=running") {
		t.Errorf("the workload did not outlive slurmctld: %s, %v", raw, err)
	}
	if err := cluster.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the released one is gone and the other starts", func() error {
		st, err := s.b.Ensure(t.Context(), s.job, []backend.Workload{s.workload(s.job, worker(1, 1), conformance.Steady)})
		if err != nil {
			return err
		}
		if st[0].Err != nil {
			return st[0].Err
		}
		all, complete, err := s.b.List(t.Context(), s.job)
		if err != nil || !complete || len(all) != 1 || all[0].State != backend.StateRunning {
			return fmt.Errorf("List = %+v, %v, %w", all, complete, err)
		}
		return nil
	})
	s.started(t, s.job, worker(0, 1), 1)
	s.started(t, s.job, worker(1, 1), 1)
}

// sbatch fails, or hangs until it is ended, after Slurm has taken the job: the job is found, and there is one.
func TestSubmissionThatFailsAfterItSucceeded(t *testing.T) {
	for name, script := range map[string]string{
		"fails": `"$real" "$@" >/dev/null; echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1`,
		"hangs": `"$real" "$@" >/dev/null; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.extra = fmt.Sprintf("bin_dir = %q", wrapped(t, script))
			s := &site{T: t, rig: r, job: "j", submitIn: 2 * time.Second}
			s.b = s.open()
			conformance.Eventually(t, "it is known that it was submitted", func() error { // at once, unless sbatch was ended before it had submitted it
				if st := s.ensure(s.workload(s.job, worker(0, 1), conformance.Steady)); st.Err != nil {
					return st.Err
				}
				return nil
			})
			s.waitState(worker(0, 1), backend.StateRunning)
			if got := s.slurm("squeue", "--noheader", "-o", "%j"); got != jobName(s.job, worker(0, 1)) {
				t.Errorf("the queue has %q, want one job", got)
			}
			s.started(t, s.job, worker(0, 1), 1)
		})
	}
}

// A workload is released while sbatch is under way: its job, which comes to the queue later and would wait there, is cancelled.
func TestReleasedWhileItIsSubmitted(t *testing.T) {
	r := newRig(t)
	begun := filepath.Join(t.TempDir(), "begun")
	r.extra = fmt.Sprintf("bin_dir = %q", wrapped(t, fmt.Sprintf(`: >%q; sleep 5; exec "$real" --hold "$@"`, begun)))
	s := &site{T: t, rig: r, job: "j"}
	s.b = s.open()
	ensured := make(chan struct{})
	go func() {
		defer close(ensured)
		_, _ = s.b.Ensure(context.WithoutCancel(t.Context()), s.job, []backend.Workload{s.workload(s.job, worker(0, 1), conformance.Steady)}) // what it says of one that is gone is not tested here
	}()
	conformance.Eventually(t, "sbatch is under way", func() error { _, err := os.Stat(begun); return err })
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(0, 1)}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	<-ensured
	conformance.Eventually(t, "nothing is left of it", func() error {
		all, complete, err := s.b.List(t.Context(), s.job)
		if queued := s.slurm("squeue", "--noheader", "-t", "PENDING,RUNNING", "-o", "%j"); err != nil || !complete || len(all) != 0 || queued != "" {
			return fmt.Errorf("List = %+v, %v, %w; the queue has %q", all, complete, err, queued)
		}
		return nil
	})
}

// sbatch fails before Slurm has the job: it is an error that says so, and the next Ensure submits it.
func TestSubmissionThatFails(t *testing.T) {
	s := newSite(t, fmt.Sprintf("bin_dir = %q", wrapped(t,
		`[ -e "$here/once" ] || { : >"$here/once"; echo "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)" >&2; exit 1; }; exec "$real" "$@"`)))
	w := s.workload(s.job, worker(0, 1), conformance.Steady)
	if st := s.ensure(w); st.Err == nil || st.Err.Code != backend.Unavailable || st.State != backend.StateUnknown {
		t.Errorf("Ensure = %+v, want unknown with code %q", st, backend.Unavailable)
	}
	conformance.Eventually(t, "it is submitted", func() error {
		if st := s.ensure(w); st.State != backend.StateRunning {
			return fmt.Errorf("it is %+v", st)
		}
		return nil
	})
	s.started(t, s.job, worker(0, 1), 1)
}

// What Slurm refuses for good is said with what to do, leaves nothing, and may be asked for again under the same ID.
func TestSubmissionRefused(t *testing.T) {
	s := newSite(t, `partition = "nowhere"`)
	st := s.ensure(s.workload(s.job, worker(0, 1), conformance.Steady))
	if st.Err == nil || st.Err.Code != backend.Blocked || !strings.Contains(st.Err.Message, "invalid partition") || !strings.Contains(st.Err.Message, "sinfo") {
		t.Errorf("Ensure in a partition that is not there = %+v", st)
	}
	s.extra = ""
	b := s.open()
	if st, err := b.Ensure(t.Context(), s.job, []backend.Workload{s.workload(s.job, worker(0, 1), conformance.Steady)}); err != nil || st[0].Err != nil {
		t.Errorf("Ensure after partition was corrected = %+v, %v", st, err)
	}
	s.waitState(worker(0, 1), backend.StateRunning)
}

// Two jobs for one workload, by whatever mistake: one runs it, the other runs nothing and is cancelled.
func TestTwoJobsForOneWorkload(t *testing.T) {
	s := newSite(t, fmt.Sprintf("bin_dir = %q", wrapped(t, `cat >"$here/script"; "$real" "$@" <"$here/script" >/dev/null; exec "$real" "$@" <"$here/script"`)))
	s.ensure(s.workload(s.job, worker(0, 1), conformance.Steady))
	s.waitState(worker(0, 1), backend.StateRunning)
	conformance.Eventually(t, "one job is left", func() error {
		if _, _, err := s.b.List(t.Context(), s.job); err != nil {
			return err
		}
		if got := s.slurm("squeue", "--noheader", "-o", "%j"); got != jobName(s.job, worker(0, 1)) {
			return fmt.Errorf("the queue has %q", got)
		}
		return nil
	})
	s.waitState(worker(0, 1), backend.StateRunning)
	s.started(t, s.job, worker(0, 1), 1)
}

// A node's slurmd is dead when it is to launch a job, and comes back later. Slurm may launch it then, or go on to say that it runs when it never will: in the
// end a process runs, and it is the only one.
func TestLaunchIsLost(t *testing.T) {
	r := newRig(t)
	s := &site{T: t, rig: r, job: "j", launchIn: 3 * time.Second}
	s.b = s.open()
	for n := 1; n <= 2; n++ {
		cluster.KillDaemon(n)
	}
	s.ensure(s.gpuWorkload(worker(0, 1), conformance.Steady, 1))
	s.waitFor(worker(0, 1), "said to run", func(st backend.Status) bool { return st.State == backend.StateStarting && st.Node != "" })
	for n := 1; n <= 2; n++ {
		if err := cluster.StartNode(n); err != nil {
			t.Fatal(err)
		}
	}
	id := worker(0, 1)
	for running := false; !running; {
		st := s.waitFor(id, "decided", func(st backend.Status) bool {
			return st.State != backend.StateStarting && st.State != backend.StatePending
		})
		if running = st.State == backend.StateRunning; running {
			break
		}
		if st.State != backend.StateFailed || !strings.Contains(st.Reason, "its script never began") {
			t.Fatalf("it is %+v", st)
		}
		t.Log(st.Reason)
		id.Generation++
		s.ensure(s.gpuWorkload(id, conformance.Steady, 1))
	}
	conformance.Eventually(t, "the queue has one job", func() error {
		if got := s.slurm("squeue", "--noheader", "-o", "%j"); got != jobName(s.job, id) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
	for g := uint64(1); g <= id.Generation; g++ {
		want := 0
		if g == id.Generation {
			want = 1
		}
		s.started(t, s.job, worker(0, g), want)
	}
}
