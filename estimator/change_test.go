package estimator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// minutes feeds saturated intervals of a minute each, with normal noise.
type minutes struct {
	t   *testing.T
	o   *Online
	rng *rand.Rand
	at  time.Time
}

func newMinutes(t *testing.T, o *Online, seed uint64) *minutes {
	return &minutes{t: t, o: o, rng: rand.New(rand.NewPCG(seed, 17)), at: t0}
}

func (m *minutes) feed(n, w int, rate, noise float64) {
	m.t.Helper()
	for range n {
		m.at = m.at.Add(time.Minute)
		observe(m.t, m.o, m.at, w, w, rate*max(1+noise*m.rng.NormFloat64(), 0.01))
	}
}

// A capacity that fell by 30 % at the same number of workers is the model's within five saturated intervals, and one that came back too.
func TestChangeIsSeenWithinFiveIntervals(t *testing.T) {
	for _, noise := range []float64{0, 0.01, 0.03, 0.05} {
		for _, before := range []int{3, 6, 40} {
			for _, share := range []float64{0.7, 0.5, 1.4} {
				for seed := range uint64(10) {
					t.Run(fmt.Sprintf("noise %v, %d before, to %v, seed %d", noise, before, share, seed), func(t *testing.T) {
						o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
						m := newMinutes(t, o, seed)
						f := 0.9 * asyncA10.Throughput(4, 4)
						m.feed(before, 4, f, noise)
						m.feed(5, 4, share*f, noise)
						near(t, "F(4)", o.Model().Throughput(4, 4), share*f, 0.1*share*f)
						c := o.LastChange()
						if c == nil || c.Workers != 4 || c.At.After(m.at) {
							t.Fatalf("change %+v", c)
						}
						near(t, "before", c.Before, f, 0.1*f)
						near(t, "after", c.After, share*f, 0.1*share*f)
					})
				}
			}
		}
	}
}

// Noise alone, single stalls and three in a row are no change.
func TestNoiseIsNoChange(t *testing.T) {
	intervals, changes := 0, 0
	for _, noise := range []float64{0, 0.01, 0.03, 0.05, 0.1, 0.2} {
		for seed := range uint64(15) {
			o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
			m := newMinutes(t, o, seed)
			var last *Change
			for i := range 150 {
				w := []int{4, 8}[i/30%2]
				m.feed(1, w, asyncA10.Throughput(w, w), noise)
				if c := o.LastChange(); c != nil && (last == nil || *c != *last) {
					changes, last = changes+1, c
				}
				intervals++
			}
		}
	}
	if t.Logf("%d changes in %d intervals", changes, intervals); changes > 0 {
		t.Errorf("%d changes were noticed in %d intervals of noise", changes, intervals)
	}
	o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
	m := newMinutes(t, o, 1)
	f := asyncA10.Throughput(4, 4)
	for range 20 {
		m.feed(6, 4, f, 0.02)
		m.feed(3, 4, f/20, 0.02) // checkpoints, say
	}
	if c := o.LastChange(); c != nil {
		t.Errorf("stalls were taken for %+v", c)
	}
	near(t, "F(4)", o.Model().Throughput(4, 4), f, 0.03*f)
}

// A GPU that slows down at one number of workers is no contention: elsewhere capacity falls by the same share until it is measured there, and the
// model does not bend.
func TestChangeHoldsElsewhere(t *testing.T) {
	o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
	m := newMinutes(t, o, 3)
	for _, w := range []int{2, 4, 8, 12} {
		m.feed(6, w, asyncA10.Throughput(w, w), 0.02)
	}
	m.feed(5, 8, 0.7*asyncA10.Throughput(8, 8), 0.02)
	for _, w := range []int{1, 2, 4, 8, 12, 20, 28} {
		want := 0.7 * asyncA10.Throughput(w, w)
		near(t, fmt.Sprintf("F(%d)", w), o.Model().Throughput(w, w), want, 0.07*want)
	}
	for _, e := range o.Evidence() {
		if e.Adjusted != (e.Workers != 8) {
			t.Errorf("evidence %+v", e)
		}
	}
	m.feed(4, 2, asyncA10.Throughput(2, 2), 0.02) // it was one straggler of the eight
	near(t, "F(2)", o.Model().Throughput(2, 2), asyncA10.Throughput(2, 2), 0.05*asyncA10.Throughput(2, 2))
	for _, e := range o.Evidence() {
		if e.Workers == 2 && e.Adjusted {
			t.Errorf("evidence %+v was measured after the change", e)
		}
	}
}

