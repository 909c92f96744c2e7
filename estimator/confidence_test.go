package estimator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// measure draws so many saturated intervals at each count.
func measure(m Model, counts []int, repeats int, noise float64, rng *rand.Rand) []Sample {
	var out []Sample
	for _, w := range counts {
		for range repeats {
			out = append(out, Sample{Workers: w, Servers: w, Rate: m.Throughput(w, w) * (1 + noise*rng.NormFloat64()), Saturated: true})
		}
	}
	return out
}

func confident(t *testing.T, m Model, samples []Sample) (Model, Confidence) {
	t.Helper()
	got, err := Fit(m.Form, m.Batch, samples)
	if err != nil {
		t.Fatal(err)
	}
	return got, Assess(got, samples)
}

// The error is larger where nothing was tried, and smaller the more often was measured.
func TestConfidenceWiderWhereNotTried(t *testing.T) {
	for _, truth := range []Model{asyncA10, syncA10, examples[FormErnest], examples[FormPollux]} {
		t.Run(string(truth.Form), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			counts := []int{1, 2, 3, 4, 6, 8}
			_, few := confident(t, truth, measure(truth, counts, 3, 0.03, rng))
			_, many := confident(t, truth, measure(truth, counts, 48, 0.03, rng))
			for _, w := range counts {
				if few.Error(w, w) > 0.05 || many.Error(w, w) >= 0.6*few.Error(w, w) {
					t.Errorf("F(%d), measured: error %.4f with 3 intervals each, %.4f with 48", w, few.Error(w, w), many.Error(w, w))
				}
			}
			last := few.Error(8, 8)
			for _, w := range []int{12, 16, 24, 40} {
				e := few.Error(w, w)
				if e <= last {
					t.Errorf("F(%d) is as sure as F of fewer workers, nearer to what was measured: %.4f and %.4f", w, e, last)
				}
				last = e
			}
			_, gap := confident(t, truth, measure(truth, []int{1, 2, 3, 24, 26, 28}, 3, 0.03, rng))
			if gap.Error(10, 10) <= gap.Error(2, 2) {
				t.Errorf("F(10) between 3 and 24: error %.4f, no more than at 2: %.4f", gap.Error(10, 10), gap.Error(2, 2))
			}
		})
	}
}

// What it says is so: over many fits, F is within two standard errors of the truth in about 19 of 20 cases, and the standard errors are not
// several times too large where it was measured.
func TestConfidenceIsCalibrated(t *testing.T) {
	for _, truth := range []Model{asyncA10, syncA10, {Form: FormAsync, Theta: []float64{0.0005, 0.0002, 2e-5}}} {
		for _, noise := range []float64{0.01, 0.05} {
			rng := rand.New(rand.NewPCG(4, 4))
			within, n := 0, 0
			said, was := 0.0, 0.0
			for range 150 {
				got, c := confident(t, truth, measure(truth, []int{1, 2, 4, 6, 8}, 4, noise, rng))
				for _, w := range []int{1, 3, 5, 8, 12, 16} {
					off := math.Abs(truth.Throughput(w, w)/got.Throughput(w, w) - 1)
					e := c.Error(w, w)
					if n++; off <= 2*e {
						within++
					}
					if w <= 8 {
						said, was = said+e*e, was+off*off
					}
				}
			}
			share, ratio := float64(within)/float64(n), math.Sqrt(said/was)
			t.Logf("%s, noise %v: within two standard errors in %.1f %%; said over true error at measured counts %.2f", truth, noise, 100*share, ratio)
			if share < 0.93 {
				t.Errorf("%s, noise %v: F is within two standard errors in %.1f %% of cases", truth, noise, 100*share)
			}
			if ratio > 3 {
				t.Errorf("%s, noise %v: the error said is %.1f times the true one", truth, noise, ratio)
			}
		}
	}
}

// A form that cannot follow is unsure everywhere, however often was measured.
func TestConfidenceMisfit(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 9))
	samples := measure(syncA10, []int{1, 2, 4, 8, 12, 16, 24}, 60, 0.01, rng) // it has a peak that async cannot have with these
	got, err := Fit(FormAsync, 0, samples)
	if err != nil {
		t.Fatal(err)
	}
	c := Assess(got, samples)
	e, _ := got.MAPE(samples)
	if c.Misfit() < 0.005*e || c.Error(8, 8) < c.Misfit() {
		t.Errorf("MAPE %.1f %%, misfit %.4f, error at 8 %.4f", e, c.Misfit(), c.Error(8, 8))
	}
	if c := Assess(Model{}, samples); c.Error(4, 4) != 1 {
		t.Errorf("an impossible model is sure to %v", c.Error(4, 4))
	}
}

