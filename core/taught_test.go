package core

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/estimator"
)

// stopped stops the job and forgets its members.
func (r *rig) stopped() {
	r.t.Helper()
	r.order("stop", 0)
	for rank, generation := range r.s.want.Workers {
		r.chief.set(rank, generation, rpc.MemberState_MEMBER_STATE_DRAINED)
	}
	eventually(r.t, "the job stops", func() error {
		if r.beat(); !r.s.want.Stopped {
			return errors.New("it does not")
		}
		return nil
	})
	r.chief.with(func(s *rpc.JobStatus) { s.Members = nil })
}

// What was measured with other workers is a guess for those that train now, and no measurement; what does not bear on their speed changes nothing.
func TestWhatOtherWorkersTaughtIsAPrior(t *testing.T) {
	for name, c := range map[string]struct {
		change func(r *rig)
		prior  float64 // F(2) of the model that is not measured; 0: it stays measured
		source string
	}{
		"slower accelerators": {func(r *rig) { r.job.Workers.EmulateStep = 100 * time.Millisecond }, 3000, "what was measured with other workers, until "},
		"another batch":       {func(r *rig) { r.job.Model.Batch *= 2 }, 3000, "what was measured with other workers, until "},
		"another backend block": {func(r *rig) { r.job.Backend.Source = []byte("slots = 15") }, 3000,
			"what was measured with other workers, until "},
		"slower accelerators, and a theta for them": {func(r *rig) {
			r.job.Workers.EmulateStep, r.job.Throughput.Theta = 100*time.Millisecond, []float64{0.002, 0, 0}
		}, 1000, "the job file's theta"},
		"another objective and policy": {func(r *rig) {
			r.job.SLO.MaxLag, r.job.Autoscale.Tau, r.job.Workers.Max, r.job.Backend.Source = time.Hour, time.Minute, 7, []byte(" # nothing\n")
		}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			r.trainFor(40, 1500, true)
			r.stopped()
			j := *r.job
			r.job = &j
			c.change(r)
			r.reopen()
			f := func() float64 { return r.s.online.Model().Throughput(2, 2) }
			if c.prior == 0 {
				if !r.s.online.Measured(2, 2) || math.Abs(f()-3000) > 30 {
					t.Errorf("F(2) = %v is not measured any more", f())
				}
				return
			}
			for range 2 { // also once the scheduler is started again
				if r.s.online.Measured(2, 2) || math.Abs(f()-c.prior) > 0.01*c.prior {
					t.Errorf("F(2) = %v, measured %v; want %v by the prior", f(), r.s.online.Measured(2, 2), c.prior)
				}
				if e := r.s.online.Confidence().Error(2, 2); c.prior == 3000 && e < 0.15 {
					t.Errorf("the prior is said to be %.0f %% off", 100*e)
				}
				if got := r.s.basis(r.now); len(got.Measured) > 0 || !strings.HasPrefix(got.Prior, c.source) {
					t.Errorf("basis %+v", got)
				}
				if got := r.s.priorSource(); c.prior == 3000 && !strings.HasSuffix(got, "; kale profile measures these") {
					t.Errorf("the source %q does not say what helps", got)
				}
				if err := r.s.save(); err != nil {
					t.Fatal(err)
				}
				r.reopen()
			}
			r.started(2)
			r.trainFor(16, 450, true)
			if got := f(); math.Abs(got-900) > 30 {
				t.Errorf("F(2) = %v after four intervals of 900 records/s", got)
			}
			r.reopen()
			if got := f(); math.Abs(got-900) > 30 || !r.s.online.Measured(2, 2) {
				t.Errorf("F(2) = %v after a restart", got)
			}
		})
	}
}

// Workers that run keep what they were started with: what they train counts for as long as they do, whatever the job file says meanwhile.
func TestWorkersThatRunTeachByTheirOwnSettings(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.trainFor(40, 1500, true)
	j := *r.job
	j.Workers.EmulateStep = 100 * time.Millisecond
	r.job = &j
	r.reopen()
	r.trainFor(8, 1500, true)
	if !r.s.online.Measured(2, 2) || math.Abs(r.s.online.Model().Throughput(2, 2)-3000) > 30 {
		t.Errorf("F(2) = %v is not measured any more, and its workers train on", r.s.online.Model().Throughput(2, 2))
	}
}

// A state of an older scheduler says nothing of the workers, and is taken up as it is.
func TestWhatAnOlderSchedulerLearntStays(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.trainFor(40, 1500, true)
	r.s.want.Taught = nil
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if !r.s.online.Measured(2, 2) || r.s.want.Taught == nil {
		t.Errorf("measured %v, taught %+v", r.s.online.Measured(2, 2), r.s.want.Taught)
	}
}

