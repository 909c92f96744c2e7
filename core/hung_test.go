package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// What its cluster ends, and takes its time with, is given up once it is silent or has drained, and not while it drains.
func TestReplacesWhatItsClusterIsEnding(t *testing.T) {
	broker := openBroker(t)
	for name, c := range map[string]struct {
		id, next backend.ID
		member   rpc.MemberState
	}{
		"a worker that is silent":   {worker(1, 1), worker(1, 2), rpc.MemberState_MEMBER_STATE_EXPELLED},
		"a worker that has drained": {worker(1, 1), worker(1, 2), rpc.MemberState_MEMBER_STATE_DRAINED},
		"a server":                  {server(1, 1), server(1, 2), 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(2)
			r.beats(2)
			if err := r.cluster.SetState("ctr", c.id, backend.StateStopping, "it was preempted"); err != nil {
				t.Fatal(err)
			}
			if c.id.Role == backend.RoleWorker {
				r.chief.set(c.id.Rank, c.id.Generation, rpc.MemberState_MEMBER_STATE_DRAINING)
			}
			r.mark()
			for began := r.now; r.now.Sub(began) < 3*endedAfter; {
				r.beat()
			}
			r.wantCalls() // it still answers
			if c.id.Role == backend.RoleWorker {
				r.chief.set(c.id.Rank, c.id.Generation, c.member)
			} else {
				r.hang(c.id)
			}
			if took := r.untilReplaced(c.id); took > endedAfter+5*time.Second {
				t.Errorf("it was given up after %v", took)
			}
			r.until("its successor runs", func() error {
				if st, found := r.s.seen.allocation(c.next); !found || st.State != backend.StateRunning {
					return fmt.Errorf("%s is %q", c.next, st.State)
				}
				return nil
			})
		})
	}
}

// A process that ended and is started again in a moment stands not still: that it ended is told, once.
func TestCrashedProcessStandsNotStill(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	id := worker(0, 1)
	if err := r.cluster.SetFinished("ctr", id, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.SetState("ctr", id, backend.StateStarting, "it crashed with signal 9 (killed); it starts again in 200ms"); err != nil {
		t.Fatal(err)
	}
	r.beat()
	if p, err := r.problem("stands still"); err == nil {
		t.Errorf("problem %q", p)
	}
	if _, err := r.problem(id.String() + " has ended 1×: it crashed with signal 9 (killed)"); err != nil {
		t.Error(err)
	}
}

// A process that had begun and that its cluster keeps from running is named, is not taken for one that hangs, and has all its time to answer when it goes on.
func TestProcessThatItsClusterKeepsStillIsTold(t *testing.T) {
	broker := openBroker(t)
	for name, id := range map[string]backend.ID{"the chief": server(0, 1), "a server": server(1, 1), "a worker": worker(0, 1)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(1)
			r.beats(2)
			if err := r.cluster.SetState("ctr", id, backend.StateStarting, "the cluster has suspended it"); err != nil {
				t.Fatal(err)
			}
			r.hang(id)
			r.beats(2 * int(hungAfter/time.Second))
			if _, err := r.problem(id.String() + " stands still: the cluster has suspended it"); err != nil {
				t.Error(err)
			}
			for _, wrong := range []string{"has not answered", "ended by force"} {
				if p, err := r.problem(wrong); err == nil {
					t.Errorf("problem %q", p)
				}
			}
			if err := r.cluster.SetState("ctr", id, backend.StateRunning, ""); err != nil {
				t.Fatal(err)
			}
			began := r.now
			r.untilReplaced(id)
			if took := r.now.Sub(began); took < hungAfter-leaseTimeout {
				t.Errorf("ended after %v of silence", took)
			}
			if p, err := r.problem("stands still"); err == nil {
				t.Errorf("problem %q of one that runs", p)
			}
		})
	}
}

// A worker that its cluster has suspended is waited for as long as for a place, and where there is none elsewhere longer; where there is, it is ended and another one
// takes over.
func TestProcessThatStandsStillIsStartedElsewhere(t *testing.T) {
	r := newRig(t, rigOptions{slots: 2, change: func(text string) string {
		return strings.Replace(text, "autoscale {", "autoscale {\n    place_timeout = \"20s\"", 1)
	}})
	r.started(2)
	r.beats(2)
	id := worker(1, 1)
	if err := r.cluster.SetState("ctr", id, backend.StateStarting, "the cluster has suspended it"); err != nil {
		t.Fatal(err)
	}
	r.hang(id)
	r.mark()
	r.beats(10)
	if w := r.s.View().Workers; len(w) != 2 || w[1].Backend != "suspended" || w[0].Backend != "running" {
		t.Errorf("the workers are said to be %+v", w)
	}
	if v := r.s.View(); v.Waits != id.String()+" to go on (the cluster has suspended it)" {
		t.Errorf("it waits for %q", v.Waits)
	}
	if _, err := r.problem(id.String() + " stands still: the cluster has suspended it; after 20s of that it is ended and started again, if there is room elsewhere"); err != nil {
		t.Error(err)
	}
	r.beats(60)
	if _, err := r.problem(id.String() + " stands still: the cluster has suspended it; it is ended and started again as soon as there is room elsewhere: needs 1 slots, 0 free"); err != nil {
		t.Error(err)
	}
	r.wantCalls()
	if err := r.cluster.SetSlots(3); err != nil {
		t.Fatal(err)
	}
	r.until("another one is started", func() error {
		if _, found := r.s.seen.allocation(worker(1, 2)); !found {
			return fmt.Errorf("the list is %v", r.s.seen.list)
		}
		return nil
	})
	r.wantCalls("release "+id.String()+" forced", "ensure "+worker(1, 2).String())
	r.beat()
	if rep, want := strings.Join(r.s.last.Repairs, "\n"), id.String()+" stood still for "; !strings.Contains(rep, want) || !strings.Contains(rep, "(the cluster has suspended it)") {
		t.Errorf("explain says %q", rep)
	}
	r.until("the job is well", r.settled(2))
	if p, err := r.problem("stands still"); err == nil {
		t.Errorf("problem %q", p)
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
			if err := r.s.obey(r.t.Context(), command{Order: Order{Kind: "pause"}}); err == nil || !strings.Contains(err.Error(), "the checkpoint folder "+folder+" is gone") {
				r.t.Fatalf("a pause is answered with %v", err)
			}
			for range 45 {
				r.beat()
				if v := r.s.View(); !strings.HasSuffix(v.Stuck, "; whether it trains on is not known") {
					r.t.Fatalf("the job is %s: %q", v.State, v.Stuck)
				}
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

// Where the cluster does not hear the chief's node either, the scheduler is not alone in that: the chief is given up though Kafka is away too.
func TestChiefOnALostNodeIsGivenUpWhileKafkaIsSilent(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.beats(2)
	r.mark()
	r.away(server(0, 1))
	r.chief.stop()
	n := r.s.look(t.Context())
	n.endsErr = errors.New("no route to host")
	r.s.seen = n
	for range int(awayAfter/time.Second) + 5 {
		r.now = r.now.Add(time.Second)
		r.lost = r.s.step(t.Context(), r.now)
	}
	if got := r.calls(); len(got) == 0 || got[0] != "release ps-0-g1 forced" {
		t.Errorf("the backend was asked for %q", got)
	}
}
