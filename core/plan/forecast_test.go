package plan

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestQuantileOfAForecast(t *testing.T) {
	own := Forecast{
		Mean: Values{100, 200}, Levels: []float64{0.1, 0.5, 0.9},
		Quantiles: []Values{{80, 150}, {100, 200}, {150, 260}},
	}
	band := Forecast{Mean: Values{100}, Lower: Values{80}, Upper: Values{150}}
	broken := own
	broken.Quantiles = own.Quantiles[1:]
	crossed := own
	crossed.Quantiles = []Values{{80, 150}, {70, 200}, {150, 260}}
	for _, c := range []struct {
		name  string
		f     Forecast
		level float64
		i     int
		want  float64
	}{
		{"its own level", own, 0.9, 0, 150},
		{"another step", own, 0.1, 1, 150},
		{"between levels, half of z", own, 0.5 + 0.5*math.Erf(probit(0.9)/2/math.Sqrt2), 0, 125},
		{"beyond the last level", own, 0.99, 0, 150},
		{"before the first level", own, 0.01, 0, 80},
		{"levels that cross do not fall", crossed, 0.5, 0, 80},
		{"from the band, its level", band, 0.9, 0, 150},
		{"from the band, lower", band, 0.1, 0, 80},
		{"from the band, median", band, 0.5, 0, 100},
		// z(0.99)/z(0.9) = 2.3263/1.2816: 100 + 1.8153·50.
		{"from the band, beyond", band, 0.99, 0, 190.76},
		{"from the band, not below zero", Forecast{Mean: Values{10}, Lower: Values{0}}, 0.01, 0, 0},
		{"certain without a band", Forecast{Mean: Values{10}}, 0.99, 0, 10},
		{"rows that do not fit are not used", broken, 0.9, 0, 100},
		{"a band with a hole is certain", Forecast{Mean: Values{10}, Upper: Values{math.NaN()}}, 0.9, 0, 10},
	} {
		if got := c.f.Quantile(c.level, c.i); math.Abs(got-c.want) > 0.01 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := own.Quantile(0.5, 2); !math.IsNaN(got) {
		t.Errorf("a step that is not forecast has the quantile %v", got)
	}
}

func TestScenariosOfAForecast(t *testing.T) {
	f := Forecast{Mean: flat(100, 3), Lower: flat(80, 3), Upper: flat(150, 3), Scenarios: []Values{{1, 2, 3}, {1, 2}, {3, 2, 1}, {1, math.NaN(), 1}}}
	if got := f.scenarios(); !cmp.Equal(got, []Values{{1, 2, 3}, {3, 2, 1}}) {
		t.Errorf("scenarios %v, want the two that fit", got)
	}
	f.Scenarios = nil
	got := f.scenarios()
	if len(got) != derivedScenarios {
		t.Fatalf("%d scenarios, want %d", len(got), derivedScenarios)
	}
	if !slices.ContainsFunc(got, func(r Values) bool { return r[0] > 150 }) || !slices.ContainsFunc(got, func(r Values) bool { return r[0] < 80 }) {
		t.Errorf("the scenarios %v do not reach beyond the band of 80 %%", got)
	}
}

// Scenarios that are derived are correlated as a random walk is: what is off late
// stays off, what is off soon says little of it.
func TestDerivedScenariosWander(t *testing.T) {
	f := Forecast{Mean: flat(100, 64), Lower: flat(80, 64), Upper: flat(120, 64)}
	rows := f.scenarios()
	at := func(i int) []float64 {
		out := make([]float64, len(rows))
		for k := range rows {
			out[k] = rows[k][i]
		}
		return out
	}
	soon, late := correlation(at(1), at(40)), correlation(at(30), at(40))
	if soon > 0.5 || late < 0.7 {
		t.Errorf("steps 1 and 40 are correlated by %.2f, 30 and 40 by %.2f; a random walk's by 0.16 and 0.87", soon, late)
	}
}

func TestForecastInJSON(t *testing.T) {
	f := Forecast{
		At: noon, Step: 60e9, Mean: Values{1.25, 2}, Lower: Values{1, 1}, Upper: Values{2, 3}, Levels: []float64{0.05, 0.95},
		Quantiles: []Values{{0.1, 0.2}, {3, 4}}, Scenarios: []Values{{1, 2}}, Source: "seasonal", Trusted: true,
	}
	var back Forecast
	if err := json.Unmarshal([]byte(encode(t, f)), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(f, back); d != "" {
		t.Errorf("forecast (-sent +back):\n%s", d)
	}
	// What was recorded before there were quantiles still reads.
	var old Forecast
	if err := json.Unmarshal([]byte(`{"at":"2026-03-02T12:00:00Z","step":1,"mean":[5],"lower":[4],"upper":[7],"trusted":true}`), &old); err != nil {
		t.Fatal(err)
	}
	if got := old.Quantile(0.9, 0); math.Abs(got-7) > 1e-9 {
		t.Errorf("an old record's 90 %% quantile is %v, want its upper bound 7", got)
	}
	if d := cmp.Diff(Forecast{At: f.At, Step: f.Step, Mean: f.Mean, Lower: f.Lower, Upper: f.Upper, Source: f.Source, Trusted: true}, f.Band()); d != "" {
		t.Errorf("band (-want +got):\n%s", d)
	}
}
