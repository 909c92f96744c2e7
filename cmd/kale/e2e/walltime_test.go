package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/stream/kafkatest"
)

// On a Slurm that ends everything after three minutes, and may ask it to end after half of that, workers and servers are replaced before they are asked: none of
// the first processes is left, every record is trained once, and as long as one chief serves, no fewer than two workers train. When server 0 is replaced, workers
// register again with the new chief one after the other: there is nothing to count until two of them are ready with it.
func TestOutlivesWalltimesOnSlurm(t *testing.T) {
	t.Parallel()
	timed := &site{backend: onSlurm.backend}
	timed.start = func(r *rig) *site {
		s := startSlurm(r)
		s.block += "    time = \"3m\"\n"
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
	var w steadiness
	r.awaitFor("all of the first processes are replaced", 5*time.Minute, func() string {
		w.look(r, 2)
		var left []string
		for _, st := range r.list() {
			if st.State.Live() && first[st.ID.String()] {
				left = append(left, fmt.Sprintf("%s, which ends at %s", st.ID, st.Deadline.Format("15:04:05")))
			}
			if strings.Contains(st.Reason, "time limit") {
				r.fatalf("%s was ended by its walltime, or asked to end for it: %s", st.ID, st.Reason)
			}
		}
		return strings.Join(left, "; ")
	})
	w.check(r)
	r.awaitSteady("two workers train", 2)
	if v, err := r.view(); err != nil || v.ServerRenewal == nil {
		t.Errorf("no renewal of a server is shown: %v", err)
	} else {
		t.Log(v.ServerRenewal)
	}
	r.finish(p, nil, 3000)
}
