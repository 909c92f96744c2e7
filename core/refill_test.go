package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/traffic"
)

// longHistory is of a job whose forecasts rest on more than one season.
func longHistory(text string) string {
	return strings.Replace(text, `history  = "1m"`, `history  = "3m"`, 1)
}

// steadyTraffic writes records of the eight minutes until now, the same number in each second.
func (r *rig) steadyTraffic() {
	r.t.Helper()
	began := time.Now().Add(-8 * time.Minute)
	r.fill(8*60*10, func(i int) time.Time { return began.Add(time.Duration(i) * 100 * time.Millisecond) })
}

// readBack is the condition that the arrivals of the last two minutes are known and the forecast is trusted.
func (r *rig) readBack() error {
	now := time.Now().Truncate(time.Second)
	holes := 0
	for _, v := range r.s.arrivals.Series(time.Second, now.Add(-2*time.Minute), now) {
		if math.IsNaN(v) {
			holes++
		}
	}
	if holes > 0 || !r.s.foresee.last.Trusted {
		return fmt.Errorf("the arrivals of %d seconds are not known, and of the forecast: %s", holes, r.s.foresee.last.Reason)
	}
	return nil
}

// readHistory reads what a scheduler begins with.
func (r *rig) readHistory(ctx context.Context) error {
	r.t.Helper()
	r.s.askHistory(ctx, time.Now())
	q := r.s.missed.reading
	<-r.s.missed.history()
	r.s.readBack(ctx, time.Now())
	return q.err
}

// reads makes the history take as long to read as the test wants: until it is cancelled.
func (r *rig) reads() *reading {
	done := make(chan struct{})
	r.s.missed.reading = &reading{first: true, cancel: sync.OnceFunc(func() { close(done) }), done: done}
	return r.s.missed.reading
}

// beatsNow beats by the time of the world, until the arrivals are read back.
func (r *rig) beatsNow() {
	r.t.Helper()
	eventually(r.t, "the arrivals are read back", func() error {
		r.now = time.Now().Add(-time.Second) // a beat is a second later
		r.beat()
		return r.readBack()
	})
}

// A scheduler that was suspended, or whose brokers did not answer, asks the broker for the arrivals of that time; its forecast is trusted again at once.
func TestMissedArrivalsAreReadBack(t *testing.T) {
	for name, slept := range map[string]time.Duration{"for a while": 40 * time.Second, "for longer than the history": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{change: longHistory})
			r.steadyTraffic()
			now := time.Now()
			since := now.Add(-slept)
			o := traffic.BackfillOptions{Step: r.job.Forecast.Interval, From: since.Add(-150 * time.Second), To: since}
			if _, err := traffic.Backfill(t.Context(), r.s.kafka, r.s.arrivals, o); err != nil {
				t.Fatal(err)
			}
			if f := r.s.foresee.forecast(since, r.s.history(since)); !f.Trusted {
				t.Fatalf("before the gap: %s", f.Reason)
			}
			r.now = now.Add(-time.Second)
			r.beat()
			if r.s.missed.reading == nil {
				t.Fatalf("%v without an observation are no gap", slept)
			}
			r.beatsNow()
		})
	}
}

// A scheduler that could not read the history as it began, since the brokers were away, reads it once they answer.
func TestHistoryIsReadOnceTheBrokersAnswer(t *testing.T) {
	r := newRig(t, rigOptions{change: longHistory})
	r.steadyTraffic()
	away, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.readHistory(away); err == nil {
		t.Fatal("read without an answer")
	}
	r.beatsNow()
}

