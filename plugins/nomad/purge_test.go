package nomad

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// A node is lost and purged, and Nomad starts its worker on another one. When the node is back after all, Nomad ends what was left there, and the worker
// that runs by then is said to run: also by a scheduler that has seen nothing of it.
func TestPurgedNodeIsBack(t *testing.T) {
	r := newRig(t)
	n := r.configured(t, "j", "")
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	slow := strings.Replace(w.Argv[2], "trap 'exit 0' TERM", "trap 'sleep 3; exit 0' TERM", 1)
	if slow == w.Argv[2] {
		t.Fatalf("the program has no trap to make slow: %s", w.Argv[2])
	}
	w.Argv[2], w.StopGrace = slow, 20*time.Second
	ensure(t, n, "j", w)
	before := conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	r.started(t, "j", w.ID, 1)
	node := r.nodeOf(t, "j", w.ID)
	r.cluster.KillClient(node)
	conformance.WaitFor(t, n, "j", w.ID, "is unknown", in(backend.StateUnknown))
	if err := r.cluster.PurgeDown(); err != nil {
		t.Fatal(err)
	}
	elsewhere := func(st backend.Status) bool { return st.State == backend.StateRunning && st.Node != before.Node }
	conformance.WaitFor(t, n, "j", w.ID, "runs elsewhere", elsewhere)
	r.started(t, "j", w.ID, 2)

	back := make(chan error, 1)
	go func() { back <- r.cluster.StartClient(t.Context(), node) }()
	next := r.configured(t, "j", "")
	conformance.Eventually(t, "what was left on the node has ended", func() error {
		for _, b := range []backend.Backend{n, next} {
			list, _, err := b.List(t.Context(), "j")
			if err != nil {
				return err
			}
			if len(list) != 1 || !elsewhere(list[0]) {
				t.Errorf("it runs elsewhere, and is said to be: %v", list)
			}
		}
		allocs, _, err := r.raw(t).Jobs().Allocations(nomadJob("j", w.ID), true, nil)
		for _, a := range allocs {
			if a.NodeName == before.Node && a.ClientStatus != api.AllocClientStatusComplete {
				return fmt.Errorf("it is %s", a.ClientStatus)
			}
		}
		return err
	})
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	r.started(t, "j", w.ID, 2)
	conformance.Drop(t, n, "j")
}
