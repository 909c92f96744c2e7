package core

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/forecast"
)

// A large model file takes seconds for its first forecast, since it is held to the past for it (forecast/calibrate.go), and for those that the gate scores it by. Looks, decisions and
// orders wait for none of them: a running scheduler asks its model in another goroutine, and uses the seasonal forecaster as long as there is no answer. What is learnt
// is the same as if it had been waited for.

const (
	// patienceShare is of the pause between two looks: so long a decision waits for a model.
	patienceShare = 4
	patienceLeast = 250 * time.Millisecond
	patienceMost  = 2 * time.Second
	// slowPause is how long a model that was too slow is left alone.
	slowPause = 10 * time.Minute
)

// ForecastPatience is how long a decision of a job waits for a forecast of its model.
func ForecastPatience(j *job.Job) time.Duration {
	return min(max(j.Autoscale.Watch/patienceShare, patienceLeast), patienceMost)
}

// turns has one model of this process at a time held to the past: on one core, however many jobs are taken up at once.
var turns = make(chan struct{}, 1)

// beside is a forecaster that is asked in another goroutine. It belongs to the goroutine of Run.
type beside struct {
	forecast.Forecaster
	spawn    func(func())
	patience time.Duration
	progress *tryProgress
	closed   chan struct{} // by close
	hush     bool          // it is not to be asked now
	run      *errand       // under way, or not taken in yet
	slow     time.Time     // until when it is left alone
	slowErr  error
}

// tryProgress is how far a model is: any goroutine may ask.
type tryProgress struct {
	done, total atomic.Int64
	tell        func(done, total int) // nil: nobody else wants to know
}

func (p *tryProgress) step(done, total int) {
	p.done.Store(int64(done))
	p.total.Store(int64(total))
	if p.tell != nil {
		p.tell(done, total)
	}
}

// errand is one thing that is asked of a model. What it came to may be read when done is closed.
type errand struct {
	began time.Time
	trial bool
	turn  atomic.Bool // it has its turn
	done  chan struct{}
	took  time.Duration
	f     forecast.Forecast
	err   error
	past  []forecast.Forecast // at the moments that were lacking
}

// send begins an errand.
func (b *beside) send(e *errand, work func()) {
	e.began, e.done = time.Now(), make(chan struct{})
	b.run = e
	b.spawn(func() { // ends with the work, which closing the model ends: close waits for it
		defer close(e.done)
		ended := make(chan struct{})
		go func() { // ends with the work, and is waited for here: a thread that is lowly ends with its goroutine
			defer close(ended)
			if e.trial {
				lowly()
				select {
				case turns <- struct{}{}:
					defer func() { <-turns }()
				case <-b.closed:
					e.err = errors.New("it is closed")
					return
				}
			}
			e.turn.Store(true)
			work()
		}()
		<-ended
		e.took = time.Since(e.began)
	})
}

// free says whether nothing is under way. What an ordinary forecast came to that was not waited for is dropped.
func (b *beside) free() bool {
	if e := b.run; e != nil && !e.trial && e.ended() {
		b.run = nil
		b.heed(e)
	}
	return b.run == nil
}

// try holds the model to a history, and makes the forecasts that are lacking at moments of the past. It is free. It waits no longer than for a forecast.
func (b *beside) try(history forecast.Series, steps int, lacking []time.Time) {
	b.await(b.begin(history, steps, lacking))
}

// begin is try without a wait.
func (b *beside) begin(history forecast.Series, steps int, lacking []time.Time) *errand {
	b.progress.step(0, 0)
	e := &errand{trial: true}
	b.send(e, func() {
		if e.f, e.err = b.Forecaster.Forecast(history, steps); errors.Is(e.err, forecast.ErrTooSlow) {
			return
		}
		for _, at := range lacking {
			select {
			case <-b.closed:
				return
			default:
			}
			if f, err := b.Forecaster.Forecast(history.Until(at), steps); err == nil {
				e.past = append(e.past, f)
			}
		}
	})
	return e
}

// await waits for an errand as long as a decision waits, and says whether it has ended.
func (b *beside) await(e *errand) bool {
	t := time.NewTimer(b.patience)
	defer t.Stop()
	select {
	case <-e.done:
		return true
	case <-t.C:
		return false
	}
}

// tried is a trial that has ended, once; nil: none has.
func (b *beside) tried() *errand {
	e := b.run
	if e == nil || !e.trial || !e.ended() {
		return nil
	}
	b.run = nil
	b.heed(e)
	return e
}

// trying is closed at the end of the trial that is under way; nil: none is.
func (b *beside) trying() <-chan struct{} {
	if b == nil || b.run == nil || !b.run.trial {
		return nil
	}
	return b.run.done
}

