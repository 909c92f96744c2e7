package estimator

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// each600 is a prior of 600 samples/s for each worker, which is what they train while nothing slows them down.
var each600 = Model{Form: FormAsync, Theta: []float64{1.0 / 600, 0, 0}}

// constant feeds intervals of a job whose traffic is constant: saturated ones where w workers, of each samples/s, train less than that.
type constant struct {
	*minutes
	load float64
}

func newConstant(t *testing.T, prior Model, load float64) constant {
	return constant{newMinutes(t, newOnline(t, prior, OnlineOptions{PriorMax: 4}), 1), load}
}

func (c constant) feed(n, w int, each float64) {
	c.t.Helper()
	for range n {
		c.at = c.at.Add(15 * time.Second)
		rate := float64(w) * each * (1 + 0.02*c.rng.NormFloat64())
		saturated := rate < c.load
		if !saturated {
			rate = c.load * 0.984 // what is counted of it, less a step of each member
		}
		if _, err := c.o.Observe(Sample{At: c.at, Workers: w, Servers: 1, Rate: rate, Saturated: saturated}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// needs is how many workers the model says that the load takes, with a tenth more.
func (c constant) needs() int {
	w, _ := c.o.Model().Smallest(1.1*c.load, 1, 4, func(int) int { return 1 })
	return w
}

// A passing slowdown that was learnt, at two counts in turn, does not hold workers for ever: what is surely trained without being saturated speaks against it,
// and fewer workers are tried one after the other.
func TestSlowdownThatPassedIsForgotten(t *testing.T) {
	for name, before := range map[string]int{"from the start": 0, "after a healthy time": 20} {
		t.Run(name, func(t *testing.T) {
			c := newConstant(t, each600, 1000)
			if before > 0 {
				for range before { // once it had to catch up for long
					c.at = c.at.Add(15 * time.Second)
					observe(t, c.o, c.at, 2, 1, 1200*(1+0.02*c.rng.NormFloat64()))
				}
			}
			c.feed(4, 2, 217)
			c.feed(4, 4, 217)
			near(t, "F(4) while it is slow", c.o.Model().Throughput(4, 1), 870, 60)
			w, tried := 4, []int{4}
			for range 60 {
				c.feed(1, w, 600)
				if n := c.needs(); n < w {
					w = n
					tried = append(tried, w)
				}
			}
			if d := cmp.Diff([]int{4, 3, 2}, tried); d != "" {
				t.Errorf("workers that were tried (-want +got):\n%s", d)
			}
			if f := c.o.Model().Throughput(4, 1); f < 2000 {
				t.Errorf("F(4) = %v an hour after the slowdown, evidence %+v", f, c.o.Evidence())
			}
		})
	}
}

// A capacity that is what was measured stays measured, at whatever load below it, beside noise, and beside a few odd intervals.
func TestTrulyMeasuredIsNotForgotten(t *testing.T) {
	for seed := range uint64(40) {
		o := newOnline(t, each600, OnlineOptions{PriorMax: 4})
		m := newMinutes(t, o, seed)
		noise, waiting := []float64{0.02, 0.1}[seed%2], 4000.0
		for i := range 400 { // 3 workers train 1,000, and traffic goes up and down to a little more than that
			m.at = m.at.Add(15 * time.Second)
			capacity := max(1000*(1+noise*m.rng.NormFloat64()), 100)
			waiting += 15 * 1000 * (0.95 + 0.1*math.Sin(float64(i)/7))
			if waiting >= 15*capacity {
				observe(t, o, m.at, 3, 1, capacity)
			} else {
				reached(t, o, m.at, 3, waiting/15)
			}
			waiting = max(waiting-15*capacity, 0)
			if i > 20 && !o.Measured(3, 1) {
				t.Fatalf("seed %d, noise %v, interval %d: F(3) = %v is not measured any more: %+v", seed, noise, i, o.Model().Throughput(3, 1), o.Points())
			}
		}
	}
}

// Where the slowdown lasts, the first count that is tried is saturated, and that is what counts.
func TestWrongForgettingEndsWithTheFirstMeasurement(t *testing.T) {
	c := newConstant(t, each600, 1000)
	c.feed(4, 3, 217)
	c.feed(4, 4, 217)
	w := 4
	for range 60 { // a little faster, and no more than that
		c.feed(1, w, 260)
		if n := c.needs(); n != w {
			w = n
		}
	}
	if w != 4 {
		t.Errorf("%d workers, and 4 are needed", w)
	}
	near(t, "F(3)", c.o.Model().Throughput(3, 1), 780, 40)
}

// What one straggler did is forgotten where it was: the others stay measured.
func TestStragglerThatLeftIsForgottenWhereItWas(t *testing.T) {
	c := newConstant(t, each600, 1000)
	observed := func(n, w int, rate float64) {
		for range n {
			c.at = c.at.Add(15 * time.Second)
			observe(t, c.o, c.at, w, 1, rate*(1+0.01*c.rng.NormFloat64()))
		}
	}
	observed(6, 2, 1200)
	observed(6, 3, 1800)
	observed(6, 4, 870)
	c.feed(6, 4, 600)
	if !c.o.Measured(2, 1) || !c.o.Measured(3, 1) || c.o.Measured(4, 1) {
		t.Errorf("points %+v", c.o.Points())
	}
	for w, want := range map[int]float64{2: 1200, 3: 1800, 4: 2400} {
		near(t, "F", c.o.Model().Throughput(w, 1), want, 0.05*want)
	}
}

// A restart between any two intervals changes nothing; a state that makes no sense is refused.
func TestRestartWhileARecoveryIsFollowed(t *testing.T) {
	opt := OnlineOptions{PriorMax: 4}
	c := newConstant(t, each600, 1000)
	c.feed(4, 2, 217)
	c.feed(4, 4, 217)
	w, recovering := 4, 0
	for i := range 40 {
		if e := c.o.Confidence().Error(1, 1); c.o.State().Recovery != nil && e < 0.1 {
			t.Errorf("interval %d: F(1) is said to be %.0f %% off, and nothing is known but the least", i, 100*e)
		}
		again := restarted(t, c.o, each600, opt)
		if d := cmp.Diff(c.o.State(), again.State()); d != "" {
			t.Fatalf("interval %d: state (-before +after):\n%s", i, d)
		}
		if !c.o.Model().Equal(again.Model()) {
			t.Fatalf("interval %d: models %v and %v", i, c.o.Model(), again.Model())
		}
		c.o = again
		c.feed(1, w, 600)
		w = min(w, c.needs())
		if c.o.State().Recovery != nil {
			recovering++
		}
	}
	if w != 2 || recovering < 5 {
		t.Errorf("%d workers after %d intervals of recovery", w, recovering)
	}
	for _, r := range []Recovery{{}, {Refuted: 1, Level: math.NaN(), Until: 1}, {Refuted: -1, Level: 1, Until: 1}, {Refuted: 1, Level: 1, Until: math.Inf(1)}} {
		if _, err := RestoreOnline(each600, opt, OnlineState{Version: 1, Recovery: &r}); err == nil {
			t.Errorf("%+v was taken up", r)
		}
	}
}
