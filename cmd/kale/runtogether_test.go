package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/stream"
)

// twoFiles are the files of two jobs that are right, and of a pool.
func twoFiles(t *testing.T, pool string) (a, b, file string) {
	t.Helper()
	dir := t.TempDir()
	job := func(name string) string {
		return fmt.Sprintf(`job %q {
  stream "kafka" {
    brokers = ["127.0.0.1:1"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
`, name)
	}
	return writeIn(t, dir, "a.hcl", job("a")), writeIn(t, dir, "b.hcl", job("b")), writeIn(t, dir, "pool.hcl", pool)
}

// What is wrong with jobs that are to run together is said before a broker is asked.
func TestRunTogetherRefuses(t *testing.T) {
	a, b, pool := twoFiles(t, "pool \"main\" {\n  gpus = 4\n  job \"c\" {\n  }\n}\n")
	typed := writeIn(t, filepath.Dir(a), "typed.hcl", "pool \"main\" {\n  type \"a100\" {\n    gpus = 2\n  }\n  type \"l4\" {\n    gpus = 2\n  }\n  job \"a\" {\n    type = \"a10\"\n  }\n  job \"b\" {\n  }\n}\n")
	draft := writeIn(t, filepath.Dir(a), "draft.hcl", "pool \"main\" {\n  gpu = 4\n  job \"a\" {\n    guarantee = 9\n  }\n}\n")
	large := writeIn(t, filepath.Dir(a), "large.hcl", "pool \"main\" {\n  gpus = 4\n  job \"a\" {\n    guarantee = 9\n  }\n}\n")
	wrong := writeIn(t, filepath.Dir(a), "wrong.hcl", strings.Replace(read(t, b), "max = 4", "max = 0", 1))
	s := newShell(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", a, b, "-pool", draft}, exitFailed, `draft.hcl:2:3: error: Unknown attribute "gpu"`},
		{[]string{"run", a, b, "-pool", draft}, exitFailed, "draft.hcl:4:17: error: The guarantee is above workers.max"}, // in the same run
		{[]string{"plan", a, wrong, "-pool", large}, exitFailed, "large.hcl:4:17: error: The guarantee is above workers.max"},
		{[]string{"plan", a, wrong, "-pool", large}, exitFailed, "wrong.hcl:11:11: error: Number out of range"},
		{[]string{"run", a, b, "-pool", typed}, exitFailed, `typed.hcl:9:12: error: The pool has no type "a10"`},
		{[]string{"plan", a, b, "-pool", typed}, exitFailed, `typed.hcl:11:3: error: Job "b" has no type of GPU`},
		{[]string{"run", a, b, "-live"}, exitUsage, "kale status -watch JOB"},
		{[]string{"run", "-pool", pool}, exitUsage, "JOB.hcl is missing"},
		{[]string{"run", a, a}, exitFailed, "a.hcl:1:5: error: Job \"a\" is here twice"},
		{[]string{"plan", a, a}, exitFailed, "a.hcl is named twice: a job has one scheduler"},
		{[]string{"run", a, b, "-pool", pool}, exitFailed, `pool.hcl:3:7: error: Job "c" is not among the jobs`},
		{[]string{"plan", a, b, "-pool", pool}, exitFailed, `pool.hcl:3:7: error: Job "c" is not among the jobs`},
		{[]string{"run", a, "-pool", a}, exitFailed, "Is this a job file?"},
		{[]string{"run", a, "-pool", filepath.Join(filepath.Dir(a), "no.hcl")}, exitFailed, "Cannot read the pool file"},
	} {
		r := s.run(c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("kale %s: code %d, %s", strings.Join(c.args, " "), r.code, r.err)
		}
	}
}

