package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/stream"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// buffer is an output that a test may read while a command still writes.
type buffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	full bool
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return 0, syscall.ENOSPC
	}
	return b.b.Write(p)
}

// fill has it take nothing any more, or again.
func (b *buffer) fill(full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.full = full
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// shell runs command lines as a user would, over one state folder.
type shell struct {
	t        *testing.T
	env      map[string]string
	exe      string
	patience time.Duration // 0 is a minute: a machine that is busy is not a scheduler that is stuck
	shipped  bool          // see asShipped
}

func newShell(t *testing.T) *shell {
	t.Helper()
	return &shell{t: t, env: map[string]string{"KALE_STATE_DIR": shortDir(t)}}
}

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

func (s *shell) app(out, err *buffer) *app {
	return &app{in: strings.NewReader(""), out: out, err: err, getenv: func(name string) string { return s.env[name] }, exe: s.exe, patience: cmp.Or(s.patience, time.Minute)}
}

func (s *shell) run(args ...string) result {
	s.t.Helper()
	return s.runCtx(s.t.Context(), args...)
}

// runCtx is run for a test's cleanup, when its own context has ended.
func (s *shell) runCtx(ctx context.Context, args ...string) result {
	s.t.Helper()
	var out, err buffer
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // a guard, far above what a busy machine takes
	defer cancel()
	var code int
	if s.shipped {
		code = s.execute(ctx, &out, &err, args)
	} else {
		code = s.app(&out, &err).run(ctx, args)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.t.Errorf("kale %s did not end by itself\n%s%s", quoted(args), out.String(), err.String())
	}
	return result{code, out.String(), err.String()}
}

// execute runs the program itself and returns its exit code.
func (s *shell) execute(ctx context.Context, out, err *buffer, args []string) int {
	s.t.Helper()
	cmd := exec.CommandContext(ctx, s.exe, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, err, os.Environ()
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if failed := cmd.Run(); cmd.ProcessState == nil {
		s.t.Fatalf("run %s: %v", s.exe, failed)
	}
	return cmd.ProcessState.ExitCode()
}

// must runs a command line that has to do.
func (s *shell) must(args ...string) result {
	s.t.Helper()
	r := s.run(args...)
	if r.code != exitDone {
		s.t.Fatalf("kale %s: exit code %d\n%s%s", quoted(args), r.code, r.out, r.err)
	}
	return r
}

// background is a command that runs until it is interrupted.
type background struct {
	t         *testing.T
	out, err  buffer
	interrupt context.CancelFunc
	done      chan struct{}
	code      int // valid after done
}

func (s *shell) start(args ...string) *background {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &background{t: s.t, interrupt: cancel, done: make(chan struct{})}
	a := s.app(&b.out, &b.err)
	go func() {
		defer close(b.done)
		b.code = a.run(ctx, args)
	}()
	s.t.Cleanup(func() { b.interrupt(); <-b.done })
	return b
}

// end waits for the command's own end and gives what it came to.
func (b *background) end() result {
	b.t.Helper()
	select {
	case <-b.done:
	case <-time.After(time.Minute):
		b.t.Fatalf("the command does not end\n%s%s", b.out.String(), b.err.String())
	}
	return result{b.code, b.out.String(), b.err.String()}
}

// eventually waits until cond holds, as long as the command runs.
func (b *background) eventually(what string, cond func() bool) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	for !cond() {
		select {
		case <-b.done:
			b.t.Fatalf("the command ended (code %d) before %s\n%s%s", b.code, what, b.out.String(), b.err.String())
		case <-deadline:
			b.t.Fatalf("no %s after a minute\n%s%s", what, b.out.String(), b.err.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// shortDir is a folder whose path leaves room for a socket's name, which t.TempDir does not promise.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kale-cli")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// binDir is where TestMain has room for programs.
var binDir string

// programs builds the other programs of Kale, once.
var programs = sync.OnceValue(func() error {
	const module = "github.com/kale-sched/kale/cmd/"
	return conformance.BuildAll(binDir, module+"kale", module+"kale-backend-local", module+"kale-trainer")
})

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if binDir, err = os.MkdirTemp("", "kale-cli-bin"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(binDir) }()
	if lib, err := onnx.Locate(); err == nil {
		_ = os.Setenv(onnx.LibraryEnv, lib) // of workers too, wherever they are started
	}
	return m.Run()
}

// withPrograms lets a shell find the plugin and the trainer.
func (s *shell) withPrograms() *shell {
	s.t.Helper()
	if err := programs(); err != nil {
		s.t.Fatalf("build kale-backend-local and kale-trainer: %v", err)
	}
	s.exe = filepath.Join(binDir, "kale")
	return s
}

// asShipped lets run and must run the program as it is shipped, without the race detector: for commands that compute for long
// in packages whose own tests have the detector. start and what looks inside a command stay in the test's process.
func (s *shell) asShipped() *shell {
	s.t.Helper()
	s.withPrograms().shipped = true
	return s
}

// broker runs an embedded broker with the given topics for the length of a test.
func broker(t *testing.T, topics ...stream.TopicSpec) string {
	t.Helper()
	b, err := stream.OpenBroker(t.Context(), nil, stream.BrokerOptions{Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b.Addr()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with go test -run %s -update", err, t.Name())
	}
	if diff := gocmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, diff)
	}
}

func TestHelp(t *testing.T) {
	s := newShell(t)
	root := rootCommand(s.app(&buffer{}, &buffer{}))
	names := []string{""}
	for _, c := range root.Commands() {
		if c.Name() == "help" || c.Name() == "completion" || c.Name() == "demo" { // cobra's, and others'
			continue
		}
		names = append(names, c.Name())
		for _, sub := range c.Commands() {
			names = append(names, c.Name()+" "+sub.Name())
		}
	}
	for _, name := range names {
		t.Run("kale "+name, func(t *testing.T) {
			args := append(strings.Fields(name), "-help")
			r := s.must(args...)
			if r.err != "" {
				t.Errorf("help on standard error: %s", r.err)
			}
			if two := strings.Index(r.out, " --"); two >= 0 {
				t.Errorf("a flag is shown with two dashes: %s", r.out[two:min(len(r.out), two+40)])
			}
			if name == "jobfile" {
				return // core/job has its golden
			}
			golden(t, "help/"+strings.TrimSpace("kale "+name), r.out)
			if again := s.must(append([]string{"help"}, strings.Fields(name)...)...); again.out != r.out {
				t.Errorf("kale help %s differs from -help (-help +help):\n%s", name, gocmp.Diff(r.out, again.out))
			}
		})
	}
}

func TestUsageErrors(t *testing.T) {
	s := newShell(t)
	for _, tt := range []struct {
		line string // of arguments
		says string
	}{
		{"runn", `no command "kale runn". Did you mean "run"?`},
		{"helpp", `Did you mean "help"?`},
		{"frobnicate", `no command "kale frobnicate". There are: run, stop, status,`},
		{"help frobnicate", `no command "kale frobnicate". There are: run, stop, status,`},
		{"bogus", `no command "kale bogus". There are: run, stop,`},
		{"help runn", `Did you mean "run"?`},
		{"up", `Did you mean "run"?`},
		{"ps", `Did you mean "status"?`},
		{"stat", `Did you mean "status"?`},
		{"res", `Did you mean "resume"?`},
		{"rep", `Did you mean "report" or "replay"?`},
		{"ctr.hcl", "There are: run, stop,"},
		{"completion bsh", `Did you mean "bash"`},
		{"forecast trian", `Did you mean "train"?`},
		{"run", "JOB.hcl is missing"},
		{"stop a b", `unexpected argument "b"`},
		{"run a.hcl -plain -live", "exclude each other"},
		{"run a.hcl -log loud", `there is no log level "loud". There are: debug`},
		{"run a.hcl -var brokers", `-var "brokers": want NAME=VALUE`},
		{"run a.hcl -nonsense", "unknown flag: -nonsense. There are: -any-records, "},
		{"run a.hcl -plian", `unknown flag: -plian. Did you mean "-plain"?`},
		{"run a.hcl -log wran", `there is no log level "wran". Did you mean "warn"?`},
		{"demo -backend nomd", `the demo has no backend "nomd". Did you mean "nomad"?`},
		{"replay -synthetic week -policies kale,kdea", `there is no policy "kdea". Did you mean "keda"?`},
		{"status a b", `unexpected argument "b": kale status takes only [JOB]`},
		{"doctor a.hcl b.hcl", `unexpected argument "b.hcl": kale doctor takes only JOB.hcl`},
		{"status -every 0s", "it must be above 0"},
		{"scale ctr", "the number of workers (or auto) is missing"},
		{"scale ctr many", `"many" is not a number of workers`},
		{"scale ctr 0", "want 1 or more"},
		{"scale ctr -1", `"-1" is not a number of workers: want 1 or more, or auto`},
		{"scale ctr -nonsense", "unknown flag: -nonsense"},
		{"run -1", "unknown flag: -1. There are: -any-records, "},
		{"status -x", "unknown flag: -x. There are: -every, "},
		{"explain ctr -n 0", "want 1 to 10000"},
		{"logs", "JOB is missing"},
		{"logs ctr worker-1 worker-2", `unexpected argument "worker-2"`},
		{"logs ctr -n -5", "want 0 to"},
		{"logs ctr -n 1e3", `invalid argument "1e3" for "-n, -lines" flag: it is not a whole number`},
		{"forecast eval -trace rates.csv -interval 0s", `invalid argument "0s" for "-interval" flag: it must be above 0`},
		{"forecast eval -trace rates.csv -history -5m", `invalid argument "-5m" for "-history" flag: it must be above 0`},
		{"produce -topic clicks -peak 4oo", `invalid argument "4oo" for "-peak" flag: it is not a number`},
		{"scale ctr +1", `"+1" is not a number of workers: want 1 or more, or auto`},
		{"scale 2 ctr", "the job comes first: kale scale ctr 2"},
		{"explain ctr -n 99999999999999999999", "flag: it is beyond what can be given here"},
		{"pause", "JOB is missing"},
		{"broker x", `unexpected argument "x": kale broker takes no arguments`},
		{"broker -topic clicks", "want NAME:PARTITIONS"},
		{"broker -topic clicks:none", `"none" is not a number of partitions`},
		{"broker -topic clicks:1:retention", "want KEY=VALUE"},
		{"broker -topic clicks:1:foo=bar", `this broker has no setting "foo": it knows cleanup.policy, max.message.bytes, `},
		{"broker -topic clicks:1:retention.ms=abc", "retention.ms=abc: want a whole number, -1 or more"},
		{"broker -topic clicks:1:cleanup.policy=never", "cleanup.policy=never: want delete or compact"},
		{"produce", "-topic is missing"},
		{"produce -topic é", "A Kafka topic name has"},
		{"broker -topic a/b:1", "A Kafka topic name has"},
		{"init -topic é", "A Kafka topic name has"},
		{"init -topic t -name " + strings.Repeat("n", 64), "at most 63 lower-case letters"},
		{"init -topic t -name é", "at most 63 lower-case letters"},
		{"produce -topic t -scale 2 -peak 3", "two ways to say one thing"},
		{"forecast train -trace x.csv -o good.txt", "ends in .onnx"},
		{"replay -synthetic week -days 1 -forecast-every 1000", "-forecast-every 1000: a forecast would be 16h39m old before the next one"},
		{"produce -topic t -peak 0", "-peak 0 would write nothing"},
		{"produce -topic t -scale 0", "-scale 0 would write nothing"},
		{"produce -topic t -peak -1", "must be positive"},
		{"produce -topic t -speedup 0", "must be above 0"},
		{"produce -topic t -duration 5", `"5" has no unit`},
		{"produce -topic t -history -5m", "must not be negative"},
		{"produce -topic t -history 1000000h", "records are dated from 1970 on"},
		{"broker -topic a:99999999", "99,999,999 partitions are more than this broker can have"},
		{"produce -topic t -synthetic month", `there is "week"`},
		{"produce -topic t -format xml", "xml"},
		{"produce -topic t -skew 7", "kew"},
		{"produce -topic t -drift -1", "a drift of -1 turns a day: it must not be negative"},
		{"produce -topic t -peak 1e12 -duration 2s", "a rate of 1e+12 records/s: want at most 1e+07"},
		{"init", "-topic is missing"},
		{"init -topic t -backend slurn", "-backend \"slurn\": want one of local, nomad, slurm"},
		{"init -topic t -backend slurm", "-backend slurm needs -checkpoint FOLDER"},
		{"init -topic t -samples 0", "want 1 to 100000"},
		{"init -topic t -gpus -1", "want 0 or more"},
		{"forecast train -trace x.csv", "-o is missing"},
		{"forecast eval", "JOB.hcl or -trace is missing"},
		{"forecast eval a.hcl -trace x.csv", "two histories"},
		{"forecast eval -trace kafka://b:9092", "want kafka://BROKER[,BROKER]/TOPIC"},
		{"forecast eval -trace x.csv -origins -1", "want 1 moment or more"},
		{"forecast eval -trace x.csv -only ETTh1/96", "-only and -input are of -table"},
		{"forecast eval -table ett -trace x.csv", "-table has files of its own"},
		{"forecast eval -table ett -only ETTh9/96", "want one of ETTh1 and ETTm2"},
		{"help nonsense", "there is no command \"kale nonsense\""},
		{"help forecast nonsense", "there is no command \"kale forecast nonsense\". There are: train, eval, show"},
		{"help run nonsense", "kale run has no commands of its own"},
		{"version now", `unexpected argument "now"`},
	} {
		t.Run(tt.line, func(t *testing.T) {
			r := s.run(strings.Fields(tt.line)...)
			if r.code != exitUsage || !strings.Contains(r.err, tt.says) || !strings.Contains(r.err, "See: kale") {
				t.Errorf("exit code %d; want %d, %q and a hint:\n%s", r.code, exitUsage, tt.says, r.err)
			}
			if r.out != "" {
				t.Errorf("standard output has %q", r.out)
			}
		})
	}
}

// What a script reads must be on standard output alone, and where it failed nothing must be.
func TestFailures(t *testing.T) {
	s := newShell(t)
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"no such job", []string{"status", "ctr"}, `no job "ctr" is known on this machine`},
		{"a folder", []string{"validate", "."}, ". is a folder: "},
		{"a job's name that is none", []string{"status", ".."}, `no job ".." is known`},
		{"a variable of the shell that is not set", []string{"run", ""}, "is empty: is a variable of the shell not set?"},
		{"no such file", []string{"validate", "none.hcl"}, "Cannot read the job file"},
		{"no such file for run", []string{"run", "none.hcl"}, "Cannot read the job file"},
		{"stop of an unknown job", []string{"stop", "ctr"}, "kale run JOB.hcl"},
		{"no such trace", []string{"forecast", "eval", "-trace", "none.csv"}, "none.csv"},
		{"no such curve", []string{"produce", "-topic", "t", "-curve", "none.csv"}, "none.csv"},
		{"a curve without end", []string{"produce", "-topic", "t", "-curve", "/dev/zero"}, "read the arrival curve /dev/zero: it is neither an ordinary file nor a pipe"},
		{"nobody at the address", []string{"init", "-brokers", "127.0.0.1:1", "-topic", "t"}, `kale: ask the brokers for topic "t": `},
		{"nobody at the address, and what to do", []string{"init", "-brokers", "127.0.0.1:1", "-topic", "t"}, "127.0.0.1:1: connect: connection refused; are the addresses right, and does a broker run there?"},
		{"an address to listen on that is none", []string{"broker", "-listen", "nowhere"}, "want host:port"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := s.run(tt.args...)
			if r.code != exitFailed || !strings.Contains(r.err, tt.says) {
				t.Errorf("exit code %d; want %d and %q:\n%s", r.code, exitFailed, tt.says, r.err)
			}
			if r.out != "" {
				t.Errorf("standard output has %q", r.out)
			}
		})
	}
	entries, err := os.ReadDir(s.env["KALE_STATE_DIR"])
	if err != nil || len(entries) > 0 {
		t.Errorf("commands that only look left %v (%v)", entries, err)
	}
}

