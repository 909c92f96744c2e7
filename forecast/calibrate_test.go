package forecast

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx"
)

const (
	testSeason  = 120 // bins of a second
	testHorizon = 12
)

// bandedModel repeats the season before, in a band whose quantiles 0.1 and 0.9 lie by so large a share of the forecast below it and above.
func bandedModel(t testing.TB, below, above float64, trained time.Time) *ONNXModel {
	t.Helper()
	info := goodInfo()
	info.Name, info.Input, info.Horizon, info.SeasonBins = "banded", testSeason, testHorizon, []int{testSeason}
	info.Quantiles, info.TrainedUntil = []float64{0.1, 0.5, 0.9}, trained
	return open(t, modelFile(t, info, nil, func(g *onnx.Graph) {
		season := g.Slice(g.Input("history", onnx.Float32, 1, testSeason), 1, 0, testHorizon)
		g.Output("forecast", g.Concat(0, g.Mul(season, g.Scalar(float32(1-below))), season, g.Mul(season, g.Scalar(float32(1+above)))))
	}))
}

// noisySeason is a season of two minutes with an error of level that lasts a few bins and noise from bin to bin, of the size that noise gives, at the level that level gives.
func noisySeason(seed uint64, n int, level, noise func(i int) float64) Series {
	rng := rand.New(rand.NewPCG(seed, 23))
	lasting := 0.0
	return synthetic(n, time.Second, func(i int) float64 {
		lasting = 0.7*lasting + 0.5*noise(i)*rng.NormFloat64()
		return level(i) * cycle(float64(i)/testSeason) * math.Exp(lasting+noise(i)*rng.NormFloat64())
	})
}

func steady(v float64) func(int) float64 { return func(int) float64 { return v } }

// shifted is a before bin i, and b from then on.
func shifted(i int, a, b float64) func(int) float64 {
	return func(k int) float64 {
		if k < i {
			return a
		}
		return b
	}
}

// covers checks that the band of 90 % holds, at each horizon and over all, 90 % of what came: with the chance of the outcomes that it was made from, and by block
// bootstrap that of those that it is tried on. It may hold so much more.
func covers(t *testing.T, f Forecaster, s Series, first int, more float64) {
	t.Helper()
	r, err := Backtest(f, s, BacktestOptions{Steps: testHorizon, First: first, Every: 7, Whole: true, Season: testSeason})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.3f in the band of 90 %%, %.3f in that of 80 %%, at %d origins", r.Coverage90, r.Coverage, r.Origins)
	learnt := math.Sqrt(0.9 * 0.1 / replaysMost)
	for h, e := range r.PerHorizon {
		chance := max(0.02, 3*math.Hypot(learnt, e.Coverage90SD))
		if !(e.Coverage90 >= 0.9-chance && e.Coverage90 <= 0.9+chance+2*more) {
			t.Errorf("horizon %d: %.3f ± %.3f lie in the band of 90 %%", h+1, e.Coverage90, e.Coverage90SD)
		}
	}
	if !(r.Coverage90 >= 0.87 && r.Coverage90 <= 0.93+more) || !(r.Coverage >= 0.76 && r.Coverage <= 0.84+2*more) {
		t.Errorf("%.3f lie in the band of 90 %% and %.3f in that of 80 %%", r.Coverage90, r.Coverage)
	}
}

// A file's own band is only a shape: however wrong its width, what is made of it holds what it should.
func TestModelBandsCover(t *testing.T) {
	t.Parallel()
	s := noisySeason(1, 5000, steady(1000), steady(0.1))
	for name, m := range map[string]*ONNXModel{
		"far too narrow": bandedModel(t, 0.005, 0.005, time.Time{}),
		"far too wide":   bandedModel(t, 1, 4, time.Time{}),
		"of no width":    bandedModel(t, 0, 0, time.Time{}),
	} {
		t.Run(name, func(t *testing.T) { covers(t, m, s, 2000, 0) })
	}
}

// Every level is the quantile that it says, those that the file does not list too.
func TestModelQuantilesCover(t *testing.T) {
	t.Parallel()
	s, m := noisySeason(2, 5000, steady(1000), steady(0.1)), bandedModel(t, 0.01, 0.02, time.Time{})
	below, n := map[float64]float64{}, 0.0
	for o := 2000; o+testHorizon <= len(s.Values); o += 11 {
		f := forecastOf(t, m, s.Until(s.At(o)), testHorizon)
		if !f.Calibrated() || f.Note != "" || len(f.Scenarios) != maxScenarios {
			t.Fatalf("at bin %d: %d outcomes, %d scenarios, and the note %q", o, f.Outcomes, len(f.Scenarios), f.Note)
		}
		for h := range testHorizon {
			n++
			for i, q := range f.Levels {
				below[q] += within(s.Values[o+h], math.Inf(-1), f.Quantiles[i][h])
			}
		}
		if season := s.Values[o-testSeason : o-testSeason+testHorizon]; math.Abs(f.Mean[5]/season[5]-1) > 1e-6 {
			t.Fatalf("at bin %d the model says %v, and the forecast %v", o, season, f.Mean)
		}
	}
	for q, k := range below {
		if math.Abs(k/n-q) > 0.04 {
			t.Errorf("%.3f of what came lay below the quantile of level %g", k/n, q)
		}
	}
}

