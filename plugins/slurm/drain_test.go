package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// A node is drained: Slurm lets run on what is there, and the caller is told by when to leave and why, by the time at which the drain began. Nothing new is placed
// there, and its free GPUs are not offered. When the drain is taken back, nobody has to leave.
func TestDrainedNodeIsLeftInTime(t *testing.T) {
	s := newSite(t, `time = "8h"`)
	s.ensure(s.gpuWorkload(worker(0, 1), conformance.Steady, 1))
	before := s.waitState(worker(0, 1), backend.StateRunning)
	if before.EndCause != backend.EndWalltime || time.Until(before.Deadline) < 7*time.Hour {
		t.Errorf("before anything is drained its end is %v by %q, want its walltime's", before.Deadline, before.EndCause)
	}
	number := 1
	if before.Node == slurmtest.Node(2) {
		number = 2
	}
	if err := s.on.Drain(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.on.Resume(context.WithoutCancel(t.Context()), number) }) // where the test has failed
	// As the scheduler does; the backend itself looks at nodes less often.
	look := func() (inv backend.Inventory) {
		t.Helper()
		conformance.Eventually(t, "Slurm answers in time", func() (err error) { // a busy machine may take longer than it is given
			inv, err = s.b.Inventory(t.Context())
			return err
		})
		return inv
	}
	if inv := look(); inv.Free != slots/2 {
		t.Errorf("Inventory = %+v; want that the node's free GPU is not offered", inv)
	}
	told := s.waitFor(worker(0, 1), "told of the drain", func(st backend.Status) bool {
		return st.State == backend.StateRunning && st.EndCause == backend.EndDrain && strings.Contains(st.Reason, before.Node+" is being drained")
	})
	if left := time.Until(told.Deadline); left > backend.DrainWithin || left < backend.DrainWithin/2 {
		t.Errorf("it is to leave in %v, want the hour that a drain is given", left)
	}
	s.b = s.open() // a backend that has just begun
	look()
	if st := s.waitState(worker(0, 1), backend.StateRunning); !st.Deadline.Equal(told.Deadline) || st.EndCause != backend.EndDrain {
		t.Errorf("to another backend its end is %v by %q, want %v by the drain", st.Deadline, st.EndCause, told.Deadline)
	}
	s.ensure(s.gpuWorkload(worker(1, 1), conformance.Steady, 1))
	if st := s.waitState(worker(1, 1), backend.StateRunning); st.Node == before.Node || st.EndCause != backend.EndWalltime {
		t.Errorf("the successor is on %s, and ends by %q; want another node, and its walltime", st.Node, st.EndCause)
	}
	if err := s.on.Resume(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	look()
	s.waitFor(worker(0, 1), "free to stay", func(st backend.Status) bool {
		return st.State == backend.StateRunning && st.Deadline.Equal(before.Deadline) && st.EndCause == backend.EndWalltime && !strings.Contains(st.Reason, "drained")
	})
	for _, rank := range []int{0, 1} {
		s.started(t, s.job, worker(rank, 1), 1)
	}
}

