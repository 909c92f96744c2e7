package estimator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// each200 is a prior of 200 samples/s for each worker.
var each200 = Model{Form: FormAsync, Theta: []float64{0.005, 0, 0}}

func allNear(t *testing.T, when string, o *Online, each, share float64) {
	t.Helper()
	for _, w := range []int{1, 4, 8, 12, 28} {
		want := each * float64(w)
		tolerance := share * want
		if w < 4 || w > 12 { // nothing was measured there
			tolerance = 0.15 * want
		}
		near(t, fmt.Sprintf("%s: F(%d)", when, w), o.Model().Throughput(w, w), want, tolerance)
	}
}

func surelyWithin(t *testing.T, when string, o *Online, w int, most float64) {
	t.Helper()
	if e := o.Confidence().Error(w, w); e > most {
		t.Errorf("%s: F(%d) is said to be %.1f %% off; want %.1f %% at most", when, w, 100*e, 100*most)
	}
}

// A slow node that is found at 8 workers and gone at 12 is gone everywhere, and where it was just measured the model is sure of that.
func TestRecoveryElsewhereUndoesTheChange(t *testing.T) {
	for seed := range uint64(10) {
		o := newOnline(t, each200, OnlineOptions{})
		m := newMinutes(t, o, seed)
		for _, w := range []int{4, 8, 12} {
			m.feed(15, w, 200*float64(w), 0.02)
		}
		m.feed(4, 8, 800, 0.02)
		allNear(t, "slow", o, 100, 0.05)
		m.feed(3, 12, 2400, 0.02)
		allNear(t, "healthy at 12 for 3 intervals", o, 200, 0.05)
		m.feed(12, 12, 2400, 0.02)
		allNear(t, "healthy at 12", o, 200, 0.04)
		surelyWithin(t, "healthy at 12", o, 12, 0.03)
		for _, e := range o.Evidence() {
			if e.Adjusted != (e.Workers == 8) {
				t.Errorf("evidence %+v: at 4 nothing was measured while it was slow, at 12 all after", e)
			}
		}
		m.feed(3, 4, 800, 0.02)
		allNear(t, "healthy at 4 too", o, 200, 0.04)
		surelyWithin(t, "healthy at 4 too", o, 4, 0.03)
		if c := o.LastChange(); c == nil || c.Workers != 12 || math.Abs(c.After/c.Before-2) > 0.2 {
			t.Errorf("the last change is %+v; want the recovery at 12", c)
		}
	}
}

// What was measured after capacity changed stays, though it was measured before the change was noticed.
func TestChangeSparesWhatWasMeasuredAfterIt(t *testing.T) {
	for seed := range uint64(10) {
		o := newOnline(t, each200, OnlineOptions{})
		m := newMinutes(t, o, seed)
		m.feed(15, 4, 800, 0.02)
		m.feed(15, 8, 800, 0.02) // contention or a slow GPU? Nobody can tell yet.
		m.feed(4, 4, 400, 0.02)
		allNear(t, "noticed", o, 100, 0.05)
		m.feed(6, 4, 400, 0.02)
		allNear(t, "ten intervals", o, 100, 0.05)
		surelyWithin(t, "ten intervals", o, 4, 0.03)

		o = newOnline(t, each200, OnlineOptions{})
		m = newMinutes(t, o, seed)
		m.feed(15, 4, 800, 0.02)
		m.feed(15, 8, 1600, 0.02) // before it
		m.feed(4, 4, 400, 0.02)
		allNear(t, "8 was measured before", o, 100, 0.05)
		m.feed(4, 8, 800, 0.02)
		if c := o.LastChange(); c == nil || c.Workers != 4 {
			t.Errorf("the last change is %+v; at 8 it was confirmed only", c)
		}
		allNear(t, "confirmed", o, 100, 0.05)
	}
}

// Where the form cannot hold all that was measured, it is not sure of the counts beside it; at those themselves it is as sure as it is near.
func TestConfidenceWhereJustMeasured(t *testing.T) {
	o := newOnline(t, each200, OnlineOptions{})
	m := newMinutes(t, o, 1)
	m.feed(15, 4, 800, 0.02)
	m.feed(15, 8, 800, 0.02)
	c := o.Confidence()
	for w, want := range map[int]float64{4: 800, 8: 800} {
		off := math.Abs(want/o.Model().Throughput(w, w) - 1)
		if e := c.Error(w, w); off < 0.05 || e < 0.9*off || e > 1.1*off+0.01 {
			t.Errorf("F(%d) is %.3f off what was just measured, said to be %.3f", w, off, e)
		}
	}
	if c.Error(12, 12) < 1.2*c.Error(8, 8) || c.Error(6, 6) < 1.2*c.Error(8, 8) {
		t.Errorf("at 6 %.3f, at 8 %.3f, at 12 %.3f", c.Error(6, 6), c.Error(8, 8), c.Error(12, 12))
	}
	if p := c.Probe([]int{4, 8}, 5, 1, 28, nil); math.Abs(p.Before-math.Hypot(c.Error(4, 4), c.Error(8, 8))/math.Sqrt2) > 1e-9 || p.After > p.Before {
		t.Errorf("probe %+v", p)
	}
	if e := newOnline(t, Model{Form: FormAsyncWP, Theta: []float64{0.0005, 0.0004, 2e-5, 1e-5}}, OnlineOptions{}).Confidence().Error(4, 2); !(e > 0 && e < 1) {
		t.Errorf("the error of a prior for both counts is %v", e)
	}
}

