package estimator

import (
	"math"
	"math/rand/v2"
	"testing"
)

// one model of each form, with every term at work.
var examples = map[Form]Model{
	FormAsync:        {Form: FormAsync, Theta: []float64{0.0005, 0.0002, 2e-5}},
	FormSync:         syncA10,
	FormAsyncWP:      {Form: FormAsyncWP, Theta: []float64{0.0005, 0.0004, 2e-5, 1e-5}},
	FormSyncWP:       {Form: FormSyncWP, Theta: []float64{0.05, 2, 1.5, 0.02, 3, 0.03, 0.02}, Batch: 16384},
	FormOptimusAsync: {Form: FormOptimusAsync, Theta: []float64{0.0005, 0.0003, 2e-5, 1e-5}},
	FormOptimusSync:  {Form: FormOptimusSync, Theta: []float64{0.00015, 0.05, 0.06, 0.01, 0.03}, Batch: 16384},
	FormErnest:       {Form: FormErnest, Theta: []float64{2e-5, 0.0006, 1e-5, 3e-6}},
	FormMixed:        {Form: FormMixed, Theta: []float64{0.0005, 0.0002, 1e-4, 2e-5, 1e-6}},
	FormUSL:          {Form: FormUSL, Theta: []float64{0.0005, 2e-5, 1e-6}},
	FormPollux:       {Form: FormPollux, Theta: []float64{0.03, 0.00015, 0.2, 0.02, 2.3}, Batch: 16384},
}

func gridOf(m Model, noise float64, repeats int, rng *rand.Rand) []Sample {
	var out []Sample
	for _, w := range []int{1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28} {
		for _, p := range []int{1, 2, 4, 8} {
			for range repeats {
				f := m.Throughput(w, p)
				if noise > 0 {
					f *= 1 + noise*rng.NormFloat64()
				}
				out = append(out, Sample{Workers: w, Servers: p, Rate: f, Saturated: true})
			}
		}
	}
	return out
}

// Every form computes its formula as published, worked out by hand at one place.
func TestFormulas(t *testing.T) {
	const w, p = 6, 2
	sum := func(v ...float64) (s float64) {
		for _, x := range v {
			s += x
		}
		return s
	}
	want := map[Form]float64{
		FormAsync:        6 / sum(0.0005, 0.0002/6, 2e-5*6),
		FormSync:         16384 / sum(0.00035, 2.5726/6, 0.9824/36, 0.02786*6),
		FormAsyncWP:      6 / sum(0.0005, 0.0004/2, 2e-5*2, 1e-5*6),
		FormSyncWP:       16384 / sum(0.05, 2./6, 1.5/2, 0.02*3, 3./12, 0.03*2, 0.02*6),
		FormOptimusAsync: 6 / sum(0.0005, 0.0003*3, 2e-5*6, 1e-5*2),
		FormOptimusSync:  16384 / sum(0.00015*16384/6, 0.05, 0.06*3, 0.01*6, 0.03*2),
		FormErnest:       1 / sum(2e-5, 0.0001, 1e-5*math.Log(6), 3e-6*6),
		FormMixed:        6 / sum(0.0005, 0.0002/6, 1e-4*math.Log(6), 2e-5*6, 1e-6*36),
		FormUSL:          6 / sum(0.0005, 2e-5*6, 1e-6*36),
		FormPollux:       16384 / math.Pow(math.Pow(0.03+0.00015*16384/6, 2.3)+math.Pow(0.2+0.02*4, 2.3), 1/2.3),
	}
	for _, form := range Forms() {
		m, ok := examples[form]
		if !ok || m.Validate() != nil || len(m.Theta) != form.Terms() {
			t.Fatalf("no example of form %q, or not a valid one: %v", form, m.Validate())
		}
		near(t, string(form), m.Throughput(w, p), want[form], 1e-9*want[form])
	}
	near(t, "one worker of Pollux", examples[FormPollux].Throughput(1, 1), 16384/(0.03+0.00015*16384), 1e-6)
}

