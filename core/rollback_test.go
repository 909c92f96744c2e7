package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

// A server that was rolled back is a problem while it is taught again what it lost, a note with its time afterwards, and stays in the state.
func TestRollbackIsShownAndKept(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	at := time.UnixMilli(r.now.UnixMilli())
	told := &rpc.Rollback{Server: 1, Incarnation: 7, UnixMs: at.UnixMilli(), SnapshotUnixMs: at.Add(-55 * time.Second).UnixMilli(), Offsets: 12345, Remaining: 3000}
	say := func(rs ...*rpc.Rollback) { r.chief.with(func(s *rpc.JobStatus) { s.Rollbacks = rs }) }
	says := "parameter server 1 was restored from a snapshot that was 55s old; 12,345 offsets are trained again for it"
	say(told)
	r.beat()
	if _, err := r.problem("since " + at.UTC().Format(time.RFC3339) + ": " + says + ", 3,000 are left; until that is done lag counts them too"); err != nil {
		t.Error(err)
	}
	told.Remaining, told.DoneUnixMs = 0, at.Add(4*time.Second).UnixMilli()
	say(told)
	r.beats(2)
	v := r.s.View()
	if len(v.Problems) > 0 {
		t.Errorf("what is made good is still a problem: %q", v.Problems)
	}
	want := []Rollback{{Server: 1, Incarnation: 7, At: at, Snapshot: at.Add(-55 * time.Second), Offsets: 12345, Done: at.Add(4 * time.Second)}}
	if diff := cmp.Diff(want, v.Rollbacks); diff != "" {
		t.Errorf("in the view (-want +got):\n%s", diff)
	}
	if got := v.Rollbacks[0].String(); got != says+", done after 4s" {
		t.Errorf("it says %q", got)
	}
	// Another chief does not know of it; one that was not done then is lost sight of.
	say(&rpc.Rollback{Server: 0, Incarnation: 8, UnixMs: at.UnixMilli(), Offsets: 5, Remaining: 5})
	r.beat()
	say()
	r.beat()
	want = append(want, Rollback{Server: 0, Incarnation: 8, At: at, Offsets: 5, Remaining: 5, Unknown: true})
	if diff := cmp.Diff(want, r.s.View().Rollbacks); diff != "" {
		t.Errorf("after another chief came (-want +got):\n%s", diff)
	}
	kept, err := Rollbacks(r.s.store, time.Time{})
	if diff := cmp.Diff(want, kept); diff != "" || err != nil {
		t.Errorf("in the state, %v (-want +got):\n%s", err, diff)
	}
	raw, err := state.Last[Rollback](r.s.store, state.Rollbacks, 100)
	if err != nil || len(raw) != 4 {
		t.Errorf("%d entries, %v: want the beginning and the end of each, whatever the number of looks", len(raw), err)
	}
	if got := want[1].String(); !strings.Contains(got, "without a snapshot") || !strings.HasSuffix(got, "the chief was replaced before it was done") {
		t.Errorf("it says %q", got)
	}
}