// Capacity falls and comes back while the job moves between counts: F is near what is measured, near the truth elsewhere, and as sure as it is near.
func TestChangesWhileTheJobMoves(t *testing.T) {
	const noise, seeds = 0.02, 6
	for name, truth := range map[string]Model{"linear": each200, "contention": {Form: FormAsync, Theta: []float64{0.004, 0.001, 1e-4}}, "sync": syncA10} {
		here, elsewhere, within, n := 0.0, 0.0, 0, 0
		prior := truth
		if name == "contention" {
			prior = each200
		}
		for seed := range uint64(seeds) {
			o := newOnline(t, prior, OnlineOptions{PriorMax: 28})
			m, rng := newMinutes(t, o, seed), rand.New(rand.NewPCG(seed, 5))
			level, counts := 1.0, []int{2, 4, 6, 8, 12, 16, 20}
			for range 30 {
				w := counts[rng.IntN(len(counts))]
				if rng.IntN(4) == 0 {
					level = []float64{1, 0.4 + 0.5*rng.Float64()}[rng.IntN(2)]
				}
				for i := range 4 + rng.IntN(12) {
					f := level * truth.Throughput(w, w)
					if m.feed(1, w, f, noise); i < 3 {
						continue
					}
					off := math.Abs(f/o.Model().Throughput(w, w) - 1)
					if n++; off <= 2*o.Confidence().Error(w, w) {
						within++
					}
					here += off
					for _, x := range counts {
						elsewhere += math.Abs(level*truth.Throughput(x, x)/o.Model().Throughput(x, x)-1) / float64(len(counts))
					}
				}
			}
		}
		here, elsewhere = here/float64(n), elsewhere/float64(n)
		share := float64(within) / float64(n)
		t.Logf("%s: %.2f %% off what is measured, %.2f %% elsewhere; within two standard errors in %.1f %%", name, 100*here, 100*elsewhere, 100*share)
		if here > 0.03 || elsewhere > 0.07 || share < 0.9 {
			t.Errorf("%s: %.2f %% off what is measured, %.2f %% elsewhere; within two standard errors in %.1f %%", name, 100*here, 100*elsewhere, 100*share)
		}
	}
}

// Three stalled intervals are no change where capacity is measured anew either, and fewer measurements than tell are kept apart from the old ones.
func TestStallsMeasuredAnewAreNoChange(t *testing.T) {
	o := newOnline(t, each200, OnlineOptions{})
	m := newMinutes(t, o, 4)
	m.feed(15, 12, 2400, 0.02)
	m.feed(15, 8, 1600, 0.02)
	m.feed(5, 8, 800, 0.02)
	m.feed(2, 12, 60, 0.02)
	near(t, "F(12) by what was measured at 8", o.Model().Throughput(12, 12), 1200, 60)
	for _, e := range o.Evidence() {
		if e.Workers == 12 && (!e.Adjusted || e.Intervals != 15) {
			t.Errorf("evidence %+v rests on the old measurements still", e)
		}
	}
	m.feed(1, 12, 60, 0.02)
	m.feed(8, 12, 1200, 0.02)
	allNear(t, "three stalls later", o, 100, 0.05)
	if c := o.LastChange(); c.Workers != 8 {
		t.Errorf("the stalls were taken for %+v", c)
	}
	m.feed(15, 8, 800, 0.02)
	m.feed(2, 4, 400, 0.02) // fewer than tell
	m.feed(4, 8, 1600, 0.02)
	allNear(t, "back", o, 200, 0.05)
}

