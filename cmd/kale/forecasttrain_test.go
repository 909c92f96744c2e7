package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/forecast"
)

// What makes the model that a job file names does not ask for it first, whether it is not there yet or is none; who needs it says how it is made.
func TestTrainMakesTheModelThatTheJobNames(t *testing.T) {
	t.Parallel()
	s := newShell(t).withPrograms()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 1})
	dir := t.TempDir()
	file, model := filepath.Join(dir, "job.hcl"), filepath.Join(dir, "m.onnx")
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "90m", "-duration", "0", "-peak", "2")
	s.must("init", "-brokers", addr, "-topic", "clicks", "-o", file)
	text := withLine(t, read(t, file), "forecast", "model", `"m.onnx"`)
	for attribute, value := range map[string]string{"interval": `"1m"`, "horizon": `"2m"`, "season": `"5m"`, "history": `"88m"`} {
		text = withLine(t, text, "forecast", attribute, value)
	}
	writeIn(t, dir, "job.hcl", withLine(t, text, "autoscale", "tau", `"1m"`))
	for _, command := range []string{"validate", "plan", "run"} {
		r := s.run(command, file)
		if said := strings.Join(strings.Fields(r.err), " "); r.code != exitFailed || strings.Count(said, "error: No such file") != 1 || !strings.Contains(said, "kale forecast train "+file+" -o "+model) {
			t.Errorf("%s: exit code %d, %s", command, r.code, r.err)
		}
	}
	for _, there := range []string{"", "garbage"} {
		if there != "" {
			writeIn(t, dir, "m.onnx", there)
		}
		if r := s.run("forecast", "train", file, "-o", model); r.code != exitDone || read(t, model) == there {
			t.Errorf("over %q: exit code %d, %s", there, r.code, r.err)
		}
	}
	if r := s.run("validate", file); strings.Contains(r.err, "forecast model") || strings.Contains(r.err, "No such file") {
		t.Errorf("with the model: exit code %d, %s", r.code, r.err)
	}
}

