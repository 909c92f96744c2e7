package slurm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// Lines as sacct 22.05.8 printed them.
func TestParseAccounts(t *testing.T) {
	const out = `2|kale|wrap|FAILED|3:0|n1|2026-11-21T08:44:16|ReqNodeNotAvail
3|kale|wrap|CANCELLED by 0|0:0|None assigned|2026-11-21T08:44:16|ReqNodeNotAvail
6|kale|kale:j:worker-0-g1|FAILED|0:9|n1|2026-11-21T08:44:53|None
8|kale|kale:j:worker-0-g1|COMPLETED|0:0|n1|2026-11-21T08:44:53|None
10|far|kale:j:worker-0-g2|RUNNING|0:0|n1|2026-11-21T08:44:53|None
cut off|kale
8.batch|kale|batch|COMPLETED|0:0|n1|2026-11-21T08:44:53|None

`
	at := func(s int) time.Time { return time.Date(2026, 11, 21, 8, 44, s, 0, time.UTC) }
	want := []ending{
		{jobRef: jobRef{id: "2"}, name: "wrap", state: "FAILED", reason: "ReqNodeNotAvail", node: "n1", exitCode: 3, submitted: at(16)},
		{jobRef: jobRef{id: "3"}, name: "wrap", state: "CANCELLED", reason: "by user 0", submitted: at(16)},
		{jobRef: jobRef{id: "6"}, name: "kale:j:worker-0-g1", state: "FAILED", node: "n1", exitCode: 137, submitted: at(53)},
		{jobRef: jobRef{id: "8"}, name: "kale:j:worker-0-g1", state: "COMPLETED", node: "n1", submitted: at(53)},
		{jobRef: jobRef{id: "10"}, name: "kale:j:worker-0-g2", state: "RUNNING", node: "n1", submitted: at(53)},
	}
	if diff := cmp.Diff(want, parseAccounts(out, false), cmp.AllowUnexported(ending{}, jobRef{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, e := range parseAccounts(out, true) {
		if cluster := []string{"kale", "kale", "kale", "kale", "far"}[i]; e.cluster != cluster {
			t.Errorf("with clusters, job %s is of %q", e.id, e.cluster)
		}
	}
}

// teller is a controller that has accounts and nothing else.
type teller struct {
	controller
	asked int
	about []jobRef
	say   []ending
	err   error
}

func (t *teller) ended(_ context.Context, _ time.Time, jobs []jobRef) ([]ending, error) {
	t.asked++
	t.about = jobs
	return t.say, t.err
}

// The accounts are asked for all that is missing at once, not again at once, and are believed only about the very job.
func TestConsult(t *testing.T) {
	now := time.Now()
	vanished := func(rank int, job string) view {
		return view{
			instance: instance{job: "j", id: worker(rank, 1)}, record: record{Nonce: job, Created: now.Add(-time.Hour)},
			submission: submission{JobID: job, Tried: now.Add(-time.Hour), At: now.Add(-time.Hour)}, report: report{State: backend.StateRunning},
		}
	}
	of := func(rank int, job, state string, submitted time.Time) ending {
		return ending{jobRef: jobRef{id: job}, name: jobName("j", worker(rank, 1)), state: state, submitted: submitted}
	}
	there := vanished(5, "15")
	there.inQueue = true
	views := []view{vanished(0, "10"), vanished(1, "11"), vanished(2, "12"), vanished(3, "13"), vanished(4, "14"), there}
	tl := &teller{say: []ending{
		of(0, "10", "NODE_FAIL", now.Add(-50*time.Minute)), of(0, "10", "TIMEOUT", now.Add(-40*time.Minute)), // put back into the queue between the two
		of(1, "11", "FAILED", now.Add(-48*time.Hour)), // another's, before the numbers began anew
		of(9, "12", "FAILED", now), of(3, "13", "RUNNING", now), of(3, "14", "FAILED", now),
	}}
	j := &job{name: "j", queue: newQueue(tl, time.Second), lg: slog.New(slog.DiscardHandler)}
	j.consult(t.Context(), views, snapshot{began: now})
	if want := []jobRef{{id: "10"}, {id: "11"}, {id: "12"}, {id: "13"}, {id: "14"}}; tl.asked != 1 || !slices.Equal(tl.about, want) {
		t.Errorf("asked %d times, the last for %v", tl.asked, tl.about)
	}
	for i, v := range views {
		if got := v.account; (i == 0) != (got != nil) || got != nil && got.state != "TIMEOUT" {
			t.Errorf("of %s it is believed: %+v", v.id, got)
		}
	}
	j.consult(t.Context(), views, snapshot{began: now})
	if tl.asked != 1 {
		t.Errorf("it is asked again at once")
	}
	for _, err := range []error{errNoAccounting, os.ErrDeadlineExceeded} {
		tl.asked, tl.err, tl.say = 0, err, nil
		j.queue.accounts.next = time.Time{}
		for range 2 {
			j.consult(t.Context(), []view{vanished(0, "10")}, snapshot{began: now})
		}
		if pause := time.Until(j.queue.accounts.next); tl.asked != 1 || pause < accountsPause/2 || errors.Is(err, errNoAccounting) && pause < accountsAbsent/2 {
			t.Errorf("after %v: asked %d times, next in %v", err, tl.asked, pause)
		}
	}
	tl.asked, j.queue.accounts.next = 0, time.Time{}
	if j.consult(t.Context(), views, snapshot{err: os.ErrDeadlineExceeded}); tl.asked != 0 {
		t.Error("it is asked although Slurm itself does not answer")
	}
}

// On a cluster with accounts, which forgets jobs quickly.
func TestAccounting(t *testing.T) {
	t.Parallel() // with the others that have a cluster of their own
	if why := slurmtest.MissingAccounting(); why != "" {
		t.Skip(why)
	}
	c, err := slurmtest.Start(t.Context(), slurmtest.Options{
		Nodes: 1, GPUsPerNode: 2, Accounting: true, Rest: slurmtest.MissingRest() == "", Conf: []string{"MinJobAge=2", "AccountingStorageEnforce=associations,limits,qos"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	bin := fmt.Sprintf("bin_dir = %q\n", c.Bin())
	for name, tt := range map[string]struct {
		extra string
		test  func(*site, *slurmtest.Cluster)
	}{
		"forgotten jobs":                     {bin, (*site).forgottenJobs},
		"forgotten jobs, through slurmrestd": {restBlock(c), (*site).forgottenJobs},
		"accounts of the user":               {bin, (*site).accountsOfTheUser},
	} {
		t.Run(name, func(t *testing.T) {
			if why := slurmtest.MissingRest(); why != "" && tt.extra != bin {
				t.Skip(why)
			}
			dir, err := os.MkdirTemp(c.Shared(), "t-")
			if err != nil {
				t.Fatal(err)
			}
			s := &site{T: t, rig: &rig{on: c, dir: dir, extra: tt.extra}, job: "j"}
			s.b = s.open()
			tt.test(s, c)
		})
	}
}

// What Slurm has forgotten when somebody looks again, the accounts know: the state, who did it, and the code.
func (s *site) forgottenJobs(c *slurmtest.Cluster) {
	t := s.T
	runs, waits := s.gpuWorkload(worker(0, 1), conformance.Steady, 1), s.gpuWorkload(worker(1, 1), conformance.Steady, 2)
	s.ensure(runs)
	killed := s.waitFor(worker(0, 1), "it runs", func(st backend.Status) bool { return st.State == backend.StateRunning && st.PID > 0 })
	s.ensure(waits)
	if err := s.b.Close(); err != nil { // nobody looks meanwhile
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context(), "scancel", "--name="+jobName(s.job, worker(1, 1))); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(parentOf(t, killed.PID), syscall.SIGKILL); err != nil { // its script: no word is left
		t.Fatal(err)
	}
	conformance.Eventually(t, "Slurm has forgotten both", func() error {
		out, err := c.Run(t.Context(), "squeue", "--noheader", "--states=all")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("it shows %s", out)
		}
		return err
	})
	s.b = s.open()
	for rank, says := range []string{"FAILED, code 137, by the cluster's accounts", "CANCELLED, by user "} {
		st := s.waitFor(worker(rank, 1), "its end is known", func(st backend.Status) bool { return st.State == backend.StateFailed })
		if !strings.Contains(st.Reason, says) || !strings.Contains(st.Reason, "by the cluster's accounts") || strings.Contains(st.Reason, "no longer knows") {
			t.Errorf("%s: %q, want %q", st.ID, st.Reason, says)
		}
		if rank == 0 && st.ExitCode != 137 {
			t.Errorf("%s: exit code %d, want 137", st.ID, st.ExitCode)
		}
	}
}

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "PPid:"); ok {
			parent, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil || parent < 2 {
				t.Fatalf("the parent of %d is %q", pid, rest)
			}
			return parent
		}
	}
	t.Fatalf("process %d has no parent", pid)
	return 0
}

// Where accounts are enforced, one that the user does not have is a mistake at its place, with those that he has.
func (s *site) accountsOfTheUser(c *slurmtest.Cluster) {
	t := s.T
	for _, args := range [][]string{
		{"add", "account", "ml", "Description=ml", "Organization=test"}, {"add", "qos", "high"}, {"add", "user", "name=" + slurmtest.User(), "account=ml"},
		{"modify", "user", "where", "name=" + slurmtest.User(), "account=ml", "set", "qos=normal,high"},
	} {
		if out, err := c.Run(t.Context(), "sacctmgr", append([]string{"--immediate"}, args...)...); err != nil {
			t.Fatal(out, err)
		}
	}
	if out, err := c.Run(t.Context(), "sacctmgr", "--immediate", "modify", "qos", "high", "set", "MaxWall=120"); err != nil {
		t.Fatal(out, err)
	}
	for _, tt := range []struct{ line, says string }{
		{`account = "ml"`, ""},
		{"account = \"ml\"\nqos = \"high\"\ntime = \"120\"", ""},
		{"account = \"ml\"\nqos = \"high\"\ntime = \"240\"", `time is "240", and QOS high lets jobs run for 2h at most: they would wait in the queue for ever. Lower time.`},
		{`account = "mll"`, `no account "mll" for this user. Did you mean "ml"? There is `},
		{"account = \"ml\"\nqos = \"hihg\"", `no QOS "hihg" for this user. Did you mean "high"? There is high, normal.`},
		{"account = \"ml\"\nqos = \"high\"", ""},
	} {
		cfg := s.config(s.job)
		cfg.Source = append(cfg.Source, tt.line+"\n"...)
		if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
			t.Fatal(diags, err)
		}
		var report backend.Report
		conformance.Eventually(t, "slurmctld has heard of the accounts", func() error { // slurmdbd tells it
			var err error
			report, err = s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
			if err == nil && tt.says == "" && !report.Fits() {
				err = fmt.Errorf("%+v", report)
			}
			return err
		})
		if tt.says != "" && (len(report.Mistakes) != 1 || !strings.Contains(report.Mistakes[0].Detail, tt.says) || report.Mistakes[0].Start.Line < 43) {
			t.Errorf("%s: %+v, want %q", tt.line, report, tt.says)
		}
	}
}

// Where QOS preempt each other, a grace shows as the deadline of what a job of a higher one will end; without one it fails, for that reason.
func TestPreemptionByQOS(t *testing.T) {
	t.Parallel()
	if why := slurmtest.MissingAccounting(); why != "" {
		t.Skip(why)
	}
	c, err := slurmtest.Start(t.Context(), slurmtest.Options{
		Nodes: 1, GPUsPerNode: 2, Accounting: true, Conf: []string{"PreemptType=preempt/qos", "PreemptMode=CANCEL", "AccountingStorageEnforce=associations,qos"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, args := range [][]string{
		{"add", "qos", "patient", "GraceTime=3600"}, {"add", "qos", "brief"}, {"add", "qos", "urgent", "Preempt=patient,brief", "Priority=100"},
		{"modify", "user", "where", "name=" + slurmtest.User(), "set", "qos=normal,patient,brief,urgent"},
	} {
		if out, err := c.Run(t.Context(), "sacctmgr", append([]string{"--immediate"}, args...)...); err != nil {
			t.Fatal(out, err)
		}
	}
	for _, qos := range []string{"patient", "brief"} {
		t.Run(qos, func(t *testing.T) {
			dir, err := os.MkdirTemp(c.Shared(), "t-")
			if err != nil {
				t.Fatal(err)
			}
			s := &site{T: t, job: qos, rig: &rig{on: c, dir: dir, extra: fmt.Sprintf("bin_dir = %q\nqos = %q", c.Bin(), qos)}}
			s.b = s.open()
			w := s.gpuWorkload(worker(0, 1), conformance.Steady, 2)
			conformance.Eventually(t, "slurmctld has heard of the QOS", func() error { // slurmdbd tells it
				st := s.ensure(w)
				if st.Err != nil {
					return st.Err
				}
				return nil
			})
			if st := s.waitState(w.ID, backend.StateRunning); !st.Deadline.IsZero() {
				t.Errorf("before the preemption its deadline is %v", st.Deadline)
			}
			before := time.Now()
			id, err := c.Run(t.Context(), "sbatch", "--parsable", "--qos=urgent", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 1000")
			if err != nil {
				t.Fatal(id, err)
			}
			switch qos {
			case "patient":
				st := s.waitFor(w.ID, "the preemption shows as its deadline", func(st backend.Status) bool { return !st.Deadline.IsZero() })
				if end := st.Deadline; st.EndCause != backend.EndPreemption || end.Before(before.Add(50*time.Minute)) || end.After(time.Now().Add(time.Hour+time.Minute)) {
					t.Errorf("its deadline is %v, by %v; want an hour from %v", st.Deadline, st.EndCause, before)
				}
			case "brief":
				st := s.waitState(w.ID, backend.StateFailed)
				if !strings.Contains(st.Reason, "PREEMPTED") && !strings.Contains(st.Reason, "preemption") {
					t.Errorf("its reason is %q", st.Reason)
				}
			}
			if out, err := c.Run(t.Context(), "scancel", strings.TrimSpace(id)); err != nil {
				t.Error(out, err)
			}
			if err := s.b.Release(t.Context(), s.job, []backend.ID{w.ID}, backend.Forced); err != nil {
				t.Error(err)
			}
		})
	}
}
