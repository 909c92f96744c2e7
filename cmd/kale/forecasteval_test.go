package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/forecast"
)

// Every forecaster is measured at every horizon, on the same bins, and naive is the worst on traffic whose level changes.
func TestForecastEval(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	trace := filepath.Join(t.TempDir(), "rates.csv")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	var e evaluation
	if err := json.Unmarshal([]byte(s.must("forecast", "eval", "-trace", trace, "-origins", "20", "-json").out), &e); err != nil {
		t.Fatal(err)
	}
	bins, naive := map[float64]int{}, map[float64]float64{}
	for _, r := range e.Rows {
		for what, v := range map[string]*float64{"mae": r.MAE, "rmse": r.RMSE, "wape": r.WAPE, "mase": r.MASE, "pinball": r.Pinball, "coverage90": r.Coverage90} {
			if v == nil {
				t.Errorf("%s at %v min has no %s", r.Model, r.HorizonMin, what)
			}
		}
		if r.Model == "naive" {
			bins[r.HorizonMin], naive[r.HorizonMin] = r.Bins, *r.Pinball
		} else if r.Bins != bins[r.HorizonMin] || *r.Pinball >= naive[r.HorizonMin] {
			t.Errorf("%s at %v min: pinball %v over %d bins, and that of naive %v over %d", r.Model, r.HorizonMin, *r.Pinball, r.Bins, naive[r.HorizonMin], bins[r.HorizonMin])
		}
	}
	// One of each horizon is the best, and naive is none that is as good but for chance.
	best := map[float64]int{}
	for _, r := range e.Rows {
		if r.Best {
			best[r.HorizonMin]++
		}
		if r.Best && r.Level || r.Model == "naive" && (r.Best || r.Level) {
			t.Errorf("%s at %v min: best %v, level with it %v", r.Model, r.HorizonMin, r.Best, r.Level)
		}
	}
	if best[30] != 1 || best[60] != 1 || best[120] != 1 {
		t.Errorf("the best by horizon are %v", best)
	}
	// Of the usual horizons 30 min, 1 h and 2 h are whole bins of 10 minutes.
	if e.Trace != trace || len(e.Rows) != 3*6 || len(naive) != 3 || naive[30] == 0 {
		t.Errorf("%d rows of %s, naive %v", len(e.Rows), e.Trace, naive)
	}
	if r := s.run("forecast", "eval", "-trace", trace, "-horizon", "15m"); r.code != exitUsage || !strings.Contains(r.err, "not a whole number of bins of 10m") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := s.run("forecast", "eval", "-trace", trace, "-horizon", "400d"); r.code != exitUsage || !strings.Contains(r.err, "-horizon 400d is longer than what is measured") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if r := s.run("forecast", "eval", "-trace", trace, "-model", "nope.onnx"); r.code != exitFailed || strings.Contains(r.err, "measuring on") {
		t.Errorf("a model that is not there: exit code %d: %s", r.code, r.err)
	}
	// Of so few moments the figures say little: that is told, and of how many each row is.
	few := s.run("forecast", "eval", "-trace", trace, "-origins", "3", "-horizon", "1h", "-json")
	e = evaluation{}
	if err := json.Unmarshal([]byte(few.out), &e); err != nil || !strings.Contains(e.Warning, "coverage says nothing: 3 moments 1h ahead") || !strings.Contains(e.Warning, "-origins") || len(e.Rows) == 0 || e.Rows[0].Bins != 3 {
		t.Errorf("of few moments: %v, %q, %+v", err, e.Warning, e.Rows)
	}
	if !strings.Contains(strings.Join(strings.Fields(few.err), " "), "warning: of so few moments errors are chance") {
		t.Errorf("of few moments it warns %q", few.err)
	}
	var table strings.Builder
	if err := writeEvaluation(&table, e); err != nil || !strings.Contains(table.String(), " MOMENTS\n") || !strings.Contains(table.String(), " % of 3  3\n") || strings.Contains(table.String(), "±0.0") ||
		!strings.Contains(strings.Join(strings.Fields(table.String()), " "), "WARNING: of so few moments") {
		t.Errorf("of few moments: %v\n%s", err, table.String())
	}
	if table.Reset(); writeEvaluation(&table, evaluation{Rows: []evalRow{{Model: "a", Best: true}, {Model: "b", Level: true}, {Model: "c"}}}) != nil || strings.Count(table.String(), "unknown *") != 1 || strings.Count(table.String(), "unknown ≈") != 1 {
		t.Errorf("the best and what is level with it are not marked:\n%s", table.String())
	}
	many := evaluation{Planned: 300, Rows: []evalRow{{HorizonMin: 5, Bins: 300}, {HorizonMin: 60, Bins: 300}}}
	if text := fewWords(many); text != "" {
		t.Errorf("of 300 moments it warns: %s", text)
	}
	if many.Rows[1].Bins = 28; !strings.Contains(fewWords(many), "nothing: 28 moments 1h ahead.") || !strings.Contains(fewWords(many), "take a shorter -horizon") {
		t.Errorf("of 28 moments at the longest horizon it says %q", fewWords(many))
	}
	// What cannot learn from a short history is left out, and that is said.
	text := s.must("forecast", "eval", "-trace", trace, "-history", "3d", "-horizon", "1h", "-season", "24h").out
	if !strings.Contains(text, "nlinear: left out: train nlinear: history is too short") || strings.Contains(text, "1h  nlinear") {
		t.Errorf("of three days:\n%s", text)
	}
	if !strings.Contains(text, "without nlinear, which gave no forecast; at the last of them: the nlinear that teaches itself anew once a season, from no more than came before, has learnt nothing yet: ") || !strings.Contains(text, ", and it learns from 576 or more: 4 seasons of 144") { // of less than four seasons the ensemble is seasonal alone
		t.Errorf("of three days nothing is said of the ensemble:\n%s", text)
	}
}

