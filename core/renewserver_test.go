package core

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
