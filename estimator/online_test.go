package estimator

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var t0 = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

func observe(t *testing.T, o *Online, at time.Time, w, p int, rate float64) {
	t.Helper()
	if used, err := o.Observe(Sample{At: at, Workers: w, Servers: p, Rate: rate, Saturated: true}); !used || err != nil {
		t.Fatalf("observe f(%d,%d) = %v: used %v, error %v", w, p, rate, used, err)
	}
}

func newOnline(t *testing.T, prior Model, opt OnlineOptions) *Online {
	t.Helper()
	o, err := NewOnline(prior, opt)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// restarted is one that went on from the other's state, through JSON.
func restarted(t *testing.T, o *Online, prior Model, opt OnlineOptions) *Online {
	t.Helper()
	raw, err := json.Marshal(o.State())
	if err != nil {
		t.Fatal(err)
	}
	var s OnlineState
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	b, err := RestoreOnline(prior, opt, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOnlineStartsFromPrior(t *testing.T) {
	o := newOnline(t, asyncA10, OnlineOptions{})
	if !o.Model().Equal(asyncA10) {
		t.Errorf("model before any sample = %v, want the prior", o.Model())
	}
	observe(t, o, t0, 4, 4, 1)
	observe(t, o, t0, 4, 4, 1)
	if !o.Model().Equal(asyncA10) {
		t.Errorf("two samples moved the model to %v; three are needed", o.Model())
	}
}

// The GPUs are 25 % slower than the prior says. Measured at 2 and 4 workers
// only, the model expects the same everywhere.
func TestOnlinePriorFollowsMeasuredLevel(t *testing.T) {
	o := newOnline(t, asyncA10, OnlineOptions{PriorMax: 28})
	for i := range 12 {
		w := 2 + 2*(i%2)
		observe(t, o, t0.Add(time.Duration(i)*time.Minute), w, w, 0.75*asyncA10.Throughput(w, w))
	}
	for _, w := range []int{1, 2, 4, 10, 28} {
		want := 0.75 * asyncA10.Throughput(w, w)
		near(t, "f", o.Model().Throughput(w, w), want, 0.01*want)
	}
}

// The truth has a peak that the prior does not know. Once measured, the
// measurements win at the counts where they are, and the model has a peak.
func TestOnlineMeasurementsOverruleShape(t *testing.T) {
	prior := Model{Form: FormSync, Theta: []float64{0, 3.6, 0, 0}, Batch: 16384} // linear
	o := newOnline(t, prior, OnlineOptions{PriorMax: 32})
	rng := rand.New(rand.NewPCG(5, 6))
	for i, w := range []int{2, 4, 8, 10, 12, 16} {
		for k := range 8 {
			observe(t, o, t0.Add(time.Duration(10*i+k)*time.Minute), w, w, syncA10.Throughput(w, w)*(1+0.02*rng.NormFloat64()))
		}
	}
	for _, w := range []int{2, 4, 8, 10, 12, 16} {
		want := syncA10.Throughput(w, w)
		near(t, "f", o.Model().Throughput(w, w), want, 0.05*want)
	}
	if w, _ := o.Model().Curve(1, 32, nil).Peak(); w < 7 || w > 14 {
		t.Errorf("peak at %d workers, want near 10", w)
	}
}

// One stalled interval among good ones must not move the capacity.
func TestOnlineMedianIgnoresOutlier(t *testing.T) {
	o := newOnline(t, asyncA10, OnlineOptions{})
	f := asyncA10.Throughput(8, 8)
	for i := range 9 {
		rate := f
		if i == 4 {
			rate = f / 50
		}
		observe(t, o, t0.Add(time.Duration(i)*time.Minute), 8, 8, rate)
	}
	near(t, "f(8)", o.Model().Throughput(8, 8), f, 0.001*f)
}

func TestOnlineMemoryIsBounded(t *testing.T) {
	o := newOnline(t, Model{Form: FormAsyncWP, Theta: []float64{0.0005, 0.0001, 1e-7, 1e-7}}, OnlineOptions{Window: 5, Points: 7, MinSamples: 2})
	for i := range 3000 {
		w := 1 + i%37
		observe(t, o, t0.Add(time.Duration(i)*time.Second), w, 1+i%3, 1000*float64(w))
	}
	pts := o.Points()
	if len(pts) != 7 {
		t.Fatalf("%d points kept, want 7", len(pts))
	}
	for _, p := range pts {
		if len(p.Rates) > 5 {
			t.Errorf("f(%d,%d) keeps %d rates, want at most 5", p.Workers, p.Servers, len(p.Rates))
		}
		if age := t0.Add(2999 * time.Second).Sub(p.Last); age >= 37*3*time.Second {
			t.Errorf("f(%d,%d) was last measured %v ago; newer points were dropped for it", p.Workers, p.Servers, age)
		}
	}
}

// A restart changes nothing: the state goes through JSON, the model comes back
// bit for bit, and both go on alike.
func TestOnlineRestart(t *testing.T) {
	for _, prior := range []Model{asyncA10, syncA10, {Form: FormAsyncWP, Theta: []float64{0.0005, 0.0004, 2e-5, 1e-5}}} {
		opt := OnlineOptions{Window: 6}
		a := newOnline(t, prior, opt)
		rng := rand.New(rand.NewPCG(9, 9))
		for i := range 60 {
			w, p := 1+rng.IntN(9), 1+rng.IntN(3)
			observe(t, a, t0.Add(time.Duration(i)*time.Second), w, p, prior.Throughput(w, p)*(0.9+0.05*rng.NormFloat64()))
		}
		b := restarted(t, a, prior, opt)
		if d := cmp.Diff(a.Model(), b.Model()); d != "" {
			t.Errorf("%s: model after a restart (-before +after):\n%s", prior.Form, d)
		}
		if d := cmp.Diff(a.State(), b.State()); d != "" {
			t.Errorf("%s: state after a restart (-before +after):\n%s", prior.Form, d)
		}
		observe(t, a, t0.Add(time.Hour), 5, 2, prior.Throughput(5, 2))
		observe(t, b, t0.Add(time.Hour), 5, 2, prior.Throughput(5, 2))
		if d := cmp.Diff(a.Model(), b.Model()); d != "" {
			t.Errorf("%s: models part after a restart:\n%s", prior.Form, d)
		}
	}
}

func TestOnlineRejects(t *testing.T) {
	if _, err := RestoreOnline(asyncA10, OnlineOptions{}, OnlineState{Version: 99}); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("unknown version: error %v, want one that names it", err)
	}
	if _, err := RestoreOnline(asyncA10, OnlineOptions{}, OnlineState{Version: 1, Points: []OnlinePoint{{Workers: -1, Rates: []float64{1}}}}); err == nil {
		t.Error("a state with -1 workers was accepted")
	}
	if _, err := NewOnline(Model{Form: "asink"}, OnlineOptions{}); err == nil || !strings.Contains(err.Error(), `"async"`) {
		t.Errorf("unknown form: error %v, want one that lists the forms", err)
	}
	if _, err := NewOnline(asyncA10, OnlineOptions{MinSamples: 99}); err == nil {
		t.Error("more samples needed than kept was accepted")
	}
	o := newOnline(t, asyncA10, OnlineOptions{})
	for _, s := range []Sample{
		{Workers: 0, Rate: 5}, {Workers: 3, Rate: 0}, {Workers: 3, Rate: -1}, {Workers: 3, Rate: math.NaN()}, {Workers: 3, Rate: math.Inf(1)}, {Workers: 1 << 30, Rate: 1},
	} {
		s.Saturated = true
		if used, err := o.Observe(s); used || err == nil {
			t.Errorf("sample %+v: used %v, error %v; want a refusal", s, used, err)
		}
	}
	if !o.Model().Equal(asyncA10) {
		t.Error("refused samples moved the model")
	}
}

func TestFitRejects(t *testing.T) {
	one := Sample{Workers: 2, Servers: 1, Rate: 100, Saturated: true}
	_, err := Fit(FormAsync, 0, []Sample{one, one, one, one})
	if !errors.Is(err, ErrTooFewPoints) || !strings.Contains(err.Error(), "3 needed") {
		t.Errorf("one distinct point: error %v, want ErrTooFewPoints that says how many are needed", err)
	}
	for name, f := range map[string]func() (Model, error){
		"form":  func() (Model, error) { return Fit("nope", 0, nil) },
		"batch": func() (Model, error) { return Fit(FormSync, 0, []Sample{one}) },
		"rate":  func() (Model, error) { return Fit(FormAsync, 0, []Sample{{Workers: 1, Rate: -3, Saturated: true}}) },
	} {
		if m, err := f(); err == nil {
			t.Errorf("%s: fitted %v, want an error", name, m)
		}
	}
}

func TestModelValidate(t *testing.T) {
	for want, m := range map[string]Model{
		"unknown form": {Form: "x"},
		"needs 3":      {Form: FormAsync, Theta: []float64{1}},
		"theta[1]":     {Form: FormAsync, Theta: []float64{1, -1, 0}},
		"theta[2]":     {Form: FormAsync, Theta: []float64{1, 1, math.NaN()}},
		"every theta":  {Form: FormAsync, Theta: []float64{0, 0, 0}},
		"batch":        {Form: FormSync, Theta: []float64{1, 0, 0, 0}},
	} {
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %q", m, err, want)
		}
		if f := m.Throughput(3, 3); math.IsNaN(f) || math.IsInf(f, 0) || f < 0 {
			t.Errorf("%+v: throughput %v, want a finite number ≥ 0", m, f)
		}
	}
	wp := Model{Form: FormAsyncWP, Theta: []float64{1, 1, 0, 0}}
	if f := wp.Throughput(3, 0); f != 0 {
		t.Errorf("no servers: throughput %v, want 0", f)
	}
	if f := asyncA10.Throughput(3, 0); f <= 0 {
		t.Errorf("fixed ratio without a server count: throughput %v, want F(3)", f)
	}
}

// The model is part of what a job records: it goes through JSON unchanged.
func TestModelJSON(t *testing.T) {
	raw, err := json.Marshal(syncA10)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"form":"sync","theta":[0.00035,2.5726,0.9824,0.02786],"batch":16384}`; string(raw) != want {
		t.Errorf("JSON = %s, want %s", raw, want)
	}
	var back Model
	if err := json.Unmarshal(raw, &back); err != nil || !back.Equal(syncA10) {
		t.Errorf("came back as %v (%v)", back, err)
	}
}

// Smallest against a deliberately simple second implementation.
func TestSmallestAgainstScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for range 3000 {
		m := Model{Form: FormSync, Batch: 1000, Theta: []float64{rng.Float64(), rng.Float64() * 5, rng.Float64() * 5, rng.Float64() * rng.Float64()}}
		lo := rng.IntN(5)
		hi := lo + rng.IntN(40)
		load := rng.Float64() * 2500
		want, sat := -1, true
		peak := lo
		for w := lo; w <= hi; w++ {
			if m.Throughput(w, w) > m.Throughput(peak, peak) {
				peak = w
			}
			if want < 0 && m.Throughput(w, w) > load {
				want, sat = w, false
			}
		}
		if sat {
			want = peak
		}
		if w, s := m.Smallest(load, lo, hi, nil); w != want || s != sat {
			t.Fatalf("Smallest(%v, %d, %d) of %v = %d, %v; want %d, %v", load, lo, hi, m, w, s, want, sat)
		}
	}
}

func BenchmarkThroughput(b *testing.B) {
	sum := 0.0
	for b.Loop() {
		sum += syncA10.Throughput(10, 10)
	}
	_ = sum
}

func BenchmarkCurveSmallest(b *testing.B) {
	for b.Loop() {
		c := syncA10.Curve(1, 256, nil)
		for i := range 120 {
			c.Smallest(float64(i) * 250)
		}
	}
}

func BenchmarkOnlineObserve(b *testing.B) {
	o, err := NewOnline(syncA10, OnlineOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := 1 + i%24
		if _, err := o.Observe(Sample{At: t0, Workers: w, Servers: w, Rate: syncA10.Throughput(w, w), Saturated: true}); err != nil {
			b.Fatal(err)
		}
	}
}
