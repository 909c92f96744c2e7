package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// oneNode is a cluster of one node, and what can be done to its daemons.
type oneNode struct {
	killDaemon, killController   func()
	startDaemon, startController func() error
}

// onOneNode has a job train with two workers on a cluster of one node.
func onOneNode(t *testing.T, on string) (r *rig, p *traffic, n oneNode) {
	one := &site{backend: on}
	one.start = func(r *rig) (s *site) {
		ctx := r.t.Context()
		if on == "slurm" {
			var c *slurmtest.Cluster
			s, c, _ = slurmOf(r, slurmtest.Options{Nodes: 1, GPUsPerNode: 4, CPUs: 8})
			n = oneNode{
				killDaemon: func() { c.KillDaemon(1) }, startDaemon: func() error { return c.StartNode(1) },
				killController: func() {
					if err := c.Settle(ctx); err != nil {
						r.t.Fatal(err)
					}
					c.KillController()
				},
				startController: func() error { return c.StartController(ctx) },
			}
			return s
		}
		s, c, _, _ := nomadOf(r, nomadtest.Options{Clients: 1, GPUs: 4})
		n = oneNode{
			killDaemon: func() { c.KillClient(1) }, startDaemon: func() error { return c.StartClient(ctx, 1) },
			killController: c.KillServer, startController: func() error { return c.StartServer(ctx) },
		}
		return s
	}
	r = newRig(t, kafkatest.Embedded(t), options{min: 2, max: 2, site: one})
	r.run()
	p = r.steadyTraffic(300)
	r.awaitSteady("its workers train", 2)
	r.awaitMore(900)
	return r, p, n
}

// The daemon of the only node is dead while the job's processes live on there, and nobody can end them but themselves: a stop drains, writes its snapshot, and ends; one by
// force ends at once. Nothing of the job lives after it, and the next run trains on from there: every record once.
func TestStopsWhereTheNodesDaemonIsDead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, on string
		stop     []string
	}{{"slurm", "slurm", nil}, {"nomad", "nomad", nil}, {"nomad by force", "nomad", []string{"-force"}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, p, on := onOneNode(t, c.on)
			on.killDaemon()
			r.awaitMore(300) // nobody misses the daemon
			if len(c.stop) > 0 {
				r.await("the node is known to be away", func() string {
					for _, st := range r.list() {
						if !st.Away {
							return st.String()
						}
					}
					return ""
				})
			}
			r.stop(c.stop...)
			r.await("nothing of the job lives", r.trainersLeft)
			if err := on.startDaemon(); err != nil {
				t.Fatal(err)
			}
			r.await("what was given up has ended", func() string {
				for _, st := range r.list() {
					if st.State.Live() || st.State == backend.StateUnknown || st.Away {
						return st.String()
					}
				}
				return ""
			})
			r.run()
			r.awaitSteady("its workers train again", 2)
			r.awaitMore(300)
			r.finish(p, nil, 1500)
		})
	}
}

// trainersLeft names the trainers of the job that live.
func (r *rig) trainersLeft() string {
	var left []string
	for _, p := range trainees(r.dir) {
		left = append(left, p.id.String())
	}
	return strings.Join(left, "; ")
}

// While slurmctld or Nomad's server is dead a stop in order waits for it, and one by force ends what trains all the same, with a scheduler and without. When the
// cluster answers again nothing of the job is left in it, and the next run trains every record once.
func TestForcedStopWhereTheControllerIsDead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, on string
		alone    bool // no scheduler runs
		plain    bool // a stop in order comes first
		again    bool // one by force that is interrupted comes first, and a run while the next one works
	}{
		{"slurm", "slurm", false, true, false}, {"slurm without a scheduler", "slurm", true, true, false},
		{"nomad", "nomad", false, true, false}, {"nomad without a scheduler", "nomad", true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, p, on := onOneNode(t, c.on)
			on.killController()
			r.awaitMore(300) // nobody misses the controller
			if c.alone {
				r.interrupt()
			}
			var stops []*child
			if c.plain {
				plain := r.child("stop", r.name())
				stops = append(stops, plain)
				r.await("a stop in order says what force would do", func() string {
					if out := plain.err.String(); !strings.Contains(out, "kale stop -force "+r.name()+" ends without it") {
						return "it says " + out
					}
					return ""
				})
			}
			if c.again {
				r.orderedWhenInterrupted()
			}
			force := r.child("stop", r.name(), "-force")
			if stops = append(stops, force); !c.plain {
				stops = append(stops, r.child("stop", r.name())) // another one at the same time
			}
			if c.again {
				r.await("the stop has begun", func() string {
					if state.Holder(r.stateDir()) == 0 {
						return "nobody has the job"
					}
					return ""
				})
				r.start()
			}
			r.await("nothing of the job lives", func() string {
				left := r.trainersLeft()
				for _, stop := range stops {
					if left != "" {
						left += "; a stop says " + stop.err.String()
					}
				}
				return left
			})
			r.await("the stop says what it did", func() string {
				if out := force.err.String(); !strings.Contains(out, "what can read the checkpoint folder has been told there to end") {
					return "it says " + out
				}
				return ""
			})
			if err := on.startController(); err != nil {
				t.Fatal(err)
			}
			for _, stop := range stops {
				if code := stop.wait(r); code != 0 {
					r.fatalf("a stop ends with exit code %d: %s", code, stop.err.String())
				}
			}
			if !c.alone {
				r.awaitEnd("the job has stopped, and its scheduler ends")
			}
			if !c.again {
				r.await("the cluster has nothing of the job", func() string {
					for _, st := range r.list() {
						return st.String()
					}
					return ""
				})
				r.run()
			}
			r.awaitSteady("its workers train again", 2)
			r.awaitMore(300)
			r.finish(p, nil, 1500)
		})
	}
}

// orderedWhenInterrupted has a stop by force interrupted as soon as it has the job: that it was ordered is known all the same.
func (r *rig) orderedWhenInterrupted() {
	r.t.Helper()
	stop := r.child("stop", r.name(), "-force")
	r.await("it has the job", func() string {
		if pid := state.Holder(r.stateDir()); pid != stop.cmd.Process.Pid {
			return fmt.Sprintf("process %d has it; the stop says %s", pid, stop.err.String())
		}
		return ""
	})
	r.await("it is ordered", func() string { // which is a moment later
		if strings.Contains(stop.err.String(), "waiting for") {
			return ""
		}
		return "it says " + stop.err.String() + stop.out.String()
	})
	r.signal(stop.cmd.Process.Pid, syscall.SIGINT)
	if code := stop.wait(r); code == 0 {
		r.fatalf("the stop was not interrupted: %s", stop.err.String())
	}
	want, err := core.WantedAt(r.stateDir())
	if err != nil {
		r.fatalf("%v", err)
	}
	if !want.Stopping || !want.Forced {
		r.fatalf("the stop was ordered by force, and known is stopping %v, by force %v: %s", want.Stopping, want.Forced, stop.err.String())
	}
}