// All that is wrong with a pool, its jobs, and between them is told in one run: names that are there twice, guarantees beyond the pool, jobs that are not there, limits
// that are none; and what is wrong in a job's file elsewhere keeps its workers from nothing.
func TestRunTogetherTellsAll(t *testing.T) {
	a, b, pool := twoFiles(t, "pool \"main\" {\n  gpus = 1\n  job \"a\" {\n    limit = 9\n  }\n  job \"b\" {\n    guarantee = 7\n  }\n  job \"zz\" {\n  }\n}\n")
	twin := writeIn(t, filepath.Dir(a), "twin.hcl", strings.Replace(read(t, a), "sparse = [", "spares = [", 1))
	writeIn(t, filepath.Dir(b), "b.hcl", strings.Replace(read(t, b), "label  =", "lable  =", 1))
	s := newShell(t)
	for _, command := range []string{"run", "plan"} {
		r := s.run(command, a, b, twin, "-pool", pool)
		text := strings.Join(strings.Fields(r.err), " ") // whatever the lines
		for _, want := range []string{
			"pool.hcl:2:10: error: The pool is smaller than its guarantees", `At least 5 GPUs are guaranteed, and there are 1: 1 for "a", 4 for "b".`,
			"pool.hcl:4:13: warning: The limit is above workers.max", "pool.hcl:7:17: error: The guarantee is above workers.max", `pool.hcl:9:7: error: Job "zz" is not among the jobs`,
			`twin.hcl:1:5: error: Job "a" is here twice`, fmt.Sprintf(`%s and %s are both of job "a": a job has one scheduler; name it once, or give one of them another name.`, a, twin),
			`twin.hcl:8:5: error: Unknown attribute "spares"`, `b.hcl:7:5: error: Unknown attribute "lable"`,
		} {
			if r.code != exitFailed || !strings.Contains(text, want) {
				t.Errorf("kale %s: code %d, it lacks %q: %s", command, r.code, want, r.err)
			}
		}
	}
}

// A mistake in the backend block of a job, for which it is not known how large the pool is, is told once, and keeps nothing else from being told.
func TestPoolOfAWrongBlock(t *testing.T) {
	a, b, pool := onCluster(t, "pool \"main\" {\n  job \"a\" {\n    guarantee = 9\n  }\n}\n", 1, "local", "    nonsense = 1\n", "")
	s := newShell(t).withPlugin("kale-backend-local")
	for _, command := range []string{"run", "plan"} {
		r := s.run(command, a, b, "-pool", pool)
		if n := strings.Count(r.err, "nonsense = 1"); r.code != exitFailed || n != 1 || !strings.Contains(r.err, "pool.hcl:3:17: error: The guarantee is above workers.max") {
			t.Errorf("kale %s: code %d, the block's mistake %d times: %s", command, r.code, n, r.err)
		}
	}
}

