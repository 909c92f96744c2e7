package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/checkpoint"
)

// stoppedJob is a job of one server that has trained 500 records of two partitions and was stopped. goesOn brings a worker and 50 more, once a server is there
// again, and checks that each record was trained once.
func stoppedJob(t *testing.T) (j *job, goesOn func()) {
	t.Helper()
	c := broker(t, 2)
	cl := producer(t, c)
	produce(t, cl, 0, 300)
	produce(t, cl, 1, 200)
	spec := jobSpec(t, c, func(s *rpc.TrainSpec) { s.Servers = 1 })
	j = &job{t: t, spec: spec}
	first, worker := j.server(0), j.worker(0, 1)
	ends := map[int32]int64{0: 300, 1: 200}
	j.waitApplied(ends)
	if err := errors.Join(worker.stop(), first.stop()); err != nil {
		t.Fatal(err)
	}
	return j, func() {
		t.Helper()
		j.worker(0, 2)
		produce(t, cl, 0, 50)
		ends[0] += 50
		j.waitApplied(ends)
		j.checkOnce(readLog(t, c, ends), nil)
	}
}

// Rule 4: the folder of a tablet is lost between two runs. The server does not begin the tablet anew, and does not end either: it says in the checkpoint folder why
// it cannot start, goes on when the files are back, and nothing is trained twice or lost.
func TestRule4LostTabletHoldsTheServer(t *testing.T) {
	j, goesOn := stoppedJob(t)
	spec := j.spec

	store := checkpoint.Attach(spec.GetCheckpointDir(), spec.GetJob())
	folder := store.TabletDir(3)
	if err := os.Rename(folder, folder+".aside"); err != nil {
		t.Fatal(err)
	}
	before, err := store.Chief()
	if err != nil {
		t.Fatal(err)
	}
	second := j.server(0)
	troubled := func() []rpc.RestoreRecord { return rpc.CannotStart(spec.GetCheckpointDir(), spec.GetJob(), 1) }
	eventually(t, func() bool { return len(troubled()) == 1 }, func() string { return "a word of why the server cannot start" })
	if got := troubled()[0]; got.Server != 0 || got.At.IsZero() || !strings.HasPrefix(got.Error, "what was trained cannot be restored: 1 of 8 tablets: tablet 3 had a snapshot") || !strings.Contains(got.Error, folder) {
		t.Errorf("it says %+v", got)
	}
	if now, err := store.Chief(); err != nil || now != before {
		t.Errorf("a server without its tablets leads: %+v, %v", now, err)
	}
	select {
	case <-second.done:
		t.Fatalf("the server ended: %v", second.err)
	default:
	}

	if err := os.Rename(folder+".aside", folder); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(troubled()) == 0 }, func() string { return "the server goes on" })
	goesOn()
}

// Rule 4: the job's state is lost between two runs. No other is made in its place, which would win over the lost one even when that is back: the server says what
// is missing, and goes on when it is there again.
func TestRule4LostJobStateHoldsTheServer(t *testing.T) {
	j, goesOn := stoppedJob(t)
	spec := j.spec
	store := checkpoint.Attach(spec.GetCheckpointDir(), spec.GetJob())
	folder := filepath.Join(store.Root(), rpc.JobStateFolder)
	if err := os.Rename(folder, folder+".aside"); err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	for range 2 { // one that is started again in its place makes none either
		server := j.server(0)
		var says rpc.RestoreRecord
		eventually(t, func() bool {
			if rs := rpc.CannotStart(spec.GetCheckpointDir(), spec.GetJob(), 1); len(rs) == 1 {
				says = rs[0]
			}
			return says.Incarnation > last
		}, func() string { return "a word of why the server cannot start" })
		last = says.Incarnation
		if !strings.Contains(says.Error, "the job's state is missing from "+folder) || !strings.Contains(says.Error, "tablets, written") {
			t.Errorf("it says %q", says.Error)
		}
		if err := server.stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := store.LoadJob(); !errors.Is(err, checkpoint.ErrNoJob) {
			t.Fatalf("a job's state is there: %v", err)
		}
	}
	j.server(0)
	if err := os.Rename(folder+".aside", folder); err != nil { // nothing is in its way
		t.Fatal(err)
	}
	goesOn()
}

