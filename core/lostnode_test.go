package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// away makes the backend unable to tell whether a process runs, as of one on a node that is away.
func (r *rig) away(id backend.ID) {
	r.t.Helper()
	if err := r.cluster.SetAway("ctr", id, true); err != nil {
		r.t.Fatal(err)
	}
}

// A node that is away for good takes with it what ran there: what nobody has heard for as long is given up and started again. All that was on the chief's node
// is so at once, though only the chief could tell of the others.
func TestLostNodeIsGivenUp(t *testing.T) {
	broker := openBroker(t)
	for name, lost := range map[string][]backend.ID{
		"the chief's":          {server(0, 1), server(1, 1), worker(0, 1)},
		"another server's":     {server(1, 1)},
		"a worker's":           {worker(1, 1)},
		"two processes' alike": {server(1, 1), worker(0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			r.beats(2)
			r.mark()
			for _, id := range lost {
				r.away(id)
				r.hang(id)
			}
			began := r.now
			r.until("it is said", func() error {
				p, err := r.problem(lost[0].String() + " has not answered for ")
				if err == nil && !strings.HasSuffix(p, "; after 1m it is given up and started again") {
					return fmt.Errorf("problem %q", p)
				}
				return err
			})
			if isChief(lost[0]) { // of the others it is not said that they are silent, which nobody has asked
				r.until("it is said of what is with it", func() error {
					if p, err := r.problem("ps-1-g1 has not answered"); err == nil {
						return errors.New(p)
					}
					const want = "nobody can tell of ps-1-g1, worker-0-g1 while the chief, which is on the same node fake, does not answer; nothing is known to be trained; after 1m it is given up and started again, and with it what is there"
					p, err := r.problem("nobody can tell of ")
					if err == nil && p != want {
						err = fmt.Errorf("problem %q", p)
					}
					return err
				})
			}
			for _, id := range lost {
				r.untilReplaced(id)
			}
			if took := r.now.Sub(began); took < awayAfter-leaseTimeout || took > awayAfter+5*time.Second {
				t.Errorf("they were given up after %v of silence, want about %v", took, awayAfter)
			}
			r.until("their successors run", func() error {
				for _, id := range lost {
					id.Generation++
					if n := r.cluster.Starts("ctr", id); n != 1 {
						return fmt.Errorf("%s was started %d times", id, n)
					}
				}
				return nil
			})
			if p, err := r.problem(lost[0].String() + " has not answered for "); err != nil || !strings.HasSuffix(p, "; it was given up and started again") {
				t.Errorf("problem %q, %v", p, err)
			}
		})
	}
}

// What the chief's node had is given up with the chief, also where the backend says later than the chief's silence began that the node is away.
func TestLostNodeIsGivenUpWithTheChief(t *testing.T) {
	for _, later := range []int{0, 20} { // for so many looks the backend may believe that its node is well
		t.Run(fmt.Sprintf("said %d looks later", later), func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			r.beats(2)
			r.mark()
			lost := []backend.ID{worker(0, 1), server(1, 1), server(0, 1)}
			for _, id := range lost {
				r.hang(id)
			}
			began := r.now
			r.beats(later)
			for _, id := range lost {
				r.away(id)
			}
			for _, id := range lost {
				r.untilReplaced(id)
				if took := r.now.Sub(began); took < awayAfter || took > awayAfter+5*time.Second {
					t.Errorf("%s was given up after %v of silence, want about %v", id, took, awayAfter)
				}
			}
		})
	}
}

// onNodes is a backend that places what is named on a node of its own.
type onNodes struct {
	backend.Backend
	nodes map[backend.ID]string
}

func (b onNodes) List(ctx context.Context, job string) (list []backend.Status, complete bool, err error) {
	list, complete, err = b.Backend.List(ctx, job)
	for i, st := range list {
		list[i].Node = cmp.Or(b.nodes[st.ID], st.Node)
	}
	return list, complete, err
}