// Two jobs of a pool, by their commands: one is stopped and taken up again, which takes the whole pool; nothing of the pool is run beside it.
func TestAPoolsLife(t *testing.T) {
	t.Parallel()
	needONNX(t)
	addr := broker(t, stream.TopicSpec{Name: "clicks", Partitions: 2})
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	jobFile := func(name string) string {
		return writeIn(t, dir, name+".hcl", strings.NewReplacer("%BROKER%", addr, `job "life"`, fmt.Sprintf("job %q", name)).Replace(lifeJob))
	}
	a, b, pool := jobFile("a"), jobFile("b"), writeIn(t, dir, "pool.hcl", "pool \"main\" {\n  gpus = 3\n}\n")
	s.must("produce", "-brokers", addr, "-topic", "clicks", "-peak", "50", "-history", "60s", "-duration", "0")
	t.Cleanup(func() { // whatever fails, no process may be left
		for _, name := range []string{"a", "b"} {
			if r := s.runCtx(context.Background(), "stop", name, "-force"); r.code != exitDone && !strings.Contains(r.err, "no job") {
				t.Errorf("stop -force: %s", r.err)
			}
		}
	})
	command := []string{"run", a, b, "-pool", pool, "-var", "checkpoints=" + filepath.Join(dir, "checkpoints")}
	var run *background
	begin := func() {
		t.Helper()
		run = s.start(command...)
		for _, name := range []string{"a", "b"} {
			run.eventually("a worker of "+name, func() bool { return strings.Contains(s.run("status", name).out, "1 ready of 1 wanted") })
		}
	}
	begin()

	// What goes on of each is said, and what takes up both once.
	run.interrupt()
	words := "job \"a\" has ended; training goes on\nthe scheduler of job \"b\" has ended; training goes on\n  kale " + quoted(command) +
		"\ntakes them up again,\n  kale stop a\n  kale stop b\nstops one\n"
	if r := run.end(); r.code != exitDone || !strings.HasSuffix(r.err, words) {
		t.Errorf("Ctrl-C: exit code %d, %s; want %q", r.code, r.err, words)
	}
	begin()

	// The pool is not left in silence, neither beside its scheduler nor, below, without one; a plan for it heeds an order.
	inFile := []string{a, "-var", "checkpoints=" + filepath.Join(dir, "checkpoints")}
	poolless := func(what string, commands [][]string, also ...string) {
		t.Helper()
		for _, command := range commands {
			r := s.run(command...)
			says := strings.Join(strings.Fields(r.err), " ")
			for _, want := range append([]string{`Job "a" was run in a pool last, and -pool is missing`, "b of that pool trains on", "kale " + quoted(command) + " b -pool " + pool + ". To take job \"a\" out of the pool: kale"}, also...) {
				if r.code != exitFailed || !strings.Contains(says, want) {
					t.Errorf("%s: kale %s: exit code %d, want %q:\n%s", what, quoted(command), r.code, want, r.err)
				}
			}
		}
		if r := s.run("plan", "a", "b"); r.code != exitFailed || !strings.Contains(strings.Join(strings.Fields(r.err), " "), "kale plan a b -pool "+pool) {
			t.Errorf("%s: plan of all without -pool: exit code %d, %s", what, r.code, r.err)
		}
	}
	plans := [][]string{{"plan", "a"}, append([]string{"plan"}, inFile...)}
	runs := [][]string{{"run", "a"}, append([]string{"run"}, inFile...)}
	poolless("beside the scheduler", plans, "kale stop a, and then kale forget a")
	// What cannot be printed of them is lost, which the status of each says; both are looked after meanwhile.
	lost := func(name string) bool {
		return strings.Contains(strings.Join(strings.Fields(s.run("status", name).out), " "), "output cannot be written, and its lines are lost since")
	}
	run.out.fill(true)
	s.must("scale", "a", "2")
	for _, name := range []string{"a", "b"} {
		run.eventually("word of "+name+" that the output is full", func() bool { return lost(name) })
	}
	run.out.fill(false)
	run.eventually("lines again", func() bool { return !lost("a") && !lost("b") && strings.Contains(run.out.String(), "are missing here") })
	if text := s.must("plan", "a", "b", "-pool", pool).out; !strings.Contains(text, "pinned to 2 workers by hand") || !strings.Contains(text, "a asks for 2") {
		t.Errorf("plan of a pool whose scheduler was given an order:\n%s", text)
	}
	s.must("scale", "a", "auto")

	// That a stopped job takes the pool with it is said where it is run, and to whoever looks at it.
	s.must("stop", "a")
	again := "kale " + quoted(command)
	run.eventually("the end of a", func() bool { return strings.Contains(run.err.String(), "takes it up again") })
	if want := "; end this kale run first (Ctrl-C; training of b goes on), then\n  " + again + "\ntakes it up again\n"; !strings.HasSuffix(run.err.String(), want) {
		t.Errorf("the last words are not %q:\n%s", want, run.err.String())
	}
	short := "kale run a b -pool " + pool
	if text := s.must("status", "a").out; !strings.Contains(text, fmt.Sprintf("its pool is run for b now: kill %d ends that, training goes on, and then %s takes it up again", os.Getpid(), short)) {
		t.Errorf("status of a stopped job of a pool:\n%s", text)
	}
	for _, command := range []string{"run", "plan"} {
		if r := s.run(command, "a", "-pool", pool); r.code != exitFailed || !strings.Contains(r.err, `Job "b" holds some of the pool`) || !strings.Contains(r.err, "kale run a b -pool") {
			t.Errorf("%s without the other: exit code %d, %s", command, r.code, r.err)
		}
	}

	poolless("of a stopped job", plans, "out of the pool: kale forget a.")
	poolless("of a stopped job", runs, fmt.Sprintf("its pool is run for b now: kill %d ends that, training goes on, and then kale run", os.Getpid()))

	// What was stopped is not begun again with what was not, but where the pool's file names it.
	run.interrupt()
	if r := run.end(); r.code != exitDone || !strings.Contains(r.err, "training goes on\n  kale run "+b+" -pool") {
		t.Errorf("after Ctrl-C: exit code %d, %s", r.code, r.err)
	}
	if text := s.must("status", "b").out; !strings.Contains(text, short+" takes it up again") {
		t.Errorf("status without a scheduler:\n%s", text)
	}
	poolless("without a scheduler", append(runs, plans...), "one process must know what each has: kale")
	// What is forgotten is of no pool any more.
	s.must("forget", "a")
	if r := s.run(append([]string{"plan"}, inFile...)...); r.code != exitDone {
		t.Errorf("plan of a job that was forgotten: exit code %d, %s", r.code, r.err)
	}
	// Nor is, on its own, who is the last of it.
	alone := s.start("run", "b")
	alone.eventually("it looks after the job", func() bool { // or the stop would be done without it, and it would begin the job again after that
		return strings.Contains(alone.err.String(), `the scheduler of job "b" runs`)
	})
	alone.eventually("its end", func() bool { return s.run("stop", "b").code == exitDone })
	if r := alone.end(); r.code != exitDone || !strings.HasSuffix(r.err, "\n  kale run b\ntakes it up again\n") {
		t.Errorf("alone: exit code %d, %s", r.code, r.err)
	}
	if text := s.must("status", "b").out; !strings.Contains(text, " kale run b takes it up again") {
		t.Errorf("status of who ran alone:\n%s", text)
	}
}

