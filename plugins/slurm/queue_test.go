package slurm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// hanging is a controller that answers nothing, and takes its time.
type hanging struct {
	controller
	asked int
}

func (h *hanging) jobs(context.Context) ([]row, error) {
	h.asked++
	time.Sleep(askTimeout)
	return nil, errors.New("no answer")
}

func (h *hanging) nodes(context.Context) ([]node, error) {
	h.asked++
	time.Sleep(askTimeout)
	return nil, errors.New("no answer")
}

// A list of many processes whose nodes' addresses are not known waits for a cluster that hangs once, and not for each.
func TestNodesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		q := newQueue(h, defaultPoll)
		began := time.Now()
		for i := range 14 {
			if name := fmt.Sprintf("n%d", i); q.addressOf(t.Context(), "", name) != name {
				t.Errorf("the address of %s is another", name)
			}
		}
		if _, err := q.lookWithin(t.Context(), 0); err == nil {
			t.Error("there are nodes")
		}
		if waited := time.Since(began); waited != askTimeout || h.asked != 1 {
			t.Errorf("asked %d times, in %v; want once, and %v", h.asked, waited, askTimeout)
		}
		time.Sleep(askTimeout)
		q.addressOf(t.Context(), "", "n1")
		if h.asked != 2 {
			t.Errorf("asked %d times in all, want twice", h.asked)
		}
	})
}

// Who asks one thing after the other of a cluster that hangs waits for it once, and it is asked again before long.
func TestQueueThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		q := newQueue(h, defaultPoll)
		ask := func(want int) {
			t.Helper()
			if snap := q.poll(t.Context(), 0); snap.err == nil || h.asked != want {
				t.Errorf("asked %d times, %v; want %d times, and an error", h.asked, snap.err, want)
			}
		}
		began := time.Now()
		ask(1)
		ask(1)
		if waited := time.Since(began); waited != askTimeout {
			t.Errorf("two questions took %v, want %v", waited, askTimeout)
		}
		time.Sleep(askTimeout)
		ask(2)
	})
}

// A job that waits behind its own is told what the first of them waits for: no other job keeps it waiting.
func TestWaitsBehindItsOwn(t *testing.T) {
	s := newSite(t, "")
	var ws []backend.Workload
	for rank := range 5 {
		ws = append(ws, s.gpuWorkload(worker(rank, 1), conformance.Steady, 2))
	}
	if _, err := s.b.Ensure(t.Context(), s.job, ws); err != nil {
		t.Fatal(err)
	}
	const nothing = "Resources: nothing that it fits on is free; needs 2 GPUs on one node, 0 of 4 free"
	conformance.Eventually(t, "all that wait say what is missing", func() error {
		all, _, err := s.b.List(t.Context(), s.job)
		if err != nil {
			return err
		}
		first, behind := 0, 0
		for _, st := range all {
			switch {
			case st.State != backend.StatePending:
			case st.Reason == "it waits in Slurm's queue: "+nothing:
				first++
			case strings.HasPrefix(st.Reason, "it waits in Slurm's queue, behind worker-") && strings.HasSuffix(st.Reason, " of the same job: "+nothing) && st.Behind:
				behind++
			}
		}
		if first != 1 || behind != 2 {
			return fmt.Errorf("List = %+v", all)
		}
		return nil
	})
}