// become makes the scheduler know workers of other settings: an emulated step that long, and a theta unless it is nil.
func (r *rig) become(step time.Duration, theta []float64) {
	r.t.Helper()
	j := *r.job
	if j.Workers.EmulateStep = step; theta != nil {
		j.Throughput.Theta = theta
	}
	r.job = &j
	if err := r.s.save(); err != nil {
		r.t.Fatal(err)
	}
	r.reopen()
}

// measures teaches the model what two workers train under full load, in records/s.
func (r *rig) measures(rate float64) {
	for range 4 {
		r.now = r.now.Add(time.Minute)
		r.s.learn(estimator.Sample{At: r.now, Workers: 2, Rate: rate, Saturated: true})
	}
}

// guesses checks F(2), that nothing is measured, and what the prior comes from.
func (r *rig) guesses(when string, want float64, source string) {
	r.t.Helper()
	if got := r.s.online.Model().Throughput(2, 2); math.Abs(got-want) > 0.01*want || r.s.online.Measured(2, 2) {
		r.t.Errorf("%s: F(2) = %v, measured %v; want %v by the prior", when, got, r.s.online.Measured(2, 2), want)
	}
	if got := r.s.priorSource(); !strings.HasPrefix(got, source) {
		r.t.Errorf("%s: the prior is %q, want %q", when, got, source)
	}
}

const (
	byThese  = "what was measured with these workers, until "
	byOthers = "what was measured with other workers, until "
	byFile   = "the job file's theta"
)

// Workers that are set up again as some were before are taken to train what those did, however often that goes to and fro without a full load.
func TestTaughtAgainByTheSameWorkers(t *testing.T) {
	const fast, slow = 160 * time.Millisecond, 320 * time.Millisecond
	r := newRig(t, rigOptions{})
	r.become(fast, nil)
	r.measures(3000)
	r.become(slow, nil)
	r.guesses("slower", 3000, byOthers)
	r.measures(1500)
	for range 2 {
		r.become(fast, nil)
		for range 2 { // also once the scheduler is started again
			r.guesses("fast again", 3000, byThese)
			if e := r.s.online.Confidence().Error(2, 2); e > 0.15 {
				t.Errorf("what these workers trained is said to be %.0f %% off", 100*e)
			}
			r.become(fast, nil)
		}
		r.become(slow, nil)
		r.guesses("slow again", 1500, byThese)
	}
	r.become(fast, nil)
	r.measures(2700)
	r.become(slow, nil)
	r.become(fast, nil)
	r.guesses("what was measured last counts", 2700, byThese)
	r.become(time.Second, nil)
	r.guesses("settings that are new", 2700, byOthers)
}

// What is known of other settings is bounded, and those that were left longest ago go first.
func TestTaughtKeepsTheLastSettings(t *testing.T) {
	r := newRig(t, rigOptions{})
	step := func(i int) time.Duration { return time.Duration(i+1) * 100 * time.Millisecond }
	for i := range 7 {
		r.become(step(i), nil)
		r.measures(3000 - 200*float64(i))
	}
	if got := len(r.s.want.Taught.Known); got != knownKept {
		t.Fatalf("%d other settings are known, want %d", got, knownKept)
	}
	for i := range 7 {
		r.become(step(2), nil) // the oldest that is known, at first
		r.guesses("the oldest", 2600, byThese)
		r.become(step(6-i%4), nil)
		r.guesses("those since", 3000-200*float64(6-i%4), byThese)
		if got := len(r.s.want.Taught.Known); got != knownKept {
			t.Fatalf("%d other settings are known, want %d", got, knownKept)
		}
	}
	r.become(step(0), nil)
	r.guesses("those that are forgotten", 2200, byOthers) // by the last ones
}

// A theta that was changed since workers were measured counts instead of that, until they are measured by it.
func TestTaughtByANewerTheta(t *testing.T) {
	const fast, slow = 160 * time.Millisecond, 320 * time.Millisecond
	was, newer := []float64{0.001, 0, 0}, []float64{0.0005, 0, 0}
	r := newRig(t, rigOptions{})
	r.become(fast, was)
	r.measures(3000)
	r.become(slow, nil)
	r.measures(1500)
	r.become(fast, newer)
	r.guesses("a newer theta", 4000, byFile)
	r.measures(3500)
	r.become(slow, nil)
	r.become(fast, nil)
	r.guesses("measured by the newer theta", 3500, byThese)
	r.become(fast, was)
	r.guesses("a theta that is changed later", 2000, byFile)
	r.measures(3300)
	r.become(slow, nil)
	r.become(fast, nil)
	r.guesses("measured by that", 3300, byThese)
}

// A state of a scheduler that kept the last prior alone is taken up as it is.
func TestTaughtByAnOlderState(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.become(100*time.Millisecond, nil)
	r.measures(3000)
	r.become(200*time.Millisecond, nil)
	r.s.want.Taught.Known = nil
	r.become(200*time.Millisecond, nil)
	r.guesses("as before", 3000, byOthers)
	r.become(100*time.Millisecond, nil)
	r.guesses("never known", 3000, byOthers)
}
