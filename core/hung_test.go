package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/rpc"
)

// hang makes the chief's word what it is of a process that stands still; the backend goes on to call it running.
func (r *rig) hang(id backend.ID) {
	r.t.Helper()
	switch {
	case isChief(id):
		r.chief.stop()
	case id.Role == backend.RoleServer:
		r.chief.with(func(st *rpc.JobStatus) { st.Servers[id.Rank].Info.Up = false })
	default:
		r.chief.set(id.Rank, id.Generation, rpc.MemberState_MEMBER_STATE_EXPELLED)
	}
}

// untilReplaced beats until a process is released by force, and says how long that took by the rig's clock.
func (r *rig) untilReplaced(id backend.ID) time.Duration {
	r.t.Helper()
	began := r.now
	r.until(id.String()+" is ended by force", func() error {
		for _, c := range r.calls() {
			if c == "release "+id.String()+" forced" {
				return nil
			}
		}
		return fmt.Errorf("the backend was asked for %q", r.calls())
	})
	return r.now.Sub(began)
}

func TestHungProcessIsReplaced(t *testing.T) {
	broker := openBroker(t)
	for name, c := range map[string]struct {
		id, next backend.ID
		least    time.Duration // until it is ended, beside what the chief has waited before it says so
	}{
		"the chief": {server(0, 1), server(0, 2), hungAfter},
		"a server":  {server(1, 1), server(1, 2), hungAfter - leaseTimeout},
		"a worker":  {worker(1, 1), worker(1, 2), hungAfter - leaseTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			r.beats(2)
			r.hang(c.id)
			began := r.now
			r.until("it is said", func() error {
				p, err := r.problem(c.id.String() + " has not answered for ")
				if err == nil && !strings.HasSuffix(p, "; after 30s it is ended by force and started again") {
					return fmt.Errorf("problem %q", p)
				}
				return err
			})
			if said := r.now.Sub(began); said > 5*time.Second {
				t.Errorf("its silence was said after %v", said)
			}
			r.untilReplaced(c.id)
			if took := r.now.Sub(began); took < c.least || took > c.least+5*time.Second {
				t.Errorf("it was ended after %v of silence, want %v", took, c.least)
			}
			r.until("its successor runs", func() error {
				if st, found := r.s.seen.allocation(c.next); !found || st.State != backend.StateRunning {
					return fmt.Errorf("%s is %q", c.next, st.State)
				}
				return nil
			})
			r.wantCalls("release "+c.id.String()+" forced", "ensure "+c.next.String())
			want := fmt.Sprintf("%s has not answered for 30s; it was ended by force and started again", c.id)
			if p, err := r.problem(c.id.String()); err != nil || p != want {
				t.Errorf("problem %q, %v", p, err)
			}
			r.beat()
			if rep := strings.Join(r.s.last.Repairs, "\n"); !strings.Contains(rep, want) {
				t.Errorf("explain says %q", rep)
			}
			r.chief.with(func(st *rpc.JobStatus) { st.Members = nil }) // a new chief or a new worker: all join again
			r.until("the job is well", r.settled(2))
			r.beats(int(troubleRest/time.Second) + 1)
			if ps := r.s.View().Problems; len(ps) > 0 {
				t.Errorf("problems of a job that is well: %q", ps)
			}
		})
	}
}

