package estimator

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// reached feeds an interval that was not saturated.
func reached(t *testing.T, o *Online, at time.Time, w int, rate float64) bool {
	t.Helper()
	used, err := o.Observe(Sample{At: at, Workers: w, Servers: w, Rate: rate})
	if err != nil {
		t.Fatalf("reached f(%d) = %v: %v", w, rate, err)
	}
	return used
}

// proportional is a prior of 800 samples/s for each worker.
var proportional = Model{Form: FormAsync, Theta: []float64{0.00125, 0, 0}}

// A rate that was reached is a lower bound on capacity, also where nobody was saturated: F(w) ≥ what was seen.
func TestOnlineWhatWasReachedIsABound(t *testing.T) {
	o := newOnline(t, proportional, OnlineOptions{PriorMax: 6})
	for i := range 3 {
		if !reached(t, o, t0.Add(time.Duration(i)*time.Minute), 2, 2400) {
			t.Fatal("2,400 samples/s of 2 workers, said to train 1,600 at most, were not used")
		}
	}
	near(t, "F(2)", o.Model().Throughput(2, 2), 2400, 24)
	for w := 1; w <= 6; w++ { // the GPUs are faster than the prior says, at the other counts too
		near(t, "F", o.Model().Throughput(w, w), 1200*float64(w), 12*float64(w))
	}
	want := []Evidence{{Workers: 2, Rate: 2400, AtLeast: true, Intervals: 3}}
	if d := cmp.Diff(want, o.Evidence()); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

// What does not contradict the model teaches nothing: without a backlog the rate is the arrival rate.
func TestOnlineArrivalRateTeachesNothing(t *testing.T) {
	o := newOnline(t, proportional, OnlineOptions{})
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 500 {
		w := 1 + rng.IntN(6)
		if reached(t, o, t0.Add(time.Duration(i)*time.Minute), w, 800*float64(w)*rng.Float64()) {
			t.Fatal("a rate below the capacity was used")
		}
	}
	for _, rate := range []float64{0, -1, math.NaN()} { // an idle interval is no error
		if reached(t, o, t0, 2, rate) {
			t.Errorf("a rate of %v was used", rate)
		}
	}
	if !o.Model().Equal(proportional) || len(o.State().Points) > 0 || len(o.Evidence()) > 0 {
		t.Errorf("model %v, state %+v; want the prior and nothing learnt", o.Model(), o.State())
	}
}

// A bound is what several intervals reached. Of fewer it is half, so that one that was miscounted by less than that moves nothing.
func TestOnlineBoundOfFewIntervals(t *testing.T) {
	o := newOnline(t, proportional, OnlineOptions{})
	reached(t, o, t0, 2, 2000)
	reached(t, o, t0.Add(time.Minute), 2, 3000)
	if !o.Model().Equal(proportional) || len(o.Evidence()) > 0 {
		t.Errorf("two intervals moved the model to %v, evidence %+v; three are needed", o.Model(), o.Evidence())
	}
	reached(t, o, t0.Add(2*time.Minute), 2, 2100)
	near(t, "F(2)", o.Model().Throughput(2, 2), 2000, 20)
}

// Full load that is too short for several intervals corrects a prior that is far too low; it is never unlearnt by lesser ones, and saturated ones outweigh it.
func TestOnlineOneBurstCorrectsThePrior(t *testing.T) {
	o := newOnline(t, proportional, OnlineOptions{})
	reached(t, o, t0, 1, 160_000)
	near(t, "F(1)", o.Model().Throughput(1, 1), 80_000, 800)
	if d := cmp.Diff([]Evidence{{Workers: 1, Rate: 80_000, AtLeast: true, Intervals: 1}}, o.Evidence()); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
	for i := range 20 {
		before := o.Model().Throughput(1, 1)
		reached(t, o, t0.Add(time.Duration(i+1)*time.Minute), 1, 85_000)
		if f := o.Model().Throughput(1, 1); f < before*(1-1e-9) {
			t.Fatalf("a bound of 85,000 lowered F(1) from %v to %v", before, f)
		}
	}
	near(t, "F(1)", o.Model().Throughput(1, 1), 85_000, 850)
	for i := range 3 {
		observe(t, o, t0.Add(time.Duration(i+30)*time.Minute), 1, 1, 60_000)
	}
	near(t, "F(1), measured", o.Model().Throughput(1, 1), 60_000, 600)
	reached(t, o, t0.Add(40*time.Minute), 1, 200_000)
	near(t, "F(1), measured, after one interval that was miscounted", o.Model().Throughput(1, 1), 60_000, 600)
}

// Capacity that was measured overrules what was only reached before, and what is reached later overrules what was measured before.
func TestOnlineNewerEvidenceWins(t *testing.T) {
	o := newOnline(t, proportional, OnlineOptions{})
	at := t0
	next := func() time.Time { at = at.Add(time.Minute); return at }
	for range 3 {
		reached(t, o, next(), 2, 2400)
	}
	for range 3 { // a neighbour takes a share of the GPUs now
		observe(t, o, next(), 2, 2, 1800)
	}
	near(t, "F(2), measured", o.Model().Throughput(2, 2), 1800, 18)
	if d := cmp.Diff([]Evidence{{Workers: 2, Rate: 1800, Intervals: 3}}, o.Evidence()); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
	for range 3 { // and is gone again
		reached(t, o, next(), 2, 2200)
	}
	near(t, "F(2), reached later", o.Model().Throughput(2, 2), 2200, 22)
	if d := cmp.Diff([]Evidence{{Workers: 2, Rate: 2200, AtLeast: true, Intervals: 3}}, o.Evidence()); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

// Whatever was reached often enough is within F, also between and beside measured counts, as far as the form can follow.
func TestOnlineKeepsItsBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for n := range 300 {
		truth := Model{Form: FormAsync, Theta: []float64{0.001 * (0.2 + rng.Float64()), 0.0005 * rng.Float64(), 0.0001 * rng.Float64()}}
		o := newOnline(t, proportional, OnlineOptions{PriorMax: 12})
		floor := map[int]float64{}
		for i := range 60 {
			w, at := 1+rng.IntN(12), t0.Add(time.Duration(i)*time.Minute)
			f := truth.Throughput(w, w)
			if rng.IntN(3) == 0 {
				observe(t, o, at, w, w, f)
				continue
			}
			reached(t, o, at, w, f*rng.Float64())
		}
		for _, e := range o.Evidence() {
			if e.AtLeast {
				floor[e.Workers] = e.Rate
			}
		}
		for w := 1; w <= 12; w++ {
			if f := o.Model().Throughput(w, w); f < 0.98*floor[w] {
				t.Fatalf("case %d: F(%d) = %.0f though %.0f were reached; truth %v, model %v", n, w, f, floor[w], truth, o.Model())
			}
		}
	}
}

// Bounds survive a restart, and states without them are still read.
func TestOnlineBoundsRestart(t *testing.T) {
	a := newOnline(t, proportional, OnlineOptions{Window: 4})
	for i := range 20 {
		reached(t, a, t0.Add(time.Duration(i)*time.Minute), 3, 3000+50*float64(i))
	}
	if n := len(a.Points()[0].Reached); n > 4 {
		t.Errorf("%d rates kept, want at most 4", n)
	}
	b := restarted(t, a, proportional, OnlineOptions{Window: 4})
	if d := cmp.Diff(a.Model(), b.Model()); d != "" {
		t.Errorf("model after a restart (-before +after):\n%s", d)
	}
	if d := cmp.Diff(a.State(), b.State()); d != "" {
		t.Errorf("state after a restart (-before +after):\n%s", d)
	}
	old := `{"version":1,"points":[{"workers":2,"servers":0,"last":"2026-03-02T00:00:00Z","rates":[1000,1000,1000]}]}`
	var before OnlineState
	if err := json.Unmarshal([]byte(old), &before); err != nil {
		t.Fatal(err)
	}
	c, err := RestoreOnline(proportional, OnlineOptions{}, before)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "F(2)", c.Model().Throughput(2, 2), 1000, 10)
	bad := OnlineState{Version: 1, Points: []OnlinePoint{{Workers: 2, Reached: []float64{math.Inf(1)}}}}
	if _, err := RestoreOnline(proportional, OnlineOptions{}, bad); err == nil {
		t.Error("a bound of infinity was taken up")
	}
}
