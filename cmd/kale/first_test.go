package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/forecast"
)

// A newcomer's first commands, one after the other: a topic with traffic becomes a job file that is valid and can be planned.
func TestInitValidatePlan(t *testing.T) {
	t.Parallel()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 4}, stream.TopicSpec{Name: "empty", Partitions: 1},
		stream.TopicSpec{Name: "compacted", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}})
	s := newShell(t).withPrograms()
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "10m", "-duration", "0", "-peak", "50")
	dir := t.TempDir()
	file := filepath.Join(dir, "ctr.hcl")

	r := s.must("init", "-brokers", addr, "-topic", "clicks", "-o", file) // the job is called as its file
	if !strings.Contains(r.err, "kale plan "+file) {
		t.Errorf("init does not say what comes next: %s", r.err)
	}
	if r := s.run("init", "-brokers", addr, "-topic", "clicks", "-o", file); r.code != exitFailed || !strings.Contains(r.err, "-force") {
		t.Errorf("init over a file: %d %s", r.code, r.err)
	}
	if r := s.run("init", "-brokers", addr, "-topic", "clics"); r.code != exitFailed || !strings.Contains(r.err, "the brokers have: clicks, compacted and empty") {
		t.Errorf("init for a topic that is not there: %d %s", r.code, r.err)
	}
	if r := s.run("init", "-brokers", addr, "-topic", "empty"); r.code != exitFailed || !strings.Contains(r.err, "kale produce -brokers "+addr+" -topic empty ") {
		t.Errorf("init for an empty topic: %d %s", r.code, r.err)
	}
	if r := s.run("init", "-brokers", addr, "-topic", "compacted"); r.code != exitFailed || !strings.Contains(r.err, "compacted") {
		t.Errorf("init for a compacted topic: %d %s", r.code, r.err)
	}
	printed, written := s.must("init", "-brokers", addr, "-topic", "clicks", "-name", "ctr").out, read(t, file)
	reach := regexp.MustCompile(`(?s)The topic's records reach back.*?days\.`) // a time that has gone on since the file was written, and how the lines after it break
	if d := cmp.Diff(reach.ReplaceAllString(written, ""), reach.ReplaceAllString(printed, "")); d != "" || !reach.MatchString(written) {
		t.Errorf("init prints another file than it writes:\n%s", d)
	}

	if r := s.must("validate", file); !strings.Contains(r.out, `job "ctr" is valid`) || r.err != "" {
		t.Errorf("validate: %q %q", r.out, r.err)
	}
	var p planned
	if err := json.Unmarshal([]byte(s.must("plan", file, "-json").out), &p); err != nil {
		t.Fatal(err)
	}
	if p.Decision.Target < 1 || len(p.Placements) != p.Decision.Target+1 || p.Partitions != 4 || p.HistoryAt == nil || len(p.Running) != 0 {
		t.Errorf("plan %+v", p)
	}
	text := s.must("plan", file).out
	for _, want := range []string{"recent rate", "topic    clicks, 4 partitions, arrivals known since", "worker-0-g1", "ps-0-g1"} {
		if !strings.Contains(text, want) {
			t.Errorf("plan does not say %q:\n%s", want, text)
		}
	}
	for _, folder := range []string{s.env["KALE_STATE_DIR"], dir} {
		if left := under(t, folder); len(left) > 0 && (len(left) > 1 || left[0] != file) {
			t.Errorf("commands that only look left %v", left)
		}
	}
}