// More than ten broken files, and what kale validate says of each; of what core/job's own golden has whole, the first line. (forecast.hcl is left to core/job: its
// message holds an absolute path.)
func TestValidateBrokenFiles(t *testing.T) {
	files := []string{"beyond", "beyond_horizon", "empty", "features", "kinds", "missing", "misspelt", "nonsense", "not_yet", "ranges", "syntax", "units", "variables"}
	root, err := filepath.Abs(filepath.Join("testdata"))
	if err != nil {
		t.Fatal(err)
	}
	says, err := json.Marshal(about.About{Go: "go", ONNX: "library"})
	if err != nil {
		t.Fatal(err)
	}
	trainer := filepath.Join(t.TempDir(), "trainer") // one that computes on whatever it is asked to, so that the goldens are those of every machine
	if err := os.WriteFile(trainer, []byte("#!/bin/sh\necho '"+string(says)+"'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			s := newShell(t).withPrograms()
			s.exe = "" // no folder of this machine in the goldens
			t.Setenv("PATH", binDir)
			t.Chdir(filepath.Join(root, "..", "..", "..", "core", "job", "testdata"))
			r := s.run("validate", name+".hcl", "-offline", "-trainer", trainer)
			as := s.run("validate", name+".hcl", "-offline", "-trainer", trainer, "-json")
			t.Chdir(filepath.Dir(root))
			if r.code != exitFailed || r.out != "" {
				t.Errorf("exit code %d, standard output %q", r.code, r.out)
			}
			if !strings.Contains(r.err, name+".hcl:") {
				t.Errorf("no place in the file is named:\n%s", r.err)
			}
			whole, err := os.ReadFile(filepath.Join(root, "..", "..", "..", "core", "job", "testdata", name+".diag"))
			if err != nil {
				t.Fatal(err)
			}
			known := strings.Split(strings.TrimRight(string(whole), "\n"), "\n\n")
			var says strings.Builder
			for _, block := range strings.Split(strings.TrimRight(r.err, "\n"), "\n\n") {
				first, rest, _ := strings.Cut(block, "\n")
				if slices.Contains(known, block) {
					rest = ""
				}
				says.WriteString(strings.TrimRight(first+"\n"+rest, "\n") + "\n")
			}
			golden(t, "validate/"+name, says.String())
			if as.code != exitFailed || !strings.HasPrefix(as.out, `{"valid":false,`) || as.err != "" {
				t.Errorf("-json: exit code %d, %q, %q", as.code, as.out, as.err)
			}
		})
	}
}
