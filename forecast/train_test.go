package forecast

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// autoregressive is a cycle times a level that wanders and returns:
// a(t) = φ·a(t−1) + noise, y(t) = cycle · exp(a(t) + noise).
func autoregressive(n, season int, step time.Duration, seed uint64) Series {
	rng := rand.New(rand.NewPCG(seed, 99))
	a := 0.0
	return synthetic(n, step, func(i int) float64 {
		a = 0.95*a + 0.06*rng.NormFloat64()
		return cycle(float64(i%season)/float64(season)) * math.Exp(a+0.02*rng.NormFloat64())
	})
}

func train(t testing.TB, s Series, o LinearOptions) ([]byte, TrainReport) {
	t.Helper()
	model, r, err := TrainLinear(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return model, r
}

// open runs a model in memory for the time of the test.
func open(t testing.TB, model []byte) *ONNXModel {
	t.Helper()
	onnxtest.Library(t)
	m, err := NewONNX("model.onnx", model, ONNXOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

var demoOptions = LinearOptions{Horizon: 20, Seasons: []time.Duration{2 * time.Minute}, Source: "test"}

func TestLinearModelOnAnAutoregressiveSeason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		history int    // bins that it is trained on
		seeds   uint64 // one short history proves nothing: sum over several
		long    bool   // enough that a gate keeps it beside the seasonal forecaster, and to know its errors
	}{
		{"three seasons, as in the demo", 360, 3, false},
		{"twenty seasons", 2400, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var model, seasonal, naive, coverage, coverage90 float64
			for seed := range c.seeds {
				all := autoregressive(c.history+600, 120, time.Second, seed)
				file, r := train(t, all.Until(all.At(c.history)), demoOptions.Quick())
				o := BacktestOptions{Steps: 20, First: c.history, Every: 20} // each bin is forecast once
				mine, err := Backtest(open(t, file), all, o)
				if err != nil {
					t.Fatal(err)
				}
				theirs, err := Backtest(NewSeasonal(demoOptions.Seasons), all, o)
				if err != nil {
					t.Fatal(err)
				}
				n := naiveWAPE(all, 120, o)
				t.Logf("unseen WAPE: model %.4f (band covers %.2f), seasonal %.4f, naive %.4f; ridge %g; on the holdout: model %.4f, naive %.4f",
					mine.WAPE, mine.Coverage, theirs.WAPE, n, r.Ridge, r.Model.WAPE, r.Naive.WAPE)
				model, seasonal, naive = model+mine.WAPE, seasonal+theirs.WAPE, naive+n
				coverage90 += mine.Coverage90 / float64(c.seeds)
				coverage += mine.Coverage / float64(c.seeds)
			}
			if !(model < naive) {
				t.Errorf("on unseen data the model's WAPE sums to %.4f and seasonal naive's to %.4f", model, naive)
			}
			if !c.long {
				return
			}
			if model > (1+defaultTolerance)*seasonal { // the seasonal forecaster learns such errors too
				t.Errorf("on unseen data the model's WAPE sums to %.4f and the seasonal forecaster's to %.4f", model, seasonal)
			}
			if coverage90 < 0.84 || coverage90 > 0.95 {
				t.Errorf("the 5–95 %% band, of levels that the file does not list, covers %.2f of what came, want about 0.9", coverage90)
			}
			if coverage < 0.72 || coverage > 0.88 {
				t.Errorf("the 10–90 %% band covers %.2f of what came, want about 0.8", coverage)
			}
		})
	}
}

// naiveWAPE is Σ|y(t)−y(t−season)| / Σ y(t) over the bins that a backtest scores:
// the error of ŷ(t+h) = y(t+h−season), which needs no forecaster to compute.
func naiveWAPE(s Series, season int, o BacktestOptions) float64 {
	wrong, total := 0.0, 0.0
	for origin := o.First; origin < len(s.Values); origin += o.Every {
		for i := origin; i < min(origin+o.Steps, len(s.Values)); i++ {
			wrong += math.Abs(s.Values[i] - s.Values[i-season])
			total += s.Values[i]
		}
	}
	return wrong / total
}

