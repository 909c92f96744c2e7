package slurm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// site is a backend inside the test, with one job configured.
type site struct {
	*testing.T
	*rig
	b        backend.Backend
	job      string
	submitIn time.Duration // 0: as in earnest
	launchIn time.Duration // 0: as in earnest
}

func newSite(t *testing.T, extra string) *site {
	t.Helper()
	r := newRig(t)
	r.extra = extra
	s := &site{T: t, rig: r, job: "j"}
	s.b = s.open()
	return s
}

func (s *site) open() backend.Backend {
	s.Helper()
	b := New(conformance.Logger(s.T)).(*slurm)
	if s.submitIn > 0 {
		b.submitIn = s.submitIn
	}
	if s.launchIn > 0 {
		b.launchIn = s.launchIn
	}
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Error(err)
		}
	})
	diags, err := b.Configure(s.Context(), s.config(s.job))
	if err == nil {
		err = diags.Err()
	}
	if err != nil {
		s.Fatal(err)
	}
	return b
}

func worker(rank int, generation uint64) backend.ID {
	return backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: generation}
}

func (s *site) gpuWorkload(id backend.ID, p conformance.Program, gpus int) backend.Workload {
	w := s.workload(s.job, id, p)
	w.Resources.GPUs = gpus
	return w
}

func (s *site) ensure(w backend.Workload) backend.Status {
	s.Helper()
	st, err := s.b.Ensure(s.Context(), s.job, []backend.Workload{w})
	if err != nil {
		s.Fatal(err)
	}
	return st[0]
}

func (s *site) waitFor(id backend.ID, what string, ok func(backend.Status) bool) backend.Status {
	s.Helper()
	return conformance.WaitFor(s, s.b, s.job, id, "is "+what, ok)
}

func (s *site) waitState(id backend.ID, want backend.State) backend.Status {
	s.Helper()
	return s.waitFor(id, string(want), func(st backend.Status) bool { return st.State == want })
}