// away makes the backend unable to tell whether a process runs, as of one on a node that is away.
func (r *rig) away(id backend.ID) {
	r.t.Helper()
	if err := r.cluster.SetState("ctr", id, backend.StateUnknown, "its node is away"); err != nil {
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

// A silence of no second is no news yet, however often it was asked meanwhile.
func TestShortSilenceIsNotTold(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.chief.stop()
	for range 4 {
		r.now = r.now.Add(-800 * time.Millisecond)
		r.beat()
		if p, err := r.problem("has not answered for"); err == nil {
			t.Errorf("problem %q", p)
		}
	}
	r.beat()
	if _, err := r.problem("ps-0-g1 has not answered for 2s; after 30s"); err != nil {
		t.Error(err)
	}
}

// What has answered one scheduler has no more time to begin with under the next, such as that of a stop.
func TestHungProcessHasNoTimeToStartUnderTheNextScheduler(t *testing.T) {
	broker := openBroker(t)
	for name, id := range map[string]backend.ID{"the chief": server(0, 1), "a server": server(1, 1)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			r.hang(id)
			r.reopen()
			if took := r.untilReplaced(id); took < hungAfter-leaseTimeout || took > hungAfter+5*time.Second {
				t.Errorf("it was ended after %v of silence, want %v", took, hungAfter)
			}
		})
	}
}

// A stop beside a chief that stands still says until when it waits for it, and ends.
func TestStopBesideAHungChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.hang(server(0, 1))
	r.reopen()
	r.order("stop", 0)
	r.beats(5)
	if want := regexp.MustCompile(`^worker-0-g1 to drain; and for ps-0-g1, which has not answered for \ds \(after 30s it is ended by force and started again\)$`); !want.MatchString(r.s.View().Waits) {
		t.Errorf("it waits for %q", r.s.View().Waits)
	}
	r.untilReplaced(server(0, 1))
	r.chief.start()
	r.stops()
}

// Each process of a rank that has to be replaced gives the next one twice the time; one that answers well for long gives it back.
func TestHungReplacementsBackOff(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	for g, want := uint64(1), hungAfter; g <= 2; g, want = g+1, 2*want {
		r.hang(server(1, g))
		if took := r.untilReplaced(server(1, g)); took < want-leaseTimeout || took > want {
			t.Errorf("generation %d was ended after %v, want %v", g, took, want-leaseTimeout)
		}
		r.until("it is well", func() error {
			r.joinAll()
			if !r.s.well(server(1, g+1)) || r.s.seen.chiefErr != nil {
				return errors.New("it is not")
			}
			return nil
		})
		r.beats(2)
	}
	r.now = r.now.Add(hungRest)
	r.beats(2)
	r.hang(server(1, 3))
	if took := r.untilReplaced(server(1, 3)); took > hungAfter {
		t.Errorf("after a long peace it was ended after %v", took)
	}
}

// Nobody is judged by what the scheduler could not see.
func TestSilenceThatIsNotKnownReplacesNobody(t *testing.T) {
	broker := openBroker(t)
	for name, happens := range map[string]func(*rig){
		"the backend does not answer": func(r *rig) {
			r.hang(server(0, 1))
			r.hang(server(1, 1))
			for range 200 {
				r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
			}
		},
		"the chief does not answer, so that it says nothing of the others": func(r *rig) {
			r.hang(server(1, 1))
			r.hang(worker(0, 1))
			r.chief.stop()
			r.beats(25)
			r.chief.start() // with a new incarnation, which has waited for nobody yet
			r.hang(server(1, 1))
			r.hang(worker(0, 1))
			r.chief.with(func(st *rpc.JobStatus) { st.InGrace = true })
		},
		"the chief refuses the scheduler": func(r *rig) {
			r.chief.mu.Lock()
			defer r.chief.mu.Unlock()
			r.chief.refuse = status.Error(codes.PermissionDenied, "scripted")
		},
		"the checkpoint folder is away, and the chief has stepped back": func(r *rig) {
			folder := CheckpointFolder(r.job)
			move := func(from, to string) {
				if err := os.Rename(from, to); err != nil {
					r.t.Fatal(err)
				}
			}
			r.hang(server(1, 1))
			r.beats(5)
			r.chief.stop()
			move(folder, folder+".away")
			if err := r.s.obey(r.t.Context(), command{Order: Order{Kind: "pause"}}); err == nil || !strings.Contains(err.Error(), "its checkpoint folder "+folder+" is gone") {
				r.t.Fatalf("a pause is answered with %v", err)
			}
			for range 45 {
				r.beat()
				ps := r.s.View().Problems
				if text := strings.Join(ps, "\n"); !strings.HasPrefix(text, "the checkpoint folder "+folder+" is gone") || strings.Contains(text, "answer") || strings.Contains(text, "no chief") {
					r.t.Fatalf("problems %q", ps)
				}
			}
			move(folder+".away", folder)
			r.beats(20)
			r.chief.start()
			r.chief.serverUp(1)
		},
		"the process is not running": func(r *rig) {
			if err := r.cluster.SetState("ctr", server(1, 1), backend.StateStarting, "a new image"); err != nil {
				r.t.Fatal(err)
			}
			r.hang(server(1, 1))
		},
		"where it runs is unknown, and it answers": func(r *rig) {
			r.away(worker(0, 1))
			r.away(server(0, 1))
			r.beats(2 * int(awayAfter/time.Second))
		},
		"the scheduler slept": func(r *rig) {
			r.hang(server(1, 1))
			for range 3 {
				r.now = r.now.Add(time.Hour)
				r.beat()
			}
			r.chief.serverUp(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			r.beats(2)
			r.mark()
			happens(r)
			r.beats(60)
			r.wantCalls()
		})
	}
}