func TestLinearGraphIsThePredictor(t *testing.T) {
	s := autoregressive(1300, 120, time.Second, 5)
	model, _ := train(t, s, demoOptions.Quick())
	m := open(t, model)
	plan, err := planLinear("test", s, []int{120}, demoOptions)
	if err != nil {
		t.Fatal(err)
	}
	tr := &linearTrainer{plan: plan, actual: s.Values, data: newLinearData(plan, s.Values)}
	cut := plan.input + (len(s.Values)-plan.horizon-plan.input)*4/5
	ridge := tr.chooseRidge(plan.input, cut-plan.horizon)
	coefficients := tr.fit(spread(plan.input, len(s.Values)-plan.horizon, maxTrainOrigins), len(s.Values), ridge)
	for _, o := range []int{plan.input, 700, 1300 - plan.horizon} {
		want := tr.data.predict(o, coefficients)
		got := forecastOf(t, m, s.Until(s.At(o)), plan.horizon)
		near(t, "graph against float64", got.Mean, want, 1e-4)
	}
}

func TestReadModelInfoOfALinearModel(t *testing.T) {
	t.Parallel()
	s := autoregressive(1300, 120, time.Second, 5)
	o := demoOptions.Quick()
	o.TrainedAt = epoch.Add(time.Hour)
	model, r := train(t, s, o)
	again, _ := train(t, s, o)
	if string(model) != string(again) {
		t.Error("training twice on the same history gave two different files")
	}
	i := r.Info
	if i.Name != "linear" || i.Horizon != 20 || i.Step != time.Second || !i.TrainedAt.Equal(o.TrainedAt) || !i.TrainedUntil.Equal(s.End()) ||
		i.TrainedBins != 1300 || i.Source != "test" || len(i.SeasonBins) != 1 || i.SeasonBins[0] != 120 || i.Normalise != NormaliseMean || len(i.ID) != 12 {
		t.Errorf("the file says %+v", i)
	}
	if _, err := onnx.Load(model); err != nil {
		t.Error(err)
	}
}

// Of a history without traffic nothing is made, and why is said.
func TestNothingIsLearntFromSilence(t *testing.T) {
	s := synthetic(2000, time.Second, func(i int) float64 {
		if i%7 == 0 {
			return math.NaN()
		}
		return 0
	})
	model, _, err := TrainLinear(s, demoOptions)
	const want = "every measured rate is 0, from which nothing can be learnt"
	if model != nil || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d bytes of a model, %v; want %q", len(model), err, want)
	}
}

// A model is measured beside the one that it is to replace, on what neither was trained on, as far as there is enough of that.
func TestTrainAgainst(t *testing.T) {
	t.Parallel()
	s := autoregressive(1200, 120, time.Second, 5)
	before, _ := train(t, s.Until(s.At(1100)), demoOptions.Quick())
	o := demoOptions
	o.holdout = 60 // a third of them, and no fewer than are needed, lie after what the old one has seen
	old := open(t, before)
	o.Against = old
	_, r := train(t, s, o)
	if r.From.Before(s.At(1100)) || r.Against.Bins == 0 || r.Against.Bins != r.Model.Bins || !(r.Against.WAPE > 0) {
		t.Errorf("measured from %v, which is before %v; the old one %+v, the new one %+v", r.From, s.At(1100), r.Against, r.Model)
	}
	o.Against = nil
	newest, alone := train(t, s, o)
	if !alone.From.Before(r.From) || alone.Against.Bins != 0 {
		t.Errorf("alone it is measured from %v, %+v", alone.From, alone.Against)
	}
	o.Against = open(t, newest)
	if _, r = train(t, s, o); !r.From.Equal(alone.From) || r.Against.Bins == 0 {
		t.Errorf("beside one that has seen all it is measured from %v, %+v", r.From, r.Against)
	}
}

