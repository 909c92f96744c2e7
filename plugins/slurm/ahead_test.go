package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// crowded is a controller in whose queue others wait.
type crowded struct {
	controller
	all   []waiter
	err   error
	asked []string // of which partitions
}

func (c *crowded) pending(_ context.Context, partitions string) ([]waiter, error) {
	c.asked = append(c.asked, partitions)
	return c.all, c.err
}

// Those count that may come first: not the job's own, not what is held or waits for something else than a place, and nobody of another partition.
func TestWhoMayComeFirst(t *testing.T) {
	waits := func(id int, partitions, reason string, priority int64) waiter {
		return waiter{id: fmt.Sprint(id), partitions: partitions, reason: reason, priority: priority}
	}
	crowd := []waiter{
		waits(1, "main", "Resources", 100), waits(2, "main", "Priority", 90), waits(3, "fast,main", "None", 80), waits(4, "main", "Priority", 10),
		waits(5, "main", "Priority", 95), // the job's own
		waits(6, "fast", "Resources", 100), waits(7, "main", "JobHeldUser", 0), waits(8, "main", "JobHeldAdmin", 0), waits(9, "main", "Dependency", 50),
		waits(10, "main", "DependencyNeverSatisfied", 50), waits(11, "main", "BeginTime", 50), waits(12, "main", "launch failed requeued held", 50),
		waits(13, "main", "Priority", 0),
	}
	ninety := 90
	one, two := []node{{partitions: []string{"main"}}}, []node{{partitions: []string{"main"}}, {partitions: []string{"main", "fast"}}}
	for _, tt := range []struct {
		name     string
		set      settings
		nodes    []node
		standard string
		ctl      crowded
		want     string
		asked    []string
	}{
		{name: "several", set: settings{partition: "main"}, ctl: crowded{all: crowd}, want: "4 other jobs wait in partition main and may come first", asked: []string{"main"}},
		{name: "one", set: settings{partition: "fast"}, ctl: crowded{all: crowd[4:]}, want: "1 other job waits in partition fast and may come first", asked: []string{"fast"}},
		{name: "one of two partitions", set: settings{partition: "a,fast"}, ctl: crowded{all: crowd[3:]}, want: "1 other job waits in partitions a,fast and may come first", asked: []string{"a,fast"}},
		{name: "those before the block's priority", set: settings{partition: "main", priority: &ninety}, ctl: crowded{all: crowd}, want: "2 other jobs wait in partition main and may come first", asked: []string{"main"}},
		{name: "nobody", set: settings{partition: "main"}, ctl: crowded{all: crowd[4:]}, asked: []string{"main"}},
		{name: "the standard partition", standard: "main", nodes: two, ctl: crowded{all: crowd[:1]}, want: "1 other job waits in partition main and may come first", asked: []string{"main"}},
		{name: "the only partition", nodes: one, ctl: crowded{all: crowd[:1]}, want: "1 other job waits in partition main and may come first", asked: []string{"main"}},
		{name: "which partition is not known", nodes: two, ctl: crowded{all: crowd}},
		{name: "which cluster is not known", set: settings{partition: "main", way: way{cli: cli{clusters: "c1,c2"}}}, ctl: crowded{all: crowd}},
		{name: "no answer", set: settings{partition: "main"}, ctl: crowded{all: crowd, err: errors.New("no answer")}, asked: []string{"main"}},
	} {
		j := &job{name: "j", set: tt.set, queue: newQueue(&tt.ctl, defaultPoll), lg: conformance.Logger(t)}
		c := captured{nodes: tt.nodes, views: map[*job][]view{j: {{row: row{id: "5"}}}}}
		if got := j.ahead(t.Context(), c, tt.standard); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if diff := cmp.Diff(tt.asked, tt.ctl.asked); diff != "" {
			t.Errorf("%s: it asked of partitions (-want +got):\n%s", tt.name, diff)
		}
	}
}