// Without Kafka's answer the scheduler's own network may be what is broken.
func TestChiefIsNotJudgedWhileKafkaIsSilent(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.mark()
	r.chief.stop()
	n := r.s.look(t.Context())
	n.endsErr = errors.New("no route to host")
	r.s.seen = n
	for range 60 {
		r.now = r.now.Add(time.Second)
		r.lost = r.s.step(t.Context(), r.now)
	}
	r.wantCalls()
	n.endsErr = nil
	for range int(hungAfter/time.Second) + 1 {
		r.now = r.now.Add(time.Second)
		r.lost = r.s.step(t.Context(), r.now)
	}
	if got := r.calls(); len(got) == 0 || got[0] != "release ps-0-g1 forced" {
		t.Errorf("the backend was asked for %q", got)
	}
}

// A process that has not answered yet has the time to start beside: a server restores its tablets first.
func TestStartIsNotTakenForAHang(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.order("scale", 1)
	began := r.now
	for r.now.Sub(began) < startTime {
		r.beat()
	}
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	if took := startTime + r.untilReplaced(server(0, 1)); took > startTime+hungAfter+5*time.Second {
		t.Errorf("a chief that never came was ended after %v", took)
	}
}

// A worker that joined and was lost between two looks has begun, by the chief's word: it has no more time to.
func TestWorkerThatWasLostBetweenTwoLooks(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("scale", 2)
	r.until("the worker is started", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1"))
	r.mark()
	r.chief.set(1, 1, rpc.MemberState_MEMBER_STATE_EXPELLED)
	if took := r.untilReplaced(worker(1, 1)); took > hungAfter+5*time.Second {
		t.Errorf("it was ended after %v", took)
	}
}

// A process that ended, was started again and does not answer is in trouble as long as that lasts, though its backend calls it running.
func TestSilentProcessIsStillInTrouble(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if err := r.cluster.Crash("ctr", server(1, 1)); err != nil {
		t.Fatal(err)
	}
	r.hang(server(1, 1))
	for began := r.now; r.now.Sub(began) < troubleAge+10*time.Second; {
		r.beat()
	}
	if _, err := r.problem("ps-1-g1 has ended 1×: crashed"); err != nil {
		t.Error(err)
	}
	r.joinAll()
	r.until("it is well", func() error {
		if ps := r.s.View().Problems; len(ps) > 0 {
			return fmt.Errorf("problems %q", ps)
		}
		return nil
	})
}

// A scheduler that finds a process which has stood still since before it came does not take its age for a start.
func TestHungBeforeTheSchedulerCame(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	long := r.now.Add(-time.Hour)
	if err := r.cluster.SetTimes("ctr", server(0, 1), long, long); err != nil {
		t.Fatal(err)
	}
	r.chief.stop()
	r.reopen()
	if took := r.untilReplaced(server(0, 1)); took > hungAfter+5*time.Second {
		t.Errorf("it was ended after %v", took)
	}
}

// A stop under way gets a chief that answers.
func TestHungProcessIsReplacedDuringAStop(t *testing.T) {
	broker := openBroker(t)
	for name, id := range map[string]backend.ID{"the chief": server(0, 1), "a server": server(1, 1)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			r.beats(2)
			r.chief.slow = true // the workers do not finish before
			r.order("stop", 0)
			r.beat()
			r.hang(id)
			r.untilReplaced(id)
			r.chief.slow = false
			r.until("the job has stopped", func() error {
				r.joinAll()
				if !r.s.want.Stopped {
					return fmt.Errorf("it waits for %s", r.s.View().Waits)
				}
				return nil
			})
			if live := r.live(); live != "" {
				t.Errorf("left are %q", live)
			}
		})
	}
}

