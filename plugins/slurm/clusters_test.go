package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// Two clusters that are named together: jobs go to either, and each is found, counted and ended where it is.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	if why := slurmtest.MissingAccounting(); why != "" {
		t.Skip(why)
	}
	start := func(o slurmtest.Options) *slurmtest.Cluster {
		t.Helper()
		o.Nodes, o.GPUsPerNode = 1, 1
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
	near := start(slurmtest.Options{Name: "near", Accounting: true})
	far := start(slurmtest.Options{Name: "far", Beside: near})
	conformance.Eventually(t, "each is reached through the accounts", func() error { // once slurmctld has said there where it is
		_, err := near.Run(t.Context(), "squeue", "--clusters=near,far")
		return err
	})
	dir, err := os.MkdirTemp(near.Shared(), "t-")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, rig: &rig{on: near, dir: dir, extra: fmt.Sprintf("bin_dir = %q\nclusters = \"near,far\"\nmax_pending = 0", near.Bin())}, job: "j"}
	s.b = s.open()
	mustRefuseClusters(t, near, "near,fra", `Slurm's database has no cluster "fra". Did you mean "far"? There is far, near.`, "known by database")
	inventory := func(free int) backend.Inventory {
		t.Helper()
		inv, err := s.b.Inventory(t.Context())
		if err != nil || inv.Total != 2 || inv.Free != free {
			t.Errorf("of the two GPUs %d should be free: %+v, %v", free, inv, err)
		}
		return inv
	}
	inventory(2)
	var ids []backend.ID
	var clusters []string
	bystander := ""
	for rank := range 2 { // one after the other, so that the second finds the first one's place taken
		id := worker(rank, 1)
		ids = append(ids, id)
		if st := s.ensure(s.gpuWorkload(id, conformance.Steady, 1)); st.Err != nil {
			t.Fatal(st.Err)
		}
		st := s.waitFor(id, "running", func(st backend.Status) bool { return st.State == backend.StateRunning && st.PID > 0 })
		var sub submission
		if err := backend.ReadJSON(filepath.Join(s.shared(), s.job, id.String(), submissionFile), &sub); err != nil {
			t.Fatal(err)
		}
		if clusters = append(clusters, sub.Cluster); rank == 0 { // somebody's job in the other cluster has the number of the first's job
			other := map[string]string{"near": "far", "far": "near"}[sub.Cluster]
			for at := ""; at != sub.JobID+";"+other; {
				out, err := near.Run(t.Context(), "sbatch", "--clusters="+other, "--parsable", "--output=/dev/null", "--job-name=bystander", "--wrap=sleep 600")
				if err != nil {
					t.Fatal(err)
				}
				if at = strings.TrimSpace(out); number(strings.TrimSuffix(at, ";"+other)) > number(sub.JobID) {
					t.Fatalf("cluster %s is at number %s already, and the first job is %s", other, at, sub.JobID)
				}
			}
			bystander = other
		}
		if st.Address != "127.0.0.1" {
			t.Errorf("%s is at %q", id, st.Address)
		}
	}
	if slices.Sort(clusters); !slices.Equal(clusters, []string{"far", "near"}) {
		t.Errorf("the jobs are in the clusters %q", clusters)
	}
	held := map[string]bool{}
	for _, d := range inventory(0).Devices {
		held[d.HeldBy] = true
	}
	if !held["j/worker-0-g1"] || !held["j/worker-1-g1"] {
		t.Errorf("the devices are held by %v", held)
	}
	if st := s.ensure(s.gpuWorkload(worker(2, 1), conformance.Steady, 1)); st.Err == nil || st.Err.Code != backend.NoCapacity {
		t.Errorf("a third: %+v", st)
	}
	if err := s.b.Release(t.Context(), s.job, ids[:1], backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "the first is gone", func() error {
		list, complete, err := s.b.List(t.Context(), s.job)
		if err == nil && (!complete || len(list) != 1) {
			err = fmt.Errorf("it lists %v", list)
		}
		return err
	})
	s.waitState(ids[1], backend.StateRunning)
	out, err := near.Run(t.Context(), "squeue", "--noheader", "--clusters="+bystander, "--states=all", "--name=bystander", "--format=%T")
	if err != nil || strings.Contains(out, "CANCEL") || !strings.Contains(out, "RUNNING") {
		t.Errorf("with the first, the job of its number in the other cluster was touched: %s, %v", out, err)
	}
	if _, err := near.Run(t.Context(), "scancel", "--clusters="+bystander, "--name=bystander"); err != nil {
		t.Fatal(err)
	}
	// A cluster that does not answer leaves what is there unknown, not gone.
	if err := far.PauseController(false); err != nil {
		t.Fatal(err)
	}
	list, complete, err := s.b.List(t.Context(), s.job)
	if err == nil && complete && (len(list) != 1 || list[0].State != backend.StateRunning) {
		t.Errorf("while one cluster does not answer: %v, complete", list)
	}
	if err := far.PauseController(true); err != nil {
		t.Fatal(err)
	}
	s.waitState(ids[1], backend.StateRunning)
	if err := s.b.Release(t.Context(), s.job, ids[1:], backend.Drained); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "both clusters are empty", func() error {
		out, err := near.Run(t.Context(), "squeue", "--noheader", "--clusters=near,far", "--format=job %i")
		if err == nil && strings.Contains(out, "job ") {
			err = fmt.Errorf("they have %s", out)
		}
		return err
	})
}

// A cluster that the database does not have is a mistake at its place, and a job with it says why nothing of it can be seen.
func mustRefuseClusters(t *testing.T, on *slurmtest.Cluster, clusters, says, listed string) {
	t.Helper()
	dir, err := os.MkdirTemp(on.Shared(), "t-")
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, rig: &rig{on: on, dir: dir, extra: fmt.Sprintf("bin_dir = %q", on.Bin())}, job: "wrong"}
	s.b = s.open()
	cfg := s.config(s.job)
	line := fmt.Sprintf("  clusters = %q", clusters)
	cfg.Source = fmt.Appendf(nil, "\n  shared_dir = %q\n%s\n  bin_dir = %q\n", s.shared(), line, on.Bin())
	if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
		t.Fatal(diags, err)
	}
	report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
	if err != nil || len(report.Mistakes) != 1 || report.Mistakes[0].Detail != says || report.Mistakes[0].Start.Column != strings.Index(line, "=")+3 {
		t.Errorf("of clusters = %q it says %+v, %v; want %q", clusters, report, err, says)
	}
	list, complete, err := s.b.List(t.Context(), s.job)
	if err == nil || complete || !strings.Contains(err.Error(), listed) {
		t.Errorf("it lists %v, complete %v, %v; want %q", list, complete, err, listed)
	}
}

// Without a database there is one cluster, that of this machine.
func TestClustersWithoutADatabase(t *testing.T) {
	s := newSite(t, "")
	mustRefuseClusters(t, s.on, "far", `clusters is "far", and the cluster of this machine has no database (slurmdbd), by which others are found. Leave clusters out.`, "talking to database")
}
