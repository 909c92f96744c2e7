package estimator

import (
	"fmt"
	"math"
	"testing"
)

// Capacity that moves by a few percent in each interval is followed closely, and how far the model may trail is told.
func TestDriftIsFollowed(t *testing.T) {
	for _, step := range []float64{-0.03, -0.02, -0.01, 0.02} {
		t.Run(fmt.Sprintf("%v an interval", step), func(t *testing.T) {
			off, said, worst, within, n := 0.0, 0.0, 0.0, 0, 0
			for seed := range uint64(20) {
				o := newOnline(t, each200, OnlineOptions{})
				m := newMinutes(t, o, seed)
				m.feed(15, 4, 800, 0.02)
				f := 800.0
				for i := range 40 {
					f *= 1 + step
					if m.feed(1, 4, f, 0.02); i < 10 {
						continue
					}
					e, is := o.Confidence().Error(4, 4), math.Abs(f/o.Model().Throughput(4, 4)-1)
					if n++; is <= 2*e {
						within++
					}
					off, said, worst = off+is, said+e, max(worst, is)
				}
			}
			off, said = off/float64(n), said/float64(n)
			share := float64(within) / float64(n)
			t.Logf("%.1f %% off, at most %.1f %%, said to be %.1f %%; within two standard errors in %.0f %%", 100*off, 100*worst, 100*said, 100*share)
			if off > 3*math.Abs(step) || worst > 0.25 || share < 0.85 {
				t.Errorf("%.1f %% off, at most %.1f %%, said to be %.1f %%; within two standard errors in %.0f %%", 100*off, 100*worst, 100*said, 100*share)
			}
		})
	}
}

// Noise is no drift but by chance, and stalls beside an interval that is low by chance are none at all.
func TestNoiseIsNoDrift(t *testing.T) {
	drifts, n := 0, 0
	for seed := range uint64(10) {
		o := newOnline(t, each200, OnlineOptions{})
		m := newMinutes(t, o, seed)
		for range 200 {
			m.feed(1, 4, 800, 0.03)
			if n++; o.points[0].drift() > 0 {
				drifts++
			}
		}
	}
	if t.Logf("%d drifts in %d intervals of noise", drifts, n); drifts > n/200 {
		t.Errorf("%d drifts in %d intervals of noise", drifts, n)
	}
	p := OnlinePoint{Workers: 4, Rates: []float64{800, 820, 780, 810, 790, 800, 760, 40, 42, 39}}
	if lag := p.drift(); lag != 0 {
		t.Errorf("three stalls after 760 are taken for a drift of %v", lag)
	}
}
