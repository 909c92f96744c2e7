package core

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/estimator"
)

// trainsAt lets every member train so many records/s in steps of 50 records, by its own clock, while it waits for records or not.
func (r *rig) trainsAt(rate float64, saturated bool) {
	r.chief.with(func(s *rpc.JobStatus) {
		for _, m := range s.Members {
			x := m.Metrics
			x.WallSeconds++
			x.Records += uint64(rate)
			x.Steps += uint64(rate / 50)
			x.Saturated, m.RecordsPerSecond = saturated, rate
		}
	})
}

func (r *rig) trainFor(beats int, rate float64, saturated bool) {
	for range beats {
		r.trainsAt(rate, saturated)
		r.beat()
	}
}

// What the members train above F(w) in force contradicts the model: it is a lower bound, though somebody waited for records now and then.
func TestWhatIsTrainedIsABoundOnCapacity(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.Replace(text, "theta = [0.001, 0, 0]", "theta = [0.001, 0, 0]\n    source = \"a guess\"", 1)
	}})
	r.started(2)
	learnt := func() float64 { return r.s.online.Model().Throughput(2, 2) }
	r.trainFor(40, 900, false) // 1,800 of 2,000
	if got := learnt(); got != 2000 {
		t.Fatalf("an arrival rate below capacity taught %v", got)
	}
	if got := r.s.View().ModelBasis.String(); got != "nothing measured yet, all by the prior: a guess" {
		t.Errorf("basis %q", got)
	}
	r.trainFor(40, 1500, false)
	if got := learnt(); got < 2850 || got > 3000 {
		t.Fatalf("F(2) = %v after 40 s of 3,000 records/s, want that less a step or so", got)
	}
	v := r.s.View()
	if got := v.ModelBasis.String(); !strings.HasPrefix(got, "measured at least 2,9") || !strings.Contains(got, " records/s at 2 workers; elsewhere the prior (a guess)") {
		t.Errorf("basis %q", got)
	}
	if got := v.Decision.Decision.Explain(); !strings.Contains(got, "F(2); at least 2,9") {
		t.Errorf("the explanation does not say that F(2) was seen:\n%s", got)
	}
	r.reopen()
	if got := learnt(); got < 2850 || got > 3000 {
		t.Errorf("F(2) = %v after a restart", got)
	}
	r.trainFor(40, 1200, true) // what saturates them is capacity, whatever was reached before
	if got := learnt(); math.Abs(got-2400) > 24 {
		t.Errorf("F(2) = %v, and 2,400 saturates the members", got)
	}
}

// Full load that is shorter than three intervals shows that the job file's guess is far too low; status says what it rests on.
func TestAShortFullLoadCorrectsALowGuess(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.trainFor(1, 0, false)
	r.trainFor(4, 100_000, true)
	r.trainFor(20, 100, false)
	if got := r.s.online.Model().Throughput(2, 2); got < 45_000 || got > 200_000 {
		t.Errorf("F(2) = %v after 4 s of 200,000 records/s and then nothing to do; want what was seen to count", got)
	}
	if got := r.s.View().ModelBasis.String(); !strings.HasPrefix(got, "measured at least ") || !strings.Contains(got, " records/s at 2 workers") {
		t.Errorf("basis %q", got)
	}
}

// A backlog that is worked down faster than it was believed possible, between two measurements of capacity, shows what can be trained at the least.
func TestTheEndOfACatchUpIsABoundOnCapacity(t *testing.T) {
	r := newRig(t, rigOptions{change: func(text string) string {
		return strings.NewReplacer(`interval = "1s"`, `interval = "15s"`, `horizon  = "20s"`, `horizon  = "30s"`, `history  = "1m"`, `history  = "5m"`, `tau          = "1s"`, `tau = "15s"`).Replace(text)
	}})
	r.started(2)
	r.trainFor(1, 1, false)
	r.trainFor(53, 200, true) // slow; the last measurement is 4 s old
	if got := r.s.online.Model().Throughput(2, 2); math.Abs(got-400) > 20 {
		t.Fatalf("F(2) = %v while the members are slow", got)
	}
	r.trainFor(8, 1000, true)
	r.trainFor(2, 225, false)
	if got := r.s.online.Points(); len(got) != 1 || !slices.Contains(got[0].Reached, 2000) {
		t.Errorf("points %+v after 8 s in which a backlog was trained at 2,000 records/s", got)
	}
}

