package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// On a Slurm that ends everything after two minutes, workers and servers are replaced before that: none is ended by its walltime, none of the first processes
// is left, and every record is trained once. It logs how many workers were ready or draining at the least, which is not yet always two: see the dips in its output.
func TestOutlivesWalltimesOnSlurm(t *testing.T) {
	t.Parallel()
	timed := &site{backend: onSlurm.backend}
	timed.start = func(r *rig) *site {
		s := startSlurm(r)
		s.block += "    time = \"2m\"\n"
		return s
	}
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 4, site: timed})
	r.run()
	r.scale(2)
	r.awaitSteady("two workers train", 2)
	p := r.steadyTraffic(300)
	first := map[string]bool{}
	for _, st := range r.list() {
		if st.State.Live() {
			first[st.ID.String()] = true
		}
	}
	least, dips := 2, []string{}
	r.awaitFor("all of the first processes are replaced", 5*time.Minute, func() string {
		if st, err := r.chief(); err == nil && !st.GetInGrace() {
			ready, states := 0, []string{}
			for _, m := range st.GetMembers() {
				if m.GetState() == rpc.MemberState_MEMBER_STATE_READY || m.GetState() == rpc.MemberState_MEMBER_STATE_DRAINING {
					ready++
				}
				states = append(states, fmt.Sprintf("%s %s", m.GetMember(), m.GetState()))
			}
			if ready < 2 {
				dips = append(dips, fmt.Sprintf("%s chief %d: %s", time.Now().Format("15:04:05.000"), st.GetChief(), strings.Join(states, ", ")))
			}
			least = min(least, ready)
		}
		var left []string
		for _, st := range r.list() {
			if st.State.Live() && first[st.ID.String()] {
				left = append(left, fmt.Sprintf("%s, which ends at %s", st.ID, st.Deadline.Format("15:04:05")))
			}
			if st.ID.Role == backend.RoleWorker && strings.Contains(strings.ToLower(st.Reason), "timeout") {
				r.fatalf("%s was ended by its walltime: %s", st.ID, st.Reason)
			}
		}
		return strings.Join(left, "; ")
	})
	t.Logf("at the least %d workers were ready or draining; dips: %s", least, strings.Join(dips, "\n"))
	r.awaitSteady("two workers train", 2)
	if v, err := r.view(); err != nil || v.ServerRenewal == nil {
		t.Errorf("no renewal of a server is shown: %v", err)
	} else {
		t.Log(v.ServerRenewal)
	}
	r.endTraffic(p)
	r.awaitTrained("everything is trained")
	r.stop()
	r.gone()
	r.produced(nil)
	r.exact(3000)
}