// A cluster may call what is on a node that is down running for long: the chief is ended for its silence, and what was on its node is not waited for anew when the next
// one is there, but for as long as it takes to find that one. Where that chief is on the same node, the node is not down.
func TestLostNodeThatIsCalledWell(t *testing.T) {
	for name, c := range map[string]struct {
		next  string        // the next chief's node
		least time.Duration // after the silence began the others of the node are replaced
	}{
		"the next chief is elsewhere": {"fake", hungAfter + foundAfter},
		"the next chief is there":     {"down", 2*hungAfter - leaseTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := map[backend.ID]string{server(0, 1): "down", worker(0, 1): "down", server(1, 1): "down", server(0, 2): c.next}
			r := newRig(t, rigOptions{wrap: func(b backend.Backend) backend.Backend { return onNodes{b, nodes} }})
			r.started(2)
			r.beats(2)
			r.mark()
			for _, id := range []backend.ID{worker(0, 1), server(1, 1), server(0, 1)} {
				r.hang(id)
			}
			began := r.now
			r.untilReplaced(server(0, 1))
			r.until("the next chief leads the job", func() error {
				if st, _ := r.s.seen.allocation(server(0, 2)); st.State != backend.StateRunning {
					return fmt.Errorf("ps-0-g2 is %q", st.State)
				}
				return nil
			})
			r.chief.start()
			r.chief.with(func(st *rpc.JobStatus) { st.InGrace = true })
			r.beats(2)
			for _, id := range []backend.ID{worker(0, 1), server(1, 1), worker(1, 1)} {
				if p, err := r.problem(id.String()); err == nil {
					t.Errorf("before the next chief has asked it says %q", p)
				}
			}
			if r.s.serverSilent() {
				t.Error("before the next chief has asked a server is called silent")
			}
			r.chief.with(func(st *rpc.JobStatus) { st.InGrace = false })
			for _, id := range []backend.ID{worker(0, 1), server(1, 1)} {
				r.untilReplaced(id)
				if took := r.now.Sub(began); took < c.least || took > c.least+5*time.Second {
					t.Errorf("%s was replaced after %v, want about %v", id, took, c.least)
				}
			}
			for _, call := range r.calls() {
				if call == "release worker-1-g1 forced" {
					t.Error("what was elsewhere was replaced too")
				}
			}
		})
	}
}

// What was silent under one chief is not given its time anew by the next, and a job whose server is silent does not run meanwhile.
func TestSilenceOutlastsTheChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.beats(2)
	r.mark()
	r.hang(server(1, 1))
	began := r.now
	r.beats(20)
	if v := r.s.View(); v.State != StateStarting {
		t.Errorf("it is %q while one of its servers is silent", v.State)
	}
	r.chief.start() // the next one, at once
	r.beat()
	if _, err := r.problem("ps-1-g1 has not answered for 2"); err != nil {
		t.Error(err)
	}
	r.untilReplaced(server(1, 1))
	if took := r.now.Sub(began); took < hungAfter-leaseTimeout || took > hungAfter+foundAfter {
		t.Errorf("it was replaced after %v of silence", took)
	}
}

// That a node was lost says nothing of the rank: the next of it that hangs is ended as soon as any.
func TestLostNodeDoublesNoPatience(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	r.hang(server(1, 1))
	r.away(server(1, 1))
	r.untilReplaced(server(1, 1))
	r.until("its successor is well", func() error {
		r.joinAll()
		if !r.s.well(server(1, 2)) {
			return errors.New("it is not")
		}
		return nil
	})
	r.beats(2)
	r.hang(server(1, 2))
	if took := r.untilReplaced(server(1, 2)); took > hungAfter {
		t.Errorf("it was ended after %v of silence, want %v", took, hungAfter)
	}
}

// What answers on a node that is away is not waited for, and is said to go on, until its node is back.
func TestWhatGoesOnOnANodeThatIsAway(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.beats(2)
	for _, id := range []backend.ID{server(0, 1), worker(1, 1)} {
		r.away(id)
	}
	r.until("it is said", func() error {
		p, err := r.problem("ps-0-g1, worker-1-g1 answer, though ")
		if err == nil && !strings.HasSuffix(p, "(its node is away). What ends or falls silent there is started again") {
			return fmt.Errorf("problem %q", p)
		}
		return err
	})
	if w := r.s.View().Waits; w != "" {
		t.Errorf("it waits for %s", w)
	}
	r.hang(worker(1, 1)) // alone
	r.until("the other one is waited for", func() error {
		if w := r.s.View().Waits; w != "worker-1-g1 to answer (its node is away)" {
			return fmt.Errorf("it waits for %q", w)
		}
		_, err := r.problem("ps-0-g1 answers, though ")
		return err
	})
	if err := r.cluster.SetAway("ctr", server(0, 1), false); err != nil {
		t.Fatal(err)
	}
	r.until("the node of the first is back", func() error {
		if p, err := r.problem("ps-0-g1 answers, though "); err == nil {
			return fmt.Errorf("it is said still: %s", p)
		}
		return nil
	})
}

// What was still starting on a node has no time to start once the node is away: it is given up when nobody has heard of it or its node for as long as of others.
func TestLostNodeIsGivenUpWithWhatStarts(t *testing.T) {
	for name, before := range map[string]int{"it had just begun": 1, "it was about to be ended": int((startTime + hungAfter).Seconds()) - 5} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			r.order("scale", 3)
			id := worker(2, 1)
			r.until("it runs", func() error {
				if st, _ := r.s.seen.allocation(id); st.State != backend.StateRunning {
					return fmt.Errorf("it is %q", st.State)
				}
				return nil
			})
			r.beats(before)
			r.mark()
			r.away(id)
			if took := r.untilReplaced(id); took < awayAfter || took > awayAfter+5*time.Second {
				t.Errorf("it was given up after %v, want about %v", took, awayAfter)
			}
		})
	}
}
