package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/stream"
)

// A job that trains without a scheduler can be looked at and stopped though its file was broken by an edit, or moved away: it is taken as it was started.
func TestJobWhoseFileIsGone(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file := filepath.Join(dir, "life.hcl")
	source := strings.ReplaceAll(lifeJob, "%BROKER%", addr)
	save := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(file, source)
	s.start("produce", "-brokers", addr, "-topic", "clicks", "-peak", "300", "-from", "12h", "-history", "60s")
	t.Cleanup(func() { // whatever fails above, no process may be left
		if r := s.runCtx(context.Background(), "stop", "life", "-force"); r.code != exitDone && !strings.Contains(r.err, "no job") {
			t.Errorf("stop -force: %s", r.err)
		}
	})
	trains := func() bool {
		var v core.View
		r := s.run("status", "life", "-json")
		return r.code == exitDone && json.Unmarshal([]byte(r.out), &v) == nil && v.Sample.Running != nil && *v.Sample.Running > 0 && v.Trained != nil && *v.Trained > 0
	}
	run := s.start("run", file, "-var", "checkpoints="+filepath.Join(dir, "checkpoints"), "-plain")
	run.eventually("a worker that trains", trains)
	run.interrupt()
	run.end()
	if info, err := os.Stat(filepath.Join(s.env["KALE_STATE_DIR"], "life", startedFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the copy of the job file: %v, %v", info, err)
	}

	save(file, source+"\njunk {\n")
	broken := file + " has mistakes, which kale validate shows; the job is taken as it was when it was started"
	for _, order := range [][]string{{"logs", "life", "worker-0", "-n", "1"}, {"report", "life", "-o", "-"}} {
		if r := s.must(order...); !strings.Contains(r.err, broken) {
			t.Errorf("kale %s beside a broken file: %s", quoted(order), r.err)
		}
	}
	if r := s.run("run", "life", "-plain"); r.code == exitDone || !strings.Contains(r.err, "junk") {
		t.Errorf("a run of a broken file: %d %s", r.code, r.err)
	}

	moved := filepath.Join(t.TempDir(), "elsewhere.hcl")
	save(moved, source)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if text := s.must("status", "life").out; !strings.Contains(text, "worker-0-g1") || strings.Contains(text, "mistakes") {
		t.Errorf("status without the file:\n%s", text)
	}
	if r := s.must("stop", moved, "-var", "checkpoints="+filepath.Join(dir, "checkpoints")); r.out != "job \"life\" has stopped\n" || !strings.Contains(r.err, file+" is not there any more; the job is taken as it was when it was started") {
		t.Errorf("stop by a file that was moved: %s%s", r.out, r.err)
	}
	if r := s.must("forget", "life"); !strings.Contains(r.out, `job "life" is forgotten`) {
		t.Errorf("forget: %s%s", r.out, r.err)
	}
}
