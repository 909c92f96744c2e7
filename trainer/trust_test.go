package trainer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// severed starts server 0 of a job with a way of its own to the checkpoint folder, and returns how to cut and mend that way.
func severed(t *testing.T, j *job, o ServerOptions) (p *process, cut, mend func()) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "store")
	mend = func() {
		if err := os.Symlink(j.spec.GetCheckpointDir(), link); err != nil {
			t.Fatal(err)
		}
	}
	mend()
	spec := proto.Clone(j.spec).(*rpc.TrainSpec)
	spec.CheckpointDir = link
	p = start(t, func(ctx context.Context) error {
		return RunServer(ctx, testLogger(t, "severed"), spec, o)
	})
	return p, func() {
		if err := os.Remove(link); err != nil {
			t.Fatal(err)
		}
	}, mend
}

func shortLeases(s *rpc.TrainSpec) { s.Servers, s.LeaseTimeoutMs, s.GraceMs = 1, 400, 400 }

// refuses asks the chief at an address until it refuses because it cannot read the store.
func (j *job) refuses(address string) {
	j.t.Helper()
	conn, err := dialPeer(address, j.spec.GetToken())
	if err != nil {
		j.t.Fatal(err)
	}
	defer conn.Close()
	eventually(j.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = rpc.NewChiefClient(conn).Status(ctx, &rpc.StatusRequest{})
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "has stepped back")
	}, func() string { return "the chief steps back; it says " + status.Convert(err).Message() })
}

// Server 0 loses sight of the store, and is replaced by one that does not reach it: it answers all the time, and keeps no client, neither when it steps back
// nor before that. When it can look again it ends.
func TestZombieChiefLosesItsClients(t *testing.T) {
	for name, leaseMS := range map[string]int64{"it steps back": 400, "it would lead for long": 600_000} {
		t.Run(name, func(t *testing.T) {
			c := broker(t, 1)
			cl := producer(t, c)
			j := &job{t: t, spec: jobSpec(t, c, shortLeases, func(s *rpc.TrainSpec) { s.Servers, s.LeaseTimeoutMs = 2, leaseMS })}
			way, o := behindProxy(t, 0)
			zombie, cut, mend := severed(t, j, o)
			j.server(1)
			first := j.waitFor("the chief", func(*rpc.JobStatus) bool { return true })
			j.worker(0, 1)
			produce(t, cl, 0, 100)
			j.waitApplied(map[int32]int64{0: 100})
			cut()
			way.close() // or its successor, which asks it for the chief's orders first, would end it
			j.server(0)
			j.waitFor("the worker is with the new chief", func(s *rpc.JobStatus) bool {
				return s.GetChief() > first.GetChief() && len(s.GetMembers()) == 1 && s.GetMembers()[0].GetState() == rpc.MemberState_MEMBER_STATE_READY
			})
			produce(t, cl, 0, 100)
			ends := map[int32]int64{0: 200}
			j.waitApplied(ends)
			j.checkOnce(readLog(t, c, ends), nil)
			if leaseMS < 1000 {
				j.refuses(way.target)
			}
			mend()
			eventually(t, func() bool {
				select {
				case <-zombie.done:
					return true
				default:
					return false
				}
			}, func() string { return "the zombie ends" })
			if !errors.Is(zombie.err, ErrFenced) {
				t.Errorf("the zombie ended with %v, want that it is fenced", zombie.err)
			}
		})
	}
}

// A chief that nobody has replaced steps back while the store is away, and goes on with the same members when it is back: the silence was its own.
func TestChiefGoesOnWhenTheStoreIsBack(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := &job{t: t, spec: jobSpec(t, c, shortLeases)}
	_, cut, mend := severed(t, j, ServerOptions{Index: 0, Listen: "127.0.0.1:0"})
	j.waitFor("the chief", func(*rpc.JobStatus) bool { return true })
	at, err := j.findChief()
	if err != nil {
		t.Fatal(err)
	}
	j.worker(0, 1)
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 100})
	before := j.waitFor("a member", func(s *rpc.JobStatus) bool { return len(s.GetMembers()) == 1 })
	cut()
	j.refuses(at.Address)
	mend()
	produce(t, cl, 0, 100)
	ends := map[int32]int64{0: 200}
	j.waitApplied(ends)
	after := j.status()
	if after.GetChief() != before.GetChief() || after.GetMembers()[0].GetJoinedUnixMs() != before.GetMembers()[0].GetJoinedUnixMs() {
		t.Errorf("chief %d with a member that joined at %d, want chief %d and %d: nobody was expelled", after.GetChief(), after.GetMembers()[0].GetJoinedUnixMs(),
			before.GetChief(), before.GetMembers()[0].GetJoinedUnixMs())
	}
	j.checkOnce(readLog(t, c, ends), nil)
}

