package core

import (
	"math"
	"strings"
	"testing"
	"time"
)

// slowly lets the members train at full load, so many records/s each, while more arrives than that.
func (r *rig) slowly(beats int, rate float64, more bool) {
	r.t.Helper()
	for range beats {
		if more {
			r.produce(0, 20)
		}
		r.trainFor(1, rate, true)
	}
}

// longIntervals is a job in whose intervals of a minute capacity is measured.
func longIntervals(text string) string {
	return strings.NewReplacer(`interval = "1s"`, `interval = "1m"`, `horizon  = "20s"`, `horizon  = "10m"`, `season   = "1m"`, `season   = "1h"`, `history  = "1m"`, `history  = "3h"`,
		`tau          = "1s"`, `tau = "1m"`).Replace(text)
}

// Members that are all busy while what waits becomes more are seen to be slow within seconds; one stall is none, nor is a backlog that shrinks, nor a warm-up.
func TestAFullLoadBoundsCapacityAtOnce(t *testing.T) {
	believed := func(r *rig) float64 { return r.s.online.Model().Throughput(2, 2) }
	ready := func(t *testing.T) *rig {
		r := newRig(t, rigOptions{change: longIntervals})
		r.started(2)
		r.produce(0, 100)
		r.trainFor(15, 400, false)
		if f := believed(r); f != 2000 {
			t.Fatalf("F(2) = %v", f)
		}
		return r
	}
	t.Run("slow", func(t *testing.T) {
		r := ready(t)
		r.slowly(6, 400, true)
		if f := believed(r); f < 800 || f > 960 {
			t.Errorf("F(2) = %v after 6 s in which 800 records/s were trained at most", f)
		}
		r.reopen()
		if f := believed(r); f < 800 || f > 960 {
			t.Errorf("F(2) = %v after a restart", f)
		}
		if got := r.s.basis(r.now).String(); !strings.Contains(got, "lowered to ") {
			t.Errorf("basis %q does not say that it is lowered", got)
		}
		r.trainFor(15, 1000, true) // it has passed
		if f := believed(r); math.Abs(f-2000) > 50 {
			t.Errorf("F(2) = %v, and 2,000 were trained", f)
		}
	})
	t.Run("as fast as believed", func(t *testing.T) {
		r := ready(t)
		r.slowly(30, 950, true)
		if f := believed(r); f != 2000 {
			t.Errorf("F(2) = %v", f)
		}
	})
	t.Run("one stall", func(t *testing.T) {
		r := ready(t)
		r.slowly(10, 950, true)
		r.slowly(2, 200, true)
		r.slowly(10, 950, true)
		if f := believed(r); f != 2000 {
			t.Errorf("F(2) = %v", f)
		}
	})
	t.Run("a backlog that does not rise", func(t *testing.T) {
		r := ready(t)
		r.slowly(10, 400, false)
		if f := believed(r); f != 2000 {
			t.Errorf("F(2) = %v", f)
		}
	})
	t.Run("warming up", func(t *testing.T) {
		r := newRig(t, rigOptions{change: longIntervals})
		r.started(2)
		r.slowly(9, 400, true)
		if f := believed(r); f != 2000 {
			t.Errorf("F(2) = %v", f)
		}
	})
	t.Run("nothing more is heard", func(t *testing.T) {
		r := ready(t)
		r.slowly(6, 400, true)
		r.now = r.now.Add(11 * time.Minute)
		r.trainFor(15, 100, false)
		if f := believed(r); f != 2000 {
			t.Errorf("F(2) = %v", f)
		}
	})
}