// Moments are as many as were asked for, on many phases of the day, and no large part of what is measured is without them.
func TestStride(t *testing.T) {
	for _, c := range []struct{ n, origins, season int }{{6048, 400, 1440}, {6048, 60, 1440}, {1210, 60, 288}, {432, 60, 144}, {37590, 500, 1440}, {12172, 500, 24}} {
		every, skip := strideOf(c.n, c.origins, c.season)
		phases := map[int]bool{}
		got := 0
		for o := skip; o < c.n; o += every {
			phases[o%c.season] = true
			got++
		}
		if got != c.origins || 10*skip > c.n || len(phases) < min(c.season, 48, c.origins) {
			t.Errorf("%+v: %d moments, every %d, %d bins skipped, %d phases", c, got, every, skip, len(phases))
		}
	}
	if every, skip := strideOf(100, 50, 24); every != 5 || skip != 0 {
		t.Errorf("of every second hour it makes every %d, %d skipped", every, skip)
	}
}

// An event of the job file is no error of a forecaster that nobody told of it: all are measured as kale run forecasts, which knows of it, and none learns it.
// A bin that is a thousand times too high is named, and changes no forecaster's error in the others by more than a little.
func TestForecastEvalWithAFault(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	measure := func(traffic string) (evaluation, string) {
		trace := filepath.Join(t.TempDir(), "rates.csv")
		if err := os.WriteFile(trace, []byte(traffic), 0o600); err != nil {
			t.Fatal(err)
		}
		var e evaluation
		r := s.must("forecast", "eval", "-trace", trace, "-origins", "30", "-horizon", "30m,1h", "-json")
		if err := json.Unmarshal([]byte(r.out), &e); err != nil {
			t.Fatal(err)
		}
		return e, r.err
	}
	lines := strings.Split(strings.TrimSpace(daysOfTraffic()), "\n")
	rng := rand.New(rand.NewPCG(5, 7))
	for i, line := range lines { // without chance in it, a model that is a thousandth off is a bad one
		at, rate, _ := strings.Cut(line, ",")
		v, err := strconv.ParseFloat(rate, 64)
		if err != nil {
			t.Fatal(err)
		}
		lines[i] = fmt.Sprintf("%s,%.2f", at, v*(1+0.05*rng.NormFloat64()))
	}
	clean, said := measure(strings.Join(lines, "\n"))
	if strings.Contains(said, "fault") {
		t.Errorf("of traffic without one it says %s", said)
	}
	for _, i := range []int{len(lines) / 2, len(lines) * 4 / 5} {
		at, _, _ := strings.Cut(lines[i], ",")
		lines[i] = at + ",1e6"
	}
	e, said := measure(strings.Join(lines, "\n"))
	if n := strings.Count(said, "1e+06 records/s, for a bin or two, are no traffic but a fault of measuring"); n != 2 {
		t.Errorf("%d faults are named, want 2, in\n%s", n, said)
	}
	if len(e.Rows) != len(clean.Rows) {
		t.Fatalf("%d rows, and %d without the faults", len(e.Rows), len(clean.Rows))
	}
	for i, r := range e.Rows {
		if c := clean.Rows[i]; *r.MAE > 1.05**c.MAE {
			t.Errorf("%s at %v min errs by %.1f, and by %.1f without the faults", r.Model, r.HorizonMin, *r.MAE, *c.MAE)
		}
	}
}

