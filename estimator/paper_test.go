package estimator

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The fits published in Kale §3.3 (w:p = 1, M = 16384).
var (
	syncT4   = Model{Form: FormSync, Theta: []float64{0.00253, 11.1614, 11.6335, 1.88e-14}, Batch: 16384}
	syncA10  = Model{Form: FormSync, Theta: []float64{0.00035, 2.5726, 0.9824, 0.02786}, Batch: 16384}
	asyncT4  = Model{Form: FormAsync, Theta: []float64{0.001421, 0.0002297, 1.12e-18}}
	asyncA10 = Model{Form: FormAsync, Theta: []float64{0.000566, 0.000224, 1.41e-21}}
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s = %v, want %v ± %v", what, got, want, tol)
	}
}

// Reference: Kale §3.3, sync A10. The print has 30 007.3 for f(10); its own θ
// gives 30 005.5.
func TestWorkedExample_Kale_3_3(t *testing.T) {
	for _, c := range []struct {
		w    int
		want float64
		tol  float64
	}{
		{9, 29839.9, 0.05}, {10, 30005.5, 0.05}, {11, 29854.1, 0.05}, {16, 26827, 0.5}, {32, 16835, 0.5},
	} {
		near(t, "f", syncA10.Throughput(c.w, c.w), c.want, c.tol)
	}
	w, saturated := syncA10.Smallest(30_000, 1, 32, nil)
	if w != 10 || saturated {
		t.Errorf("smallest w for 30 000 samples/s = %d (saturated %v), want 10 and not saturated", w, saturated)
	}
}

// Reference: Kale §3.3. F is not monotone: 10 workers are the peak of sync A10,
// and a load above f(10) has no answer but the peak.
func TestPeakAndSaturation_Kale_3_3(t *testing.T) {
	if w, f := syncA10.Curve(1, 32, nil).Peak(); w != 10 || math.Abs(f-30005.5) > 0.05 {
		t.Errorf("peak = f(%d) = %.1f, want f(10) = 30005.5", w, f)
	}
	for _, c := range []struct {
		load     float64
		min, max int
		want     int
		sat      bool
	}{
		{30_100, 1, 32, 10, true},                   // above the peak
		{30_005.4, 1, 32, 10, false},                // just below it
		{29_850, 1, 32, 10, false},                  // f(9) is a little too small
		{29_850, 11, 32, 11, false},                 // beyond the peak, still sufficient
		{29_900, 11, 32, 11, true},                  // falling branch: the range's own peak
		{29_900, 1, 5, 5, true},                     // rising branch: the range's own peak
		{0, 3, 8, 3, false},                         // no load: the lower end
		{-5, 3, 8, 3, false},                        // nor with a negative one
		{math.NaN(), 1, 32, 10, true},               // unanswerable is never "few"
		{math.Inf(1), 1, 32, 10, true},              //
		{1, 0, 32, 1, false},                        // zero workers train nothing
		{0, 0, 32, 0, false},                        // and suffice for nothing
		{10_000, 6, 2, 6, false},                    // a range turned round is its lower end
		{10, 1, math.MaxInt, 1, false},              // a mistyped limit does not hang
		{30_100, -4, 1 << 40, 10, true},             //
		{28_000, 12, 14, 12, false},                 // f falls within the range
		{29_500, 12, 14, 12, true},                  //
		{16_835.5, 30, 32, 30, false},               //
		{syncA10.Throughput(4, 4), 1, 32, 5, false}, // strictly greater (Eq. 10)
	} {
		if w, sat := syncA10.Smallest(c.load, c.min, c.max, nil); w != c.want || sat != c.sat {
			t.Errorf("Smallest(%v, %d, %d) = %d, %v; want %d, %v", c.load, c.min, c.max, w, sat, c.want, c.sat)
		}
	}
}

// Of a flat curve the fewest workers are the peak: which of the others is a rounding above them says nothing. A real rise, however small, is one.
func TestPeakOfAFlatCurve(t *testing.T) {
	flat := Model{Form: FormAsync, Theta: []float64{0, 0, 0.001}} // 1000 samples/s with any number; a rounding more with 11
	if flat.Throughput(11, 11) <= flat.Throughput(1, 1) {
		t.Fatal("there is nothing to see here")
	}
	if w, rate := flat.Curve(1, 28, nil).Peak(); w != 1 || rate != flat.Throughput(1, 1) {
		t.Errorf("the peak is %v with %d workers, want that of 1", rate, w)
	}
	if w, saturated := flat.Smallest(2000, 1, 28, nil); w != 1 || !saturated {
		t.Errorf("beyond the peak %d workers are the best (saturated %v), want 1", w, saturated)
	}
	if w, _ := (Model{Form: FormAsync, Theta: []float64{1e-8, 0, 0.001}}).Curve(1, 28, nil).Peak(); w != 28 {
		t.Errorf("the peak of a curve that rises is at %d workers, want 28", w)
	}
}

