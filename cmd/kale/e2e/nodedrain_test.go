package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// A node of a Nomad is drained under a job that trains: before the drain's deadline all that ran there has successors on another node, none of it was ended by
// the drain, as long as one chief serves no fewer than two workers train, and every record is trained once.
func TestLeavesADrainedNodeOnNomad(t *testing.T) {
	t.Parallel()
	const deadline = time.Minute
	var cluster *nomadtest.Cluster
	drained := &site{backend: onNomad.backend}
	drained.start = func(r *rig) *site {
		s, c, _, _ := nomadOf(r, nomadtest.Options{Clients: nomadNodes, GPUs: stormWorkers})
		cluster = c
		return s
	}
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 4, site: drained, watch: 2 * time.Second}) // its slack is twice that
	r.run()
	r.scale(2)
	r.awaitSteady("two workers train", 2)
	p := r.steadyTraffic(300)
	node := r.chiefNode() // its successor makes a new chief
	name := fmt.Sprintf("n%d", node)
	began := time.Now()
	if err := cluster.Drain(node, deadline); err != nil {
		t.Fatal(err)
	}
	var w steadiness
	r.awaitFor("nothing is left on the node", 2*deadline, func() string {
		w.look(r, 2)
		var left []string
		for _, st := range r.list() {
			if st.State.Live() && st.Node == name {
				left = append(left, fmt.Sprintf("%s, which ends at %s", st.ID, st.Deadline.Format("15:04:05")))
			}
			if strings.Contains(st.Reason, "was drained by its administrator") {
				r.fatalf("%s was ended by the drain", st.ID)
			}
		}
		return strings.Join(left, "; ")
	})
	t.Logf("the node was left %v after its drain of %v had begun", time.Since(began).Round(100*time.Millisecond), deadline)
	w.check(r)
	r.awaitSteady("two workers train", 2)
	r.finish(p, nil, 3000)
}

// chiefNode is the number of the node on which server 0 runs.
func (r *rig) chiefNode() (node int) {
	for _, st := range r.list() {
		if st.State.Live() && st.ID.Role == "ps" && st.ID.Rank == 0 {
			if _, err := fmt.Sscanf(st.Node, "n%d", &node); err != nil {
				r.fatalf("%s is on %q", st.ID, st.Node)
			}
		}
	}
	return node
}

// A node of a Nomad dies for good, and the chief with it. Nomad cannot tell whether what was there runs, and nobody does anything about the node: what nobody
// has heard for long enough is started on another one. When the node is back after all, nothing is started on it twice, and every record is trained once.
func TestOutlivesANodeOfANomad(t *testing.T) {
	t.Parallel()
	var cluster *nomadtest.Cluster
	dies := &site{backend: onNomad.backend}
	dies.start = func(r *rig) *site {
		s, c, _, _ := nomadOf(r, nomadtest.Options{Clients: nomadNodes, GPUs: stormWorkers})
		cluster = c
		return s
	}
	r := newRig(t, kafkatest.Embedded(t), options{min: 1, max: 4, site: dies, watch: 2 * time.Second})
	r.run()
	r.scale(2)
	r.awaitSteady("two workers train", 2)
	p := r.steadyTraffic(300)
	r.awaitMore(3000) // the scheduler has heard of all of them
	node := r.chiefNode()
	name := fmt.Sprintf("n%d", node)
	var was []string
	for _, st := range r.list() {
		if st.State.Live() && st.Node == name {
			was = append(was, st.ID.String())
		}
	}
	began := time.Now()
	if err := cluster.CrashNode(node); err != nil {
		t.Fatal(err)
	}
	r.awaitFor("all trains on the nodes that are left", 6*time.Minute, func() string {
		var waits []string
		for _, st := range r.list() {
			if st.State.Live() && st.State != backend.StateStopping && (st.Node == name || st.State != backend.StateRunning) {
				waits = append(waits, fmt.Sprintf("%s on %s is %s: %s", st.ID, st.Node, st.State, st.Reason))
			}
		}
		return strings.Join(waits, "; ")
	})
	r.awaitSteady("two workers train", 2)
	t.Logf("what ran on the dead node (%s) had successors elsewhere that train %v after its death", strings.Join(was, ", "), time.Since(began).Round(time.Second))
	if err := cluster.StartClient(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r.await("what was given up is gone", func() string {
		for _, st := range r.list() {
			if st.State.Live() && st.Node == name && slices.Contains(was, st.ID.String()) {
				return fmt.Sprintf("%s is %s: %s", st.ID, st.State, st.Reason)
			}
		}
		return ""
	})
	r.awaitSteady("two workers train", 2)
	r.finish(p, nil, 3000)
}

// steadiness looks for moments in which fewer workers trained than were wanted.
type steadiness struct {
	settled uint64 // the chief with which as many have been ready; workers register with a new one after the other
	dips    []string
}

func (w *steadiness) look(r *rig, wanted int) {
	st, err := r.chief()
	if err != nil {
		return
	}
	ready, draining := 0, 0
	var states []string
	for _, m := range st.GetMembers() {
		switch m.GetState() {
		case rpc.MemberState_MEMBER_STATE_READY:
			ready++
		case rpc.MemberState_MEMBER_STATE_DRAINING:
			draining++
		}
		states = append(states, fmt.Sprintf("%s %s", m.GetMember(), m.GetState()))
	}
	if ready >= wanted {
		w.settled = st.GetChief()
	}
	if w.settled == st.GetChief() && ready+draining < wanted {
		w.dips = append(w.dips, fmt.Sprintf("%s chief %d: %s", time.Now().Format("15:04:05.000"), st.GetChief(), strings.Join(states, ", ")))
	}
}

// check fails the test where there were such moments.
func (w *steadiness) check(r *rig) {
	r.t.Helper()
	if len(w.dips) > 0 {
		r.t.Log(r.describe())
		r.t.Errorf("fewer workers trained than were wanted:\n%s", strings.Join(w.dips, "\n"))
	}
}