// squeue's lines and slurmrestd's answers, of both forms, say the same of what waits; sbatch says which partition it would be.
func TestReadsWhatWaits(t *testing.T) {
	want := []waiter{{"7", "main", "Resources", 4294901758}, {"8_[1-5]", "main,fast", "JobHeldUser", 0}, {"9", "main", "Nodes required for job are DOWN, DRAINED", 1}}
	line := func(fields ...string) string { return lineMark + strings.Join(fields, fieldMark) + "\n" }
	got := parsePending(line("7", "main", "4294901758", "Resources") + line("8_[1-5]", "main,fast", "0", "JobHeldUser") + line("9", "main", "?", "Nodes required for job are DOWN, DRAINED"))
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(waiter{})); diff != "" {
		t.Errorf("of squeue (-want +got):\n%s", diff)
	}
	for text, want := range map[string]waiter{
		`{"job_id": 7, "job_state": "PENDING", "state_reason": "Priority", "partition": "main", "priority": 4294901758}`:                                      {"7", "main", "Priority", 4294901758},
		`{"job_id": 7, "job_state": ["PENDING"], "state_reason": "Priority", "partition": "a,b", "priority": {"set": true, "infinite": false, "number": 12}}`: {"7", "a,b", "Priority", 12},
		`{"job_id": 7, "job_state": ["PENDING"], "state_reason": "JobHeldUser", "partition": "a", "priority": {"set": true, "infinite": false, "number": 0}}`: {"7", "a", "JobHeldUser", 0},
		`{"job_id": 7, "job_state": ["PENDING"], "state_reason": "None", "partition": "a"}`:                                                                   {"7", "a", "None", 1},
	} {
		var j restWaiter
		if err := json.Unmarshal([]byte(text), &j); err != nil || j.waiter() != want {
			t.Errorf("of %s: %+v, %v, want %+v", text, j.waiter(), err, want)
		}
	}
	for said, want := range map[string]string{
		"sbatch: Job 12 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1 in partition main":                     "main",
		"sbatch: note: x\nsbatch: Job 12 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1 in partition gpu-a\n": "gpu-a",
		"sbatch: Job 12 to start at 2026-01-01T00:00:00 using 1 processors on nodes n1":                                       "",
	} {
		if got := parseTested(said); got != want {
			t.Errorf("of %q: partition %q, want %q", said, got, want)
		}
	}
}

// othersWait lets a job of a stranger wait for the whole cluster, others for something else, and sees what a plan says of GPUs that are free all the same.
func (s *site) othersWait(partition string) {
	s.Helper()
	plan := func(want string) {
		s.Helper()
		ws := []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1), s.gpuWorkload(worker(1, 1), conformance.Steady, 2)}
		conformance.Eventually(s, fmt.Sprintf("what fits has the reason %q", want), func() error {
			report, err := s.b.Plan(s.Context(), s.job, ws)
			if err != nil || !report.Fits() || report.Placements[0].Reason != want || report.Placements[1].Reason != want || report.Placements[0].Node == "" {
				err = fmt.Errorf("Plan = %+v, %w", report, err)
			}
			return err
		})
	}
	stranger := func(args ...string) string {
		s.Helper()
		return s.slurm("sbatch", append([]string{"--parsable", "--job-name=stranger", "--partition=" + partition, "--output=/dev/null", "--wrap=sleep 1000"}, args...)...)
	}
	first := stranger("--gres=gpu:1")
	stranger("--gres=gpu:1", "--hold")
	stranger("--gres=gpu:1", "--dependency=afterok:"+first)
	stranger("--gres=gpu:1", "--begin=now+1hour")
	plan("")
	stranger("--nodes=2", "--ntasks=2", "--gres=gpu:2")
	plan("1 other job waits in partition " + partition + " and may come first")
	stranger("--nodes=2", "--ntasks=2", "--gres=gpu:2")
	plan("2 other jobs wait in partition " + partition + " and may come first")
}

// What is free and may go to others that wait for it already is said of what fits, in the partition of jobs that name none, and of no other.
func TestPlanSaysWhoMayComeFirst(t *testing.T) {
	s := newSite(t, "")
	s.othersWait("low")
	s.extra = "partition = \"high\"\n"
	if diags, err := s.b.Configure(t.Context(), s.config(s.job)); err != nil || len(diags) > 0 {
		t.Fatal(diags, err)
	}
	report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
	if err != nil || !report.Fits() || report.Placements[0].Reason != "" {
		t.Errorf("Plan in a partition where nobody waits = %+v, %v", report, err)
	}
}