func (s *site) slurm(name string, args ...string) string {
	s.Helper()
	out, err := s.on.Run(s.Context(), name, args...)
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(out)
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
		if !strings.Contains(all[0].Reason, "Slurm does not answer") {
			t.Errorf("its reason is %q", all[0].Reason)
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

// A node that dies takes its workload with it: failed, with the node's name; a higher generation runs elsewhere.
func TestNodeDies(t *testing.T) {
	s := newSite(t, "")
	s.ensure(s.gpuWorkload(worker(0, 1), conformance.Steady, 1))
	st := s.waitState(worker(0, 1), backend.StateRunning)
	if st.Address != "127.0.0.1" || len(st.Devices) != 1 || st.Submitted.IsZero() || st.Started.IsZero() || !st.Deadline.IsZero() {
		t.Errorf("the running one is %+v; want an address, a device, when it was submitted and started, and no deadline", st)
	}
	var dead int
	if _, err := fmt.Sscanf(st.Node, "n%d", &dead); err != nil {
		t.Fatalf("it runs on node %q", st.Node)
	}
	s.started(t, s.job, worker(0, 1), 1) // before its node is ended
	if err := cluster.Launched(t.Context()); err != nil {
		t.Fatal(err)
	}
	cluster.KillNode(dead)
	defer func() {
		if err := cluster.StartNode(dead); err != nil {
			t.Error(err)
		}
		conformance.Eventually(t, "the node is back", func() error {
			if _, err := cluster.Run(t.Context(), "scontrol", "update", "NodeName="+st.Node, "State=RESUME"); err != nil {
				out, _ := cluster.Run(t.Context(), "sinfo", "--noheader", "-p", "low", "-n", st.Node, "-o", "%T")
				if strings.TrimSpace(out) != "idle" {
					return fmt.Errorf("%w: %s", err, out)
				}
			}
			return nil
		})
	}()
	if err := cluster.Fail(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	st = s.waitState(worker(0, 1), backend.StateFailed)
	if !strings.Contains(st.Reason, "its node failed") || !strings.Contains(st.Reason, st.Node) || !strings.Contains(st.Reason, "NODE_FAIL") {
		t.Errorf("its reason is %q", st.Reason)
	}
	inv, err := s.b.Inventory(t.Context())
	if err != nil || inv.Total != slots/2 || inv.Free != slots/2 {
		t.Errorf("Inventory with one node of two = %+v, %v", inv, err)
	}
	s.ensure(s.gpuWorkload(worker(0, 2), conformance.Steady, 1))
	if again := s.waitState(worker(0, 2), backend.StateRunning); again.Node == st.Node {
		t.Errorf("the next generation runs on %s, which is dead", again.Node)
	}
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

// A job of higher priority takes a worker's place: failed, with the reason; what waits for GPUs says what for, and no more than max_pending wait.
func TestPreemptionAndFullCluster(t *testing.T) {
	s := newSite(t, "max_pending = 1")
	for rank := range 2 {
		s.ensure(s.gpuWorkload(worker(rank, 1), conformance.Steady, 2))
		s.waitState(worker(rank, 1), backend.StateRunning)
	}
	if st := s.ensure(s.gpuWorkload(worker(2, 1), conformance.Steady, 1)); st.Err != nil {
		t.Errorf("one that must wait = %+v, and one may", st)
	}
	st := s.waitFor(worker(2, 1), "waiting for resources", func(st backend.Status) bool {
		return st.State == backend.StatePending && strings.Contains(st.Reason, "nothing that it fits on is free")
	})
	if st.Submitted.IsZero() || !st.Started.IsZero() {
		t.Errorf("the waiting one is %+v", st)
	}
	if st := s.ensure(s.gpuWorkload(worker(3, 1), conformance.Steady, 1)); st.Err == nil || st.Err.Code != backend.NoCapacity || !strings.Contains(st.Err.Message, "needs 1 GPU, 0 free") {
		t.Errorf("one more than may wait = %+v", st)
	}
	report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(3, 1), conformance.Steady, 1), s.gpuWorkload(worker(4, 1), conformance.Steady, 2)})
	if err != nil || report.Fits() || report.Shortage != "needs 3 GPUs, 0 free" {
		t.Errorf("Plan on a full cluster = %+v, %v", report, err)
	}
	s.slurm("sbatch", "--partition=high", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 1000")
	var gone backend.Status
	conformance.Eventually(t, "one is preempted", func() error {
		all, _, err := s.b.List(t.Context(), s.job)
		for _, st := range all {
			if st.State == backend.StateFailed {
				gone = st
				return nil
			}
		}
		return fmt.Errorf("List = %+v, %w", all, err)
	})
	if !strings.Contains(gone.Reason, "PREEMPTED") && !strings.Contains(gone.Reason, "preemption") {
		t.Errorf("the reason of the preempted one is %q", gone.Reason)
	}
	// What waits is cancelled and never starts.
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(2, 1)}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the waiting one is gone", func() error {
		all, _, err := s.b.List(t.Context(), s.job)
		for _, st := range all {
			if st.ID == worker(2, 1) {
				return fmt.Errorf("it is %+v", st)
			}
		}
		return err
	})
	if n := s.starts(t, s.job, worker(2, 1)); n != 0 {
		t.Errorf("what was released while it waited was started %d times", n)
	}
}