// Rule 4: the job's state is there twice. A file of it that is damaged between two runs is taken from the other one, with a word; while a chief runs, which has it in its
// memory, both are written again.
func TestRule4DamagedJobStateIsTakenFromItsCopy(t *testing.T) {
	j, goesOn := stoppedJob(t)
	said := &lines{}
	dir := filepath.Join(j.spec.GetCheckpointDir(), j.spec.GetJob(), rpc.JobStateFolder)
	damage := func(pattern string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, path := range files {
			if err := os.Truncate(path, 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	store := checkpoint.Attach(j.spec.GetCheckpointDir(), j.spec.GetJob())
	before, err := store.LoadJob()
	if err != nil {
		t.Fatal(err)
	}
	whole := func() bool {
		now, err := store.LoadJob()
		was, unmended := store.MendJob()
		return err == nil && now.Timeline == before.Timeline && was == nil && unmended == nil
	}
	damage("*" + rpc.RecordEnding)
	start(t, func(ctx context.Context) error {
		return RunServer(ctx, slog.New(slog.NewTextHandler(said, nil)), j.spec, ServerOptions{Listen: "127.0.0.1:0"})
	})
	eventually(t, func() bool { return said.count("is written anew") == 1 }, func() string { return "a word of it in " + said.String() })
	if before, _, _ := strings.Cut(said.String(), "written anew"); strings.Contains(before, "parameter server is up") {
		t.Error("the server serves before it has seen to it that there are two")
	}
	if !whole() {
		t.Error("the file was not written anew")
	}
	goesOn()
	damage("*")
	eventually(t, whole, func() string { return "the chief writes its state again" })
	for what, lose := range map[string]func() error{
		"file":   func() error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)) },
		"folder": func() error { return os.RemoveAll(dir) },
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		eventually(t, whole, func() string { return "the chief writes its state again where no " + what + " is left" })
	}
}