// How a job is taken up again depends on the jobs that were run with it.
func TestWhoIsTakenUpTogether(t *testing.T) {
	rules, _, diags := job.ParsePool([]byte("pool \"main\" {\n  gpus = 4\n  job \"a\" {\n  }\n}\n"), "pool.hcl")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	pool := core.NewPool(rules)
	for _, c := range []struct {
		what     string
		pool     *core.Pool
		gone     map[string]bool // has it stopped?
		ends     string
		stopped  bool
		quitting bool
		want     string
	}{
		{"each on its own", nil, nil, "b", true, false, "\n  kale run b.hcl\ntakes it up again"},
		{"Ctrl-C", nil, map[string]bool{"a": false}, "b", false, true, "\n  kale run a.hcl b.hcl c.hcl\ntakes it up again"},
		{"Ctrl-C after a stop", nil, map[string]bool{"a": true}, "b", false, true, "\n  kale run b.hcl c.hcl\ntakes it up again"},
		{"a pool", pool, nil, "b", true, false, "; end this kale run first (Ctrl-C; training of a and c goes on), then\n  kale run a.hcl b.hcl c.hcl\ntakes it up again"},
		{"a pool that names who has stopped", pool, map[string]bool{"a": true, "c": true}, "b", true, false, "\n  kale run a.hcl b.hcl\ntakes it up again, with a, which the pool file names too"},
	} {
		jobs := &together{pool: c.pool, gone: map[string]bool{}}
		maps.Copy(jobs.gone, c.gone)
		own := &app{args: []string{"run"}}
		for _, name := range []string{"a", "b", "c"} {
			jobs.args, jobs.jobs = append(jobs.args, name+".hcl"), append(jobs.jobs, &loaded{Job: &job.Job{Name: name}})
		}
		own.args = append(own.args, jobs.args...)
		if got := jobs.end(own, c.ends, c.stopped, c.quitting).String(); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// Lines of several jobs are never mixed, and each begins with its job's name.
func TestLinesOfJobs(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	shared := &lines{mu: &mu, w: &out}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			l := shared.of(name)
			for i := range 100 {
				fmt.Fprintf(l, "one %d ", i)
				fmt.Fprintf(l, "two\nthree %s\n", name)
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		name, rest, _ := strings.Cut(line, "  ")
		switch {
		case rest == "three "+name:
		case rest == fmt.Sprintf("one %d two", seen[name]):
			seen[name]++
		default:
			t.Fatalf("line %q", line)
		}
	}
	if seen["a"] != 100 || seen["b"] != 100 {
		t.Errorf("lines: %v", seen)
	}
}

// A pool is the same by whatever path its file is named, and in a copy of it: what its jobs hold counts.
func TestAPoolIsItsName(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"pool.hcl": "pool \"main\" {\n  gpus = 5\n}\n", "copy.hcl": "pool \"main\" {\n  gpus = 6\n}\n", "other.hcl": "pool \"other\" {\n  gpus = 5\n}\n"} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("pool.hcl"), at("link.hcl")); err != nil {
		t.Fatal(err)
	}
	for other, want := range map[string]bool{"pool.hcl": true, "link.hcl": true, "copy.hcl": true, "other.hcl": false, "none.hcl": false} {
		if got := samePool(at("pool.hcl"), at(other)); got != want {
			t.Errorf("pool.hcl and %s: %v", other, got)
		}
	}
	if samePool("", at("pool.hcl")) || !samePool(at("gone.hcl"), at("gone.hcl")) {
		t.Error("no pool is one, or a file that is gone is another than itself")
	}
}
