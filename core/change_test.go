package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
)

// hangs orders so many workers, and the call that this takes is not answered.
func (r *rig) hangs(op fake.Op, workers int) {
	r.t.Helper()
	r.s.spawn = func(f func()) { go f() }
	r.backend.HangNext(op)
	r.order("scale", workers)
	r.until("the call is made", func() error {
		if r.s.changing == nil {
			return errors.New("nothing is asked")
		}
		return nil
	})
}

// A backend that does not answer a start holds up no look, no decision and no order; it is told what it was asked and since when, and nothing else is asked meanwhile.
func TestBackendThatHangsHoldsUpNothing(t *testing.T) {
	for _, op := range []fake.Op{fake.OpEnsure, fake.OpRelease} {
		t.Run(string(op), func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			asks, workers := "start worker-2-g1", 3
			if op == fake.OpRelease {
				asks, workers = "release worker-1-g1", 1
			}
			r.hangs(op, workers)
			before := r.s.last
			r.mark()
			looked := r.s.seen.at
			r.beats(3)
			if r.s.last == before || !r.s.seen.at.After(looked) {
				t.Error("it neither looks nor decides beside the call")
			}
			r.wantCalls()
			r.order("scale", 2)
			r.s.changing.since = r.s.changing.since.Add(-slowChange)
			r.beat()
			if p, err := r.problem(asks); err != nil {
				t.Error(err)
			} else if !strings.Contains(p, "has not answered") {
				t.Error(p)
			}
			r.s.changing.cancel()
			<-r.s.changing.done
			r.until("what is wanted runs", func() error {
				if r.s.changing != nil {
					return errors.New("the call is not over")
				}
				return r.settled(2)()
			})
			if _, err := r.problem("has not answered"); err == nil {
				t.Errorf("it still says: %q", r.s.View().Problems)
			}
		})
	}
}

// A list that was asked for before a start was answered does not know what was started: nothing is done by it.
func TestNothingIsDoneByAListFromBeforeTheAnswer(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.hangs(fake.OpEnsure, 3)
	r.mark()
	r.now = r.now.Add(time.Second)
	if err := r.s.hearChange(); err != nil {
		t.Fatal(err)
	}
	r.s.seen = r.s.look(t.Context())
	r.s.changing.cancel()
	<-r.s.changing.done
	if err := r.s.step(t.Context(), r.now); err != nil {
		t.Fatal(err)
	}
	r.wantCalls()
	r.until("it runs", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
}

// Who stops a job by force waits for no answer.
func TestForcedStopBesideAHangingStart(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.hangs(fake.OpEnsure, 3)
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the job has stopped", func() error {
		r.beat()
		if !r.s.want.Stopped {
			return fmt.Errorf("live are %q", r.live())
		}
		return nil
	})
	r.mustBeLive("")
}

// gated answers a release only once its gate is open.
type gated struct {
	backend.Backend
	gate chan struct{}
}

func (b *gated) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	<-b.gate
	return b.Backend.Release(ctx, job, ids, how)
}

// The answer to the last call of a stop, however late it comes, is the end of the job: nothing is decided or started after it.
func TestNothingIsStartedAfterALateEndOfAStop(t *testing.T) {
	b := &gated{gate: make(chan struct{})}
	r := newRig(t, rigOptions{wrap: func(inner backend.Backend) backend.Backend {
		b.Backend = inner
		return b
	}})
	r.started(2)
	r.s.spawn = func(f func()) { go f() }
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	r.until("a call is not answered", func() error {
		if r.s.changing == nil {
			return errors.New("all are")
		}
		return nil
	})
	close(b.gate)
	<-r.s.changing.done
	r.mark()
	r.beat()
	if !r.s.want.Stopped {
		t.Fatalf("live are %q", r.live())
	}
	r.wantCalls()
	r.mustBeLive("")
}

// onRecord has lists show what is asked for as a plugin may that writes down what it has accepted before it hands it to the cluster.
type onRecord struct {
	backend.Backend
	mu    sync.Mutex
	asked []backend.ID
}

func (b *onRecord) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	b.mu.Lock()
	for _, w := range ws {
		b.asked = append(b.asked, w.ID)
	}
	b.mu.Unlock()
	return b.Backend.Ensure(ctx, job, ws)
}

func (b *onRecord) List(ctx context.Context, job string) ([]backend.Status, bool, error) {
	list, complete, err := b.Backend.List(ctx, job)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.asked {
		if !slices.ContainsFunc(list, func(st backend.Status) bool {
			return st.ID.Role == id.Role && st.ID.Rank == id.Rank && st.ID.Generation >= id.Generation
		}) {
			list = append(list, backend.Status{ID: id, State: backend.StateFailed, Reason: "it was not submitted"})
		}
	}
	return list, complete, err
}

// What is on record and is only being started, or was refused, has not ended: it is started under the ID that it was given.
func TestWhatIsBeingStartedHasNotEnded(t *testing.T) {
	unended := func(r *rig) {
		t.Helper()
		r.beats(3)
		if p, err := r.problem("has ended"); err == nil {
			t.Error(p)
		}
	}
	wrap := func(b backend.Backend) backend.Backend { return &onRecord{Backend: b} }
	r := newRig(t, rigOptions{wrap: wrap})
	r.started(2)
	r.hangs(fake.OpEnsure, 3)
	unended(r)

	r = newRig(t, rigOptions{wrap: wrap, slots: 2})
	r.order("scale", 3)
	r.beat()
	r.until("one is refused", func() error { _, err := r.problem("worker-2-g1 is not started"); return err })
	unended(r)
	if err := r.cluster.SetSlots(16); err != nil {
		t.Fatal(err)
	}
	r.until("it runs", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1"))
}
