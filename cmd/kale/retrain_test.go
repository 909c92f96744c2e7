package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
	"github.com/kale-sched/kale/forecast"
)

// dailyTraffic is traffic of a day's season in bins of 10 minutes, with a hole.
func dailyTraffic(days int) forecast.Series {
	s := forecast.Series{Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Step: 10 * time.Minute}
	for i := range days * 144 {
		s.Values = append(s.Values, 200+100*math.Sin(float64(i)/144*2*math.Pi)+float64((i*7919)%23))
	}
	for i := 100; i < 110; i++ {
		s.Values[i] = math.NaN()
	}
	return s
}

// A forecast model is trained anew in a process of its own, from what it is given, and measured beside the one in use on what neither has seen.
func TestTrainAnew(t *testing.T) {
	onnxtest.Library(t)
	a := &app{exe: newShell(t).withPrograms().exe}
	dir := t.TempDir()
	what := core.ForecastTraining{History: dailyTraffic(10), Horizon: 6, Seasons: []time.Duration{24 * time.Hour}, Kind: forecast.Linear, Out: filepath.Join(dir, "first.onnx")}
	first, err := a.trainAnew(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	if first.ID == "" || first.Origins == 0 || !math.IsNaN(first.Current) || first.Model <= 0 || first.Model > 0.2 || first.Seasonal <= 0 || first.Naive <= 0 {
		t.Errorf("the first one: %+v", first)
	}
	if l := first.OverSeasonal; math.Abs(l.By-(first.Seasonal-first.Model)) > 0.02 || !(l.SE > 0) || !math.IsNaN(first.OverCurrent.SE) {
		t.Errorf("the first one leads by %+v, and over none by %+v", l, first.OverCurrent)
	}
	what.Current, what.Out, what.History = what.Out, filepath.Join(dir, "second.onnx"), dailyTraffic(12)
	second, err := a.trainAnew(t.Context(), what)
	if err != nil {
		t.Fatal(err)
	}
	if until := dailyTraffic(10).End(); second.ID == first.ID || second.From.Before(until) || second.Current <= 0 || second.Current > 0.2 {
		t.Errorf("the second one: %+v; want it measured after %v, beside the first", second, until)
	}
	if l := second.OverCurrent; math.Abs(l.By-(second.Current-second.Model)) > 0.02 || !(l.SE >= 0) {
		t.Errorf("the second one leads by %+v", l)
	}
	what.History, what.Current = dailyTraffic(1), ""
	if _, err := a.trainAnew(t.Context(), what); !errors.Is(err, forecast.ErrShortHistory) {
		t.Errorf("of a day: %v", err)
	}
	if _, err := (&app{exe: filepath.Join(dir, "absent")}).trainAnew(t.Context(), what); err == nil {
		t.Error("a program that is not there trains")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.trainAnew(ended, what); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "first.onnx"), filepath.Join(dir, "second.onnx")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("it leaves %v, %v", left, err)
	}
	// What a scheduler that was killed has left of the arrivals is replaced, and gone after it.
	what.History, what.Out = dailyTraffic(10), filepath.Join(dir, "third.onnx")
	if err := os.WriteFile(what.Out+traceSuffix, []byte("timestamp,rate\n2026-03-01T"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.trainAnew(t.Context(), what); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(what.Out + traceSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the arrivals are still there: %v", err)
	}
}

// The process that trains has bounds of memory and time, and the lowest priority.
func TestTrainAnewIsBound(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "kale")
	script := "#!/bin/sh\nuntil [ \"$(ulimit -t)\" = 1800 ]; do :; done\necho \"$(ulimit -d) KiB, $(nice), $GOMAXPROCS core, $GOMEMLIMIT\" >&2\nexit 3\n"
	if err := os.WriteFile(exe, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := (&app{exe: exe}).trainAnew(t.Context(), core.ForecastTraining{History: dailyTraffic(1), Horizon: 6, Out: filepath.Join(t.TempDir(), "model.onnx")})
	if want := fmt.Sprintf("%d KiB, 19, 1 core, %d (exit status 3)", retrainBounds.memory>>10, retrainBounds.memory*3/4); err == nil || err.Error() != want {
		t.Errorf("what it says of its bounds: %v; want %s", err, want)
	}
}

// Where ONNX Runtime cannot even be loaded for want of memory, that is what is told, and not that its library is broken.
func TestTrainAnewWithoutMemoryForONNXRuntime(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "kale")
	script := "#!/bin/sh\necho '{\"error\": \"onnx: load ONNX Runtime: libonnxruntime.so: failed to map segment from shared object; fetch it again\"}'\nexit 1\n"
	if err := os.WriteFile(exe, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := (&app{exe: exe}).trainAnew(t.Context(), core.ForecastTraining{History: dailyTraffic(1), Horizon: 6, Out: filepath.Join(t.TempDir(), "model.onnx")})
	if err == nil || !strings.HasPrefix(err.Error(), "it needs more than 1024 MiB of memory") {
		t.Error(err)
	}
}
