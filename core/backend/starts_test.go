package backend

import (
	"testing"
	"testing/synctest"
	"time"
)

// A look that began before a start was over may have seen the half of it; one that began later has seen all.
func TestStartsSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Starts
		id := ID{Role: RoleWorker, Rank: 1, Generation: 2}
		is := func(when string, want bool, at time.Time) {
			t.Helper()
			if got := s.Since(at, "j", id); got != want {
				t.Errorf("%s: it was being started: %v, want %v", when, got, want)
			}
		}
		began := time.Now()
		is("before", false, began)
		first := s.Begin("j", []Workload{{ID: id}})
		time.Sleep(time.Second)
		second := s.Begin("j", []Workload{{ID: id}})
		first()
		time.Sleep(time.Second)
		is("while another call is under way", true, time.Now())
		second()
		is("for a look that began before its end", true, began)
		time.Sleep(time.Second)
		is("for a look that begins after its end", false, time.Now())
		if s.Since(began, "k", id) || s.Since(began, "j", ID{Role: RoleWorker, Rank: 1, Generation: 3}) {
			t.Error("it is taken for another")
		}
		time.Sleep(2 * startsKept)
		s.Begin("j", nil)()
		if len(s.of) != 0 {
			t.Errorf("it keeps %v", s.of)
		}
	})
}
