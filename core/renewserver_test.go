package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/rpc"
)

// serverIs says what the chief knows of a server.
func (r *rig) serverIs(index int, up bool, incarnation uint64) {
	r.chief.with(func(s *rpc.JobStatus) {
		s.Servers[index].Info.Up, s.Servers[index].Info.Incarnation = up, incarnation
		s.Servers[index].Metrics.SnapshotSeconds = 2
	})
}

// expiring is a rig whose server 1 ends in ten minutes.
func expiring(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, rigOptions{})
	r.started(2)
	r.serverIs(0, true, 5)
	r.serverIs(1, true, 6)
	r.expire(10*time.Minute, server(1, 1))
	r.now = r.now.Add(8 * time.Minute)
	r.beats(3)
	r.wantCalls()
	return r
}

// snapshots is how often one was written.
func (c *fakeChief) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshots
}

// A parameter server is replaced before its walltime ends: after a snapshot, in order, by a higher generation; and it is said how long that paused training.
func TestServerIsRenewedBeforeItsWalltime(t *testing.T) {
	r := expiring(t)
	deadline := r.now.Add(2 * time.Minute)
	r.until("the old one is gone", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1"))
	if !r.now.Before(deadline) || r.chief.written() != 1 {
		t.Errorf("it was replaced %v before the end, after %d snapshots", deadline.Sub(r.now), r.chief.written())
	}
	r.wantCalls("release ps-1-g1 drained", "ensure ps-1-g2")
	r.serverIs(1, false, 6)
	r.beats(3)
	if v := r.s.want.ServerRenewal; v == nil || !strings.Contains(r.s.View().Waits, "ps-1") {
		t.Fatalf("renewal %+v, waits for %q", v, r.s.View().Waits)
	}
	r.reopen() // in the middle of it
	r.serverIs(1, true, 6)
	r.beat() // the old one's last word
	if r.s.want.ServerRenewal == nil {
		t.Fatal("the old incarnation was taken for the new one")
	}
	r.serverIs(1, true, 9)
	r.beat()
	v := r.s.View().ServerRenewal
	if r.s.want.ServerRenewal != nil || v == nil || v.Index != 1 || v.Paused <= 0 || v.Paused > time.Minute {
		t.Fatalf("renewal under way %+v, last %+v", r.s.want.ServerRenewal, v)
	}
	if text := v.String(); !strings.Contains(text, "ps-1 before its walltime could end it") || !strings.Contains(text, "training paused for at most") {
		t.Errorf("it is said: %q", text)
	}
	if len(r.s.View().Problems) > 0 {
		t.Errorf("problems %q", r.s.View().Problems)
	}
	r.wantCalls() // the new backend was asked for nothing
}

// Snapshots that fail do not keep it from being replaced in time, with its own last snapshot.
func TestServerIsRenewedWithoutASnapshot(t *testing.T) {
	r := expiring(t)
	deadline := r.now.Add(2 * time.Minute)
	r.chief.mu.Lock()
	r.chief.snapshotErr = errors.New("disk full")
	r.chief.mu.Unlock()
	for r.now.Before(deadline) && !strings.Contains(r.live(), "ps-1-g2") {
		r.beat()
	}
	if !r.now.Before(deadline) {
		t.Errorf("it was not replaced in time: live are %s", r.live())
	}
	if n := r.chief.written(); n != 0 {
		t.Errorf("%d snapshots were written", n)
	}
}

// A server that ends by itself while it waits for its snapshot is replaced at once; a stop does without the renewal.
func TestServerRenewalIsOvertaken(t *testing.T) {
	r := expiring(t)
	r.chief.mu.Lock()
	r.chief.hold = make(chan struct{})
	r.chief.mu.Unlock()
	r.until("it is due", func() error {
		if r.s.want.ServerRenewal == nil {
			return errors.New("not yet")
		}
		return nil
	})
	if err := r.cluster.Exit("ctr", server(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.beats(2)
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
	close(r.chief.hold)
	r.order("stop", 0)
	r.until("it has stopped", func() error {
		if !r.s.want.Stopped || r.s.want.ServerRenewal != nil {
			return fmt.Errorf("live are %s", r.live())
		}
		return nil
	})
}

// That a server failed which was to be renewed is told as that, from when it fell silent on, and not as its walltime's end.
func TestServerThatFailsBeforeItIsRenewed(t *testing.T) {
	for name, c := range map[string]struct {
		fails func(t *testing.T, r *rig)
		says  string
	}{
		"ends": {func(t *testing.T, r *rig) {
			if err := r.cluster.Exit("ctr", server(1, 1), 3); err != nil {
				t.Fatal(err)
			}
		}, "ps-1 failed before it was renewed ("},
		"its node is lost": {func(t *testing.T, r *rig) {
			if err := r.cluster.SetState("ctr", server(1, 1), backend.StateUnknown, "node n1 does not answer"); err != nil {
				t.Fatal(err)
			}
			r.hang(server(1, 1))
		}, "ps-1 failed before it was renewed (it did not answer any more); training paused for "},
	} {
		t.Run(name, func(t *testing.T) {
			r := expiring(t)
			r.chief.mu.Lock()
			r.chief.snapshotErr = errors.New("disk full") // so that it is not asked to end before
			r.chief.mu.Unlock()
			r.until("it is due", func() error {
				if r.s.want.ServerRenewal == nil {
					return errors.New("not yet")
				}
				return nil
			})
			failed := r.now
			c.fails(t, r)
			r.until("its successor is started", func() error {
				if r.s.want.Servers[1] < 2 {
					return errors.New("it is waited for")
				}
				return nil
			})
			r.serverIs(1, true, 9)
			r.beats(2)
			v := r.s.View().ServerRenewal
			if r.s.want.ServerRenewal != nil || v == nil || v.Failed == "" || v.Ended || !strings.HasPrefix(v.String(), c.says) {
				t.Fatalf("renewal under way %+v, last %v; want %q", r.s.want.ServerRenewal, v, c.says)
			}
			if late := v.Released.Sub(failed); late.Abs() > 10*time.Second {
				t.Errorf("it is said to have left %v after it did", late)
			}
			if text, err := r.note("ps-1"); err != nil || strings.Contains(text, "renewed ps-1") || strings.Contains(text, "walltime") {
				t.Errorf("the note says %q, %v", text, err)
			}
		})
	}
}

// Servers of one walltime are renewed one after the other.
func TestServersRenewOneAfterTheOther(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.serverIs(0, true, 5)
	r.serverIs(1, true, 6)
	r.expire(4*time.Minute, server(0, 1), server(1, 1))
	r.now = r.now.Add(time.Minute)
	next := uint64(7)
	for range 4 * 60 {
		if strings.Contains(r.live(), "ps-0-g2") && strings.Contains(r.live(), "ps-1-g2") {
			break
		}
		r.beat()
		live := r.live()
		if strings.Count(live, "ps-") < 1 {
			t.Fatalf("live are %s", live)
		}
		if v := r.s.want.ServerRenewal; v != nil && r.s.want.Servers[v.Index] > v.Generation && strings.Contains(live, server(v.Index, v.Generation+1).String()) {
			if v.Index == 0 {
				r.chief.start()
			}
			r.serverIs(v.Index, true, next)
			next++
		}
	}
	r.mustBeLive("ps-0-g2 ps-1-g2 worker-0-g1")
}

// full is a rig whose server 1 is to leave in an hour, for a cause, while the cluster has no place for another one, and two workers of which none has to.
func full(t *testing.T, in time.Duration, cause backend.EndCause) (*rig, *fitting) {
	t.Helper()
	f := &fitting{}
	r := newRig(t, rigOptions{wrap: func(b backend.Backend) backend.Backend { f.Backend = b; return f }})
	r.started(2)
	r.serverIs(0, true, 5)
	r.serverIs(1, true, 6)
	if err := r.cluster.SetEnd("ctr", server(1, 1), r.now.Add(in), cause); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	return r, f
}

// A server keeps its place until there is one for its successor: what it gave up would go to who is next in the queue. Without one it stays until the cluster
// ends it, which lets it end in order; meanwhile workers hand over as ever.
func TestServerKeepsItsPlaceUntilThereIsAnother(t *testing.T) {
	r, f := full(t, 10*time.Minute, backend.EndWalltime)
	end := r.now.Add(10 * time.Minute)
	r.now = end.Add(-40 * time.Second)
	for r.now.Before(end.Add(20 * time.Second)) {
		r.beat()
		if v := r.s.want.ServerRenewal; r.live() != "ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1" || v == nil || !v.Released.IsZero() {
			t.Fatalf("%v before its end live are %s, renewal %+v", end.Sub(r.now), r.live(), v)
		}
		if r.now.Before(end.Add(-35 * time.Second)) {
			continue
		}
		if w := r.s.View().Waits; !strings.Contains(w, "a place for the successor of ps-1") || !strings.Contains(w, "3 jobs are before it") {
			t.Fatalf("it waits for %q", w)
		}
		if r.s.serverAway() {
			t.Fatal("no worker could hand over")
		}
	}
	f.fits = true
	r.until("there is room", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1"))
	r.wantCalls("release ps-1-g1 drained", "ensure ps-1-g2")
}

// What the cluster ends while it waits for a place is replaced in the queue, and that is no trouble.
func TestServerIsEndedWithoutAnotherPlace(t *testing.T) {
	r, _ := full(t, 30*time.Second, backend.EndWalltime)
	end := r.now.Add(30 * time.Second)
	for !r.now.After(end) {
		r.beat()
	}
	if err := r.cluster.Exit("ctr", server(1, 1), 0); err != nil {
		t.Fatal(err)
	}
	r.beats(2)
	r.mustBeLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1")
	r.serverIs(1, true, 9)
	r.beat()
	if v := r.s.View().ServerRenewal; v == nil || v.Done.IsZero() || len(r.s.View().Problems) > 0 {
		t.Errorf("renewal %+v, problems %q", v, r.s.View().Problems)
	}
	text, err := r.note("after its walltime could end it")
	if err != nil || !strings.Contains(text, "when no place had come free for its successor") {
		t.Errorf("%q: %v", text, err)
	}
}

// A renewal that is late for another reason does not say that there was no place.
func TestLateRenewalDoesNotBlameThePlaces(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	v := ServerRenewal{Cause: backend.EndWalltime, Deadline: at, Released: at.Add(3 * time.Second), Done: at.Add(5 * time.Second)}
	if text := v.String(); !strings.Contains(text, "after its walltime could end it") || strings.Contains(text, "place") {
		t.Error(text)
	}
	v.Lacked = at.Add(-2 * lackedLately) // it was asked no more since
	if text := v.String(); strings.Contains(text, "place") {
		t.Error(text)
	}
	v.Lacked = at
	if text := v.String(); !strings.Contains(text, "when no place had come free for its successor") {
		t.Error(text)
	}
}

// So it is with the server that the chief is in: that it is away then is no fault.
func TestTheChiefIsEndedWithoutAnotherPlace(t *testing.T) {
	r, _ := full(t, time.Hour, backend.EndWalltime)
	if err := r.cluster.SetEnd("ctr", server(0, 1), r.now.Add(30*time.Second), backend.EndWalltime); err != nil {
		t.Fatal(err)
	}
	for end := r.now.Add(30 * time.Second); !r.now.After(end); {
		r.beat()
	}
	r.chief.stop()
	r.beat()
	if _, err := r.problem("parameter server 0 is ended by its walltime, and the chief with it"); err != nil {
		t.Error(err)
	}
	if p, err := r.problem("does not answer"); err == nil {
		t.Errorf("it says %q", p)
	}
}

// Servers of one walltime that the cluster ends while another one is renewed: of each it is said how long that paused training, and how it ended where that is not what
// was announced.
func TestServerIsEndedBeforeItsTurn(t *testing.T) {
	for name, c := range map[string]struct{ failed, says string }{
		"as announced":  {"", "ps-1 was ended by its walltime before it was its turn to be renewed; training paused for"},
		"with its node": {"its node failed", "ps-1 ended before it was its turn to be renewed (its node failed); training paused for"},
	} {
		t.Run(name, func(t *testing.T) { endedBeforeItsTurn(t, c.failed, c.says) })
	}
}

func endedBeforeItsTurn(t *testing.T, failed, says string) {
	r := newRig(t, rigOptions{})
	if err := r.cluster.SetBeside(true); err != nil {
		t.Fatal(err)
	}
	r.started(2)
	r.serverIs(0, true, 5)
	r.serverIs(1, true, 6)
	end := r.now.Add(time.Hour)
	for _, i := range []int{0, 1} {
		if err := r.cluster.SetEnd("ctr", server(i, 1), end, backend.EndWalltime); err != nil {
			t.Fatal(err)
		}
	}
	r.beats(3)
	r.now = end.Add(-5 * time.Minute)
	r.beats(3)
	r.s.want.ServerRenewal = &ServerRenewal{Index: 0, Generation: 1, Deadline: end, Cause: backend.EndWalltime, Incarnation: 5, Begun: r.now}
	r.now = end
	r.beat()
	err := r.cluster.Exit("ctr", server(1, 1), 0)
	if failed != "" {
		err = r.cluster.SetState("ctr", server(1, 1), backend.StateFailed, failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.serverIs(1, false, 6)
	r.beat()
	r.reopen() // in the middle of it
	r.beats(5)
	if len(r.s.want.EndedServers) != 1 || r.s.want.Servers[1] != 2 {
		t.Fatalf("ended are %+v; wanted is generation %d", r.s.want.EndedServers, r.s.want.Servers[1])
	}
	r.serverIs(1, true, 9)
	r.beat()
	text, err := r.note(says)
	if v := r.s.View().ServerRenewal; err != nil || len(r.s.want.EndedServers) > 0 || v == nil || v.Index != 1 || v.Paused <= 0 || v.Paused > time.Minute {
		t.Errorf("%q, %v, %+v, last %+v", text, err, r.s.want.EndedServers, v)
	}
}

// A server on a node that is being drained moves as soon as there is a place elsewhere, and until then it is said what it waits for.
func TestServerLeavesADrainedNodeAtOnce(t *testing.T) {
	r, f := full(t, time.Hour, backend.EndDrain)
	r.wantCalls()
	if w := r.s.View().Waits; !strings.Contains(w, "ps-1-g1 to leave node") || !strings.Contains(w, "being drained") || !strings.Contains(w, "3 jobs are before it") {
		t.Errorf("it waits for %q", w)
	}
	f.fits = true
	r.until("it has moved", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1"))
	r.wantCalls("release ps-1-g1 drained", "ensure ps-1-g2")
	r.serverIs(1, true, 9)
	r.beat()
	if _, err := r.note("ps-1"); err != nil {
		t.Error(err)
	}
}

// Where nothing else is free until then, it leaves when the time that a drain is given is over.
func TestServerLeavesADrainedNodeInTime(t *testing.T) {
	r, _ := full(t, time.Hour, backend.EndDrain)
	end := r.now.Add(time.Hour)
	r.now = end.Add(-time.Minute)
	r.until("it has left", r.isLive("ps-0-g1 ps-1-g2 worker-0-g1 worker-1-g1"))
	if !r.now.Before(end) {
		t.Errorf("it left %v late", r.now.Sub(end))
	}
}

// A drain that is taken back, or a walltime that is lifted, lets a server stay that waits for a place.
func TestServerStaysAfterAll(t *testing.T) {
	r, _ := full(t, 30*time.Second, backend.EndWalltime)
	r.beats(24)
	if r.s.want.ServerRenewal == nil {
		t.Fatal("it is not being renewed")
	}
	if err := r.cluster.SetEnd("ctr", server(1, 1), time.Time{}, ""); err != nil {
		t.Fatal(err)
	}
	r.beats(60)
	r.wantCalls()
	if v := r.s.want.ServerRenewal; v != nil {
		t.Errorf("it is still being renewed: %+v", v)
	}
}

// That the chief is away while the server that it is in is renewed is planned, and said so.
func TestTheChiefIsAwayAsPlanned(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.serverIs(0, true, 5)
	r.expire(2*time.Minute, server(0, 1))
	r.now = r.now.Add(time.Minute)
	r.until("it has left", r.isLive("ps-0-g2 ps-1-g1 worker-0-g1 worker-1-g1"))
	r.chief.stop()
	r.beats(2)
	if _, err := r.problem("parameter server 0 is renewed, and the chief with it"); err != nil {
		t.Error(err)
	}
	if p, err := r.problem("does not answer"); err == nil {
		t.Errorf("it says %q", p)
	}
	r.chief.start()
	r.serverIs(0, true, 9)
	r.beat()
	if _, err := r.note("renewed ps-0 before its walltime could end it"); err != nil {
		t.Error(err)
	}
}

// note is the first note of the view that contains a text.
func (r *rig) note(text string) (string, error) {
	for _, n := range r.s.View().Notes {
		if strings.Contains(n.Text, text) {
			return n.Text, nil
		}
	}
	return "", fmt.Errorf("no note says %q: %+v", text, r.s.View().Notes)
}

// A server that serves on after it was asked to end, as while its cluster does not answer, pauses nothing until it is heard no more.
func TestServerThatServesOnPausesNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.serverIs(1, true, 9)
	r.beat()
	v := &ServerRenewal{Index: 1, Generation: 1, Incarnation: 6, Released: r.now.Add(-80 * time.Second), Served: r.now.Add(-10 * time.Second)}
	r.s.progress = newProgressLog(time.Minute) // of that time nothing is known
	if done, back := r.s.isBack(v, r.now); !back || done.Followed || done.Paused != 10*time.Second {
		t.Errorf("%+v, %v; want a pause of 10s at most", done, back)
	}
}

// Where nobody saw the beginning of a pause, it is not said to have taken no time.
func TestHowLongTrainingPaused(t *testing.T) {
	at := time.Date(2026, 11, 24, 15, 4, 5, 0, time.Local)
	for want, v := range map[string]ServerRenewal{
		"; training did not pause":                    {Followed: true},
		"; training paused for 34ms":                  {Followed: true, Paused: 34 * time.Millisecond},
		"; for how long training paused is not known": {},
		"; training paused for at most 10s":           {Paused: 10 * time.Second},
		"; training paused for at most 400ms":         {Paused: 400 * time.Millisecond, Bridged: true},
	} {
		for _, how := range []func(*ServerRenewal){func(v *ServerRenewal) { v.Failed = "its node failed" }, func(v *ServerRenewal) { v.Ended = true }, func(*ServerRenewal) {}} {
			v.Index, v.Deadline, v.Released, v.Done = 1, at, at.Add(-time.Minute), at
			if how(&v); !strings.HasSuffix(v.String(), want) {
				t.Errorf("%q does not end with %q", v.String(), want)
			}
		}
	}
	v := ServerRenewal{Index: 1, Deadline: at, Released: at.Add(-time.Minute), Done: at, Followed: true, Paused: time.Second}
	if got, want := v.String(), "ps-1 before its walltime could end it (at 15:04:05 at the earliest); training paused for 1s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