// Where only a suspended job is left on a node, Slurm calls it idle and its GPU used: that is right, and no fault.
func TestSuspendedJobIsNoWrongCount(t *testing.T) {
	t.Parallel()
	c := restCluster(t)
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := c.Run(t.Context(), name, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	number := run("sbatch", "--parsable", "--nodelist=n1", "--gres=gpu:1", "--output=/dev/null", "--wrap=sleep 1000")
	conformance.Eventually(t, "it runs", func() error {
		if state := run("squeue", "--noheader", "--jobs="+number, "--format=%T"); state != "RUNNING" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	run("scontrol", "suspend", number)
	for name, extra := range map[string]string{"by the command line": fmt.Sprintf("bin_dir = %q", c.Bin()), "through slurmrestd": restBlock(c)} {
		t.Run(name, func(t *testing.T) {
			s := &site{T: t, job: "j", rig: &rig{dir: c.Shared(), extra: extra}}
			s.b = s.open()
			conformance.Eventually(t, "the inventory shows its GPU as used", func() error {
				inv, err := s.b.Inventory(t.Context())
				if err == nil && inv.Free != 3 {
					err = fmt.Errorf("%d are free", inv.Free)
				}
				if len(inv.Faults) > 0 {
					t.Errorf("it says %q", inv.Faults)
				}
				return err
			})
		})
	}
	if out := run("scontrol", "--details", "--oneliner", "show", "node", "n1"); !strings.Contains(out, "State=IDLE") || !strings.Contains(out, "CPUAlloc=0") {
		t.Logf("this Slurm does not call the node idle: %s", out)
	}
	run("scancel", number)
}

// What has ended while slurmctld was killed before it had saved that is there again for Slurm when slurmctld is back. To forget the job is to end it: nobody would know later whose it is.
func TestForgetEndsWhatSlurmTakesForRunning(t *testing.T) {
	if why := slurmtest.Missing(); why != "" {
		t.Skip(why)
	}
	t.Parallel()
	s, own := newOwnSite(t, slurmtest.Options{Nodes: 1, GPUsPerNode: 1}, "") // Slurm counts its GPU as used for ever after that
	id := worker(0, 1)
	s.ensure(s.gpuWorkload(id, conformance.Steady, 1))
	s.waitState(id, backend.StateRunning)
	s.started(t, s.job, id, 1)
	if err := own.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.b.Release(t.Context(), s.job, []backend.ID{id}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "it has ended", func() error {
		all, complete, err := s.b.List(t.Context(), s.job)
		if err == nil && (!complete || len(all) > 0) {
			err = fmt.Errorf("there are %v, all %v", all, complete)
		}
		return err
	})
	own.KillController()
	if err := own.StartController(t.Context()); err != nil {
		t.Fatal(err)
	}
	left := func() string {
		out, err := own.Run(t.Context(), "squeue", "--noheader", "--states=running", "--name="+jobPrefix+s.job+":"+id.String(), "--format=%i %T")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	t.Logf("slurmctld is back, and has of it %q", left())
	conformance.Eventually(t, "it is forgotten", func() error {
		_, err := s.b.Forget(t.Context(), s.job, "")
		return err
	})
	conformance.Eventually(t, "Slurm has nothing of it", func() error {
		if jobs := left(); jobs != "" {
			return errors.New(jobs)
		}
		return nil
	})
}

// holds is a controller that knows what the jobs on its node have.
type holds struct {
	controller
	at  []node
	has holding
	err error
}

func (h *holds) nodes(context.Context) ([]node, error) { return slices.Clone(h.at), nil }

func (h *holds) held(context.Context, string, string) (holding, error) { return h.has, h.err }

// A GPU that Slurm counts though no job has it is named from when the node was seen without a job until Slurm counts right again, whatever runs there meanwhile.
func TestWrongCountIsNamedBesideJobs(t *testing.T) {
	h := &holds{at: []node{{name: "n1", state: "MIXED", cpusUsed: 1, gpus: []gpu{{0, "a", true}, {1, "a", true}, {2, "a", false}}}}, has: holding{1, 1}}
	q := newQueue(h, time.Second)
	n := &h.at[0]
	wrong := func(when, want string) {
		t.Helper()
		nodes, err := q.look(t.Context())
		if err != nil || nodes[0].miscounted() != want {
			t.Errorf("%s it says %q, %v; want %q", when, nodes[0].miscounted(), err, want)
		}
	}
	wrong("of a node that was never without a job", "")
	n.state, n.cpusUsed, n.gpus[1].used, h.has = "IDLE", 0, false, holding{}
	wrong("without a job", "Slurm counts 1 GPU of node n1 as used, and shows no job there that has any: scontrol reconfigure, by an administrator, gives it back")
	const beside = "Slurm counts 2 GPUs of node n1 as used, and the jobs there have 1: scontrol reconfigure, by an administrator, gives 1 back"
	n.state, n.cpusUsed, n.gpus[1].used, h.has = "MIXED", 1, true, holding{1, 1}
	wrong("beside a job", beside)
	h.has = holding{}
	wrong("where a job has begun since", beside)
	n.state = "MIXED+COMPLETING"
	wrong("while one completes", beside)
	n.state, h.err = "MIXED", errors.New("no answer")
	if _, err := q.look(t.Context()); err == nil {
		t.Error("it is not told that Slurm does not answer")
	}
	q.noNodes, h.err, h.has = snapshot{}, nil, holding{1, 2}
	wrong("when two jobs have both", "")
	h.has = holding{1, 1}
	wrong("afterwards", "")
}

func TestParseHolding(t *testing.T) {
	const job = "JobId=57 JobName=x JobState=%s Reason=None TresPerNode=gres:gpu:2 JOB_GRES=gpu:h200:4   Nodes=n[1-2] CPU_IDs=0-1,4 Mem=100 GRES=gpu:h200:2(IDX:1-2)   Nodes=n3 CPU_IDs=0 Mem=100 GRES=   MinCPUsNode=1"
	for _, c := range []struct {
		state, node string
		want        holding
	}{{"RUNNING", "n2", holding{3, 2}}, {"RUNNING", "n3", holding{1, 0}}, {"SUSPENDED", "n1", holding{0, 2}}, {"RUNNING", "n4", holding{}}} {
		if got := parseHolding(fmt.Sprintf(job, c.state), c.node); got != c.want {
			t.Errorf("of %s job on %s: %+v, want %+v", c.state, c.node, got, c.want)
		}
	}
}
