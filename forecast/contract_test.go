package forecast

import (
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
)

// goodInfo describes the little models of these tests.
func goodInfo() ModelInfo {
	return ModelInfo{Name: "last", Input: 30, Horizon: 4, Step: time.Second, Normalise: NormaliseMean,
		TrainedAt: epoch, TrainedBins: 100}
}

// modelFile writes a model with the metadata of info, changed by edit, whose
// graph build makes.
func modelFile(t testing.TB, info ModelInfo, edit map[string]string, build func(g *onnx.Graph)) []byte {
	t.Helper()
	meta := info.metadata()
	maps.Copy(meta, edit)
	maps.DeleteFunc(meta, func(_, v string) bool { return v == "delete" })
	g := onnx.NewGraph()
	build(g)
	b, err := g.Model(meta)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// lastValue is a model that repeats the last bin of its history.
func lastValue(input, horizon int) func(g *onnx.Graph) {
	return func(g *onnx.Graph) {
		x := g.Input("history", onnx.Float32, 1, input)
		g.Output("forecast", g.Expand(g.Slice(x, 1, input-1, input), 1, horizon))
	}
}

// clock is a model of 30 bins to 4 whose forecast is of the time alone: the first feature of the bin, ten times its second, and a hundred times
// the first of the history's last bin, each from 0 to 1.
func clock(g *onnx.Graph) {
	past, ahead := g.Input("history_time", onnx.Float32, 1, 30, 2), g.Input("forecast_time", onnx.Float32, 1, 4, 2)
	feature := func(t *onnx.Tensor, i, bins int) *onnx.Tensor {
		return g.Add(g.Reshape(g.Slice(t, 2, i, i+1), 1, bins), g.Scalar(0.5))
	}
	sum := g.Add(feature(ahead, 0, 4), g.Mul(feature(ahead, 1, 4), g.Scalar(10)))
	sum = g.Add(sum, g.Mul(g.Slice(feature(past, 0, 30), 1, 29, 30), g.Scalar(100)))
	history := g.Input("history", onnx.Float32, 1, 30)
	g.Output("forecast", g.Add(sum, g.Mul(g.Slice(history, 1, 0, 1), g.Scalar(0))))
}

// A model is told the time in UTC, whatever zone the history's times are in.
func TestTimeFeatures(t *testing.T) {
	info := goodInfo()
	info.Step, info.Normalise, info.TimeFeatures = time.Hour, NormaliseNone, []string{"hour_of_day", "day_of_week"}
	m := open(t, modelFile(t, info, nil, clock))
	s := synthetic(30, time.Hour, func(int) float64 { return 5 })
	// The last bin is that of Saturday 22 h; the 23rd hour, then Sunday.
	s.Start = time.Date(2026, 3, 7, 23, 0, 0, 0, time.UTC).Add(-30 * time.Hour).In(time.FixedZone("", 5*3600+1800))
	f := forecastOf(t, m, s, 4)
	last := 100 * 22.0 / 23
	near(t, "what the clock says", f.Mean, []float64{last + 1 + 10*5.0/6, last + 10, last + 1.0/23 + 10, last + 2.0/23 + 10}, 1e-4)

	// Of every feature the first and the last unit.
	for name, c := range map[string]struct{ first, last time.Time }{
		"second_of_minute": {epoch, epoch.Add(59 * time.Second)},
		"minute_of_hour":   {epoch, epoch.Add(59 * time.Minute)},
		"hour_of_day":      {epoch, epoch.Add(23 * time.Hour)},
		"day_of_week":      {time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), epoch},
		"day_of_month":     {epoch, epoch.AddDate(0, 0, 30)},
		"day_of_year":      {time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2024, 12, 31, 23, 0, 0, 0, time.UTC)},
	} {
		if a, b := marks([]string{name}, c.first, time.Hour, 1), marks([]string{name}, c.last, time.Hour, 1); a[0] != -0.5 || b[0] != 0.5 {
			t.Errorf("%s is %v at %v and %v at %v", name, a, c.first, b, c.last)
		}
	}
}

