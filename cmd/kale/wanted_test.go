package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/stream"
)

// While a scheduler of the job runs, which has its state open, a changed file is held against what runs all the same, and a checkpoint that is gone is seen.
func TestChangesBesideAScheduler(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 3})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	file, checkpoints := filepath.Join(dir, "life.hcl"), filepath.Join(dir, "checkpoints")
	s.start("produce", "-brokers", addr, "-topic", "clicks", "-peak", "100", "-from", "12h", "-history", "60s")
	text := strings.ReplaceAll(lifeJob, "%BROKER%", addr)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	t.Cleanup(func() { // whatever fails below, no process may be left
		if r := s.runCtx(context.Background(), "stop", "life", "-force"); r.code != exitDone && !strings.Contains(r.err, "no job") {
			t.Errorf("stop -force: %s", r.err)
		}
	})
	trains := func(more uint64) {
		t.Helper()
		from := uint64(0)
		s.start("run", file, "-var", "checkpoints="+checkpoints, "-plain").eventually("a worker that has trained", func() bool {
			var v core.View
			r := s.run("status", "life", "-json")
			if r.code != exitDone || json.Unmarshal([]byte(r.out), &v) != nil || v.Sample.Running == nil || *v.Sample.Running == 0 || v.Trained == nil {
				return false
			}
			if from == 0 {
				from = *v.Trained
			}
			return *v.Trained > from+more
		})
	}
	trains(0)
	commands := []string{"validate", "plan"}
	says := func(code int, want ...string) {
		t.Helper()
		for _, command := range commands {
			r := s.run(command, file, "-var", "checkpoints="+checkpoints)
			r.err = strings.Join(strings.Fields(r.err), " ") // lines are folded
			for _, text := range want {
				if !strings.Contains(r.err, text) {
					t.Errorf("%s does not say %q: %s", command, text, r.err)
				}
			}
			if r.code != code || len(want) == 0 && (strings.Contains(r.err, "What runs") || strings.Contains(r.err, "is older than")) {
				t.Errorf("%s: %d %s", command, r.code, r.err)
			}
		}
	}
	says(exitDone)
	write(strings.NewReplacer("batch         = 64", "batch         = 128", `gpus = "none"`, "# nothing").Replace(text))
	says(exitDone, "model.batch: What runs keeps 64; only what is started from now on has 128.", "backend: What runs was started with another block; what it says of a process holds only for what is started from now on;")
	write(strings.ReplaceAll(text, `gpus = "none"`, `  gpus   =   "none" # as before`))
	says(exitDone)
	checkpoints += "2"
	says(exitFailed, "The job runs with its checkpoint in another folder")
	checkpoints = strings.TrimSuffix(checkpoints, "2")
	if err := os.Rename(checkpoints, checkpoints+".away"); err != nil {
		t.Fatal(err)
	}
	says(exitFailed, "To give the model up: kale stop -force life, and kale forget life;", "The checkpoint that this job had is gone", "and there is no checkpoint in "+filepath.Join(checkpoints, "life")+" any more")
	if r := s.run("doctor", file, "-var", "checkpoints="+checkpoints, "-no-probe"); r.code != exitFailed || !strings.Contains(r.out, "there is no") {
		t.Errorf("doctor: %d %s", r.code, r.out)
	}
	if err := os.Rename(checkpoints+".away", checkpoints); err != nil {
		t.Fatal(err)
	}
	says(exitDone)

	// A topic that was switched to compaction is a problem of what runs of a job, for which it keeps nobody from looking after it, and keeps one that has stopped from running.
	isCompacted := `Topic "clicks" is compacted`
	clean := func(policy string) {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if got, err := kadm.NewClient(cl).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &policy}}, "clicks"); err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
	}
	clean("compact")
	says(exitDone, isCompacted)

	commands = commands[:1]
	s.must("stop", "life")
	says(exitFailed, isCompacted, "or set that of this one back to it")
	if p, text := s.auditOf("life"); p.Verdict != audit.Exact || !p.Compacted || !strings.Contains(text, isCompacted) || !strings.Contains(text, "the topic is compacted: what") {
		t.Errorf("the audit says %s: %s", p.Verdict, text)
	}
	status := func(says, not string) {
		t.Helper()
		if got := strings.Join(strings.Fields(s.must("status", "life").out), " "); !strings.Contains(got, says) || strings.Contains(got, not) {
			t.Errorf("status says %s; want %q, and no %q", got, says, not)
		}
	}
	status("the topic is compacted; with that mended, as the problem below says", "when its scheduler looked last")
	clean("delete")
	says(exitDone)
	status("takes it up again", "compacted")
	// What only a job that begins takes up is said of one that has stopped.
	write(strings.NewReplacer(`topic   = "clicks"`, `topic   = "clicks"
    start   = "earliest"`, `kind          = "lr"`, `kind          = "lr"
    seed          = 7`).Replace(text))
	says(exitDone, `It began at start = "latest" and goes on where it has got to; "earliest" changes nothing of that. For a job that begins with it, set checkpoint.dir to an empty folder.`,
		"It began with seed 1 and keeps what it has learnt; 7 changes nothing of that.")
	write(strings.ReplaceAll(text, `job "life"`, `job "other"`))
	says(exitDone, `This file described job "life" before`, `Job "other" is another one, and begins anew; what job "life" has trained stays with it, in `+filepath.Join(checkpoints, "life"))
	write(text)
	says(exitDone)
	// When it has stopped, everybody says that its checkpoint is away, and nobody that a run would go on.
	if err := os.Rename(checkpoints, checkpoints+".away"); err != nil {
		t.Fatal(err)
	}
	gone := "and there is no checkpoint in " + filepath.Join(checkpoints, "life") + " any more"
	for _, args := range [][]string{{"doctor", file, "-var", "checkpoints=" + checkpoints, "-no-probe"}, {"audit", file, "-var", "checkpoints=" + checkpoints}, {"status", "life"}} {
		r := s.run(args...)
		says := strings.Join(strings.Fields(r.out+r.err), " ")
		if !strings.Contains(says, gone) || strings.Contains(says, "ok checkpoint folder") || strings.Contains(says, "no model of it") {
			t.Errorf("kale %v: %d %s%s", args, r.code, r.out, r.err)
		}
	}
	if err := os.Rename(checkpoints+".away", checkpoints); err != nil {
		t.Fatal(err)
	}
	// So does everybody of a job's state that is damaged, and nobody that the only one should be removed. With the copy of it the job would go on.
	states, err := filepath.Glob(filepath.Join(checkpoints, "life", "job", "*"))
	if err != nil || len(states) != 2 {
		t.Fatal(states, err)
	}
	sound, err := os.ReadFile(states[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, damaged := range []string{"Its copy beside it is good, and is taken", "there is none before it: bring it back from a backup"} {
		if err := os.WriteFile(states[1-i], sound[:10], 0o600); err != nil { // the record comes behind its copy
			t.Fatal(err)
		}
		code := exitDone + i
		says(code, damaged)
		tries := [][]string{{"doctor", file, "-var", "checkpoints=" + checkpoints, "-no-probe"}, {"status", "life"}}
		if code == exitFailed {
			tries = append(tries, []string{"audit", file, "-var", "checkpoints=" + checkpoints}, []string{"run", file, "-var", "checkpoints=" + checkpoints, "-plain"})
		}
		for _, args := range tries {
			r := s.run(args...)
			if says := strings.Join(strings.Fields(r.out+r.err), " "); !strings.Contains(says, damaged) || strings.Contains(says, "to go back") || r.code != code && args[0] != "status" && code == exitFailed {
				t.Errorf("kale %v: %d %s%s", args, r.code, r.out, r.err)
			}
		}
	}
	for _, path := range states {
		if err := os.WriteFile(path, sound, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// An older copy of it that was put back is warned of.
	if err := os.CopyFS(checkpoints+".old", os.DirFS(checkpoints)); err != nil {
		t.Fatal(err)
	}
	trains(200)
	s.must("stop", "life")
	says(exitDone)
	if err := errors.Join(os.Rename(checkpoints, checkpoints+".away"), os.Rename(checkpoints+".old", checkpoints)); err != nil {
		t.Fatal(err)
	}
	says(exitDone, "The checkpoint is older than what this job has trained")
}