func (e *errand) ended() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// heed takes in that a model was too slow.
func (b *beside) heed(e *errand) {
	if errors.Is(e.err, forecast.ErrTooSlow) {
		b.slow, b.slowErr = time.Now().Add(slowPause), e.err
	}
}

// Forecast implements [forecast.Forecaster]. forecast.ErrNotReady: there is none yet.
func (b *beside) Forecast(history forecast.Series, steps int) (forecast.Forecast, error) {
	switch {
	case b.hush:
		return forecast.Forecast{}, notReadyError{why: "it is not asked yet"}
	case time.Now().Before(b.slow):
		return forecast.Forecast{}, b.slowErr
	case !b.free():
		return forecast.Forecast{}, b.notReady(b.run)
	}
	e := &errand{}
	b.send(e, func() { e.f, e.err = b.Forecaster.Forecast(history, steps) })
	if !b.await(e) {
		return forecast.Forecast{}, b.notReady(e)
	}
	b.run = nil
	b.heed(e)
	return e.f, e.err
}

// notReadyError says why there is no forecast yet.
type notReadyError struct {
	why  string
	late bool // a decision waited for it as long as one does: it is not being held to the past for the first time
}

func (e notReadyError) Error() string   { return e.why }
func (e notReadyError) Is(t error) bool { return t == forecast.ErrNotReady }

// notReady says how far an errand is.
func (b *beside) notReady(e *errand) error {
	done, total := b.progress.done.Load(), b.progress.total.Load()
	switch {
	case e.trial && !e.turn.Load():
		return notReadyError{why: "it is to be held to the past, after the model of another job"}
	case total > 0 && done < total:
		return notReadyError{fmt.Sprintf("it is being held to the past: %d of %d moments", done, total), !e.trial}
	case e.trial:
		return notReadyError{why: "it is being held to the past"}
	}
	return notReadyError{fmt.Sprintf("its forecast took longer than %s, for which a decision waits at most: a smaller model is quicker, and so is a machine with less to do", job.FormatDuration(b.patience)), true}
}

// close ends what is under way and closes the model, if it has a file.
func (b *beside) close(m *forecast.ONNXModel) {
	select {
	case <-b.closed:
	default:
		close(b.closed)
	}
	if m != nil {
		_ = m.Close()
	}
	if b.run != nil {
		<-b.run.done
		b.run = nil
	}
}

// ID and TrainedUntil pass on what a model file says of itself: the gate asks.
func (b *beside) ID() string {
	if m, ok := b.Forecaster.(interface{ ID() string }); ok {
		return m.ID()
	}
	return ""
}

// TrainedUntil is the end of what the model was trained on.
func (b *beside) TrainedUntil() time.Time {
	if m, ok := b.Forecaster.(interface{ TrainedUntil() time.Time }); ok {
		return m.TrainedUntil()
	}
	return time.Time{}
}

// withoutID is a forecaster that is no file: what the gate had learnt of it goes by its name.
type withoutID struct{ forecast.Forecaster }

const (
	holdingToThePast = "holding the forecast model to the past"
	tryingOnThePast  = "asking the forecast model for what it would have forecast at moments of the past"
)

// asks is how the scheduler asks its forecast model: one that looks once waits for it, and tells how far it is.
func (s *Scheduler) asks() (how asked) {
	if s.opt.Progress != nil {
		how.progress = func(done, total int) { s.opt.Progress(holdingToThePast, done, total) }
		how.trying = func(done, total int) { s.opt.Progress(tryingOnThePast, done, total) }
	}
	if s.store != nil {
		how.progress, how.trying = nil, nil
		how.spawn = func(f func()) { s.spawn(f) }
		how.patience = ForecastPatience(s.job)
	}
	return how
}

// awaitsModel says whether the first decision on a job that runs, by a scheduler that has just begun, is to wait for the forecast model, so that a restart changes no decision; what
// was decided before is kept up meanwhile. No longer than for the time between two decisions.
func (s *Scheduler) awaitsModel(now time.Time) bool {
	if s.heldOnce {
		return false
	}
	if s.want.Target > 0 && !s.want.Manual.Pinned && s.foresee.prepare(s.history(now)) {
		if s.awaited.IsZero() {
			s.awaited = now
		}
		if now.Sub(s.awaited) < s.job.Autoscale.Tick {
			return true
		}
	}
	s.heldOnce = true
	return false
}

// modelTried is closed when a model that is waited for has been held to the past; nil: none is.
func (s *Scheduler) modelTried() <-chan struct{} {
	if s.heldOnce || s.awaited.IsZero() {
		return nil
	}
	return s.foresee.aside.trying()
}
