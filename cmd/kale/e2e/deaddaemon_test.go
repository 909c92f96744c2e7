package e2e_test

import (
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// The daemon of the only node is dead while the job's processes live on there, and nobody can end them but themselves: a stop drains, writes its snapshot, and ends; one by
// force ends at once. Nothing of the job lives after it, and the next run trains on from there: every record once.
func TestStopsWhereTheNodesDaemonIsDead(t *testing.T) {
	t.Parallel()
	starts := map[string]func(r *rig) (s *site, kill func(), restart func() error){
		"slurm": func(r *rig) (*site, func(), func() error) {
			s, c, _ := slurmOf(r, slurmtest.Options{Nodes: 1, GPUsPerNode: 4, CPUs: 8})
			return s, func() { c.KillDaemon(1) }, func() error { return c.StartNode(1) }
		},
		"nomad": func(r *rig) (*site, func(), func() error) {
			s, c, _, _ := nomadOf(r, nomadtest.Options{Clients: 1, GPUs: 4})
			return s, func() { c.KillClient(1) }, func() error { return c.StartClient(r.t.Context(), 1) }
		},
	}
	for _, c := range []struct {
		name, on string
		stop     []string
	}{{"slurm", "slurm", nil}, {"nomad", "nomad", nil}, {"nomad by force", "nomad", []string{"-force"}}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var kill func()
			var restart func() error
			one := &site{backend: c.on}
			one.start = func(r *rig) (s *site) {
				s, kill, restart = starts[c.on](r)
				return s
			}
			r := newRig(t, kafkatest.Embedded(t), options{min: 2, max: 2, site: one})
			r.run()
			p := r.steadyTraffic(300)
			r.awaitSteady("its workers train", 2)
			r.awaitMore(900)
			kill()
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
			r.await("nothing of the job lives", func() string {
				var left []string
				for _, what := range processes(r.dir) {
					if strings.Contains(what, "kale-trainer") {
						left = append(left, what)
					}
				}
				return strings.Join(left, "; ")
			})
			if err := restart(); err != nil {
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
