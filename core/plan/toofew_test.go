package plan

import (
	"math"
	"testing"
	"time"
)

// slowJob is a job of 73,000 records/s whose workers train 10,000 each, where F says 16,000: the machine under them is slow, and the model has not learnt it.
func slowJob(t *testing.T, headroom float64, steps int, load func(step int) float64) (changes, reversals int, held []int) {
	t.Helper()
	p, o := NewSuccession(policy(t, "kale")), reference()
	o.Headroom, o.Interval, o.MaxLag = headroom, time.Minute, 2*time.Minute
	o.Tau, o.CooldownIn, o.CooldownOut = 3*time.Minute, 6*time.Minute, time.Minute
	o.JoinTime.Value, o.Lag, o.BacklogRecords = time.Minute, 0, 0
	backlog, way := 0.0, 0
	for i := range steps {
		rate := load(i)
		trained := math.Min(10_000*float64(o.Target), rate+backlog/60)
		backlog = math.Max(0, backlog+(rate-trained)*60)
		o.setRates(rate)
		o.setForecast(flat(rate, 60))
		o.BacklogRecords, o.Lag = int64(backlog), time.Duration(backlog/rate*float64(time.Second))
		o.Flow = Flow{Known: true, Trained: trained, Busy: 1}
		d := p.Decide(o)
		if by := d.Target - o.Target; by != 0 {
			if changes++; by*way < 0 {
				reversals++
			}
			way = by
		}
		o.Target, o.Workers.Running = d.Target, d.Target
		held = append(held, d.Target)
		o.Now = o.Now.Add(o.Interval)
	}
	return changes, reversals, held
}

// Where F says that fewer workers suffice than were just seen to be too few, they are not let go as soon as the lag has fallen, to be added again when it has risen: it is tried, each
// time after twice as long.
func TestWorkersJustSeenToBeTooFewAreNotGoneBackTo(t *testing.T) {
	changes, reversals, held := slowJob(t, 0.1, 300, func(int) float64 { return 73_000 })
	if reversals > 12 {
		t.Errorf("%d changes, %d of them reversals, in 300 decisions under a constant load: %v", changes, reversals, held)
	}
}

// Once the load has fallen as many go as F says.
func TestTooFewIsOfALoad(t *testing.T) {
	_, _, held := slowJob(t, 0.1, 120, func(i int) float64 {
		if i < 60 {
			return 73_000
		}
		return 30_000
	})
	if last := held[len(held)-1]; last > 4 {
		t.Errorf("an hour after the load has fallen to 30,000 records/s, for which F says 3 workers, %d are held: %v", last, held)
	}
}