// The report's bands are made of the holdout's forecasts before, and hold about what they should; the forecasts before which there are too few count for none.
func TestTrainMeasuresCoverage(t *testing.T) {
	t.Parallel()
	o := demoOptions
	o.holdout = 100
	_, r := train(t, autoregressive(2400, 120, time.Second, 6), o)
	for name, e := range map[string]Errors{"the model": r.Model, "naive": r.Naive, "seasonal": r.Seasonal} {
		if !(e.Coverage90 > 0.8 && e.Coverage90 < 0.98) || !(e.Coverage > 0.65 && e.Coverage < 0.92) {
			t.Errorf("%s: %.3f lie in the band of 90 %% and %.3f in that of 80 %%", name, e.Coverage90, e.Coverage)
		}
	}
	o.holdout = CalibratedOutcomes - 1
	if _, r = train(t, autoregressive(2400, 120, time.Second, 6), o); !math.IsNaN(r.Model.Coverage90) {
		t.Errorf("of %d forecasts the coverage is %v", r.Holdout, r.Model.Coverage90)
	}
}

// Where every other week is missing, and the days between, there is enough to learn from; where nearly nothing was measured, as after a clock that
// jumped, the error names the gap, and what helps.
func TestTrainOnAHistoryWithGaps(t *testing.T) {
	const day = 48
	s := Series{Start: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), Step: 30 * time.Minute}
	for i := range 8 * 7 * day {
		v := math.NaN()
		if i/day%14 < 6 { // 43 % of the bins
			v = 100 + 60*math.Sin(float64(i%day)/day*2*math.Pi) + float64(i*7%11)
		}
		s.Values = append(s.Values, v)
	}
	train := map[string]func(Series) error{Linear: func(s Series) error {
		_, _, err := TrainLinear(s, LinearOptions{Horizon: 4, Seasons: []time.Duration{24 * time.Hour}})
		return err
	}}
	for _, kind := range windowKinds {
		train[kind] = func(s Series) error {
			_, _, err := TrainWindowModel(s, kind, LinearOptions{Horizon: 4, Seasons: []time.Duration{24 * time.Hour}})
			return err
		}
	}
	jumped := s
	jumped.Values = append(slices.Clone(s.Values), make([]float64, 400*day)...)
	for i := len(s.Values); i < len(jumped.Values); i++ {
		jumped.Values[i] = math.NaN()
	}
	jumped.Values = append(jumped.Values, 100, 110, 120)
	for kind, train := range train {
		if err := train(s); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		want := fmt.Sprintf("only %d of %d bins of the history were measured; a quarter of them is needed. The longest gap is of 9792h, from 2024-02-18T00:00:00Z to 2025-04-01T00:00:00Z: "+
			"if a time there is wrong, take it out", s.Known()+3, len(jumped.Values))
		if err := train(jumped); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, after a jump: %v, want %q", kind, err, want)
		}
	}
}

// A training ends where the model that it is measured against is closed, as by an interruption, and says of one that has no answer at how many moments and why.
func TestTrainEndsWithItsRival(t *testing.T) {
	s := Series{Start: time.Unix(1_800_000_000, 0), Step: time.Minute}
	for i := range 600 {
		s.Values = append(s.Values, 1000+500*math.Sin(float64(i)*2*math.Pi/60)+float64(i*i%37))
	}
	for why, ends := range map[error]bool{fmt.Errorf("m.onnx: %w", ErrClosed): true, fmt.Errorf("m.onnx: %w", ErrTooSlow): false} {
		rival := &refusing{why: why}
		_, r, err := TrainLinear(s, LinearOptions{Horizon: 10, Seasons: []time.Duration{time.Hour}, Against: rival})
		if ends && (!errors.Is(err, ErrClosed) || rival.asked != 1) {
			t.Errorf("%v: it is asked %d times, and training ends with %v", why, rival.asked, err)
		}
		if !ends && (err != nil || !errors.Is(r.NoAnswer, ErrTooSlow) || r.Unanswered != r.Holdout || r.Holdout < 2) {
			t.Errorf("%v: %d of %d moments without an answer, %v; %v", why, r.Unanswered, r.Holdout, r.NoAnswer, err)
		}
	}
}

// refusing is a forecaster that has no answer.
type refusing struct {
	why   error
	asked int
}

func (r *refusing) Name() string { return "refusing" }

func (r *refusing) Forecast(Series, int) (Forecast, error) {
	r.asked++
	return Forecast{}, r.why
}