// The history of days may take long to read: what was wanted before is repaired meanwhile, and a number that a person orders needs none. Nothing else is decided, and
// then it is decided at once.
func TestRepairDoesNotWaitForTheHistory(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("auto", 0)
	r.beat()
	r.reopen()
	read := r.reads()
	before := r.s.last
	if err := r.cluster.Exit("ctr", worker(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g2")
	if r.s.last != before {
		t.Errorf("before the history is there: %+v", r.s.last)
	}
	r.order("scale", 3)
	r.beat()
	if r.s.last == before || r.s.want.Target != 3 {
		t.Errorf("ordered 3: %d workers are wanted, by %+v", r.s.want.Target, r.s.last)
	}
	r.order("auto", 0)
	before = r.s.last
	r.beat()
	if r.s.last != before {
		t.Errorf("still before the history is there: %+v", r.s.last)
	}
	read.err = errors.New("the brokers are away")
	read.cancel()
	r.beat()
	if r.s.last == before {
		t.Error("nothing is decided after it")
	}
}

// What is decided meanwhile about a number that a person has pinned knows no arrivals: it is decided anew once the history is there, however long a tick is.
func TestPinnedNumberIsDecidedAnewWithTheHistory(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, `tick         = "1s"`, `tick         = "10m"`, 1)
	}})
	r.started(2)
	r.reopen()
	read, before := r.reads(), r.s.last
	r.beats(3)
	without := r.s.last
	if without == before {
		t.Fatal("nothing was decided about what is pinned")
	}
	read.cancel()
	r.beats(3)
	if d := r.s.last; d == without || d.Decision.At.Sub(without.Decision.At) != 3*time.Second {
		t.Errorf("decided at %v, and anew at %v", without.Decision.At, d.Decision.At)
	}
}

// Of a job that was never decided about nothing is started before the history is there.
func TestFirstStartWaitsForTheHistory(t *testing.T) {
	r := newRig(t, rigOptions{})
	read := r.reads()
	r.beats(3)
	r.mustBeLive("")
	read.cancel()
	r.beat()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
}

// A question that fails is asked again, later each time; what is missed meanwhile is asked for with it.
func TestMissedIsAskedForUntilItIsThere(t *testing.T) {
	t0 := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	var m missed
	if _, due := m.due(t0); due {
		t.Error("nothing is missed, and it is asked for")
	}
	now, failed := t0, errors.New("the brokers are away")
	m.from(t0.Add(-time.Minute))
	for _, wait := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		since, due := m.due(now)
		if !due || !since.Equal(t0.Add(-time.Minute)) {
			t.Fatalf("after %v: due %v since %v", now.Sub(t0), due, since)
		}
		m.since, m.reading = time.Time{}, &reading{since: since}
		m.from(now) // a gap of its own meanwhile
		if _, due := m.due(now); due {
			t.Error("it is asked for while it is asked for")
		}
		m.ended(now, failed)
		if _, due := m.due(now.Add(wait - time.Millisecond)); due {
			t.Errorf("asked for again before %v have passed", wait)
		}
		now = now.Add(wait)
	}
	m.since, m.reading = time.Time{}, &reading{since: t0}
	m.from(now)
	m.ended(now, nil)
	if since, due := m.due(now); !due || !since.Equal(now) {
		t.Errorf("what was missed meanwhile: due %v since %v", due, since)
	}
}

// A record that is dated hours ahead is no traffic: a scheduler that starts after it was written sees the rate that there is or none, and says which record it is. So does a
// plan.
func TestARecordOfTomorrowIsNoTraffic(t *testing.T) {
	r := newRig(t, rigOptions{change: longHistory})
	began, tomorrow := time.Now().Add(-8*time.Minute), time.Now().Add(2*time.Hour)
	r.fill(8*60*10, func(i int) time.Time {
		if i == 7*60*10 { // a minute ago
			return tomorrow
		}
		return began.Add(time.Duration(i) * 100 * time.Millisecond)
	})
	if err := r.readHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.now = time.Now().Add(-time.Second)
	r.beat()
	now := time.Now()
	for i, rate := range r.s.arrivals.Series(time.Second, now.Add(-7*time.Minute), now) {
		if rate > 1.5*10*rigPartitions {
			t.Errorf("%d s before now %.0f records/s are said to have arrived, of %d", 7*60-i, rate, 10*rigPartitions)
		}
	}
	want := fmt.Sprintf("a record's clock is ahead of this machine's by 2h: offset 4200 of partition 0 is dated %s", tomorrow.UTC().Format(time.RFC3339))
	said := func(problems []string) bool {
		return strings.Contains(strings.Join(problems, "\n"), want) && strings.Contains(strings.Join(problems, "\n"), "LogAppendTime")
	}
	if v := r.s.View(); !said(v.Problems) {
		t.Errorf("problems: %q, want one that begins with %q", v.Problems, want)
	}
	p, diags, err := NewPreview(t.Context(), r.options("run"))
	if err != nil || diags.HasErrors() {
		t.Fatal(err, diags)
	}
	if !said([]string{AheadWords(p.Ahead)}) {
		t.Errorf("a plan says %q", AheadWords(p.Ahead))
	}
}