// A fit of exact measurements is the curve, and one with 2 % of noise is within 1 % of it.
func TestEveryFormComesBack(t *testing.T) {
	for _, form := range Forms() {
		truth := examples[form]
		exact := gridOf(truth, 0, 1, nil)
		got, err := Fit(form, truth.Batch, exact)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if e, _ := got.MAPE(exact); e > 1e-3 {
			t.Errorf("%s: %.5f %% off on exact measurements: %v, truth %v", form, e, got, truth)
		}
		noisy := gridOf(truth, 0.02, 5, rand.New(rand.NewPCG(3, 5)))
		if got, err = Fit(form, truth.Batch, noisy); err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		if e, _ := got.MAPE(exact); e > 1 {
			t.Errorf("%s: %.2f %% off: %v, truth %v", form, e, got, truth)
		}
		again, err := Fit(form, truth.Batch, noisy)
		if err != nil || !again.Equal(got) {
			t.Errorf("%s: the same samples gave %v and %v (%v)", form, got, again, err)
		}
	}
}

// The slopes are those of the time of a step, by differences.
func TestSlopes(t *testing.T) {
	for _, form := range Forms() {
		m := examples[form]
		for _, at := range []place{{1, 1, 16384}, {2, 1, 16384}, {7, 3, 16384}} {
			var got [mostTerms]float64
			form.spec().slopes(got[:], m.Theta, at)
			for j := range m.Theta {
				up, down := append([]float64(nil), m.Theta...), append([]float64(nil), m.Theta...)
				h := 1e-6 * m.Theta[j]
				up[j], down[j] = up[j]+h, down[j]-h
				want := (form.spec().seconds(up, at) - form.spec().seconds(down, at)) / (2 * h)
				near(t, string(form), got[j], want, 1e-5*math.Abs(want)+1e-9)
			}
		}
	}
}

// Pollux assumes no cost of communication before any was seen, and reads off whether it overlaps with computing.
func TestPolluxOverlap(t *testing.T) {
	var alone []Sample
	m := examples[FormPollux]
	for range 5 {
		alone = append(alone, Sample{Workers: 1, Rate: m.Throughput(1, 1), Saturated: true})
	}
	if _, err := Fit(FormPollux, 16384, alone); err == nil {
		t.Error("one configuration was enough for five parameters")
	}
	obs := observations(specPollux, 16384, []point{{w: 1, p: 1, rate: m.Throughput(1, 1), weight: 1}})
	theta, err := specPollux.fit(obs)
	if err != nil || theta[2] != 0 || theta[3] != 0 {
		t.Errorf("θ = %v (%v), want no cost of the network", theta, err)
	}
	for _, gamma := range []float64{1, 1.4, 3, 8} {
		truth := Model{Form: FormPollux, Theta: []float64{0.03, 0.00015, 0.2, 0.02, gamma}, Batch: 16384}
		samples := gridOf(truth, 0, 1, nil)
		got, err := Fit(FormPollux, 16384, samples)
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := got.MAPE(samples); e > 0.01 || math.Abs(got.Theta[polluxGamma]-gamma) > 0.05*gamma {
			t.Errorf("γ = %v came back as %v, %.4f %% off", gamma, got, e)
		}
	}
	for _, bad := range []float64{0.5, 11} {
		if err := (Model{Form: FormPollux, Theta: []float64{1, 0, 0, 0, bad}, Batch: 1}).Validate(); err == nil {
			t.Errorf("γ = %v was accepted", bad)
		}
	}
	if err := (Model{Form: FormPollux, Theta: []float64{0, 0, 0, 0, 2}, Batch: 1}).Validate(); err == nil {
		t.Error("a step without any time was accepted")
	}
}

// F is evaluated often: it takes no memory.
func TestThroughputAllocatesNothing(t *testing.T) {
	for _, form := range Forms() {
		m, sum := examples[form], 0.0
		if n := testing.AllocsPerRun(10, func() { sum += m.Throughput(7, 3) }); n != 0 {
			t.Errorf("%s: %v allocations", form, n)
		}
	}
}