// After a slowdown that lasted long enough to be measured, workers that are enough are never saturated again: what they train all the same says that it is past.
func TestASlowdownThatPassedHoldsNoWorkers(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(4)
	r.trainFor(20, 217, true)
	learnt := func(w int) float64 { return r.s.online.Model().Throughput(w, 2) }
	if math.Abs(learnt(4)-870) > 20 {
		t.Fatalf("F(4) = %v while the members are slow", learnt(4))
	}
	r.trainFor(60, 250, false)
	if learnt(4) < 980 || !strings.Contains(r.s.View().ModelBasis.String(), "at least") {
		t.Errorf("F(4) = %v after 1 min of 1,000 records/s; basis %q", learnt(4), r.s.View().ModelBasis)
	}
	r.trainFor(240, 250, false)
	if learnt(2) < 1100 {
		t.Errorf("F(2) = %v five minutes after the slowdown, and 2,000 by the job file; basis %q", learnt(2), r.s.View().ModelBasis)
	}
}

// Records that were counted by one step at the interval's edge, by a process that was started anew, or in a rescale, are no evidence.
func TestWhatIsNoEvidenceOfCapacity(t *testing.T) {
	for name, disturb := range map[string]func(r *rig){
		"steps longer than the interval": func(r *rig) {
			for i := range 120 { // 900 records/s each, in steps of 20 s that end all at once
				r.chief.with(func(s *rpc.JobStatus) {
					for _, m := range s.Members {
						m.Metrics.WallSeconds++
						if i%20 == 19 {
							m.Metrics.Records += 18_000
							m.Metrics.Steps++
						}
					}
				})
				r.beat()
			}
		},
		"a process that is started anew": func(r *rig) {
			for i := range 60 {
				r.trainsAt(900, false)
				if i%5 == 4 {
					r.chief.with(func(s *rpc.JobStatus) { s.Members[0].Metrics.WallSeconds = 0 })
				}
				r.beat()
			}
		},
		"records that are trained again": func(r *rig) {
			r.chief.with(func(s *rpc.JobStatus) { s.Repairing = true })
			r.trainFor(60, 1500, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			disturb(r)
			if got := r.s.online.Model().Throughput(2, 2); got != 2000 {
				t.Errorf("F(2) = %v", got)
			}
		})
	}
}

// GPUs that become slower are seen within five saturated intervals, in the model that decides; so is how sure it is.
func TestSlowerGPUsAreSeen(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	var before estimator.Doubts
	r.trainFor(1, 1000, true)
	if before = r.s.View().Decision.Observation.ModelError; before.At(2) < 0.05 || before.At(8) < 0.05 {
		t.Errorf("errors of the prior: %v", before)
	}
	intervals := func(n int, rate float64) { r.trainFor(n*int(teachEvery/time.Second), rate, true) }
	intervals(10, 1000)
	if got := r.s.online.Model().Throughput(2, 2); math.Abs(got-2000) > 20 {
		t.Fatalf("F(2) = %v", got)
	}
	if after := r.s.View().Decision.Observation.ModelError; after.At(2) > 0.5*before.At(2) || after.At(8) < 2*after.At(2) {
		t.Errorf("errors %v, before %v", after, before)
	}
	intervals(5, 700)
	if got := r.s.online.Model().Throughput(2, 2); math.Abs(got-1400) > 140 {
		t.Errorf("F(2) = %v five intervals after the GPUs became slower", got)
	}
	if c := r.s.online.LastChange(); c == nil || c.Workers != 2 {
		t.Errorf("change %+v", c)
	}
	r.beat()
	const says = "capacity of 2 workers fell from 2,000 to 1,400 records/s at "
	if v := r.s.View(); !strings.Contains(v.ModelBasis.String(), says) || !strings.Contains(v.Decision.Decision.Explain(), says) {
		t.Errorf("nobody is told that capacity fell: basis %q\n%s", v.ModelBasis, v.Decision.Decision.Explain())
	}
	if b := r.s.basis(r.now.Add(25 * time.Hour)); b.Change != nil {
		t.Errorf("%+v is told a day later", b.Change)
	}
}

// What tells a slow fall of capacity from noise survives a restart: after each, the model is the one before it, and the fall goes on from there.
func TestSlowFallSurvivesARestart(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	for i := range 60 {
		rate := 1000 - 7*float64(min(max(i-16, 0), 20))
		r.trainFor(int(teachEvery/time.Second), rate, true)
		if i%6 != 5 {
			continue
		}
		state, model := r.s.online.State(), r.s.online.Model()
		r.reopen()
		if d := cmp.Diff(state, r.s.online.State()); d != "" {
			t.Fatalf("interval %d: what was learnt before a restart and after it:\n%s", i, d)
		}
		if !model.Equal(r.s.online.Model()) {
			t.Fatalf("interval %d: %v before a restart, %v after it", i, model, r.s.online.Model())
		}
		if anchored := len(state.Points) == 1 && state.Points[0].Anchor.Rate > 0; anchored != (i >= 17) {
			t.Errorf("interval %d: %+v", i, state.Points)
		}
	}
	if a := r.s.online.State().Points[0].Anchor; a.Rate > 1800 {
		t.Errorf("anchor %+v though capacity fell from 2,000 to 1,720", a)
	}
}
