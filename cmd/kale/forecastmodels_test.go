package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
)

// traceAt writes ten days of traffic, in bins of 10 minutes.
func traceAt(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rates.csv")
	if err := os.WriteFile(path, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func evaluated(t *testing.T, out string) (e evaluation) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return e
}

// Every linear map that is measured can be written as a model file, which forecasts as it does, and models of one kind are told apart by their files.
func TestForecastTrainsEveryKind(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, trace, dir := newShell(t).asShipped(), traceAt(t), t.TempDir()
	common := []string{"-trace", trace, "-season", "24h", "-horizon", "1h", "-json"}
	args := append([]string{"forecast", "eval", "-origins", "10"}, common...)
	for _, kind := range []string{forecast.NLinear, forecast.DLinear, forecast.SparseTSF} {
		out := filepath.Join(dir, kind+".onnx")
		var trained struct {
			Input  int
			Errors []measured
		}
		if err := json.Unmarshal([]byte(s.must(append([]string{"forecast", "train", "-model", kind, "-history", "8d", "-o", out}, common...)...).out), &trained); err != nil {
			t.Fatal(err)
		}
		if len(trained.Errors) != 3 || trained.Errors[0].Forecaster != kind || trained.Errors[0].WAPE == nil || *trained.Errors[0].WAPE > 0.2 || trained.Input < 144 {
			t.Errorf("%s: %+v", kind, trained)
		}
		args = append(args, "-model", out)
	}
	other, same := filepath.Join(dir, "other.onnx"), filepath.Join(t.TempDir(), "nlinear.onnx")
	for _, out := range []string{other, same} {
		s.must(append([]string{"forecast", "train", "-model", "nlinear", "-input", "60", "-o", out}, common...)...)
	}
	first := filepath.Join(dir, "nlinear.onnx")
	args = append(args, "-model", other, "-model", same, "-model", first) // the last one for the second time
	files := map[string]string{}
	for _, r := range evaluated(t, s.must(args...).out).Rows {
		if _, twice := files[r.Model]; twice || r.WAPE == nil || r.Coverage90 == nil {
			t.Errorf("%+v, and there is another of its name: %v", r, twice)
		}
		files[r.Model] = r.File
	}
	for name, file := range map[string]string{
		"naive": "", "nlinear": "", "onnx:dlinear": filepath.Join(dir, "dlinear.onnx"), "onnx:sparsetsf": filepath.Join(dir, "sparsetsf.onnx"),
		"onnx:nlinear other.onnx": other, "onnx:nlinear " + same: same, "onnx:nlinear " + first: first,
	} {
		if got, ok := files[name]; !ok || got != file {
			t.Errorf("%q is of file %q, want %q: %v", name, got, file, files)
		}
	}
	if len(files) != 11 {
		t.Errorf("%d rows: %v", len(files), files)
	}
	if r := s.must(append([]string{"forecast", "train", "-against", "ensemble", "-o", other}, common...)...); !strings.Contains(r.out, `"forecaster":"ensemble"`) {
		t.Errorf("beside the ensemble: %s", r.out)
	}
}

// What cannot have an answer is said before anything is measured, with what to do about it.
func TestForecastEvalRefusesModels(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, trace, model := newShell(t).asShipped(), traceAt(t), filepath.Join(t.TempDir(), "m.onnx")
	s.must("forecast", "train", "-model", "nlinear", "-trace", trace, "-interval", "30m", "-horizon", "3h", "-season", "24h", "-o", model)
	for want, args := range map[string][]string{
		"model " + model + " forecasts bins of 30m, and " + trace + " has bins of 10m: measure with -interval 30m":      nil,
		"model " + model + " forecasts bins of 30m, and -interval 1h makes others of " + trace + ": give -interval 30m": {"-interval", "1h"},
		"model " + model + " forecasts no further than 3h, and the shortest -horizon is 4h":                             {"-interval", "30m", "-horizon", "4h,5h"},
		"forecasts from the last 7d, and all of " + trace + " is 2d":                                                    {"-interval", "30m", "-history", "2d", "-season", "12h"},
		"-origins 0: nothing is measured at none":                                                                       {"-origins", "0"},
	} {
		r := s.run(append([]string{"forecast", "eval", "-trace", trace, "-model", model}, args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, want) || strings.Contains(r.err, "measuring") {
			t.Errorf("%v: exit code %d, %s\nwant %s", args, r.code, r.err, want)
		}
	}
	if r := s.run("forecast", "eval", "-trace", trace, "-o", "a.txt"); r.code != exitUsage || !strings.Contains(r.err, "-o a.txt: what is written is an HTML page: let its name end in .html") {
		t.Errorf("a page that is named a text: exit code %d, %s", r.code, r.err)
	}
}

// A model that keeps the contract and cannot be computed is told of in words, and it is a failure that it was not measured. The others are.
func TestForecastEvalTellsOfSilentModels(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, trace, model := newShell(t).asShipped(), traceAt(t), filepath.Join(t.TempDir(), "mute.onnx")
	writeModel(t, model, "mute", 10*time.Minute, 6, func(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor { return g.Log(g.Neg(x)) }) // NaN
	r := s.run("forecast", "eval", "-trace", trace, "-horizon", "1h", "-season", "24h", "-origins", "5", "-model", model)
	if r.code != exitFailed || !strings.Contains(r.err, "model "+model+" has no answer at any moment: onnx:mute: model "+model+": its output for bin 0 is NaN") || !strings.Contains(r.out, "seasonal") {
		t.Errorf("exit code %d: %s\n%s", r.code, r.err, r.out)
	}
	if !strings.Contains(r.out, "onnx:mute: left out, it has no answer at any moment") || strings.Contains(r.out, "1h     onnx:mute") {
		t.Errorf("the table:\n%s", r.out)
	}
}

// The figures are the same on any number of threads.
func TestForecastEvalOnThreads(t *testing.T) {
	t.Parallel()
	s, trace := newShell(t).asShipped(), traceAt(t)
	var first string
	for _, threads := range []string{"1", "3"} {
		out := s.must("forecast", "eval", "-trace", trace, "-season", "24h", "-horizon", "30m,1h", "-origins", "20", "-threads", threads, "-json").out
		if first == "" {
			first = out
		} else if out != first {
			t.Errorf("on %s threads:\n%s\nand on one:\n%s", threads, out, first)
		}
	}
	if e := evaluated(t, first); e.Moments != e.Planned || e.Moments < 19 || e.Partial {
		t.Errorf("%d of %d moments, partial %v", e.Moments, e.Planned, e.Partial)
	}
}

// cancelling ends a context when it is asked for the third time.
type cancelling struct {
	forecast.Forecaster
	asked  *int
	cancel context.CancelFunc
}

func (c cancelling) Forecast(history forecast.Series, steps int) (forecast.Forecast, error) {
	if *c.asked++; *c.asked == 3 {
		c.cancel()
	}
	return c.Forecaster.Forecast(history, steps)
}

// Interrupted, it has the rows of the moments that all were asked at, says that they are not all, and fails.
func TestForecastEvalInterrupted(t *testing.T) {
	t.Parallel()
	var out, err buffer
	a := newShell(t).app(&out, &err)
	series, day := dailyTraffic(10), 24*time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	all := []contender{single(forecast.NewNaive(day)), single(cancelling{forecast.NewSeasonal([]time.Duration{day}), new(int), cancel})}
	p, e, first := past{series: series, steps: 6, seasons: []time.Duration{day}}, evaluation{}, len(series.Values)*7/10
	failed := a.evalAll(ctx, all, p, first, []int{3, 6}, evalFlags{origins: 100, workers: 1}, &e)
	if failed == nil || !strings.Contains(failed.Error(), "interrupted: what is printed is of 3 of ") || !e.Partial || e.Moments != 3 || len(e.Rows) != 4 {
		t.Fatalf("%v: %+v", failed, e)
	}
	for _, r := range e.Rows {
		if r.Bins != 3 || r.WAPE == nil {
			t.Errorf("%+v", r)
		}
	}
	var text strings.Builder
	if err := writeEvaluation(&text, e); err != nil || !strings.Contains(text.String(), "PARTIAL: it was interrupted when 3 of ") {
		t.Errorf("%v:\n%s", err, text.String())
	}
	e = evaluation{}
	if failed := a.evalAll(ctx, all, p, first, []int{3, 6}, evalFlags{origins: 100, workers: 1}, &e); failed == nil || !strings.Contains(failed.Error(), "before anything was measured") || len(e.Rows) > 0 {
		t.Errorf("before it began: %v, %+v", failed, e)
	}
}

// forecast show lists what came of trainings, the newest first.
func TestForecastShowTellsOfRetrainings(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	text := reviewText("ctr", hindsight.Review{Step: time.Minute, Retrainings: []core.Retrained{{At: at, Says: "one was refused"}, {At: at.Add(time.Hour), Promoted: true, Says: "one was promoted"}}}, time.Hour, 100)
	_, list, found := strings.Cut(text, "forecast models trained anew (forecast.retrain), the newest first\n")
	lines := strings.Split(strings.TrimSpace(list), "\n")
	if !found || len(lines) != 2 || !strings.HasSuffix(lines[0], ": one was promoted") || !strings.HasSuffix(lines[1], ": one was refused") {
		t.Errorf("%s", text)
	}
}

// A sweep does everything once, on any number of threads, and nothing more once its context has ended.
func TestSweepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var out, err buffer
	a := newShell(t).app(&out, &err)
	for _, threads := range []int{1, 4} {
		n := 103
		counts := make([]int, n)
		if done := a.sweep(t.Context(), "counting", n, threads, func(i, _ int) { counts[i]++ }); done != n || slices.Min(counts) != 1 || slices.Max(counts) != 1 {
			t.Errorf("%d done on %d threads: %v", done, threads, counts)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	counts := make([]int, 50)
	done := a.sweep(ended, "counting", len(counts), 1, func(i, _ int) {
		if counts[i]++; i == 6 {
			cancel()
		}
	})
	if done != 7 || counts[6] != 1 || counts[7] != 0 {
		t.Errorf("%d done of what ended after 7: %v", done, counts)
	}
}

// writeModel writes a model file that keeps the contract: a forecast of so many bins is what is made of as many last bins, divided by their mean.
func writeModel(t *testing.T, path, name string, step time.Duration, bins int, of func(*onnx.Graph, *onnx.Tensor) *onnx.Tensor) {
	t.Helper()
	g := onnx.NewGraph()
	x := g.Input("history", onnx.Float32, 1, bins)
	g.Output("forecast", of(g, x))
	raw, err := g.Model(map[string]string{
		"kale.forecast.version": "1", "kale.forecast.name": name, "kale.forecast.input": strconv.Itoa(bins), "kale.forecast.horizon": strconv.Itoa(bins),
		"kale.forecast.step_seconds": strconv.Itoa(int(step.Seconds())), "kale.forecast.normalise": "mean", "kale.forecast.trained_at": "2026-01-01T00:00:00Z", "kale.forecast.trained_bins": "100",
	})
	if err == nil {
		err = os.WriteFile(path, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