// Whoever takes the checkpoint folder away takes the chief's address with it. What runs holds the only copy of the model then: it is not replaced for that, and
// nothing that would begin anew is started, not for a stop either.
func TestCheckpointFolderTakenAway(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.beats(2)
	folder := CheckpointFolder(r.job)
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	failed := func(says string) {
		r.chief.with(func(s *rpc.JobStatus) { s.Servers[0].Metrics.SnapshotError = says })
		r.beat()
	}
	failed(fmt.Sprintf("mkdir %s/tablets/3: no such file or directory", folder))
	if v := r.s.View(); v.Stuck != "its checkpoint folder is gone, or not shared by the nodes; it trains on" {
		t.Errorf("while it trains it is %s: %q", v.State, v.Stuck)
	}
	if p, err := r.problem("snapshots fail"); err == nil {
		t.Errorf("beside the folder that is gone: %q", p)
	}
	failed("write tablet 3: no space left on device") // on a node that never shared it
	if _, err := r.problem("parameter server 0: snapshots fail: write tablet 3"); err != nil {
		t.Error(err)
	}
	failed("")
	r.mark()
	beats := func() {
		t.Helper()
		for range 60 {
			r.now = r.now.Add(2 * time.Second)
			r.beat()
		}
		r.wantCalls()
		r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1")
		if _, err := r.problem(folder + " is gone from this machine, or the nodes on which the servers run never shared it (kale doctor"); err != nil {
			t.Error(err)
		}
	}
	beats()
	if v := r.s.View(); v.State != StateStuck || !strings.Contains(v.Stuck, "checkpoint folder is gone") {
		t.Errorf("it is %s: %q", v.State, v.Stuck)
	}
	if err := r.cluster.Exit("ctr", server(1, 1), 137); err != nil {
		t.Fatal(err)
	}
	r.beats(20)
	r.mustBeLive("ps-0-g1 worker-0-g1 worker-1-g1")
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	r.until("it goes on", func() error {
		r.joinAll()
		if v := r.s.View(); len(v.Problems) > 0 || v.Stuck != "" || running(v) != 2 {
			return fmt.Errorf("%s, problems %q", v.Stuck, v.Problems)
		}
		return nil
	})
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")

	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	r.beat()
	r.order("stop", 0)
	r.beats(20)
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	r.stops()
}