// A count that is first measured after the slow node has gone says so too; one that trains less than expected, and one that was slow from the start, do not.
func TestFirstMeasuredAfterTheRecovery(t *testing.T) {
	for at16, each := range map[float64]float64{3200: 200, 1600: 100} {
		o := newOnline(t, each200, OnlineOptions{})
		m := newMinutes(t, o, 9)
		for _, w := range []int{4, 8, 12} {
			m.feed(15, w, 200*float64(w), 0.02)
		}
		m.feed(4, 8, 800, 0.02)
		m.feed(4, 16, at16, 0.02)
		allNear(t, fmt.Sprintf("%.0f at 16", at16), o, each, 0.05)
		surelyWithin(t, fmt.Sprintf("%.0f at 16", at16), o, 16, 0.03)
	}
	o := newOnline(t, each200, OnlineOptions{})
	m := newMinutes(t, o, 9)
	m.feed(15, 4, 400, 0.02)
	m.feed(4, 4, 800, 0.02) // faster
	m.feed(4, 16, 1600, 0.02)
	if c := o.LastChange(); c == nil || c.Workers != 4 {
		t.Errorf("contention at 16 was taken for %+v", c)
	}
}

// However often capacity changes at one count, what is remembered of the others stays finite, and what has moved too far is forgotten.
func TestLevelsStayBounded(t *testing.T) {
	o := newOnline(t, each200, OnlineOptions{})
	m := newMinutes(t, o, 2)
	m.feed(15, 12, 2400, 0.02)
	rate := 1600.0
	for range 8 {
		m.feed(8, 8, rate, 0.02)
		rate /= 2
	}
	for _, p := range o.Points() {
		if p.Workers == 12 && (p.Level != 0 || len(p.Rates) > 0) {
			t.Errorf("%+v, after seven halvings elsewhere", p)
		}
	}
	near(t, "F(8)", o.Model().Throughput(8, 8), 2*rate, 0.1*rate)
	m.feed(3, 12, 3*rate, 0.02)
	near(t, "F(12), measured", o.Model().Throughput(12, 12), 3*rate, 0.1*rate)
}

// The options hold where capacity is measured anew too: more samples, fewer kept.
func TestMeasuredAnewByTheOptions(t *testing.T) {
	for _, opt := range []OnlineOptions{{MinSamples: 6}, {MinSamples: 1}, {Window: 7, MinSamples: 2}} {
		o := newOnline(t, each200, opt)
		m := newMinutes(t, o, 5)
		m.feed(15, 12, 2400, 0.02)
		m.feed(15, 8, 1600, 0.02)
		m.feed(10, 8, 800, 0.02)
		m.feed(8, 12, 1200, 0.02)
		near(t, fmt.Sprintf("%+v: F(12)", opt), o.Model().Throughput(12, 12), 1200, 60)
		if e := o.Evidence(); len(e) != 2 || e[1].Adjusted || e[1].Intervals < min(8, o.opt.MinSamples) {
			t.Errorf("%+v: evidence %+v", opt, e)
		}
		m.feed(8, 8, 1600, 0.02)
		near(t, fmt.Sprintf("%+v: F(8)", opt), o.Model().Throughput(8, 8), 1600, 80)
	}
}

// What is reached after a change is a bound as it is, and not at the change's level.
func TestBoundAfterAChangeElsewhere(t *testing.T) {
	o := newOnline(t, each200, OnlineOptions{})
	m := newMinutes(t, o, 6)
	m.feed(15, 12, 2400, 0.02)
	m.feed(15, 8, 1600, 0.02)
	m.feed(5, 8, 800, 0.02)
	for range 3 {
		m.at = m.at.Add(time.Minute)
		reached(t, o, m.at, 12, 2000)
	}
	if f := o.Model().Throughput(12, 12); f < 1980 {
		t.Errorf("F(12) = %.0f though 2,000 were just reached", f)
	}
}

// A restart while a point is measured anew changes nothing.
func TestRestartWhileMeasuredAnew(t *testing.T) {
	a := newOnline(t, each200, OnlineOptions{})
	m := newMinutes(t, a, 8)
	for _, w := range []int{4, 8, 12} {
		m.feed(15, w, 200*float64(w), 0.02)
	}
	m.feed(4, 8, 800, 0.02)
	apart := 0
	for i := range 8 {
		b := restarted(t, a, each200, OnlineOptions{})
		m.at = m.at.Add(time.Minute)
		rate := 2400 * (1 + 0.02*math.Sin(float64(i)))
		observe(t, a, m.at, 12, 12, rate)
		observe(t, b, m.at, 12, 12, rate)
		if d := cmp.Diff(a.State(), b.State()); d != "" {
			t.Fatalf("interval %d: state of one that was restarted before it (-not +restarted):\n%s", i, d)
		}
		if !a.Model().Equal(b.Model()) {
			t.Fatalf("interval %d: models %v and %v", i, a.Model(), b.Model())
		}
		for _, p := range a.Points() {
			if len(p.Old) > 0 {
				apart++
			}
		}
	}
	if apart == 0 {
		t.Error("nothing was measured anew")
	}
	if _, err := RestoreOnline(each200, OnlineOptions{}, OnlineState{Version: 1, Points: []OnlinePoint{{Workers: 2, Level: 0.5, Old: []float64{-1}}}}); err == nil {
		t.Error("a rate of -1 was taken up")
	}
}