// Reference: Kale §3.3, the four published fits. Sync T4 and both async fits
// have next to no contention (θ3, θ2 below 1e-13) and rise throughout.
func TestPublishedFits_Kale_3_3(t *testing.T) {
	for name, m := range map[string]Model{"sync T4": syncT4, "async T4": asyncT4, "async A10": asyncA10} {
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for w := 2; w <= 64; w++ {
			if m.Throughput(w, w) <= m.Throughput(w-1, w-1) {
				t.Errorf("%s: f(%d) ≤ f(%d), want a rising curve", name, w, w-1)
			}
		}
	}
	near(t, "async A10 f(1)", asyncA10.Throughput(1, 1), 1/(0.000566+0.000224), 1e-9)
	near(t, "async A10 f(28)", asyncA10.Throughput(28, 28), 28/(0.000566+0.000224/28), 1e-6)
	near(t, "async T4 f(10)", asyncT4.Throughput(10, 10), 10/(0.001421+0.00002297), 1e-6)
	near(t, "sync T4 f(1)", syncT4.Throughput(1, 1), 16384/(0.00253+11.1614+11.6335), 1e-6)
}

// Reference: Kale §3.3, Eq. 2 and 4 to 9. The general forms with p = w are the
// fixed-ratio forms: sync-wp's terms fold to {1, 1/w, 1/w², w}, async-wp's to
// {1, 1/w, w}.
func TestGeneralFormsFoldToFixedRatio_Kale_3_3(t *testing.T) {
	sync := Model{Form: FormSyncWP, Theta: []float64{0.01, 2, 0.5, 0.003, 0.9, 0.02, 0.008}, Batch: 16384}
	fold := Model{Form: FormSync, Theta: []float64{0.01 + 0.003, 2 + 0.5, 0.9, 0.02 + 0.008}, Batch: 16384}
	async := Model{Form: FormAsyncWP, Theta: []float64{0.0005, 0.0002, 1e-6, 3e-6}}
	afold := Model{Form: FormAsync, Theta: []float64{0.0005, 0.0002, 4e-6}}
	for w := 1; w <= 40; w++ {
		near(t, "sync", sync.Throughput(w, w), fold.Throughput(w, w), 1e-6)
		near(t, "async", async.Throughput(w, w), afold.Throughput(w, w), 1e-6)
	}
	// More servers relieve the bandwidth term; the fixed-ratio form cannot see it.
	if async.Throughput(8, 4) <= async.Throughput(8, 1) {
		t.Error("async-wp: 4 servers should train more than 1")
	}
	if fold.Throughput(8, 1) != fold.Throughput(8, 4) {
		t.Error("sync: p must not matter with w:p fixed")
	}
}

// Reference: Kale §3.3, Fig. 7: a fit on measured points has a few percent of
// error. Here the truth is known: 2 % noise, and θ comes back to within it.
func TestFitRecoversCurve_Kale_3_3(t *testing.T) {
	wp8 := Model{Form: FormAsyncWP, Theta: []float64{0.0005, 0.0004, 2e-5, 1e-5}}
	wp5 := Model{Form: FormSyncWP, Theta: []float64{0.05, 2, 1.5, 0.02, 3, 0.03, 0.02}, Batch: 16384}
	for name, truth := range map[string]Model{
		"sync T4": syncT4, "sync A10": syncA10, "async T4": asyncT4, "async A10": asyncA10, "Eq. 8": wp8, "Eq. 5": wp5,
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, 11))
			var noisy, exact []Sample
			for _, w := range []int{1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28} {
				for _, p := range []int{1, 2, 4, 8} {
					f := truth.Throughput(w, p)
					exact = append(exact, Sample{Workers: w, Servers: p, Rate: f, Saturated: true})
					for range 5 {
						noisy = append(noisy, Sample{Workers: w, Servers: p, Rate: f * (1 + 0.02*rng.NormFloat64()), Saturated: true})
					}
				}
			}
			got, err := Fit(truth.Form, truth.Batch, exact)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got.Theta {
				near(t, "θ without noise", got.Theta[i], truth.Theta[i], 1e-7*(1+truth.Theta[i]))
			}
			got, err = Fit(truth.Form, truth.Batch, noisy)
			if err != nil {
				t.Fatal(err)
			}
			if e, n := got.MAPE(exact); e > 1.0 || n != len(exact) {
				t.Errorf("error on the noise-free curve = %.2f %% over %d points, want ≤ 1 %% over %d (θ = %v)", e, n, len(exact), got.Theta)
			}
		})
	}
}

// Reference: Kale §3.3: while there is no backlog the measured rate is the
// arrival rate, so only saturated intervals may teach F.
func TestUnsaturatedIntervalsTeachNothing_Kale_3_3(t *testing.T) {
	var samples []Sample
	for _, w := range []int{1, 2, 4, 8, 16} {
		samples = append(samples, Sample{Workers: w, Servers: w, Rate: syncA10.Throughput(w, w), Saturated: true})
	}
	want, err := Fit(FormSync, 16384, samples)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []int{1, 2, 4, 8, 16, 3, 5} {
		samples = append(samples, Sample{Workers: w, Servers: w, Rate: 500}, Sample{Workers: w, Rate: math.NaN()})
	}
	got, err := Fit(FormSync, 16384, samples)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Equal(want) {
		t.Errorf("unsaturated samples changed the fit from %v to %v", want, got)
	}

	o, err := NewOnline(syncA10, OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if used, err := o.Observe(Sample{Workers: 4, Servers: 4, Rate: 1}); used || err != nil {
			t.Fatalf("an unsaturated sample: used %v, error %v; want neither", used, err)
		}
	}
	if !o.Model().Equal(syncA10) || len(o.Points()) != 0 {
		t.Errorf("unsaturated samples moved the online model to %v", o.Model())
	}
}