func TestForecastEvalHeedsEvents(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	series := forecast.Series{Start: begin, Step: time.Hour, Values: make([]float64, 40*24)}
	sales := []job.Event{
		{Name: "past sale", From: begin.Add(20 * day), To: begin.Add(21 * day), Uplift: 5}, // in what is learnt
		{Name: "sale", From: begin.Add(33 * day), To: begin.Add(33*day + 6*time.Hour), Uplift: 4},
	}
	for i := range series.Values {
		at := series.At(i)
		series.Values[i] = 1000 + 400*math.Sin(2*math.Pi*float64(i)/24)
		for _, e := range sales {
			if !at.Before(e.From) && at.Before(e.To) {
				series.Values[i] *= e.Uplift
			}
		}
	}
	measure := func(events []job.Event) map[string]float64 {
		var out, err buffer
		p := past{series: series, steps: 4, seasons: []time.Duration{day}, job: &loaded{Job: &job.Job{Forecast: job.Forecast{Events: events}}}}
		a, e, first := newShell(t).app(&out, &err), evaluation{}, len(series.Values)*7/10
		all, failed := a.contenders(t.Context(), p, first, 4, 2, &e)
		if failed != nil {
			t.Fatal(failed)
		}
		if err := a.evalAll(t.Context(), all, p, first, []int{1, 4}, evalFlags{origins: 48, workers: 2}, &e); err != nil {
			t.Fatal(err)
		}
		most := map[string]float64{}
		for _, r := range e.Rows {
			most[r.Model] = max(most[r.Model], *r.WAPE)
		}
		return most
	}
	told, untold := measure(sales), measure(nil)
	if len(told) != 6 {
		t.Fatalf("measured are %v, want six forecasters", told)
	}
	for model, e := range told {
		if e > 0.002 {
			t.Errorf("%s, told of the sales: WAPE %.4f, want next to nothing", model, e)
		}
		if untold[model] < 0.01 {
			t.Errorf("%s, not told of them: WAPE %.4f, want more", model, untold[model])
		}
	}
}