// What only the brokers and the plugin know is reported at its place in the job file.
func TestValidateAsksAround(t *testing.T) {
	t.Parallel()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 1}, stream.TopicSpec{Name: "old", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}})
	s := newShell(t).withPrograms()
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "10s", "-duration", "0", "-peak", "50")
	base := s.must("init", "-brokers", addr, "-topic", "clicks").out
	for _, tt := range []struct {
		name, from, to string
		says           []string
		offline        bool // also without the brokers
	}{
		{"absent topic", `topic   = "clicks"`, `topic   = "clics"`, []string{`Topic "clics" does not exist`, `Did you mean "clicks"?`}, false},
		{"compacted topic", `topic   = "clicks"`, `topic   = "old"`, []string{`Topic "old" is compacted`}, false},
		{"nobody at the brokers' address", addr, "127.0.0.1:1", []string{"Cannot ask the brokers", "127.0.0.1:1"}, false},
		{"backend block", "backend \"local\" {\n  }", "backend \"local\" {\n    gpu = \"auto\"\n  }", []string{`gpu`}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !strings.Contains(base, tt.from) {
				t.Fatalf("the job file has no %q:\n%s", tt.from, base)
			}
			file := filepath.Join(t.TempDir(), "job.hcl")
			if err := os.WriteFile(file, []byte(strings.Replace(base, tt.from, tt.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, command := range []string{"validate", "plan", "run"} {
				r := s.run(command, file)
				if command == "plan" && tt.to == "127.0.0.1:1" { // it plans what it can
					if r.code != exitDone || !strings.Contains(r.err, "warning") || !strings.Contains(r.out, "unknown  no answer from the brokers") || !strings.Contains(r.out, "worker-0-g1") {
						t.Errorf("plan without brokers: exit code %d, %q:\n%s", r.code, r.out, r.err)
					}
					continue
				}
				if r.code != exitFailed || r.out != "" || !strings.Contains(r.err, file+":") {
					t.Errorf("%s: exit code %d, %q:\n%s", command, r.code, r.out, r.err)
				}
				for _, want := range tt.says {
					if !strings.Contains(r.err, want) {
						t.Errorf("%s does not say %q:\n%s", command, want, r.err)
					}
				}
			}
			want := exitDone
			if tt.offline {
				want = exitFailed
			}
			if r := s.run("validate", file, "-offline"); r.code != want {
				t.Errorf("offline: exit code %d, want %d: %s", r.code, want, r.err)
			}
		})
	}
}

// Whoever interrupts a run before it has done anything is told so, and what goes on of a run before.
func TestRunInterruptedEarly(t *testing.T) {
	s := newShell(t)
	text := strings.NewReplacer("%BROKER%", "127.0.0.1:1", "var.checkpoints", fmt.Sprintf("%q", t.TempDir())).Replace(lifeJob)
	_, text, _ = strings.Cut(text, "\n}\n") // without the variable
	file := write(t, text)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	r := s.runCtx(ctx, "run", file, "-plain")
	const says = "interrupted before the scheduler of job \"life\" had looked at it: this run has started nothing\n  kale run "
	if r.code != exitFailed || !strings.Contains(r.err, says+file+" -plain\nstarts it") {
		t.Errorf("the first run: exit code %d: %s", r.code, r.err)
	}
	if err := saveInvocation(filepath.Join(s.env["KALE_STATE_DIR"], "life"), invocation{File: file}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.env["KALE_STATE_DIR"], "life", "state.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.runCtx(ctx, "run", "life"); r.code != exitFailed || !strings.Contains(r.err, "this run has started nothing, and what ran of it before goes on (kale status life tells)") {
		t.Errorf("a later run: exit code %d: %s", r.code, r.err)
	}
}

func TestNoPlugin(t *testing.T) {
	t.Parallel()
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 1})
	s := newShell(t).withPrograms()
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-history", "10s", "-duration", "0", "-peak", "50")
	file := filepath.Join(t.TempDir(), "job.hcl")
	s.must("init", "-brokers", addr, "-topic", "clicks", "-o", file)
	r := s.run("validate", file, "-plugin-dir", t.TempDir())
	if r.code != exitFailed || !strings.Contains(r.err, "No program kale-backend-local") || !strings.Contains(r.err, "-plugin-dir") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}

	// Somebody else's backend: at first its program is missing, then it is there.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "backend \"local\"")
	if !found {
		t.Fatalf("kale init wrote no backend:\n%s", text)
	}
	line := 1 + strings.Count(before, "\n")
	if err := os.WriteFile(file, []byte(before+"backend \"processes\" {\n  slots = 8\n}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	where := fmt.Sprintf("%s:%d:", filepath.Base(file), line)
	for _, command := range []string{"validate", "plan", "run"} {
		r := s.run(command, file)
		if r.code != exitFailed || !strings.Contains(r.err, where) || !strings.Contains(r.err, "No program kale-backend-processes") || !strings.Contains(r.err, "nor in $PATH") {
			t.Errorf("%s without the program: exit code %d; want %q in %s", command, r.code, where, r.err)
		}
	}
	if r := s.run("validate", file, "-json"); r.code != exitFailed || !strings.Contains(r.out, "No program kale-backend-processes") {
		t.Errorf("validate -json without the program: exit code %d: %s", r.code, r.out)
	}
	dir := t.TempDir()
	program, err := conformance.Build(dir, "github.com/kale-sched/kale/examples/backend-processes")
	if err == nil {
		err = os.Rename(program, filepath.Join(dir, "kale-backend-processes"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if r := s.must("validate", file, "-plugin-dir", dir); strings.Contains(r.err, "processes") {
		t.Errorf("a plugin that does not come with Kale is no reason for a warning: %s", r.err)
	}
}

// A model is trained from a trace, measured, and beats a plain repetition of yesterday.
func TestForecastFromTrace(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	trace := filepath.Join(t.TempDir(), "rates.csv")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(t.TempDir(), "m.onnx")
	r := s.must("forecast", "train", "-trace", trace, "-interval", "30m", "-horizon", "3h", "-season", "24h", "-o", model, "-json")
	var trained struct {
		Errors    []measured
		Worse     *bool `json:"worse_than_seasonal"`
		FallsBack *bool `json:"gate_falls_back"`
	}
	if err := json.Unmarshal([]byte(r.out), &trained); err != nil {
		t.Fatal(err)
	}
	byName := map[string]float64{}
	for _, m := range trained.Errors {
		if m.WAPE == nil {
			t.Fatalf("%s has no error", m.Forecaster)
		}
		byName[m.Forecaster] = *m.WAPE
	}
	if trained.Worse == nil || trained.FallsBack == nil || *trained.Worse != (byName["linear"] > byName["seasonal"]) {
		t.Errorf("errors %v, and: worse %v, falls back %v", byName, trained.Worse, trained.FallsBack)
	}
	if byName["linear"] >= byName["naive"] {
		t.Errorf("the trained model's error is %v, that of repeating yesterday %v", byName["linear"], byName["naive"])
	}
	if _, err := onnx.Locate(); err != nil {
		t.Skipf("ONNX Runtime is missing, so that the model cannot be run: make deps installs it (%v)", err)
	}
	text := s.must("forecast", "eval", "-trace", trace, "-interval", "30m", "-horizon", "3h", "-season", "24h", "-model", model).out
	for _, want := range []string{"seasonal", "onnx:linear", "onnx:linear: trained on what came before "} {
		if !strings.Contains(text, want) {
			t.Errorf("the measurement has no %q:\n%s", want, text)
		}
	}
}

// What is trained is held against the seasonal forecaster as a job's gate will do it, and a model that is worse is not recommended.
func TestTrainedModelIsCompared(t *testing.T) {
	for _, tt := range []struct {
		model, seasonal  float64
		se               float64 // of the lead
		worse, fallsBack *bool
		says             string
	}{
		{0.12, 0.09, 0.001, new(true), new(true), "The model is worse than seasonal: 12.0 % against 9.0 %, on the last part of the history, which neither had seen. As soon as live traffic shows the same, kale run forecasts with seasonal instead."},
		{0.095, 0.09, 0.001, new(true), new(false), "The model is no better than seasonal: 9.5 % against 9.0 %"},
		{0.08, 0.09, 0.001, new(false), new(false), "The model is better than seasonal: 8.0 % against 9.0 %"},
		{0.08, 0.09, 0.006, new(false), new(false), "The model is as good as seasonal, as far as can be told: 8.0 % against 9.0 %, on the last part of the history, which neither had seen. That may be chance, which a lead of more than 1.2 points over these forecasts would not be."},
		{0.08, 0.09, math.NaN(), new(false), new(false), "The model's error is less than that of seasonal: 8.0 % against 9.0 %, on the last part of the history, which neither had seen. These are too few forecasts to tell that from chance."},
		{0.0433410, 0.0433411, 1e-9, new(false), new(false), "The model is as good as seasonal: the error of both is 4.3 %, on the last"},
		{0.0433411, 0.0433410, 1e-9, new(false), new(false), "The model is as good as seasonal: the error of both is 4.3 %, on the last"},
		{math.NaN(), 0.09, 0.001, nil, nil, "could not be compared"},
	} {
		got, err := compareTrained(tt.model, tt.seasonal, 0.2, forecast.Lead{By: tt.seasonal - tt.model, SE: tt.se}, forecast.GateOptions{})
		if err == nil && strings.Contains(got.says, "naive") {
			t.Errorf("%v against %v: what is worse than both is named: %s", tt.model, tt.seasonal, got.says)
		}
		if err != nil || !cmp.Equal(got.worse, tt.worse) || !cmp.Equal(got.fallsBack, tt.fallsBack) || !strings.Contains(got.says, tt.says) {
			t.Errorf("%v against %v: %+v, %v", tt.model, tt.seasonal, got, err)
		}
		if want := strings.Contains(tt.says, "better than seasonal: 8"); got.better != nil && *got.better != want {
			t.Errorf("%v against %v ± %v: better is %v", tt.model, tt.seasonal, tt.se, *got.better)
		}
	}
}

// Where the simplest forecaster was the best, that is said too, whatever the model was held against.
func TestNaiveWasBetter(t *testing.T) {
	got, err := compareTrained(0.164, 0.177, 0.08, forecast.Lead{By: 0.013, SE: 0.001}, forecast.GateOptions{})
	if err != nil || !strings.Contains(got.says, "better than seasonal: 16.4 % against 17.7 %") || !strings.Contains(got.says, "naive, which expects what came a season before, was better than both here (8.0 %)") {
		t.Errorf("%+v, %v", got, err)
	}
}

// An interrupted training leaves the model that was there.
func TestForecastTrainKeepsTheOldModel(t *testing.T) {
	s := newShell(t)
	trace, model := filepath.Join(t.TempDir(), "rates.csv"), filepath.Join(t.TempDir(), "m.onnx")
	for path, text := range map[string]string{trace: "2026-01-01T00:00:00Z,1\n2026-01-01T00:30:00Z,1\n", model: "the old one"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := s.run("forecast", "train", "-trace", trace, "-horizon", "30m", "-o", model)
	if r.code != exitFailed || !strings.Contains(r.err, "\nkale: train linear forecast model: history is too short") || read(t, model) != "the old one" {
		t.Errorf("exit code %d, model %q: %s", r.code, read(t, model), r.err)
	}
	if left := under(t, filepath.Dir(model)); len(left) != 1 {
		t.Errorf("beside the model: %v", left)
	}
}

func TestVersion(t *testing.T) {
	s := newShell(t)
	for _, command := range []string{"version", "-version"} {
		if r := s.must(command); !strings.HasPrefix(r.out, "kale ") || !strings.Contains(r.out, "ONNX Runtime: ") {
			t.Errorf("%s: %q", command, r.out)
		}
	}
	var v about.About
	if err := json.Unmarshal([]byte(s.must("version", "-json").out), &v); err != nil {
		t.Fatal(err)
	}
	if v.Go == "" || (v.ONNX == "") == (v.NoONNX == "") || v.ONNX != "" && v.ONNXVersion == "" {
		t.Errorf("%+v", v)
	}
}

// A library that is named and cannot be used is a failure; the version is said all the same.
func TestVersionWithABrokenLibrary(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libonnxruntime.so")
	if err := os.WriteFile(text, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := programs(); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{text: "the file cannot be loaded", text + ".none": "which is not a file"} {
		for _, program := range []string{"kale", "kale-trainer"} {
			t.Run(program+" "+says, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, program), "version") // a process loads one library in its life
				cmd.Env = append(os.Environ(), onnx.LibraryEnv+"="+path)
				out, err := cmd.Output()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("%v, want exit code 1", err)
				}
				if !strings.HasPrefix(string(out), program+" ") || !strings.Contains(string(out), "cannot be used: ") || !strings.Contains(string(out), says) {
					t.Errorf("it says %q, want %q in it", out, says)
				}
			})
		}
	}
}

// A socket that an ended scheduler left is not taken for a scheduler.
func TestStaleSocket(t *testing.T) {
	s := newShell(t)
	a := s.app(&buffer{}, &buffer{})
	dir, err := a.jobDir("ctr")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: "/jobs/ctr.hcl"}); err != nil {
		t.Fatal(err)
	}
	path, err := api.SocketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "left.sock")
	if err := os.Link(path, left); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(left, path); err != nil {
		t.Fatal(err)
	}
	if r := s.must("status", "ctr", "-json"); !strings.Contains(r.out, `"state":"never started","scheduler":false`) {
		t.Errorf("status: %s", r.out)
	}
	for _, args := range [][]string{{"pause", "ctr"}, {"explain", "ctr"}} {
		if r := s.run(args...); r.code != exitFailed || !strings.Contains(r.err, "no scheduler is running") {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// under lists the files in a folder.
func under(t *testing.T, folder string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// daysOfTraffic is ten days in bins of ten minutes whose level changes from day to day.
func daysOfTraffic() string {
	var b strings.Builder
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 10 * 144 {
		level := 1 + 0.2*math.Sin(float64(i/144)*2.1)
		rate := level * (1000 + 600*math.Sin(2*math.Pi*float64(i%144)/144) + 20*math.Sin(float64(i)*12.9898))
		fmt.Fprintf(&b, "%s,%.2f\n", at.Add(time.Duration(i)*10*time.Minute).Format(time.RFC3339), rate)
	}
	return b.String()
}
