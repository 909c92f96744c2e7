package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
)

// What a member does not tell, or tells out of order because two clocks differ, makes no part negative and the whole no longer than it was seen to be.
func TestJoinOf(t *testing.T) {
	decided := time.UnixMilli(1_800_000_000_000)
	ms := func(after int64) int64 { return decided.UnixMilli() + after }
	const milli = time.Millisecond
	for name, c := range map[string]struct {
		m    *rpc.MemberStatus
		want Join
	}{
		"all known": {
			&rpc.MemberStatus{Member: "worker-1", StartedUnixMs: ms(300), JoinedUnixMs: ms(1000), ReadyUnixMs: ms(1200), FirstTrainedUnixMs: ms(2000)},
			Join{Worker: "worker-1", Placed: 300 * milli, Started: 700 * milli, Ready: 200 * milli, First: 800 * milli},
		},
		"nothing to train": {&rpc.MemberStatus{StartedUnixMs: ms(300), JoinedUnixMs: ms(1000), ReadyUnixMs: ms(1200)}, Join{Placed: 300 * milli, Started: 700 * milli, Ready: 200 * milli, Idle: true}},
		"its clock is behind": {
			&rpc.MemberStatus{StartedUnixMs: ms(-9000), JoinedUnixMs: ms(1000), ReadyUnixMs: ms(1200)}, Join{Started: 1000 * milli, Ready: 200 * milli, Idle: true},
		},
		"its clock is ahead": {
			&rpc.MemberStatus{StartedUnixMs: ms(1500), JoinedUnixMs: ms(1000), ReadyUnixMs: ms(1200), FirstTrainedUnixMs: ms(2000)}, Join{Placed: 1500 * milli, First: 500 * milli},
		},
		"beyond what was seen": {&rpc.MemberStatus{StartedUnixMs: ms(1_000_000), JoinedUnixMs: ms(1000)}, Join{Placed: 10_000 * milli, Idle: true}},
		"nothing known":        {&rpc.MemberStatus{}, Join{Idle: true}},
	} {
		c.want.Decided = decided
		got := joinOf(c.m, decided, decided.Add(10*time.Second))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	j := Join{Worker: "worker-1", Placed: 300 * milli, Started: 700 * milli, Ready: 200 * milli, First: 800 * milli}
	if got, want := j.String(), "worker-1 in 2s: placed 300ms, started 700ms, ready 200ms, first record 800ms"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	j.First, j.Idle = 0, true
	if got, want := j.String(), "worker-1 in 1.2s: placed 300ms, started 700ms, ready 200ms, and has got nothing to train yet"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
