package trainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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
	files, err := os.ReadDir(folder + ".aside")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files are aside: %v", len(files), err)
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(folder+".aside", f.Name()), filepath.Join(folder, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	goesOn()
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
