package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core"
)

func TestStateRoot(t *testing.T) {
	for _, tt := range []struct {
		name, flag string
		env        map[string]string
		want       string
	}{
		{"flag", "/flag", map[string]string{"KALE_STATE_DIR": "/kale", "XDG_STATE_HOME": "/xdg", "HOME": "/home/me"}, "/flag"},
		{"variable", "", map[string]string{"KALE_STATE_DIR": "/kale", "XDG_STATE_HOME": "/xdg", "HOME": "/home/me"}, "/kale"},
		{"XDG", "", map[string]string{"XDG_STATE_HOME": "/xdg", "HOME": "/home/me"}, "/xdg/kale"},
		{"XDG that is relative", "", map[string]string{"XDG_STATE_HOME": "xdg", "HOME": "/home/me"}, "/home/me/.local/state/kale"},
		{"home", "", map[string]string{"HOME": "/home/me"}, "/home/me/.local/state/kale"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &app{getenv: func(n string) string { return tt.env[n] }, stateDir: tt.flag}
			if got, err := a.stateRoot(); err != nil || got != tt.want {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
	a := &app{getenv: func(string) string { return "" }}
	if _, err := a.stateRoot(); err == nil || !strings.Contains(err.Error(), "-state-dir") {
		t.Errorf("without any: %v", err)
	}
}

func TestInvocation(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ctr")
	if _, err := loadInvocation(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a job that never ran: %v", err)
	}
	want := invocation{File: "/jobs/ctr.hcl", Vars: map[string]string{"brokers": "k:9092"}, VarFiles: []string{"/jobs/v.hcl"}, Plugins: "/opt", Trainer: "/opt/kale-trainer"}
	if err := saveInvocation(dir, want); err != nil {
		t.Fatal(err)
	}
	got, err := loadInvocation(dir)
	if err != nil {
		t.Fatal(err)
	}
	want.Job = "ctr"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Values of -var may be secrets.
	if info, err := os.Stat(filepath.Join(dir, invocationFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// A scheduler that was started by other means leaves only the job file's path.
	if err := os.Remove(filepath.Join(dir, invocationFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "jobfile"), []byte("/jobs/ctr.hcl\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := loadInvocation(dir); err != nil || got.File != "/jobs/ctr.hcl" {
		t.Errorf("from the job file's path: %+v, %v", got, err)
	}
}

// Flags are stronger than how the job was last run, name by name.
func TestInvocationFlags(t *testing.T) {
	s := newShell(t)
	a := s.app(&buffer{}, &buffer{})
	dir, err := a.jobDir("ctr")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: "/jobs/ctr.hcl", Vars: map[string]string{"a": "1", "b": "2"}, Plugins: "/opt"}); err != nil {
		t.Fatal(err)
	}
	got, err := a.invocation("ctr", jobFlags{varFlags: varFlags{vars: []string{"b=3", "c=x=y"}}, trainer: "/t"})
	if err != nil {
		t.Fatal(err)
	}
	want := invocation{Job: "ctr", File: "/jobs/ctr.hcl", Vars: map[string]string{"a": "1", "b": "3", "c": "x=y"}, Plugins: "/opt", Trainer: "/t"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r := s.run("status", "crt"); r.code != exitFailed || !strings.Contains(r.err, `Did you mean "ctr"? There are: ctr`) {
		t.Errorf("a misspelt job: %d %s", r.code, r.err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("ads.hcl", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ads", "ads.hlc"} {
		if r := s.run("validate", name); r.code != exitFailed || !strings.HasSuffix(strings.Join(strings.Fields(r.err), " "), "Did you mean the file ads.hcl?") {
			t.Errorf("a job's file without its ending, or with another: %d %s", r.code, r.err)
		}
	}
	if r := s.must("status", "ctr"); !strings.Contains(r.out, "ctr, never started") || !strings.Contains(r.out, "kale run ctr starts it") {
		t.Errorf("a job without a scheduler: %s", r.out)
	}
	if r := s.run("scale", "ctr", "2"); r.code != exitFailed || !strings.Contains(r.err, `no scheduler is running for job "ctr": start it with kale run ctr`) {
		t.Errorf("an order to a job without a scheduler: %d %s", r.code, r.err)
	}
	if r := s.must("status"); !strings.Contains(r.out, "ctr  never started  ") {
		t.Errorf("all jobs: %s", r.out)
	}
}

// A state that cannot be read is told as such, in JSON too, and what a person wrote by hand is not forgotten over it.
func TestStatusOfADamagedState(t *testing.T) {
	s := newShell(t)
	dir, err := s.app(&buffer{}, &buffer{}).jobDir("ctr")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: "/jobs/ctr.hcl"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state.db"), []byte("not a database"), 0o600); err != nil {
		t.Fatal(err)
	}
	if g := glanceOf(t, s, "ctr"); g.State != core.StateUnknown || !strings.Contains(g.Says, "move it away") {
		t.Errorf("%+v", g)
	}
	if r := s.must("status", "ctr"); !strings.Contains(r.out, "with that mended, ") {
		t.Errorf("status: %s", r.out)
	}
	if r := s.run("forget", "ctr"); r.code != exitFailed || len(under(t, dir)) != 2 {
		t.Errorf("forget: %d, and %v is left: %s", r.code, under(t, dir), r.err)
	}
}

// How a job was run that cannot be read is told with what to do, and the job stays in the list.
func TestDamagedInvocation(t *testing.T) {
	s := newShell(t)
	dir, err := s.app(&buffer{}, &buffer{}).jobDir("ctr")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: "/jobs/ctr.hcl"}); err != nil {
		t.Fatal(err)
	}
	if files := under(t, dir); len(files) != 1 {
		t.Errorf("it wrote %v", files)
	}
	for _, content := range []string{"", "\x00garbage", "[]"} {
		if err := os.WriteFile(filepath.Join(dir, invocationFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := s.must("status"); !strings.Contains(r.out, "ctr  ") {
			t.Errorf("%q: the list: %s", content, r.out)
		}
		r := s.run("run", "ctr")
		for _, says := range []string{filepath.Join(dir, invocationFile), "is damaged", "remove the file"} {
			if r.code != exitFailed || !strings.Contains(r.err, says) {
				t.Errorf("%q: exit code %d, %s; want %q", content, r.code, r.err, says)
			}
		}
	}
}

// A state folder that was given another name is no job of that name: it is told for what it is, wherever somebody looks for it or for its job.
func TestStateFolderThatWasMoved(t *testing.T) {
	s := newShell(t)
	file := lifeAt(t, "127.0.0.1:1")
	dir, err := s.app(&buffer{}, &buffer{}).jobDir("life")
	if err != nil {
		t.Fatal(err)
	}
	if err := saveInvocation(dir, invocation{File: file}); err != nil {
		t.Fatal(err)
	}
	aside := dir + ".bak"
	if err := os.Rename(dir, aside); err != nil {
		t.Fatal(err)
	}
	back := "mv -T " + aside + " " + dir + " puts it back"
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"status"}, exitDone, `job "life" is not listed, since its state folder was moved: ` + back},
		{[]string{"status", "life"}, exitFailed, `no job "life" is known on this machine (state folder ` + filepath.Dir(dir) + "): its state folder was moved: " + back},
		{[]string{"status", "life.bak"}, exitFailed, aside + ` was the state folder of job "life": ` + back},
		{[]string{"forget", "life.bak"}, exitFailed, back},
		{[]string{"status", file}, exitDone, "life, never started"},
	} {
		if r := s.run(tt.args...); r.code != tt.code || !strings.Contains(r.out+r.err, tt.says) {
			t.Errorf("kale %s: exit code %d, %s%s; want %q", quoted(tt.args), r.code, r.out, r.err, tt.says)
		}
	}
	if r := s.must("status"); strings.Contains(r.out, "no job is known") {
		t.Errorf("of the one job that is told of: %s", r.out)
	}
	if r := s.must("__complete", "status", ""); strings.Contains(r.out, "life") {
		t.Errorf("completion offers %q", r.out)
	}
	if err := saveInvocation(dir, invocation{File: file}); err != nil { // the job runs anew, and the old folder is kept
		t.Fatal(err)
	}
	if r := s.must("status"); strings.Contains(r.out, "life.bak") || !strings.Contains(r.out, "life  never started") {
		t.Errorf("the list: %s", r.out)
	}
	if r := s.run("logs", "life.bak"); r.code != exitFailed || !strings.Contains(r.err, "has another one now") {
		t.Errorf("what is of no use: exit code %d, %s", r.code, r.err)
	}
}

// In a state folder that knows no job people are told which folder that is, and that a job's file finds what its name does not.
func TestStateFolderWithoutTheJob(t *testing.T) {
	s := newShell(t)
	for _, args := range [][]string{{"status"}, {"status", "life"}, {"stop", "life"}, {"pause", "life"}, {"logs", "life"}, {"explain", "life"}} {
		r := s.run(args...)
		for _, says := range []string{"on this machine (state folder " + s.env["KALE_STATE_DIR"] + ")", "was moved or removed"} {
			if !strings.Contains(r.out+r.err, says) {
				t.Errorf("kale %s: %s%s; want %q", quoted(args), r.out, r.err, says)
			}
		}
	}
}

// A job's file that needs variables finds its job in any state folder, with every command that takes a job.
func TestFileWithVariables(t *testing.T) {
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	text := strings.Replace(strings.ReplaceAll(lifeJob, `["%BROKER%"]`, "var.brokers"), `job "life"`, "variable \"brokers\" {\n  type = list(string)\n}\n\njob \"life\"", 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := filepath.Join(dir, "life.vars")
	if err := os.WriteFile(vars, []byte(fmt.Sprintf("checkpoints = %q\n", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	given := []string{"-var", `brokers=["127.0.0.1:1"]`, "-var-file", vars}
	for line, says := range map[string]string{
		"stop": `job "life" was never started`, "stop -force": `job "life" was never started`, "status": "life, never started", "logs": "the job has no processes now",
		"explain": `no scheduler is running for job "life"`, "report": `no scheduler is running for job "life"`, "pause": `no scheduler is running for job "life"`,
		"resume": `no scheduler is running for job "life"`, "scale 2": "start it with kale run " + file + ` -var 'brokers=["127.0.0.1:1"]' -var-file ` + vars,
		"forget": `no job "life" is known`, "forecast show": `no scheduler is running for job "life"`,
	} {
		command := strings.Fields(line)
		args := append(append(slices.Clone(command), file), given...)
		if command[0] == "scale" {
			args = append([]string{"scale", file, "2"}, given...)
		}
		if r := s.run(args...); !strings.Contains(r.out+r.err, says) {
			t.Errorf("kale %s: exit code %d, %s%s; want %q", quoted(args), r.code, r.out, r.err, says)
		}
		if r := s.run(args[:len(args)-len(given)]...); r.code != exitFailed || !strings.Contains(r.err, "-var") {
			t.Errorf("kale %s without its variables: exit code %d, %s%s", line, r.code, r.out, r.err)
		}
		if r := s.run(append(args, "-var", "brokers")...); r.code != exitUsage || !strings.Contains(r.err, "want NAME=VALUE") {
			t.Errorf("kale %s with a variable without a value: exit code %d, %s%s", line, r.code, r.out, r.err)
		}
	}
}

func TestCompleteJobs(t *testing.T) {
	s := newShell(t)
	a := s.app(&buffer{}, &buffer{})
	for _, name := range []string{"ctr", "ads"} {
		dir, err := a.jobDir(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := saveInvocation(dir, invocation{File: "/jobs/" + name + ".hcl"}); err != nil {
			t.Fatal(err)
		}
	}
	for word, want := range map[string]string{"-": "-data\tfolder", "-d": "-data\tfolder", "-da": "-data\tfolder", "--da": "--data\tfolder"} { // as they are written, and found again by what was typed
		if r := s.must("__complete", "broker", word); !strings.HasPrefix(r.out, want) && !strings.Contains(r.out, "\n"+want) {
			t.Errorf("after %q completion offers %q", word, r.out)
		}
	}
	if r := s.must("__complete", "status", ""); !strings.Contains(r.out, "ads\nctr\n") {
		t.Errorf("completion offers %q", r.out)
	}
}
