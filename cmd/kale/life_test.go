package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/state"
	"github.com/kale-sched/kale/core/stream"
)

// lifeJob is a small job with short times whose accelerator is emulated. %BROKER% and %DIR% are replaced.
const lifeJob = `
variable "checkpoints" {
  type = string
}

job "life" {
  slo {
    max_lag = "10s"
  }
  stream "kafka" {
    brokers = ["%BROKER%"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
    dense  = ["price"]
  }
  model {
    kind          = "lr"
    batch         = 64
    optimiser "adagrad" {
    }
  }
  workers {
    max          = 3
    gpus         = 0
    cpu          = 0.1
    memory       = "64MiB"
    emulate_step = "80ms"
    chunk        = 32
  }
  servers {
    cpu    = 0.1
    memory = "64MiB"
  }
  throughput {
    theta = [0.00125, 0, 0]
  }
  forecast {
    interval = "1s"
    horizon  = "10s"
    season   = "60s"
    history  = "60s"
  }
  autoscale {
    tau          = "2s"
    cooldown_out = "1s"
    cooldown_in  = "2s"
    tick         = "500ms"
    watch        = "100ms"
  }
  checkpoint {
    dir   = var.checkpoints
    every = "5s"
  }
  backend "local" {
    gpus = "none"
  }
}
`

// needONNX skips the test where no worker can train; testMain has given all workers what there is.
func needONNX(t *testing.T) {
	t.Helper()
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("ONNX Runtime is missing, so that no worker can train: make deps installs it (%v)", err)
	}
}

