package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/core/replay"
	"github.com/kale-sched/kale/examples"
)

// same repeats what was.
func same(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor { return g.Neg(g.Neg(x)) }

// A model file that cannot serve a replay is refused before it, with what can be done: by the flag and by the job file alike. Where no policy goes by forecasts, no model is asked.
func TestReplayRefusesModelsThatCannotServe(t *testing.T) {
	t.Parallel()
	s, dir := newShell(t).asShipped(), t.TempDir()
	coarse, short, none := filepath.Join(dir, "coarse.onnx"), filepath.Join(dir, "short.onnx"), filepath.Join(dir, "none.onnx")
	writeModel(t, coarse, "coarse", 15*time.Minute, 8, same)
	writeModel(t, short, "short", time.Minute, 30, same)
	train := "train one with kale forecast train -interval 1m -horizon 2h"
	for file, want := range map[string][2]string{
		coarse: {coarse + " was trained on bins of 15m, and forecast.interval is 1m: give a job file with interval = \"15m\" in its forecast block, or " + train, "error: The forecast model is for another interval"},
		short:  {short + " forecasts 30m at most, and forecast.horizon is 2h: give a job file with horizon = \"30m\" in its forecast block, or " + train, "error: The forecast model does not reach so far"},
		none:   {none + " does not exist: " + train, "error: No such file"},
	} {
		flag := append([]string{"replay", "-synthetic", "week", "-forecaster", file}, quick...)
		if r := s.run(flag...); r.code != exitFailed || !strings.HasPrefix(r.err, "kale: -forecaster: ") || !strings.Contains(r.err, want[0]) || r.out != "" {
			t.Errorf("%s: exit code %d, %s\nwant %s\n%s", file, r.code, r.err, want[0], r.out)
		}
		job := write(t, strings.Replace(string(examples.Replay), "  forecast {\n", "  forecast {\n    model = \""+file+"\"\n", 1))
		args := append([]string{"replay", "-synthetic", "week", "-scale", "28", "-job", job}, quick...)
		if r := s.run(args...); r.code != exitFailed || !strings.Contains(r.err, want[1]) || r.out != "" {
			t.Errorf("%s of the job: exit code %d, %s\nwant %s\n%s", file, r.code, r.err, want[1], r.out)
		}
		if file != none {
			s.must("replay", "-synthetic", "week", "-scale", "28", "-job", job, "-days", "1", "-seeds", "1", "-policies", "static")
		}
	}
}

// Who made the forecasts is told where it was not the forecaster that is named, in text, on the page and in JSON, with the reason.
func TestReplayTellsWhoForecast(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, dir := newShell(t).asShipped(), t.TempDir()
	mute, wrong, page := filepath.Join(dir, "mute.onnx"), filepath.Join(dir, "wrong.onnx"), filepath.Join(dir, "page.html")
	writeModel(t, mute, "mute", time.Minute, 120, func(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor { return g.Log(g.Neg(x)) }) // NaN
	writeModel(t, wrong, "wrong", time.Minute, 120, func(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor { return g.Neg(x) })
	for _, tt := range []struct {
		forecaster, by, why string
	}{
		{mute, "seasonal", "onnx:mute: model " + mute + ": its output for bin 0 is NaN"},
		{wrong, "seasonal", "its recent error is "},
		{"seasonal", "seasonal", ""},
		{"perfect", "", ""},
	} {
		r := s.must(append([]string{"replay", "-synthetic", "week", "-json", "-o", page, "-forecaster", tt.forecaster}, quick...)...)
		var got replay.Report
		if err := json.Unmarshal([]byte(r.out), &got); err != nil {
			t.Fatal(err)
		}
		if tt.by == "" {
			if len(got.Forecasts) > 0 {
				t.Errorf("%s: %+v", tt.forecaster, got.Forecasts)
			}
			continue
		}
		if len(got.Forecasts) != 1 || got.Forecasts[0].By != tt.by || got.Forecasts[0].Share != 1 || !strings.Contains(got.Forecasts[0].Why, tt.why) || (got.Forecasts[0].Why == "") != (tt.why == "") {
			t.Errorf("%s: %+v", tt.forecaster, got.Forecasts)
		}
		const says = "Of the forecasts, 12 of 12 were made by seasonal instead of onnx:"
		note := slices.ContainsFunc(got.Notes, func(n string) bool { return strings.HasPrefix(n, says) && strings.Contains(n, tt.why) })
		if told := strings.Contains(read(t, page), says); note != (tt.why != "") || told != note {
			t.Errorf("%s: notes %q, on the page: %v", tt.forecaster, got.Notes, told)
		}
	}
	if out := s.must(append([]string{"replay", "-synthetic", "week", "-forecaster", mute}, quick...)...).out; !strings.Contains(out, "12 of 12 were made by seasonal instead of onnx:mute: ") {
		t.Errorf("the text:\n%s", out)
	}
}