// A volume that is unmounted leaves an empty folder in its place. Nothing is made in it, not a lease either, for a job that has a checkpoint: neither by its
// scheduler nor by one that follows it. Nobody ends for it, what is said is true, and all goes on when the volume is back, also as a copy without the lease.
func TestCheckpointFolderUnmounted(t *testing.T) {
	for name, c := range map[string]struct{ restarted, copied bool }{
		"under a scheduler": {}, "and the scheduler is started again": {restarted: true}, "and a copy is put back": {copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			dir := r.job.Checkpoint.Dir
			if err := errors.Join(os.Rename(dir, dir+".away"), os.Mkdir(dir, 0o700)); err != nil {
				t.Fatal(err)
			}
			if err := r.cluster.Exit("ctr", server(1, 1), 137); err != nil {
				t.Fatal(err)
			}
			if c.restarted {
				killed := thisHolder(r.state)
				killed.Process.Start--
				away := *r.job
				away.Checkpoint.Dir += ".away"
				pretend(t, &away, 1, killed, 0)
				r.reopen()
			}
			r.beats(5)
			if r.lost != nil {
				t.Fatalf("the scheduler ends: %v", r.lost)
			}
			r.mustBeLive("ps-0-g1 worker-0-g1 worker-1-g1")
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("in its place are %v, %v", left, err)
			}
			if v := r.s.View(); v.State != StateStuck || !strings.Contains(v.Problems[0], "the checkpoint folder "+CheckpointFolder(r.job)+" is gone") || !strings.Contains(v.Problems[0], "mount it or bring it back") {
				t.Errorf("it is %s: %q", v.State, v.Problems)
			}
			for _, p := range r.s.View().Problems {
				if strings.Contains(p, "another scheduler") || strings.Contains(p, "is still the job's scheduler") {
					t.Errorf("it says %q", p)
				}
			}
			if c.copied {
				if err := os.Remove(filepath.Join(dir+".away", ".ctr.scheduler-1")); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Remove(dir), os.Rename(dir+".away", dir)); err != nil {
				t.Fatal(err)
			}
			r.until("it goes on", func() error {
				r.joinAll()
				if v := r.s.View(); len(v.Problems) > 0 || v.Stuck != "" || running(v) != 2 {
					return fmt.Errorf("%s, problems %q", v.Stuck, v.Problems)
				}
				return r.lost
			})
			r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
			if err := r.s.lease.Check(t.Context()); err != nil {
				t.Errorf("its lease: %v", err)
			}
			wantHeld(t, func() error { _, err := TakeLease(silentLog, r.job, "/state", false); return err }(), true)
		})
	}
}

// A server is told that there is a checkpoint as soon as there is one: only a job's first ones make it.
func TestOnlyTheFirstServersMakeACheckpoint(t *testing.T) {
	r := newRig(t, rigOptions{})
	tells := func(want bool) {
		t.Helper()
		if got := slices.Contains(r.s.loads.server(1, 2).Argv, "--begun"); got != want {
			t.Errorf("a server is told that there is a checkpoint: %v, want %v", got, want)
		}
	}
	r.beat()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
	tells(false)
	r.started(2) // its chief has written the job's state
	tells(true)
	state := filepath.Join(CheckpointFolder(r.job), "job")
	if err := os.Rename(state, state+".away"); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.beat()
	tells(true)
}

// With mode "observe" nothing is touched.
func TestObserverReplacesNobody(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.job.Autoscale.Mode = "observe"
	r.mark()
	r.hang(server(1, 1))
	r.beats(60)
	r.wantCalls()
}

// The state that the scheduler leaves when it dies between the end of a process and its note of it is a good one.
func TestSchedulerDiesWhileItReplaces(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if err := r.backend.Release(t.Context(), "ctr", []backend.ID{server(1, 1)}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	r.until("its successor runs", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1"))
}

// A chief that keeps what is reported to it beside the checkpoint trains, and is not replaced because the scheduler cannot reach it; it is when that ends.
func TestChiefThatIsCutOffFromTheSchedulerAloneIsLeft(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	folder := filepath.Join(CheckpointFolder(r.job), "memory")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	r.hang(server(0, 1))
	for i := range 4 * int(hungAfter/time.Second) {
		if i%10 == 0 {
			if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%020d-%020d.json", 1, i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.beat()
	}
	r.wantCalls()
	r.untilReplaced(server(0, 1))
}