// A job that was stopped by somebody who could not reach its processes: all of them end by themselves, and those of the next run, which come before they have a chief, do not.
func TestRule2WhatWasLeftBehindEnds(t *testing.T) {
	c := broker(t, 1)
	cl := producer(t, c)
	j := &job{t: t, spec: jobSpec(t, c, shortLeases, func(s *rpc.TrainSpec) { s.Servers = 1 })}
	left := map[string]*process{"server": j.server(0), "worker": j.worker(0, 1)}
	produce(t, cl, 0, 100)
	j.waitApplied(map[int32]int64{0: 100})
	store := checkpoint.Attach(j.spec.GetCheckpointDir(), j.spec.GetJob())
	if err := store.ShutOut(1); err != nil {
		t.Fatal(err)
	}
	for name, p := range left {
		select {
		case <-p.done:
		case <-time.After(time.Minute):
			t.Fatalf("the %s goes on", name)
		}
		if !errors.Is(p.err, ErrFenced) {
			t.Errorf("the %s ended with %v, want that it is fenced", name, p.err)
		}
	}
	j.worker(0, 2) // finds the old chief's record, and nobody there
	j.server(0)
	produce(t, cl, 0, 100)
	ends := map[int32]int64{0: 200}
	j.waitApplied(ends)
	j.checkOnce(readLog(t, c, ends), nil)
}

// What had waited for a place while its job was stopped, and begins when nobody runs the job any more, ends by itself; where a scheduler answers it waits, and begins.
func TestRule2WhatBeginsAfterTheStopEnds(t *testing.T) {
	c := broker(t, 1)
	s := startScheduler(t)
	j := &job{t: t, spec: jobSpec(t, c, shortLeases, func(sp *rpc.TrainSpec) {
		sp.Servers, sp.Token, sp.Network = 1, "secret", &rpc.NetworkSpec{Rendezvous: s.address}
	})}
	first := j.server(0)
	j.waitFor("the chief", func(*rpc.JobStatus) bool { return true })
	store := checkpoint.Attach(j.spec.GetCheckpointDir(), j.spec.GetJob())
	if err := store.ShutOut(1); err != nil {
		t.Fatal(err)
	}
	<-first.done
	meet := func() *rendezvous {
		r := newRendezvous(testLogger(t, "late"), j.spec, roleServer, 0, 2, store.Chief)
		r.behindAfter = 500 * time.Millisecond
		t.Cleanup(r.start())
		return r
	}
	late := func(r *rendezvous) *worker {
		w := stillWorker(t)
		w.meet, w.stopped, w.findChief = r, store.Stopped, r.find
		return w
	}
	if err := awaitRun(t.Context(), testLogger(t, "ps"), 0, store, meet()); err != nil {
		t.Errorf("a server whose scheduler answers: %v", err)
	}
	if err := awaitRun(t.Context(), testLogger(t, "ps"), 0, store, nil); err != nil {
		t.Errorf("a server of a job without a rendezvous: %v", err)
	}
	soon, done := context.WithTimeout(t.Context(), 2*time.Second)
	defer done()
	if err := late(meet()).watchChief(soon); err != nil {
		t.Errorf("a worker whose scheduler answers: %v", err)
	}
	s.stop()
	if err := awaitRun(t.Context(), testLogger(t, "ps"), 0, store, meet()); !errors.Is(err, ErrFenced) {
		t.Errorf("a server without a scheduler: %v, want that it is fenced", err)
	}
	if err := late(meet()).watchChief(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("a worker without a scheduler: %v, want that it is fenced", err)
	}
	// The job is run again, and its chief has no need of the scheduler: nothing is left behind then.
	s.start()
	j.server(0)
	j.waitFor("the next chief", func(*rpc.JobStatus) bool { return true })
	s.stop()
	soon, done = context.WithTimeout(t.Context(), 2*time.Second)
	defer done()
	if err := late(meet()).watchChief(soon); err != nil {
		t.Errorf("a worker of a job that runs again: %v", err)
	}
}