// Rule 4: the folder of a checkpoint is taken away under a job that runs, by a move or by an unmount, and all its servers end. Who is started in their place, in
// the same allocation or in another, makes nothing anew: it waits, says for what, and goes on when the folder is back; nothing is trained twice or lost.
func TestRule4CheckpointThatIsGoneIsNotMadeAnew(t *testing.T) {
	for name, c := range map[string]struct{ unmounted, again bool }{
		"moved, in another allocation": {false, false},
		"moved, in the same":           {false, true},
		"unmounted, in the same":       {true, true},
		"unmounted, in another":        {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := broker(t, 2)
			cl := producer(t, b)
			produce(t, cl, 0, 300)
			produce(t, cl, 1, 200)
			j := &job{t: t, spec: jobSpec(t, b)}
			said := &lines{}
			files := []string{filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "begun")}
			server := func(o ServerOptions) *process {
				o.Listen = "127.0.0.1:0"
				return start(t, func(ctx context.Context) error {
					return RunServer(ctx, slog.New(slog.NewTextHandler(said, nil)), j.spec, o)
				})
			}
			var servers []*process
			for i, f := range files {
				servers = append(servers, server(ServerOptions{Index: i, BegunFile: f}))
			}
			j.worker(0, 1)
			ends := map[int32]int64{0: 300, 1: 200}
			j.waitApplied(ends)

			gone := filepath.Join(j.spec.GetCheckpointDir(), j.spec.GetJob())
			moved := gone
			if c.unmounted {
				moved = j.spec.GetCheckpointDir()
			}
			if err := os.Rename(moved, moved+".away"); err != nil {
				t.Fatal(err)
			}
			if c.unmounted {
				if err := os.Mkdir(moved, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range servers {
				_ = s.stop() // its last snapshot cannot be written
			}
			produce(t, cl, 0, 50)
			ends[0] += 50
			said.reset()
			for i, f := range files {
				o := ServerOptions{Index: i, BegunFile: f}
				if !c.again {
					o.Begun, o.BegunFile = true, ""
				}
				servers[i] = server(o)
			}
			eventually(t, func() bool { return said.count("waiting until the checkpoint is back") == len(files) }, func() string { return "a word of both that it is gone: " + said.String() })
			if want := "the checkpoint is gone: " + gone; said.count(want) != len(files) {
				t.Errorf("they say %s, want %q", said, want)
			}
			for _, s := range servers {
				select {
				case <-s.done:
					t.Fatalf("a server ended: %v", s.err)
				default:
				}
			}
			if left, err := os.ReadDir(filepath.Dir(gone)); err != nil || c.unmounted && len(left) > 0 || !c.unmounted && len(left) != 1 {
				t.Errorf("in its place are %v, %v", left, err)
			}
			if c.unmounted {
				if err := os.Remove(moved); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(moved+".away", moved); err != nil {
				t.Fatal(err)
			}
			j.waitApplied(ends)
			j.checkOnce(readLog(t, b, ends), nil)
		})
	}
}

// Rule 2: an older copy of the checkpoint folder is put back, under a job that runs or with some of its servers ended. Its claims and its word of the chief are old
// ones, and no incarnation is given out twice for it: whoever runs goes on, who joins finds the chief, what a server that was restored from it lacks is told and trained
// again, and each record is trained once.
func TestRule2OlderCopyOfTheCheckpoint(t *testing.T) {
	for name, ended := range map[string][]int{"all run on": nil, "the chief ended": {0}, "a server ended": {1}, "all ended": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			b := broker(t, 2)
			cl := producer(t, b)
			ends := map[int32]int64{}
			more := func(n int) {
				t.Helper()
				for p := range int32(2) {
					produce(t, cl, p, n)
					ends[p] += int64(n)
				}
			}
			j := &job{t: t, spec: jobSpec(t, b)}
			servers := []*process{j.server(0), j.server(1)}
			worker := j.worker(0, 1)
			more(200)
			j.waitApplied(ends)
			if err := errors.Join(worker.stop(), servers[0].stop(), servers[1].stop()); err != nil {
				t.Fatal(err)
			}
			folder := checkpoint.Attach(j.spec.GetCheckpointDir(), j.spec.GetJob()).Root()
			if err := os.CopyFS(folder+".old", os.DirFS(folder)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // more incarnations than the copy knows
				servers = []*process{j.server(0), j.server(1)}
				worker = j.worker(0, 2)
				more(100)
				j.waitApplied(ends)
				if err := errors.Join(worker.stop(), servers[0].stop(), servers[1].stop()); err != nil {
					t.Fatal(err)
				}
			}
			servers = []*process{j.server(0), j.server(1)}
			j.worker(0, 3)
			more(100)
			j.waitApplied(ends)

			for _, i := range ended {
				if err := servers[i].stop(); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.Rename(folder, folder+".newer"), os.Rename(folder+".old", folder)); err != nil {
				t.Fatal(err)
			}
			for _, i := range ended {
				servers[i] = j.server(i)
			}
			j.worker(1, 1)
			more(50)
			j.waitApplied(ends)
			j.waitFor("the worker that came afterwards", func(s *rpc.JobStatus) bool { return len(s.GetMembers()) == 2 })
			j.checkOnce(readLog(t, b, ends), nil)
			if told := j.status().GetRollbacks(); len(ended) == 1 && (len(told) == 0 || int(told[0].GetServer()) != ended[0]) {
				t.Errorf("told are the rollbacks %v", told)
			}
			for i, s := range servers {
				select {
				case <-s.done:
					t.Errorf("server %d ended: %v", i, s.err)
				default:
				}
			}
		})
	}
}

