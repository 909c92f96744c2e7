package core

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/rpc"
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