// A model online begins as unsure as its prior, and becomes sure where it is measured.
func TestOnlineConfidence(t *testing.T) {
	prior := Model{Form: FormAsync, Theta: []float64{0.001, 0, 0}}
	o := newOnline(t, prior, OnlineOptions{PriorMax: 28})
	c := o.Confidence()
	sum := 0.0
	for w := 1; w <= 28; w++ {
		sum += c.Error(w, w) * c.Error(w, w) / 28
	}
	near(t, "the prior's error", math.Sqrt(sum), 0.1, 0.02)
	m := newMinutes(t, o, 1)
	m.feed(5, 4, 3900, 0.02)
	few := o.Confidence()
	m.feed(10, 4, 3900, 0.02)
	many := o.Confidence()
	if !(many.Error(4, 4) < few.Error(4, 4) && few.Error(4, 4) < 0.5*c.Error(4, 4)) {
		t.Errorf("F(4): error %.4f before, %.4f after 5 intervals, %.4f after 15", c.Error(4, 4), few.Error(4, 4), many.Error(4, 4))
	}
	if many.Error(28, 28) < 3*many.Error(4, 4) {
		t.Errorf("F(28), never tried: %.4f, F(4): %.4f", many.Error(28, 28), many.Error(4, 4))
	}
	m.at = m.at.Add(72 * time.Hour)
	m.feed(5, 28, 26000, 0.02)
	if e := o.Confidence().Error(4, 4); e <= many.Error(4, 4) {
		t.Errorf("F(4) after three days: %.4f, no more than fresh %.4f", e, many.Error(4, 4))
	}
	if e := o.Confidence().Error(28, 28); e > 0.05 {
		t.Errorf("F(28), measured: %.4f", e)
	}
}

func TestDoubts(t *testing.T) {
	o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
	m := newMinutes(t, o, 1)
	m.feed(9, 4, 4000, 0.02)
	c := o.Confidence()
	for _, r := range [][2]int{{1, 1}, {1, 5}, {2, 28}, {1, 256}, {3, 65536}, {0, 0}, {9, 2}} {
		d := c.Doubts(r[0], r[1], nil)
		if len(d) == 0 || len(d) > doubtsKept || d[0].Workers != max(r[0], 1) || d[len(d)-1].Workers != max(r[0], r[1], 1) {
			t.Fatalf("%v: %v", r, d)
		}
		for w := max(r[0], 1); w <= r[1]; w++ {
			if w <= 28 || w%100 == 0 {
				near(t, fmt.Sprintf("error at %d of %v", w, r), d.At(w), c.Error(w, w), 0.02+0.25*c.Error(w, w))
			}
		}
	}
	if (Doubts{}).At(4) != 0 {
		t.Error("an error out of nothing")
	}
}

// The best probe is what matters itself where it can be had, the nearest that tells most where not; and its promise is kept.
func TestProbe(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	truth := Model{Form: FormAsync, Theta: []float64{0.0005, 0.0002, 2e-5}}
	samples := measure(truth, []int{1, 2, 4}, 5, 0.02, rng)
	_, c := confident(t, truth, samples)
	got := c.Probe([]int{10}, 5, 1, 16, nil)
	if got.Workers < 10 || got.After >= 0.5*got.Before {
		t.Errorf("for F(10) of 1 to 16: %+v", got)
	}
	near(t, "before", got.Before, c.Error(10, 10), 1e-12)
	_, then := confident(t, truth, append(samples, measure(truth, []int{got.Workers}, 5, 0.02, rng)...))
	near(t, "the promise", then.Error(10, 10), got.After, 0.4*got.After)
	if got := c.Probe([]int{24}, 5, 1, 8, nil); got.Workers != 8 || got.After >= got.Before {
		t.Errorf("for F(24) of 1 to 8: %+v, want 8", got)
	}
	if got := c.Probe([]int{8, 16, 28}, 5, 1, 28, nil); got.Workers < 12 {
		t.Errorf("for many: %+v", got)
	}
	if got := c.Probe(nil, 5, 3, 8, nil); got.Workers < 3 || got.Workers > 8 || math.IsNaN(got.After) {
		t.Errorf("for nothing: %+v", got)
	}
	if got := (Confidence{}).Probe([]int{3}, 5, 2, 8, nil); got.Workers != 2 || got.Before != 1 {
		t.Errorf("knowing nothing: %+v", got)
	}
}