// The page has every figure, and forecasts of bins from so long before: each is that of the history as it was then.
func TestForecastEvalPage(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	dir := t.TempDir()
	trace, page := filepath.Join(dir, "rates.csv"), filepath.Join(dir, "eval.html")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.must("forecast", "eval", "-trace", trace, "-origins", "10", "-horizon", "30m,1h", "-ahead", "20m", "-o", page, "-json")
	var e evaluation
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		t.Fatal(err)
	}
	html := read(t, page)
	for _, row := range e.Rows {
		if want := fmt.Sprintf("<td>%s</td><td class=\"n\">%s</td><td class=\"n\">%s</td>", row.Model, percent(row.WAPE), fixedTo(3, row.MASE)); !strings.Contains(html, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	var p picture
	if _, after, ok := strings.Cut(html, `<script type="application/json" id="data">`); !ok {
		t.Fatal("no data in the page")
	} else if err := json.NewDecoder(strings.NewReader(after)).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if len(p.Errors) != 6 || len(p.Courses) != 6 || strings.Join(p.Horizons, " ") != "30m 1h" || len(p.Errors[0].WAPE) != 2 {
		t.Fatalf("errors of %d and courses of %d forecasters at %v", len(p.Errors), len(p.Courses), p.Horizons)
	}
	curve, _, err := stream.ReadCurve(t.Context(), trace, stream.RatesOnly)
	if err != nil {
		t.Fatal(err)
	}
	series := forecast.Series{Start: curve.Start, Step: curve.Step, Values: curve.Rates}
	naive := p.Courses[0]
	for i, at := range p.T {
		bin := series.Bin(time.Unix(int64(at), 0))
		if *p.Came[i] != series.Values[bin] {
			t.Fatalf("bin %d: came %v, want %v", bin, *p.Came[i], series.Values[bin])
		}
		if i%50 != 0 {
			continue
		}
		f, err := forecast.NewNaive(24*time.Hour).Forecast(series.Until(series.At(bin-1)), 2) // 20 minutes are two bins
		if err != nil {
			t.Fatal(err)
		}
		k := slices.Index(f.Levels, 0.95)
		if *naive.Mean[i] != f.Mean[1] || *naive.Upper[i] != f.Quantiles[k][1] {
			t.Errorf("bin %d: naive said %v, up to %v; want %v and %v", bin, *naive.Mean[i], *naive.Upper[i], f.Mean[1], f.Quantiles[k][1])
		}
	}
	for want, args := range map[string][]string{
		"-ahead is of the page":       {"-trace", trace, "-ahead", "30m"},
		"-ahead 25m: want whole bins": {"-trace", trace, "-ahead", "25m", "-o", page},
		"no more than the longest":    {"-trace", trace, "-ahead", "3h", "-o", page},
		"-o is not of -table":         {"-table", dir, "-o", page},
	} {
		if r := s.run(append([]string{"forecast", "eval"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
	if r := s.run("forecast", "eval", "-trace", trace, "-o", dir); r.code != exitFailed || !strings.Contains(r.err, "it is a folder") || strings.Contains(r.err, "measuring") {
		t.Errorf("a folder: exit code %d, %s", r.code, r.err)
	}
}

// FEDformer is trained, measured beside the others, and run from the file that it was written to.
func TestForecastFEDformer(t *testing.T) {
	t.Parallel()
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("ONNX Runtime is missing: make deps installs it (%v)", err)
	}
	s := newShell(t).asShipped()
	trace, model := filepath.Join(t.TempDir(), "rates.csv"), filepath.Join(t.TempDir(), "m.onnx")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	common := []string{"-trace", trace, "-interval", "30m", "-season", "24h", "-horizon", "3h", "-width", "8", "-epochs", "2", "-json"}
	var trained struct {
		Input, Horizon int
		Errors         []measured
		Epochs         []trainedEpoch
		Best           int `json:"best_epoch"`
	}
	r := s.must(append([]string{"forecast", "train", "-model", "fedformer", "-o", model}, common...)...)
	if err := json.Unmarshal([]byte(r.out), &trained); err != nil {
		t.Fatal(err)
	}
	if trained.Input != 96 || trained.Horizon != 6 || len(trained.Epochs) != 2 || trained.Best < 1 || trained.Errors[0].Forecaster != "fedformer" || trained.Errors[0].WAPE == nil {
		t.Errorf("%+v", trained)
	}
	if !strings.Contains(r.err, "epoch 2 of 2: loss ") {
		t.Errorf("its progress:\n%s", r.err)
	}
	var e evaluation
	if err := json.Unmarshal([]byte(s.must(append([]string{"forecast", "eval", "-fedformer", "-model", model, "-origins", "20"}, append(common, "-epochs", "1")...)...).out), &e); err != nil {
		t.Fatal(err)
	}
	rows, notes := 0, ""
	for _, r := range e.Rows {
		if (r.Model == "onnx:fedformer" && r.File == "" || r.Model == "onnx:fedformer m.onnx" && r.File == model) && r.WAPE != nil && r.Coverage90 != nil {
			rows++
		}
	}
	for _, n := range e.Notes {
		notes += n.Note + "\n"
	}
	if rows != 2 || !strings.Contains(notes, "width 8, input of 96 bins; trained in ") || !strings.Contains(notes, "flatters it") {
		t.Errorf("%d rows of FEDformer, and the notes:\n%s", rows, notes)
	}
	for want, args := range map[string][]string{
		"-seed is of FEDformer: give -model fedformer too":    {"train", "-seed", "2", "-o", model, "-trace", trace},
		"-threads is of FEDformer: give -model fedformer too": {"train", "-threads", "2", "-o", model, "-trace", trace},
		"-threads 0, -width 64":                               {"eval", "-threads", "0", "-trace", trace},
		"-width 7: want a multiple of 8":                      {"eval", "-fedformer", "-width", "7", "-trace", trace},
		"-width 0, -epochs 10: want 1 or more":                {"train", "-model", "fedformer", "-width", "0", "-o", model, "-trace", trace},
		`-model "prophet": want linear, fedformer, nlinear`:   {"train", "-model", "prophet", "-o", model, "-trace", trace},
		"-model ensemble needs no file":                       {"train", "-model", "ensemble", "-o", model, "-trace", trace},
		"-input 100: want 1 bin or more, and a -model other":  {"train", "-input", "100", "-o", model, "-trace", trace},
		"-fedformer too":                                      {"eval", "-table", t.TempDir(), "-epochs", "2"},
	} {
		if r := s.run(append([]string{"forecast"}, args...)...); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
	r = s.run("forecast", "train", "-model", "fedformer", "-input", "60", "-trace", trace, "-season", "24h", "-o", model)
	if r.code != exitFailed || !strings.Contains(r.err, "train fedformer: an input of 60 bins is shorter than one season of 144") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	// Interrupted, it ends at the next minibatch and leaves the model that was there.
	before := read(t, model)
	b := s.start("forecast", "train", "-model", "fedformer", "-trace", trace, "-interval", "30m", "-season", "24h", "-horizon", "3h", "-input", "48", "-o", model, "-width", "8", "-epochs", "1000000")
	b.eventually("epoch", func() bool { return strings.Contains(b.err.String(), "epoch 1 of 1000000: loss ") })
	b.interrupt()
	if r := b.end(); r.code != exitFailed || !strings.Contains(r.err, "interrupted; "+model+" is as it was") || read(t, model) != before || !strings.Contains(r.err, "kale forecast train -resume -o "+model+" goes on after the last whole epoch") {
		t.Errorf("exit code %d, %s", r.code, r.err)
	}
	// And it goes on as it says, with nothing else than that.
	if r := s.run("forecast", "train", "-resume", "-o", model, "-width", "16"); r.code != exitFailed || !strings.Contains(r.err, "it is of width 8, and cannot go on with 16") {
		t.Errorf("of another width: exit code %d, %s", r.code, r.err)
	}
	r = s.must("forecast", "train", "-resume", "-o", model, "-epochs", "2", "-threads", "2", "-width", "8")
	if read(t, model) == before || !strings.Contains(r.err, "went on with the training on "+trace) || !strings.Contains(r.out, "fedformer") {
		t.Errorf("%s\n%s", r.out, r.err)
	}
	for want, args := range map[string][]string{
		"there is no " + model + ".part: none was ended": {"-resume", "-o", model},
		"leave -trace out":  {"-resume", "-o", model, "-trace", trace},
		"-threads 0: want":  {"-resume", "-o", model, "-threads", "0"},
		"leave ctr.hcl out": {"-resume", "-o", model, "ctr.hcl"},
	} {
		if r := s.run(append([]string{"forecast", "train"}, args...)...); r.code == exitDone || !strings.Contains(r.err, want) {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
	if err := os.WriteFile(model+".part", []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.run("forecast", "train", "-resume", "-o", model); r.code != exitFailed || !strings.Contains(r.err, "or it was damaged: train anew") {
		t.Errorf("of garbage: exit code %d, %s", r.code, r.err)
	}
}

// The table is of windows of the four last months of twenty, in units of the deviation of the first twelve.
func TestForecastTable(t *testing.T) {
	t.Parallel()
	s := newShell(t).asShipped()
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("date,HUFL,OT\n")
	at := time.Date(2016, 7, 1, 0, 0, 0, 0, time.UTC)
	for i := range 20 * 720 {
		daily := math.Sqrt2 * math.Sin(2*math.Pi*float64(i)/24)
		if i >= 16*720 && i/24%2 == 1 {
			daily += 1
		}
		fmt.Fprintf(&b, "%s,1.0,%.6f\n", at.Add(time.Duration(i)*time.Hour).Format(time.DateTime), 10*daily-5)
	}
	if err := os.WriteFile(filepath.Join(dir, "ETTh1.csv"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args, want := []string{"forecast", "eval", "-table", dir, "-only", "ETTh1/96", "-origins", "4", "-json"}, "naive seasonal nlinear sparsetsf ensemble"
	if _, err := onnx.Locate(); err == nil {
		args, want = append(args, "-fedformer", "-width", "8", "-epochs", "1"), want+" onnx:fedformer"
	}
	var rows []tableRow
	if err := json.Unmarshal([]byte(s.must(args...).out), &rows); err != nil {
		t.Fatal(err)
	}
	var models []string
	for _, r := range rows {
		models = append(models, r.Model)
		if r.Dataset != "ETTh1" || r.Horizon != 96 || r.Published != 0.079 || r.MSE == nil || r.MAE == nil {
			t.Errorf("%+v", r)
		}
		if r.Model == "onnx:fedformer" && !strings.HasPrefix(r.Note, "width 8, input of 96 bins; trained in ") {
			t.Errorf("the note of FEDformer: %s", r.Note)
		}
	}
	if got := strings.Join(models, " "); got != want {
		t.Fatalf("models %s, want %s", got, want)
	}
	// The deviation is 10, and every second day lies 10 higher than the days beside it: naive is one deviation off on half of the bins.
	if got := *rows[0].MSE; math.Abs(got-0.5) > 0.03 {
		t.Errorf("MSE of naive is %v, want about 0.5", got)
	}
	// Interrupted, it has the rows of the windows that were measured, and fails.
	var out, errs buffer
	a := s.app(&out, &errs)
	ctx, cancel := context.WithCancel(t.Context())
	partial := s.start("forecast", "eval", "-table", dir, "-only", "ETTh1/96", "-json")
	partial.eventually("window", func() bool { return strings.Contains(partial.err.String(), "forecasters, moments: ") })
	partial.interrupt()
	cancel()
	if err := a.forecastTable(ctx, evalFlags{table: dir, only: "ETTh1/96", input: 96, workers: 1}); err == nil || !strings.Contains(err.Error(), "interrupted in the cell ETTh1/96") || out.String() != "" {
		t.Errorf("interrupted before it began: %v, %s", err, out.String())
	}
	var cut []tableRow
	if r := partial.end(); r.code != exitFailed || json.Unmarshal([]byte(r.out), &cut) != nil {
		t.Errorf("interrupted: exit code %d, %s, %s", r.code, r.err, r.out)
	}
	for _, r := range cut {
		if !r.Partial || r.Windows < 1 || r.Windows >= 4*720-95 || r.Windows != cut[0].Windows || r.MSE == nil {
			t.Errorf("interrupted: %+v", r)
		}
	}
	if len(cut) != 5 {
		t.Errorf("interrupted: %+v", cut)
	}
	if r := s.run("forecast", "eval", "-table", dir, "-only", "ETTm2/96"); r.code != exitFailed || !strings.Contains(r.err, "read the data set ETTm2: ") {
		t.Errorf("without a file: exit code %d, %s", r.code, r.err)
	}
}
