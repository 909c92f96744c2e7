package local

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

func blockOf(source, stateDir string) backend.Config {
	return backend.Config{
		Job: "j", Filename: "job.hcl", StartLine: 10, StartColumn: 19, Source: []byte(source), StateDir: stateDir,
	}
}

func TestBlock(t *testing.T) {
	trainer := filepath.Join(t.TempDir(), "trainer")
	if err := os.WriteFile(trainer, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, source, stateDir string
		want                   settings
	}{
		{"empty", "", "/var/kale", settings{dir: "/var/kale/backend-local", slots: runtime.NumCPU(), gpus: true}},
		{
			"all", fmt.Sprintf("\nslots = 6\ndir = \"state\"\ngpus = \"none\"\ntrainer = %q\nenv = { A = \"1\" }\n", trainer), "/var/kale",
			settings{dir: filepath.Join(here, "state"), slots: 6, trainer: trainer, env: map[string]string{"A": "1"}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, diags := decode(blockOf(tt.source, tt.stateDir))
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(settings{})); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

// Every mistake is reported at once, each where it is, with what to do.
func TestBlockMistakes(t *testing.T) {
	_, diags := decode(blockOf(`
  slots   = 0
  gpus    = "some"
  trainer = "no/such/trainer"
  env     = { "A=B" = "1" }
  dir     = ""
`, "/var/kale"))
	var got []string
	for _, d := range diags {
		got = append(got, fmt.Sprintf("%s:%d,%d: %s", d.Filename, d.Start.Line, d.Start.Column, d.Summary))
	}
	want := []string{
		"job.hcl:11,13: Unsuitable number of slots",
		"job.hcl:12,13: Unknown way to use GPUs",
		"job.hcl:13,13: Trainer cannot be run",
		"job.hcl:14,13: Unsuitable name of an environment variable",
		"job.hcl:15,13: Empty folder name",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diagnostics (-want +got):\n%s", diff)
	}
	for _, dir := range []string{"/etc/passwd", "/etc/passwd/below"} {
		_, diags = decode(blockOf(fmt.Sprintf("\ndir = %q\n", dir), "/var/kale"))
		if len(diags) != 1 || !diags.HasErrors() || diags[0].Start.Line != 11 || diags[0].Start.Column != 7 || !strings.Contains(diags[0].Detail, "a file") {
			t.Errorf("dir %s: %+v", dir, diags)
		}
	}
	_, diags = decode(blockOf("\nenv = { KALE_ALLOC_DIR = \"/tmp\" }\n", "/var/kale"))
	if len(diags) != 1 || diags[0].Start.Line != 11 || diags[0].Start.Column != 7 || !strings.Contains(diags[0].Detail, "KALE_ALLOC_DIR") {
		t.Errorf("a variable that Kale sets: %+v", diags)
	}
	_, diags = decode(blockOf("\n", ""))
	if len(diags) != 1 || diags[0].Start.Line != 10 || !strings.Contains(diags[0].Detail, "set dir") {
		t.Errorf("without a folder: %+v", diags)
	}
}

// The trainer, by whatever path the scheduler has for it, stands for the block's trainer. Variables of the block and of the workload arrive, the block's first, but none in
// place of those that tell a process which folder is its own.
func TestTrainerAndEnvironment(t *testing.T) {
	c := newCluster(t)
	trainer := filepath.Join(c.dir, "my-trainer")
	script := "#!/bin/sh\necho \"$0 $1 $A $B $C $KALE_ONNXRUNTIME $PLUGIN_CLIENT_CERT$KALE_BACKEND_PLUGIN$KALE_SUPERVISOR_READY_FD\"; echo its own is $KALE_ALLOC_DIR; pwd; ls -l hello\n"
	if err := os.WriteFile(trainer, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	b := launch(t)
	cfg := c.config("j")
	cfg.Source = fmt.Appendf(nil, "\ntrainer = %q\nenv = { A = \"block\", B = \"block\", KALE_ONNXRUNTIME = \"/block.so\" }\n", trainer)
	configure(t, b, cfg)
	w := c.workload("j", workerOne, conformance.Steady)
	w.Argv = []string{"/opt/kale/" + trainerName, "worker"}
	maps.Copy(w.Env, map[string]string{"B": "workload", "C": "workload", "KALE_ONNXRUNTIME": "/workload.so", backend.EnvAllocDir: "/tmp"})
	w.Files = map[string][]byte{"hello": []byte("x")}
	ensure(t, b, "j", w)
	waitFor(t, b, "j", "it has ended", func(st backend.Status) bool { return st.State == backend.StateExited })
	alloc := filepath.Join(c.state(), "backend-local", "jobs", "j", workerOne.String(), backend.AllocFolder)
	got := readLog(t, b, "j", backend.LogOptions{})
	for _, want := range []string{trainer + " worker block block workload /block.so \n", "its own is " + alloc + "\n", alloc + "\n", "-rw-------"} {
		if !strings.Contains(got, want) {
			t.Errorf("it printed %q, want %q in it", got, want)
		}
	}
	conformance.Drop(t, b, "j")
}
