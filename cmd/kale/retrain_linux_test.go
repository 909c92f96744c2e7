package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/forecast"
)

// A training that is ended at one of its bounds says which, and what helps.
func TestTrainAnewSaysWhichBound(t *testing.T) {
	a := &app{exe: newShell(t).withPrograms().exe}
	what := core.ForecastTraining{History: dailyTraffic(10), Horizon: 6, Seasons: []time.Duration{24 * time.Hour}, Kind: forecast.Linear, Out: filepath.Join(t.TempDir(), "m.onnx")}
	const helps = ": use a model that is smaller, or set forecast.history shorter"
	large, most := what, retrainBounds
	large.History = dailyTraffic(140)
	most.memory = 128 << 20
	if _, err := a.trainWithin(t.Context(), large, most); err == nil || err.Error() != "it needs more than 128 MiB of memory, which is all that it may have"+helps {
		t.Errorf("out of memory: %v", err)
	}
	endless := filepath.Join(t.TempDir(), "kale")
	if err := os.WriteFile(endless, []byte("#!/bin/sh\necho training on 1440 bins >&2\nwhile :; do :; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	most = retrainBounds
	most.cpu = time.Second
	if _, err := (&app{exe: endless}).trainWithin(t.Context(), what, most); err == nil || err.Error() != "it was ended after 1s of computing, which is all that it may take"+helps {
		t.Errorf("out of time: %v", err)
	}
	for script, says := range map[string]string{"echo no luck >&2; exit 2": "no luck (exit status 2)", "echo no luck >&2; kill -9 $$": `its process was ended by signal 9, by the kernel for want of memory (journalctl -k says so then) or by a person; the last that it said was "no luck" (signal: killed)`} {
		if err := os.WriteFile(endless, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := (&app{exe: endless}).trainAnew(t.Context(), what); err == nil || err.Error() != says {
			t.Errorf("%s: %v", script, err)
		}
	}
}