// What follows a shift of level, or of the noise, is soon in the band as it was before; a gap breaks nothing.
func TestModelBandsRecover(t *testing.T) {
	t.Parallel()
	const shift = 2500
	holes := noisySeason(5, 5000, steady(1000), steady(0.1))
	for i := range holes.Values {
		if i > shift && i < shift+70 || i%17 == 0 {
			holes.Values[i] = math.NaN()
		}
	}
	for name, c := range map[string]struct {
		s     Series
		first int
		more  float64 // what was missed by much in the shift is not forgotten at once
	}{
		"level up":   {noisySeason(3, 5000, shifted(shift, 1000, 3000), steady(0.1)), shift + 2*testSeason, 0.03},
		"level down": {noisySeason(4, 5000, shifted(shift, 1000, 200), steady(0.1)), shift + 2*testSeason, 0.03},
		"gaps":       {holes, shift + 2*testSeason, 0},
		"noise":      {noisySeason(6, 6000, steady(1000), shifted(shift, 0.08, 0.16)), shift + 5*testSeason, 0},
	} {
		t.Run(name, func(t *testing.T) { covers(t, bandedModel(t, 0.01, 0.01, time.Time{}), c.s, c.first, c.more) })
	}
}

// What a model was trained on flatters it: before enough else is known its band is not called calibrated, and is no narrower than the file's own.
func TestModelBandsOfWhatWasTrainedOn(t *testing.T) {
	t.Parallel()
	const trained = 3000
	s := noisySeason(7, 6000, steady(1000), shifted(trained, 0.02, 0.08))
	m := bandedModel(t, 0.3, 0.3, s.At(trained))
	f := forecastOf(t, m, s.Until(s.At(trained+10)), testHorizon)
	for h, mean := range f.Mean {
		if f.Calibrated() || !strings.Contains(f.Note, "not calibrated") || f.Lower[h] > 0.71*mean || f.Upper[h] < 1.29*mean || f.quantile(0.95)[h] < 1.38*mean {
			t.Fatalf("soon after the training: %+v", f)
		}
	}
	covers(t, bandedModel(t, 0.01, 0.01, s.At(trained)), s, trained+2*testSeason, 0)
}

// A forecast is the same whether the model had forecast before or not.
func TestCalibrationKeepsNothing(t *testing.T) {
	t.Parallel()
	s := noisySeason(8, 3000, steady(1000), steady(0.1))
	s.Values[2100] = math.NaN()
	used := bandedModel(t, 0.01, 0.01, s.At(1500))
	for o := 400; o <= 2600; o += 37 {
		past := Series{Start: s.At(o - 400), Step: s.Step, Values: s.Values[o-400 : o]}
		if o > 1800 {
			past = s.Until(s.At(o))
		}
		if got, want := forecastOf(t, used, past, testHorizon), forecastOf(t, bandedModel(t, 0.01, 0.01, s.At(1500)), past, testHorizon); !reflect.DeepEqual(got, want) {
			t.Fatalf("at bin %d a model that had forecast before says %+v, and one that had not %+v", o, got, want)
		}
	}
}

func TestWindowAndNaiveBandsCover(t *testing.T) {
	t.Parallel()
	s := noisySeason(9, 6000, steady(1000), steady(0.1))
	w, err := TrainWindow(s.Until(s.At(2000)), WindowOptions{Kind: NLinear, Horizon: testHorizon, Season: testSeason * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []Forecaster{w, NewNaive(testSeason * time.Second), NewEnsemble(w, NewNaive(testSeason*time.Second))} {
		t.Run(f.Name(), func(t *testing.T) { covers(t, f, s, 2500, 0) })
	}
}

// A model that was just trained, as one that takes the place of another, starts from the errors that its training has measured out of sample: nothing has to come first for its band to be calibrated.
func TestModelBandsRightAfterTraining(t *testing.T) {
	t.Parallel()
	s := noisySeason(11, 4000, steady(1000), steady(0.1))
	const trained = 3000
	for kind, train := range map[string]func(Series, LinearOptions) ([]byte, TrainReport, error){
		Linear:  TrainLinear,
		NLinear: func(s Series, o LinearOptions) ([]byte, TrainReport, error) { return TrainWindowModel(s, NLinear, o) },
	} {
		file, r, err := train(s.Until(s.At(trained)), LinearOptions{Horizon: testHorizon, Seasons: []time.Duration{testSeason * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewONNX(kind, file, ONNXOptions{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }() // it was only read
		in, n := 0.0, 0.0
		for o := trained; o < trained+CalibratedOutcomes; o++ {
			f := forecastOf(t, m, s.Until(s.At(o)), testHorizon)
			if !f.Calibrated() || f.Note != "" || f.Outcomes < r.Info.Outcomes {
				t.Fatalf("%s, %d bins after its training: of %d outcomes, %q; the file says %d", kind, o-trained, f.Outcomes, f.Note, r.Info.Outcomes)
			}
			for h := range f.Mean {
				in, n = in+within(s.Values[o+h], f.quantile(0.05)[h], f.quantile(0.95)[h]), n+1
			}
		}
		if in/n < 0.8 {
			t.Errorf("%s: %.2f of what came just after its training lay in the band of 90 %%", kind, in/n)
		}
	}
}