func TestModelFilesThatBreakTheContract(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  map[string]string
		build func(g *onnx.Graph)
		want  []string
	}{
		{"no metadata", map[string]string{metaVersion: "delete"}, lastValue(30, 4),
			[]string{"no kale.forecast.version", `"kale forecast train"`}},
		{"another version", map[string]string{metaVersion: "2"}, lastValue(30, 4),
			[]string{`kale.forecast.version is "2"`, "reads version 1"}},
		{"several things missing", map[string]string{metaInput: "delete", metaStep: "delete", metaTrainedAt: "delete"}, lastValue(30, 4),
			[]string{"kale.forecast.input is missing", "kale.forecast.step_seconds is missing", "kale.forecast.trained_at is missing"}},
		{"nonsense", map[string]string{metaInput: "-3", metaStep: "x", metaNormalise: "zscore", metaQuantiles: "0.1,0.9", metaSeasons: "10,5", metaTrainedAt: "today"}, lastValue(30, 4),
			[]string{`input is "-3", want a whole number from 1`, `step_seconds is "x"`, `normalise is "zscore", want none or mean`, `quantiles is "0.1,0.9", want 0.5 among them`, `season_bins is "10,5"`, `trained_at is "today"`}},
		{"a name that clears the screen", map[string]string{metaName: "a\x1b[2Jb"}, lastValue(30, 4), []string{`kale.forecast.name is "a\x1b[2Jb", want nothing but printable`}},
		{"a name as long as a book", map[string]string{metaName: strings.Repeat("a", 5000)}, lastValue(30, 4), []string{"kale.forecast.name is 5000 characters, want no more than 128"}},
		{"a name of two lines", map[string]string{metaName: "a\nb"}, lastValue(30, 4), []string{`kale.forecast.name is "a\nb", want nothing but printable`}},
		{"shorter input", nil, lastValue(29, 4),
			[]string{"by its metadata the input is 30 bins", `input "history": want float32[1,30], got float32[1,29]`}},
		{"other horizon", nil, lastValue(30, 5),
			[]string{`output "forecast": want float32[1,4], got float32[1,5]`}},
		{"quantiles without rows", map[string]string{metaQuantiles: "0.1,0.5,0.9"}, lastValue(30, 4),
			[]string{"the forecast has 3 rows", "want float32[3,4], got float32[1,4]"}},
		{"other names", nil, func(g *onnx.Graph) {
			g.Output("y", g.Slice(g.Input("x", onnx.Float32, 1, 30), 1, 0, 4))
		}, []string{"input history float32[1,30] is missing", "output forecast float32[1,4] is missing", "it wants another input, x float32[1,30]"}},
		{"a further input", nil, func(g *onnx.Graph) {
			g.Output("forecast", g.Add(g.Slice(g.Input("history", onnx.Float32, 1, 30), 1, 0, 4), g.Input("weather", onnx.Float32, 1, 4)))
		}, []string{"it wants another input, weather float32[1,4]"}},
		{"time features that there are not", map[string]string{metaTimeFeatures: "hour_of_day,phase_of_moon"}, clock,
			[]string{`time_features is "hour_of_day,phase_of_moon", want some of second_of_minute, minute_of_hour, hour_of_day`}},
		{"a time feature twice", map[string]string{metaTimeFeatures: "hour_of_day,hour_of_day"}, clock, []string{"each once"}},
		{"time features unnamed", nil, clock, []string{"its inputs ask for time features, and kale.forecast.time_features, which says for which, is missing"}},
		{"time features that nothing takes", map[string]string{metaTimeFeatures: "hour_of_day"}, lastValue(30, 4),
			[]string{`time_features is "hour_of_day", and it has neither an input history_time nor forecast_time`}},
		{"another number of time features", map[string]string{metaTimeFeatures: "hour_of_day"}, clock,
			[]string{`input "history_time": want float32[1,30,1], got float32[1,30,2]`, `input "forecast_time": want float32[1,4,1], got float32[1,4,2]`}},
		{"integers", nil, func(g *onnx.Graph) {
			g.Output("forecast", g.Cast(g.Slice(g.Input("history", onnx.Float32, 1, 30), 1, 0, 4), onnx.Int64))
		}, []string{`output "forecast": want float32[1,4], got int64[1,4]`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx")
			if err := os.WriteFile(path, modelFile(t, goodInfo(), c.edit, c.build), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := OpenONNX(path, ONNXOptions{})
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, want := range append(c.want, path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestOpenONNXErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenONNX(filepath.Join(dir, "absent.onnx"), ONNXOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	garbage := filepath.Join(dir, "garbage.onnx")
	if err := os.WriteFile(garbage, []byte("timestamp,rate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenONNX(garbage, ONNXOptions{}); err == nil || !strings.Contains(err.Error(), "not a usable ONNX file") {
		t.Errorf("a file that is not ONNX: %v", err)
	}
	good := modelFile(t, goodInfo(), nil, lastValue(30, 4))
	_, err := NewONNX("m.onnx", good, ONNXOptions{Runtime: onnx.Options{Library: filepath.Join(dir, "libonnxruntime.so")}})
	if err == nil || !errors.Is(err, onnx.ErrNoLibrary) && !errors.Is(err, onnx.ErrNoCgo) {
		t.Errorf("without a library: %v", err)
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	want := goodInfo()
	want.SeasonBins, want.Quantiles = []int{120, 840}, []float64{0.05, 0.1, 0.5, 0.9}
	want.TimeFeatures = []string{"day_of_week", "hour_of_day"}
	want.TrainedUntil, want.Source, want.Step = epoch.Add(-time.Hour), "kafka clicks", 1500*time.Millisecond
	got, err := readMetadata(want.metadata())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what was written reads as something else (-written +read):\n%s", diff)
	}
}

func TestPointModelIsGivenABand(t *testing.T) {
	m := open(t, modelFile(t, goodInfo(), nil, lastValue(30, 4)))
	s := autoregressive(400, 120, time.Second, 1)
	f := forecastOf(t, m, s, 4)
	near(t, "the last value", f.Mean, slices.Repeat([]float64{s.Values[399]}, 4), 1e-5)
	if !(f.Lower[3] < f.Mean[3] && f.Mean[3] < f.Upper[3]) || f.Note != "" {
		t.Errorf("the band is %v…%v around %v, and the note %q", f.Lower, f.Upper, f.Mean, f.Note)
	}
	short := forecastOf(t, m, s.Until(s.At(36)), 4)
	known := s.Values[:36]
	if short.Lower[0] > slices.Min(known) || short.Upper[0] < slices.Max(known) || short.Calibrated() || !strings.Contains(short.Note, "the band is not calibrated") {
		t.Errorf("without enough to replay: %+v", short)
	}
}

func TestONNXModelForecastErrors(t *testing.T) {
	m := open(t, modelFile(t, goodInfo(), nil, lastValue(30, 4)))
	nan := open(t, modelFile(t, goodInfo(), nil, func(g *onnx.Graph) {
		g.Output("forecast", g.Log(g.Neg(g.Slice(g.Input("history", onnx.Float32, 1, 30), 1, 0, 4))))
	}))
	huge := open(t, modelFile(t, goodInfo(), nil, func(g *onnx.Graph) {
		g.Output("forecast", g.Mul(g.Slice(g.Input("history", onnx.Float32, 1, 30), 1, 0, 4), g.Scalar(1e28)))
	}))
	minutes, gap, end := demo(), demo(), demo()
	minutes.Step = time.Minute
	for i := 331; i < 350; i++ {
		gap.Values[i] = math.NaN()
	}
	for i := 350; i < 360; i++ {
		end.Values[i] = math.NaN()
	}
	closed, err := NewONNX("closed", modelFile(t, goodInfo(), nil, lastValue(30, 4)), ONNXOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(closed.Close(), closed.Close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		m     *ONNXModel
		s     Series
		steps int
		want  string
	}{
		{"other step", m, minutes, 4, "trained on bins of 1s, and the history has bins of 1m"},
		{"too far", m, demo(), 5, "forecasts 4 bins (4s), and 5 were asked for"},
		{"short", m, demo().Until(epoch.Add(20 * time.Second)), 4, "it has 20 bins of 1s (20s) and 30 bins (30s) are needed"},
		{"gap", m, gap, 4, "only 11 of the last 30 bins"},
		{"gap at the end", m, end, 4, "only 6 of the last 16 bins"},
		{"not a number", nan, demo(), 4, "its output for bin 0 is NaN"},
		{"more than can be", huge, demo(), 4, "records/s; more than 1e+12 cannot be"},
		{"closed", closed, demo(), 4, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := c.m.Forecast(c.s, c.steps); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q in it", err, c.want)
			}
		})
	}
}

func TestONNXModelInputs(t *testing.T) {
	info := goodInfo()
	info.Normalise, info.SeasonBins = NormaliseNone, []int{10}
	// Its rows are the window's first four bins, and whether they were measured.
	info.Quantiles = []float64{0.1, 0.5, 0.9}
	m := open(t, modelFile(t, info, nil, func(g *onnx.Graph) {
		x, k := g.Input("history", onnx.Float32, 1, 30), g.Input("known", onnx.Float32, 1, 30)
		first := g.Slice(x, 1, 0, 4)
		g.Output("forecast", g.Concat(0, g.Sub(first, g.Slice(k, 1, 0, 4)), first, g.Add(first, g.Slice(k, 1, 0, 4))))
	}))
	s := synthetic(100, time.Second, func(i int) float64 { return float64(1000 + i) })
	s.Values[71], s.Values[72], s.Values[62] = math.NaN(), math.NaN(), math.NaN()
	rows, err := m.run(s, 4)
	if err != nil {
		t.Fatal(err)
	}
	// Bin 71 takes the value of bin 61. Bin 62 is unknown, so bin 72 lies between its neighbours.
	near(t, "history", rows[1], []float64{1070, 1061, 1067, 1073}, 1e-6)
	near(t, "history minus known", rows[0], []float64{1069, 1061, 1067, 1072}, 1e-6)
}

func TestSilentWindowIsForecastAsSilence(t *testing.T) {
	model, _ := train(t, demo(), demoOptions)
	s := synthetic(400, time.Second, func(int) float64 { return 0 })
	if f := forecastOf(t, open(t, model), s, 20); slices.Max(f.Upper) != 0 {
		t.Errorf("after silence it forecasts up to %v", slices.Max(f.Upper))
	}
}

func FuzzReadModelInfo(f *testing.F) {
	f.Add(modelFile(f, goodInfo(), nil, lastValue(30, 4)))
	f.Add(modelFile(f, goodInfo(), map[string]string{metaQuantiles: "0.1,0.5,0.9", metaSeasons: "2"}, lastValue(30, 4)))
	f.Add([]byte("not a model"))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := ReadModelInfo(b)
		if err != nil {
			return
		}
		if info.Input < 1 || info.Horizon < 1 || info.Step <= 0 || info.Name == "" || info.ID == "" {
			t.Fatalf("accepted as %+v", info)
		}
		again, err := readMetadata(info.metadata())
		if err != nil {
			t.Fatalf("what was accepted is refused when written back: %v", err)
		}
		again.ID = info.ID
		if diff := cmp.Diff(info, again, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkONNXModel(b *testing.B) {
	onnxtest.Library(b)
	for _, c := range []struct {
		name    string
		s       Series
		options LinearOptions
	}{
		{"demo", autoregressive(360, 120, time.Second, 1), demoOptions},
		{"day+week,4weeks,60steps", autoregressive(4*7*1440, 1440, time.Minute, 1), LinearOptions{Horizon: 60, Seasons: []time.Duration{24 * time.Hour, 7 * 24 * time.Hour}}},
	} {
		model, _ := train(b, c.s, c.options)
		b.Run(c.name, func(b *testing.B) {
			m := open(b, model)
			for b.Loop() {
				if _, err := m.Forecast(c.s, c.options.Horizon); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("train/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := TrainLinear(c.s, c.options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