// A job's life by its commands: it is run, looked at, scaled by hand, paused; its scheduler ends and is taken up again while it trains on;
// it is stopped with and without a scheduler, forgotten, and nothing of it is left but its checkpoint.
func TestLife(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(lifeJob, "%BROKER%", addr)), 0o600); err != nil {
		t.Fatal(err)
	}
	checkpoints := "checkpoints=" + filepath.Join(dir, "checkpoints")
	produce := []string{"produce", "-brokers", addr, "-topic", "clicks", "-peak", "300", "-from", "12h"}
	s.must(append(produce, "-history", "2m", "-duration", "0")...) // to its end: a scheduler that sees it come sees a burst
	traffic := s.start(produce...)
	t.Cleanup(func() { // whatever fails above, no process may be left
		if r := s.runCtx(context.Background(), "stop", "life", "-force"); r.code != exitDone && !strings.Contains(r.err, "no job") {
			t.Errorf("stop -force: %s", r.err)
		}
	})

	run := s.start("run", file, "-var", checkpoints, "-plain")
	status := func() (v core.View) {
		r := s.run("status", "life", "-json")
		if r.code != exitDone {
			return core.View{}
		}
		if err := json.Unmarshal([]byte(r.out), &v); err != nil {
			t.Errorf("status -json: %v", err)
		}
		return v
	}
	train := func(v core.View, n int) bool { return v.Sample.Running != nil && *v.Sample.Running >= n }
	run.eventually("a worker that trains", func() bool { v := status(); return train(v, 1) && v.Trained != nil && *v.Trained > 0 })
	if text := s.must("status", file).out; !regexp.MustCompile(`worker-\d-g\d+`).MatchString(text) || !strings.Contains(text, "emulated accelerator") {
		t.Errorf("status by the job file:\n%s", text)
	}
	if text := s.must("status").out; !strings.Contains(text, "life  ") || !strings.Contains(text, file) {
		t.Errorf("status of all jobs:\n%s", text)
	}

	if r := s.run("scale", "life", "9"); r.code != exitFailed || !strings.Contains(r.err, "allows 1 to 3") {
		t.Errorf("scale beyond the job file: %d %s", r.code, r.err)
	}
	s.must("scale", "life", "3")
	if text := s.must("plan", file, "-var", checkpoints).out; !strings.Contains(text, "pinned to 3 workers by hand") {
		t.Errorf("plan does not follow an order that the scheduler was given:\n%s", text)
	}
	run.eventually("3 workers", func() bool { return train(status(), 3) })
	says := func(want string, order ...string) {
		t.Helper()
		if r := s.must(order...); !strings.Contains(r.out, want) {
			t.Errorf("kale %s: %q, want %q", quoted(order), r.out, want)
		}
	}
	says(`job "life": it is not paused, and goes on as before`, "resume", "life")
	says(`job "life": paused; kale resume life goes on`, "pause", "life")
	run.eventually("the pause", func() bool { return status().Manual.Paused })
	says("it is paused already, since ", "pause", "life")
	says("2 workers from now on, until kale scale life auto; the job is paused, so that no worker comes or goes before kale resume life", "scale", "life", "2")
	says("paused: nothing is trained until resume; then 2 workers until scale auto", "status", "life")
	says(`{"job":"life","order":"scale","workers":2,"changed":false,"says":["job \"life\": 2 workers already, until kale scale life auto; the job is paused`, "scale", "life", "2", "-json")
	says(`{"job":"life","order":"resume","changed":true,"says":["job \"life\": training goes on"]}`+"\n", "resume", "life", "-json")
	says("job \"life\": the policy decides again\n", "scale", "life", "auto")
	run.eventually("the policy's return", func() bool { v := status(); return !v.Manual.Pinned && !v.Manual.Paused })
	says("job \"life\": the policy decides already\n", "scale", "life", "auto")

	if text := s.must("explain", "life").out; !strings.Contains(text, "pinned to 3 workers by hand") {
		t.Errorf("explain:\n%s", text)
	}
	run.eventually("a forecast that has come to its time", func() bool {
		var r hindsight.Review
		got := s.run("forecast", "show", "life", "-ahead", "1s,4s", "-json")
		return got.code == exitDone && json.Unmarshal([]byte(got.out), &r) == nil && len(r.Leads) == 2 && r.Leads[1].Bins > 0 && r.Leads[1].In90 != nil && len(r.Bins) > 0
	})
	if text := s.must("forecast", "show", "life").out; !strings.Contains(text, "by seasonal") || !strings.Contains(text, "AHEAD") || !strings.Contains(text, "10S AHEAD") {
		t.Errorf("forecast show:\n%s", text)
	}
	if r := s.run("forecast", "show", "life", "-ahead", "1500ms"); r.code != exitFailed || !strings.Contains(r.err, "whole bins of 1s, which 1.5s is not") {
		t.Errorf("forecast show of a part of a bin: exit code %d, %s", r.code, r.err)
	}
	// worker is the rank of one that trains: which of them stay is the scheduler's business.
	worker := func() int {
		for _, w := range glanceOf(t, s, "life").Workers {
			if w.Member == "ready" {
				return w.Rank
			}
		}
		t.Fatal("no worker trains")
		return 0
	}
	rank := worker()
	if text := s.must("logs", "life", fmt.Sprint("worker-", rank), "-n", "50").out; !strings.Contains(text, fmt.Sprint("worker=", rank)) {
		t.Errorf("logs of a worker:\n%s", text)
	}
	if text := s.must("logs", "life", "-n", "1").out; !strings.Contains(text, "ps-0-g1 | ") || !regexp.MustCompile(`worker-\d-g\d+ \| `).MatchString(text) {
		t.Errorf("logs of all:\n%s", text)
	}
	if r := s.run("logs", "life", "worker-8"); r.code != exitFailed || !strings.Contains(r.err, "it has ps-0") {
		t.Errorf("logs of a worker that is not there: %d %s", r.code, r.err)
	}
	if page := s.must("report", "life", "-o", "-").out; !strings.HasPrefix(page, "<!") {
		t.Errorf("the report begins with %q", page[:min(len(page), 40)])
	}
	if r := s.run("report", "life", "-o", t.TempDir()); r.code != exitFailed || !strings.Contains(r.err, "it is a folder: name a file in it") {
		t.Errorf("a report into a folder: %d %s", r.code, r.err)
	}
	if r := s.run("run", "life", "-plain"); r.code != exitFailed || !strings.Contains(r.err, "kale status life") {
		t.Errorf("a second scheduler: %d %s", r.code, r.err)
	}
	if r := s.must("plan", "life"); !strings.Contains(r.err, `a scheduler of job "life" is running`) {
		t.Errorf("plan beside a scheduler: %s", r.err)
	}

	run.interrupt()
	r := run.end()
	if r.code != exitDone || !strings.Contains(r.err, "training goes on") || !strings.Contains(r.err, "kale stop life") || !strings.Contains(r.err, "kale run "+file) {
		t.Errorf("after Ctrl-C: exit code %d, %s", r.code, r.err)
	}
	if r := s.run("pause", "life"); r.code != exitFailed || !strings.Contains(r.err, "start it with kale run life") {
		t.Errorf("pause without a scheduler: %d %s", r.code, r.err)
	}
	alone := glanceOf(t, s, "life")
	if alone.State != core.StateRunning || alone.Scheduler || alone.Trained == nil || *alone.Trained == 0 || len(alone.Workers) == 0 || alone.LastChange == nil {
		t.Errorf("status -json without a scheduler: %+v", alone)
	}
	if text := s.must("status", "life").out; !strings.Contains(text, "trains on without a scheduler") || !regexp.MustCompile(`worker-\d-g\d+`).MatchString(text) || !strings.Contains(text, "kale run life takes it up again") {
		t.Errorf("status without a scheduler:\n%s", text)
	}
	// The look at all jobs is short: on a busy machine the chief's answer may come too late for one, which says so.
	text := s.must("status").out
	for range 10 {
		if !strings.Contains(text, "its chief does not answer") {
			break
		}
		text = s.must("status").out
	}
	if !strings.Contains(text, "trains on without a scheduler") {
		t.Errorf("status of all jobs without a scheduler:\n%s", text)
	}
	if r := s.run("forget", "life"); r.code != exitFailed || !strings.Contains(r.err, "kale stop life first") {
		t.Errorf("forget of a job that trains: %d %s", r.code, r.err)
	}
	if text := s.must("forecast", "show", "life", "-n", "1").out; !strings.Contains(text, "1S AHEAD") {
		t.Errorf("forecast show without a scheduler:\n%s", text)
	}
	if text := s.must("explain", "life", "-all", "-n", "2").out; strings.Count(text, "why ") != 2 {
		t.Errorf("explain without a scheduler:\n%s", text)
	}
	rank = worker()
	if text := s.must("logs", "life", fmt.Sprint("worker-", rank), "-n", "1").out; !strings.Contains(text, fmt.Sprint("worker=", rank)) {
		t.Errorf("logs without a scheduler:\n%s", text)
	}
	if page := s.must("report", "life", "-o", "-").out; !strings.HasPrefix(page, "<!") {
		t.Errorf("the report without a scheduler begins with %q", page[:min(len(page), 40)])
	}

	// By its name the job is run as it was the last time: with its variables.
	again := s.start("run", "life", "-plain")
	again.eventually("training to be found", func() bool { v := status(); return train(v, 1) && v.Trained != nil && *v.Trained > 0 })
	if v := status(); v.LastChange == nil || !v.LastChange.Decision.At.Equal(alone.LastChange.Decision.At) && v.LastChange.Decision.At.Before(v.Started) {
		t.Errorf("the last change is %+v, and was %+v before the scheduler ended", v.LastChange, alone.LastChange)
	}
	if r := s.run("forget", "life"); r.code != exitFailed || !strings.Contains(r.err, "its scheduler runs") {
		t.Errorf("forget of a job with a scheduler: %d %s", r.code, r.err)
	}
	// A stop has an end: what comes right after it finds a job that has stopped, and nobody in the way.
	// Who takes it up meanwhile waits for that, and the stop has done what it was to do all the same.
	stopping := s.start("stop", "life")
	stopping.eventually("the stop to be taken", func() bool {
		g := glanceOf(t, s, "life")
		return g.State == core.StateStopping || g.State == core.StateStopped
	})
	waiting := s.start("run", "life", "-plain")
	if r := stopping.end(); r.code != exitDone || !strings.HasPrefix(r.out, "job \"life\" has stopped") {
		t.Errorf("stop: exit code %d, %s%s", r.code, r.out, r.err)
	}
	waiting.eventually("training after that stop", func() bool { return train(status(), 1) })
	if r := s.must("stop", "life"); r.out != "job \"life\" has stopped\n" {
		t.Errorf("stop: %s", r.out)
	}
	waiting.end()
	if r := s.must("stop", "life"); r.out != "job \"life\" has stopped already\n" {
		t.Errorf("stop of a stopped job: %s", r.out)
	}
	if g := glanceOf(t, s, "life"); g.State != core.StateStopped || g.Scheduler || g.LastChange == nil {
		t.Errorf("status -json of a stopped job: %+v", g)
	}
	if r := s.run("pause", "life"); r.code != exitFailed || !strings.Contains(r.err, `job "life" is stopped, and has no scheduler: start it again with kale run`) {
		t.Errorf("pause of a stopped job: exit code %d, %s", r.code, r.err)
	}
	if r := again.end(); r.code != exitDone || !strings.Contains(r.err, "has stopped") {
		t.Errorf("run of a job that was stopped: exit code %d, %s", r.code, r.err)
	}

	// Once more, while the scheduler before has not let go yet, and to be stopped without a scheduler.
	ending, err := state.Open(filepath.Join(s.env["KALE_STATE_DIR"], "life"))
	if err != nil {
		t.Fatal(err)
	}
	if g := glanceOf(t, s, "life"); g.State != core.StateUnknown || !g.Scheduler {
		t.Errorf("status -json while a scheduler ends: %+v", g)
	}
	third := s.start("run", "life", "-plain")
	time.Sleep(time.Second) // long enough for a run that does not wait to fail
	if err := ending.Close(); err != nil {
		t.Fatal(err)
	}
	third.eventually("training after the stop", func() bool { return train(status(), 1) })
	third.interrupt()
	third.end()
	if r := s.must("stop", "life"); !strings.Contains(r.out, "has stopped") {
		t.Errorf("stop without a scheduler: %s", r.out)
	}
	if r := s.must("stop", "life", "-force", "-json"); r.out != `{"job":"life","order":"stop","changed":false,"says":["job \"life\" has stopped already"]}`+"\n" { // nothing is left to be forced
		t.Errorf("stop -json of a stopped job: %s", r.out)
	}
	var p planned
	if err := json.Unmarshal([]byte(s.must("plan", "life", "-json").out), &p); err != nil || len(p.Running) != 0 {
		t.Errorf("after the stop there runs %v (%v)", p.Running, err)
	}
	traffic.interrupt()
	traffic.end()

	folder := filepath.Join(dir, "checkpoints", "life")
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"validate", "life"}, {"doctor", "life", "-no-probe"}, {"plan", "life"}, {"run", "life"}} {
		r := s.run(command...)
		if says := strings.Join(strings.Fields(r.out+r.err), " "); r.code != exitFailed || !strings.Contains(says, "To give the model up: kale forget life;") {
			t.Errorf("%s without the checkpoint: exit code %d, %s%s", command[0], r.code, r.out, r.err)
		}
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
	strange := &shell{t: t, env: map[string]string{"KALE_STATE_DIR": shortDir(t)}, exe: s.exe, patience: s.patience} // a folder that knows nothing of it
	whole := filepath.Join(dir, "whole.hcl")                                                                         // without a variable that has no value
	if err := os.WriteFile(whole, []byte(strings.NewReplacer("%BROKER%", addr, "type = string", "default = "+strconv.Quote(filepath.Join(dir, "checkpoints"))).Replace(lifeJob)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := strange.must("stop", whole); !strings.Contains(r.out, `job "life" has stopped already, at `) || !strings.Contains(r.out, "its model is in "+folder) {
		t.Errorf("stop from another state folder: %s%s", r.out, r.err)
	}
	if r := strange.must("status", whole); !strings.Contains(r.out, "stopped: it was stopped at ") || !strings.Contains(r.out, "tells more") {
		t.Errorf("status from another state folder: %s%s", r.out, r.err)
	}
	if r := s.must("forget", "life"); !strings.Contains(r.out, "its checkpoint stays in "+folder) || !strings.Contains(r.out, "removed: the logs and records of ") {
		t.Errorf("forget: %s", r.out)
	}
	if left := under(t, s.env["KALE_STATE_DIR"]); len(left) > 0 || len(under(t, folder)) == 0 {
		t.Errorf("forget left %v, and of the checkpoint %v", left, under(t, folder))
	}
	if text := s.must("status").out; strings.Contains(text, "life") {
		t.Errorf("status after forget:\n%s", text)
	}
	if r := s.run("forget", "life"); r.code != exitFailed || !strings.Contains(r.err, `no job "life"`) {
		t.Errorf("forget again: %d %s", r.code, r.err)
	}
	for who, at := range map[string]*shell{"that forgot it": s, "that never had it": strange} {
		if r := at.must("status", whole); !strings.Contains(r.out, "stopped: it was stopped at ") || !strings.Contains(r.out, "its model is in "+folder) || strings.Contains(r.out, "tells more") ||
			!strings.Contains(r.out, "takes it up again") {
			t.Errorf("status of a job that was forgotten, in a state folder %s: %s%s", who, r.out, r.err)
		}
	}
}

// glanceOf is what status says of a job that has no scheduler.
func glanceOf(t *testing.T, s *shell, name string) (g core.Glance) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.must("status", name, "-json").out), &g); err != nil {
		t.Fatal(err)
	}
	return g
}