// Two trainings of one file at once would each take the other's part: the second is refused, also one that goes on, and says whose the first is. kill -9 leaves no lock, and
// whoever begins anew over a part is told.
func TestOneTrainingOfAFile(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s, trace, model := newShell(t).asShipped(), traceAt(t), filepath.Join(t.TempDir(), "two.onnx")
	args := []string{"forecast", "train", "-model", "fedformer", "-trace", trace, "-interval", "30m", "-season", "24h", "-horizon", "3h", "-width", "8", "-o", model}
	long := append(slices.Clone(args), "-epochs", "1000000")
	cmd, b := s.startProcess(long...)
	b.eventually("epoch", func() bool { return strings.Contains(b.err.String(), "epoch 1 of 1000000: loss ") })
	if strings.Contains(b.err.String(), "begun before") {
		t.Errorf("the first speaks of one before it: %s", b.err.String())
	}
	says := fmt.Sprintf("%s is being trained by another kale (process %d)", model, cmd.Process.Pid)
	for _, second := range [][]string{long, {"forecast", "train", "-resume", "-o", model}} {
		if r := s.run(second...); r.code != exitFailed || !strings.Contains(r.err, says) {
			t.Errorf("%v beside it: exit code %d, %s\nwant %s", second, r.code, r.err, says)
		}
	}
	// Neither is one that is no FEDformer's, which has no part, the end of it.
	s.must("forecast", "train", "-trace", trace, "-season", "24h", "-horizon", "1h", "-o", model)
	if _, err := os.Stat(model + partSuffix); err != nil {
		t.Errorf("the part of the one that is under way is gone: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	b.end()
	r := s.must(append(slices.Clone(args), "-epochs", "1")...)
	if said := strings.Join(strings.Fields(r.err), " "); !strings.Contains(said, "there is a training of "+model+" begun before, kept at ") || !strings.Contains(said, "give -resume -o "+model) {
		t.Errorf("anew, over a part: %s", r.err)
	}
	for _, left := range []string{partSuffix, lockSuffix} {
		if _, err := os.Stat(model + left); err == nil {
			t.Errorf("%s is left", model+left)
		}
	}
}

// A linear map that sees less than a season is made, and it is said what it cannot see: to who trains it and in the report.
func TestTrainSaysThatNoSeasonIsSeen(t *testing.T) {
	t.Parallel()
	s, trace, model := newShell(t).asShipped(), traceAt(t), filepath.Join(t.TempDir(), "m.onnx")
	common := []string{"forecast", "train", "-trace", trace, "-season", "24h", "-horizon", "1h", "-o", model}
	const says = "is shorter than one season of 144"
	for _, kind := range []string{forecast.NLinear, forecast.DLinear} {
		r := s.must(append(slices.Clone(common), "-model", kind, "-input", "10")...)
		if said := strings.Join(strings.Fields(r.err), " "); !strings.Contains(said, "an input of 10 bins "+says) || !strings.Contains(said, "-input 144") || strings.Contains(r.out, says) {
			t.Errorf("%s: %s", kind, r.err)
		}
		var report struct{ Note string }
		r = s.must(append(slices.Clone(common), "-model", kind, "-input", "143", "-json")...)
		if err := json.Unmarshal([]byte(r.out), &report); err != nil || !strings.Contains(report.Note, says) {
			t.Errorf("%s: %v: %s", kind, err, r.out)
		}
		if r := s.must(append(slices.Clone(common), "-model", kind, "-input", "144")...); strings.Contains(r.err, "one season") {
			t.Errorf("%s of a season: %s", kind, r.err)
		}
	}
}

// A horizon of nothing is none, and not the usual one; two that are as good are equal; a name that no file can have is refused before anything is learnt.
func TestTrainRefusesAndCompares(t *testing.T) {
	t.Parallel()
	s, trace, dir := newShell(t).asShipped(), traceAt(t), t.TempDir()
	r := s.run("forecast", "train", "-trace", trace, "-horizon", "0s", "-o", filepath.Join(dir, "m.onnx"))
	if r.code != exitUsage || !strings.Contains(r.err, `invalid argument "0s" for "-horizon" flag: it must be above 0`) {
		t.Errorf("-horizon 0s: exit code %d, %s", r.code, r.err)
	}
	for _, e := range []float64{0, 0.25} {
		v, err := compareTrained(e, e, 1, forecast.Lead{SE: math.NaN()}, forecast.GateOptions{})
		if err != nil || !strings.HasPrefix(v.says, "The model is as good as seasonal: the error of both is ") || *v.worse {
			t.Errorf("both at %v: %v, %+v", e, err, v)
		}
	}
}

// The block for the job file has all that the model was trained with; a holiday that there is not is no exception.
func TestTrainTellsTheWholeBlock(t *testing.T) {
	t.Parallel()
	s, trace, model := newShell(t).asShipped(), traceAt(t), filepath.Join(t.TempDir(), "m.onnx")
	args := []string{"forecast", "train", "-trace", trace, "-horizon", "1h", "-season", "24h", "-timezone", "America/New_York", "-holidays", "us,12-24", "-o", model, "-holidays-except"}
	if r := s.run(append(args, "Colombus Day")...); r.code != exitUsage || !strings.Contains(r.err, `-holidays-except "Colombus Day": Did you mean "Columbus Day"?`) {
		t.Errorf("an exception from nothing: exit code %d, %s", r.code, r.err)
	}
	told := s.must(append(args, "Columbus Day")...).err
	for _, line := range []string{"history ", "season ", "timezone ", "holidays ", "holidays_except "} {
		want := map[string]string{"history ": `"97h" # or more`, "season ": `["24h"]`, "timezone ": `"America/New_York"`, "holidays ": `["us", "12-24"]`, "holidays_except ": `["Columbus Day"]`}[line]
		if !regexp.MustCompile(`(?m)^    ` + line + ` *= ` + regexp.QuoteMeta(want) + `$`).MatchString(told) {
			t.Errorf("it does not say that %sis %s:\n%s", line, want, told)
		}
	}
}

// A history of more bins than brokers are asked for is refused before they are asked, with what helps: the default of -history, which nobody gave, is long for bins of a second.
func TestTrainRefusesTooManyBins(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	train := func(more ...string) result {
		return s.run(append([]string{"forecast", "train", "-trace", "kafka://127.0.0.1:1/clicks", "-season", "2m", "-o", filepath.Join(t.TempDir(), "m.onnx")}, more...)...)
	}
	const want = "a history of 28d in bins of 1s is 2419200 requests to the brokers, more than the 200000 that are made: give -history 55h or less, or -interval 13s or more"
	if r := train("-interval", "1s"); r.code != exitUsage || !strings.Contains(strings.Join(strings.Fields(r.err), " "), want) {
		t.Errorf("exit code %d, %s\nwant %s", r.code, r.err, want)
	}
	for _, given := range [][]string{{"-interval", "1s", "-history", "55h"}, {"-interval", "13s"}} { // what it says
		if r := train(given...); strings.Contains(r.err, "requests to the brokers") || strings.Contains(r.err, "more than 200000") {
			t.Errorf("%v: %s", given, r.err)
		}
	}
}

// A model whose bins are longer than the default of autoscale.tau, or whose horizon is shorter, does not go with it.
func TestTauBesideAModel(t *testing.T) {
	for want, info := range map[string]forecast.ModelInfo{
		`tau = "15m" }, or more`: {Step: 15 * time.Minute, Horizon: 4},
		`tau = "30s" }, or less`: {Step: time.Second, Horizon: 30},
		"":                       {Step: 10 * time.Minute, Horizon: 1},
	} {
		if got := tauBeside(info); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("bins of %s, %d of them: %q; want %q", info.Step, info.Horizon, got, want)
		}
	}
}