// A restart in the middle of a change sees it as early, and what was learnt of it survives.
func TestChangeRestart(t *testing.T) {
	a := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
	ma := newMinutes(t, a, 5)
	ma.feed(6, 2, asyncA10.Throughput(2, 2), 0.02)
	ma.feed(8, 4, asyncA10.Throughput(4, 4), 0.02)
	for i := range 12 {
		b := restarted(t, a, asyncA10, OnlineOptions{PriorMax: 28})
		at, rate := ma.at.Add(time.Minute), 0.7*asyncA10.Throughput(4, 4)*(1+0.02*math.Sin(float64(i)))
		ma.at = at
		observe(t, a, at, 4, 4, rate)
		observe(t, b, at, 4, 4, rate)
		if d := cmp.Diff(a.State(), b.State()); d != "" {
			t.Fatalf("interval %d: state of one that was restarted before it (-not +restarted):\n%s", i, d)
		}
		if !a.Model().Equal(b.Model()) {
			t.Fatalf("interval %d: models %v and %v", i, a.Model(), b.Model())
		}
	}
	if a.LastChange() == nil {
		t.Error("no change was noticed")
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		s := OnlineState{Version: 1, Points: []OnlinePoint{{Workers: 2, Rates: []float64{1}, Level: bad}}}
		if _, err := RestoreOnline(asyncA10, OnlineOptions{}, s); err == nil {
			t.Errorf("a level of %v was taken up", bad)
		}
	}
}

// What is older counts less: where the form cannot hold both, the newer wins.
func TestOldMeasurementsFade(t *testing.T) {
	flat := Model{Form: FormAsync, Theta: []float64{0.001, 0, 0}}
	o := newOnline(t, flat, OnlineOptions{PriorMax: 8})
	m := newMinutes(t, o, 7)
	m.feed(6, 3, 3600, 0) // 1,200 for each
	m.at = m.at.Add(5 * 24 * time.Hour)
	m.feed(6, 4, 4000, 0) // 1,000 for each: F(3) can hardly be 3,600
	m.feed(6, 2, 2000, 0)
	if f := o.Model().Throughput(3, 3); math.Abs(f-3000) > 200 {
		t.Errorf("F(3) = %.0f, which five days ago was 3,600; want nearly 3,000 after 2,000 and 4,000 today at 2 and 4", f)
	}
	fresh := newOnline(t, flat, OnlineOptions{PriorMax: 8})
	m = newMinutes(t, fresh, 7)
	m.feed(6, 3, 3600, 0)
	m.feed(6, 4, 4000, 0)
	m.feed(6, 2, 2000, 0)
	if a, b := fresh.Model().Throughput(3, 3), o.Model().Throughput(3, 3); a < b+50 {
		t.Errorf("F(3) = %.0f where 3,600 are as new, %.0f where they are old", a, b)
	}
	if a, b := fresh.Confidence().Error(3, 3), o.Confidence().Error(3, 3); a <= 0 || b <= 0 {
		t.Errorf("errors %v and %v", a, b)
	}
}

func TestWeightedMedian(t *testing.T) {
	for _, c := range []struct {
		v, w []float64
		want float64
	}{
		{nil, nil, 0}, {[]float64{3}, []float64{0.1}, 3}, {[]float64{1, 9}, []float64{1, 1}, 5}, {[]float64{9, 1}, []float64{2, 1}, 9},
		{[]float64{5, 1, 3}, []float64{1, 1, 1}, 3}, {[]float64{1, 2, 3, 4}, []float64{1, 1, 1, 1}, 2.5}, {[]float64{1, 2, 3}, []float64{5, 1, 1}, 1},
	} {
		near(t, fmt.Sprint(c.v, c.w), weightedMedian(c.v, c.w), c.want, 1e-12)
	}
}