// A time limit shows as a deadline, and what it ends has failed with that reason. Slurm looks at limits twice a minute: the test has a cluster of its own,
// and runs beside the conformance suite.
func TestTimeLimit(t *testing.T) {
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	t.Parallel()
	own, err := slurmtest.Start(t.Context(), slurmtest.Options{Nodes: 1, GPUsPerNode: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &site{T: t, job: "j", rig: &rig{dir: own.Shared(), extra: fmt.Sprintf("time = \"2h\"\nbin_dir = %q", own.Bin())}}
	s.b = s.open()
	w := s.workload(s.job, worker(0, 1), conformance.Stubborn)
	w.StopGrace = 5 * time.Second
	s.ensure(w)
	st := s.waitState(worker(0, 1), backend.StateRunning)
	if left := time.Until(st.Deadline); left < 110*time.Minute || left > 130*time.Minute {
		t.Errorf("its deadline is %v away, want two hours", left)
	}
	end := func(in time.Duration) (at time.Time) {
		t.Helper()
		conformance.Eventually(t, "Slurm takes another end", func() error { // not one that has passed when it hears of it
			at = time.Now().Add(in).Truncate(time.Second)
			_, err := own.Run(t.Context(), "scontrol", "update", "JobId=1", "EndTime="+at.Format("2006-01-02T15:04:05"))
			return err
		})
		return at
	}
	nearer := end(10 * time.Minute).Add(-settings{limit: 2 * time.Hour}.warning(w.StopGrace) - warnEarly)
	s.waitFor(worker(0, 1), "its deadline is when it may be warned of its end, to the second", func(st backend.Status) bool { return st.Deadline.Equal(nearer) })
	end(2 * time.Second)
	st = s.waitState(worker(0, 1), backend.StateFailed)
	if !strings.Contains(st.Reason, "time limit") {
		t.Errorf("its reason is %q", st.Reason)
	}
}

// What a workload is given in secret is seen by nobody else: not in the queue, not in a job's details or script, not in a list of processes.
func TestSecretsStaySecret(t *testing.T) {
	const token, password = "token-0f3b2c1d", "password-99e1aa"
	s := newSite(t, "")
	w := s.workload(s.job, worker(0, 1), conformance.Steady)
	w.Files = map[string][]byte{"spec": []byte(token)}
	w.Env["KAFKA_PASSWORD"] = password
	t.Setenv("KALE_TEST_SECRET", "environment-71be")
	s.ensure(w)
	s.waitState(worker(0, 1), backend.StateRunning)
	id := s.slurm("squeue", "--noheader", "-o", "%i")
	seen := map[string]string{
		"scontrol show job": s.slurm("scontrol", "--details", "show", "job", id),
		"batch script":      s.slurm("scontrol", "write", "batch_script", id, "-"),
		"squeue":            s.slurm("squeue", "--noheader", "-O", "ALL"),
	}
	ps, err := exec.CommandContext(t.Context(), "ps", "-eo", "args").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen["ps"] = string(ps)
	for where, text := range seen {
		for _, secret := range []string{token, password, "environment-71be"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q", where, secret)
			}
		}
	}
	err = filepath.WalkDir(s.shared(), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && d.Type()&os.ModeSymlink == 0 && info.Mode().Perm()&0o077 != 0 && path != s.shared() {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A program that keeps failing at once is given up for this ID, and its log says why.
func TestProgramThatNeverRuns(t *testing.T) {
	s := newSite(t, "")
	w := s.workload(s.job, worker(0, 1), conformance.Steady)
	w.Argv = []string{"/opt/no/such/kale-trainer"}
	s.ensure(w)
	st := s.waitState(worker(0, 1), backend.StateFailed)
	if st.ExitCode != 127 || st.Restarts != 5 || !strings.Contains(st.Reason, "in a row on node "+st.Node) {
		t.Errorf("it is %+v", st)
	}
	r, err := s.b.Logs(t.Context(), s.job, worker(0, 1), backend.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(text), "/opt/no/such/kale-trainer") {
		t.Errorf("its log is %q, %v", text, err)
	}
}

// The trainer may come from an address or a path, once, and only with the right sum.
func TestArtifact(t *testing.T) {
	r := newRig(t)
	program := filepath.Join(r.dir, "trainer-v1")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho I am the trainer \"$1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := exec.CommandContext(t.Context(), "sha256sum", program).Output()
	if err != nil {
		t.Skip("sha256sum is not here: apt-get install coreutils")
	}
	s := &site{T: t, rig: r, job: "j"}
	for rank, sum := range []string{strings.Fields(string(sum))[0], strings.Repeat("0", 64)} {
		s.extra = fmt.Sprintf("artifact {\n source = %q\n checksum = %q\n}", program, sum)
		s.b = s.open()
		w := s.workload(s.job, worker(rank, 1), conformance.Steady)
		w.Argv = []string{trainerName, "worker"}
		s.ensure(w)
		st := s.waitFor(worker(rank, 1), "over", func(st backend.Status) bool { return !st.State.Live() })
		logs, err := s.b.Logs(t.Context(), s.job, worker(rank, 1), backend.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(logs)
		if err != nil {
			t.Fatal(err)
		}
		want, state := "I am the trainer worker", backend.StateExited
		if rank == 1 {
			want, state = "has the SHA-256", backend.StateFailed
		}
		if st.State != state || !strings.Contains(string(text), want) {
			t.Errorf("with the sum %s it is %+v, its log %q", sum, st, text)
		}
	}
}

// A drain's deadline is on record: a backend that comes later keeps it, though the workload never obeys and its script is stopped.
func TestDrainDeadlineOutlivesTheBackend(t *testing.T) {
	s := newSite(t, "")
	w := s.workload(s.job, worker(0, 1), conformance.Stubborn)
	w.StopGrace = 2 * time.Second
	s.ensure(w)
	s.waitState(worker(0, 1), backend.StateRunning)
	if err := s.b.Release(t.Context(), s.job, []backend.ID{worker(0, 1)}, backend.Drained); err != nil {
		t.Fatal(err)
	}
	if err := s.b.Close(); err != nil {
		t.Fatal(err)
	}
	b := s.open() // nobody lists: the backend looks after it by itself
	conformance.Eventually(t, "Slurm is rid of it", func() error {
		if out, err := cluster.Run(context.WithoutCancel(t.Context()), "squeue", "--noheader"); err != nil || strings.TrimSpace(out) != "" {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	conformance.Eventually(t, "it is gone", func() error {
		if all, _, err := b.List(t.Context(), s.job); err != nil || len(all) > 0 {
			return fmt.Errorf("List = %+v, %w", all, err)
		}
		return nil
	})
}

// What a workload writes takes a bounded place, however much it is; the newest of it can be read, and who follows goes on reading.
func TestOutputIsBounded(t *testing.T) {
	s := newSite(t, "")
	id := worker(0, 1)
	// Twelve megabytes in three bursts of numbered lines, each when told, then the end.
	script := `trap 'exit 0' TERM; cd "$KALE_ALLOC_DIR"; n=0; for burst in 1 2 3; do until [ -e "go$burst" ]; do sleep 0.1; done; ` +
		`awk -v from=$n 'BEGIN { for (i = from; i < from + 50000; i++) printf "%079d\n", i }'; n=$((n + 50000)); done; until [ -e end ]; do sleep 0.1; done`
	st := s.ensure(backend.Workload{ID: id, Argv: []string{"/bin/sh", "-c", script}})
	if st.Err != nil {
		t.Fatal(st.Err)
	}
	dir := filepath.Join(s.shared(), s.job, id.String())
	signal := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "alloc", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	followed, err := s.b.Logs(t.Context(), s.job, id, backend.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer followed.Close()
	lines := bufio.NewScanner(followed)
	last, torn := -1, 0
	readTo := func(n int) {
		t.Helper()
		for last < n-1 {
			if !lines.Scan() {
				t.Fatalf("the log ended after line %d: %v", last, lines.Err())
			}
			got, err := strconv.Atoi(lines.Text())
			switch {
			case err != nil || len(lines.Text()) != 79:
				torn++ // where it was cut off while the program wrote
			case got <= last:
				t.Fatalf("after line %d comes %d", last, got)
			default:
				last = got
			}
		}
		if torn > 2 {
			t.Errorf("%d lines are torn", torn)
		}
	}
	signal("go1")
	readTo(50_000)
	signal("go2") // seven and a half megabytes: not yet
	readTo(100_000)
	signal("go3")
	readTo(150_000)
	size := func(name string) int64 {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return -1
		}
		return info.Size()
	}
	conformance.Eventually(t, "the older part is there, and the newer begins anew", func() error {
		if size("output.log.1") < maxOutput || size("output.log.1") > 2*maxOutput+80 || size("output.log") < 0 || size("output.log") > maxOutput {
			return fmt.Errorf("they have %d and %d bytes", size("output.log.1"), size("output.log"))
		}
		return nil
	})
	signal("end")
	if s.waitState(id, backend.StateExited); lines.Scan() {
		t.Errorf("after its end the log has %q", lines.Text())
	}
	tail, err := s.b.Logs(t.Context(), s.job, id, backend.LogOptions{Tail: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	if got, err := io.ReadAll(tail); err != nil || string(got) != fmt.Sprintf("%079d\n%079d\n", 149_998, 149_999) {
		t.Errorf("its last lines are %q, %v", got, err)
	}
}