// A server that waits for its checkpoint ends when it is asked to.
func TestServerThatWaitsForItsCheckpointEndsWhenAsked(t *testing.T) {
	spec := jobSpec(t, broker(t, 1))
	said := &lines{}
	s := start(t, func(ctx context.Context) error {
		return RunServer(ctx, slog.New(slog.NewTextHandler(said, nil)), spec, ServerOptions{Begun: true, Listen: "127.0.0.1:0"})
	})
	eventually(t, func() bool { return said.count("waiting until the checkpoint is back") > 0 }, said.String)
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(spec.GetCheckpointDir()); err != nil || len(left) > 0 {
		t.Errorf("it made %v, %v", left, err)
	}
}

// lines keeps what several processes log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) count(text string) int { return strings.Count(l.String(), text) }

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// A server that cannot start ends when it is asked to.
func TestServerThatCannotStartEndsWhenAsked(t *testing.T) {
	spec := jobSpec(t, broker(t, 1), func(s *rpc.TrainSpec) { s.Servers = 1 })
	store, err := checkpoint.Open(spec.GetCheckpointDir(), spec.GetJob())
	if err != nil {
		t.Fatal(err)
	}
	inc, err := store.ClaimIncarnation(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SaveJob(checkpoint.JobState{Job: spec.GetJob(), Timeline: "t", Fingerprint: "f", Tablets: 8, Servers: 1}, inc); err != nil {
		t.Fatal(err)
	}
	if err := store.SaveManifest(checkpoint.Manifest{Timeline: "t", Tablets: map[int]checkpoint.Written{5: {Incarnation: inc, Number: 1, Records: 7}}}, 0, inc); err != nil {
		t.Fatal(err)
	}
	server := (&job{t: t, spec: spec}).server(0)
	eventually(t, func() bool { return len(rpc.CannotStart(spec.GetCheckpointDir(), spec.GetJob(), 1)) == 1 }, func() string { return "a word of why the server cannot start" })
	if err := server.stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A checkpoint that belongs to another model, and one that cannot be read, hold the server like a damaged one: it does not end, says why, and goes on when that is mended.
func TestServerWaitsForACheckpointThatFits(t *testing.T) {
	spec := jobSpec(t, broker(t, 1), func(s *rpc.TrainSpec) { s.Servers = 1 })
	store, err := checkpoint.Open(spec.GetCheckpointDir(), spec.GetJob())
	if err != nil {
		t.Fatal(err)
	}
	inc, err := store.ClaimIncarnation(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.SaveJob(checkpoint.JobState{Job: spec.GetJob(), Timeline: "t", Fingerprint: "another", Tablets: 8, Servers: 1}, inc); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(store.Root(), "job")
	server := (&job{t: t, spec: spec}).server(0)
	says := func(want string) {
		t.Helper()
		var got []rpc.RestoreRecord
		eventually(t, func() bool {
			got = rpc.CannotStart(spec.GetCheckpointDir(), spec.GetJob(), 1)
			return len(got) == 1 && strings.Contains(got[0].Error, want)
		}, func() string { return fmt.Sprintf("%q in %+v", want, got) })
		select {
		case <-server.done:
			t.Fatalf("the server ended: %v", server.err)
		default:
		}
	}
	says("belongs to another model, set of features or topic (fingerprint another, the job file gives f): undo the change")
	if err := os.Rename(folder, folder+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // no folder: it can neither be read nor made
		t.Fatal(err)
	}
	says("not a directory")
	if err := errors.Join(os.Remove(folder), os.Mkdir(folder, 0o700)); err != nil { // as if the job began
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(rpc.CannotStart(spec.GetCheckpointDir(), spec.GetJob(), 1)) == 0 }, func() string { return "the server goes on" })
}
