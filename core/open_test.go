package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/state"
)

func TestSecondSchedulerIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	_, _, err := Open(t.Context(), r.options("run"))
	if !errors.Is(err, state.ErrLocked) || !strings.Contains(err.Error(), r.state) {
		t.Fatalf("a second scheduler of the same state: %v", err)
	}
	r.started(1) // the first is none the worse for it
}

// A job file that allows fewer workers than run is followed in order.
func TestFewerWorkersAllowedThanRun(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(4)
	r.order("auto", 0)
	r.job.Workers.Max = 2
	r.reopen()
	r.until("the limit holds", r.settled(2))
	r.wantCalls("release worker-2-g1 drained", "release worker-3-g1 drained")
	if d := r.s.lastChange.Decision; d.Kind != plan.KindIn || d.Source != "limits" {
		t.Errorf("decision %s by %q: %s", d.Kind, d.Source, d.Reason)
	}
}

// A job file of another model is refused before anything is started, and says where.
func TestJobFileOfAnotherModelIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	before := *r.job
	changed := func(f func(j *job.Job)) *job.Job {
		j := before
		f(&j)
		return &j
	}
	for name, c := range map[string]struct {
		job  *job.Job
		line int
		says []string
	}{
		"features": {changed(func(j *job.Job) { j.Features.Sparse = []string{"user", "item"} }), 13,
			[]string{`features.sparse was ["user"] and is ["user","item"]`, "Undo the change, or set checkpoint.dir to an empty folder"}},
		"servers": {changed(func(j *job.Job) { j.Servers.Count = 3 }), 24, []string{"made with 2 parameter servers and the file says 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			r.job = c.job
			s, diags, err := Open(t.Context(), r.options("run"))
			if err != nil || s != nil || !diags.HasErrors() {
				t.Fatalf("opened: %v, %v, %v", s, diags, err)
			}
			d := diags[len(diags)-1]
			if d.Subject.Start.Line != c.line {
				t.Errorf("points at line %d, want %d", d.Subject.Start.Line, c.line)
			}
			for _, text := range append(c.says, r.job.Checkpoint.Dir) {
				if !strings.Contains(d.Detail, text) {
					t.Errorf("says %q, want %q", d.Detail, text)
				}
			}
			for _, call := range r.backend.Calls() {
				if call.Op != fake.OpConfigure {
					t.Errorf("the backend was called: %+v", call)
				}
			}
			if _, diags, err := NewPreview(t.Context(), r.options("run")); err != nil || !diags.HasErrors() {
				t.Errorf("a preview does not say so: %v, %v", diags, err)
			}
			o := r.options("run")
			o.Stop = true // a job can be stopped whatever its file says now
			stopper, diags, err := Open(t.Context(), o)
			if err != nil || diags.HasErrors() {
				t.Fatal(diags, err)
			}
			if err := stopper.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	r.job = &before
	if diags := CheckCheckpoint(r.job); len(diags) > 0 {
		t.Errorf("the file of before: %v", diags)
	}
	// Without the shape, at least the fact is told; with a record that cannot be read, the trainers judge.
	if err := os.Remove(filepath.Join(r.job.Checkpoint.Dir, "ctr", shapeFile)); err != nil {
		t.Fatal(err)
	}
	other := changed(func(j *job.Job) { j.Model.Tablets = 128 })
	if diags := CheckCheckpoint(other); !diags.HasErrors() || !strings.Contains(diags[0].Detail, other.Fingerprint()) {
		t.Errorf("without a shape: %v", diags)
	}
	r.chief.incarnation = 9
	r.chief.write("job", "nonsense")
	if diags := CheckCheckpoint(other); len(diags) > 0 {
		t.Errorf("with a record that is none: %v", diags)
	}
}

// A job that runs cannot be found from another checkpoint folder; one that was stopped can begin there.
func TestCheckpointFolderIsNotChangedWhileTheJobRuns(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	was, other := r.job.Checkpoint.Dir, t.TempDir()
	r.job.Checkpoint.Dir = other
	_, diags, err := Open(t.Context(), r.options("run"))
	if err != nil || len(diags) != 1 || !strings.Contains(diags[0].Detail, was) || !strings.Contains(diags[0].Detail, other) || !strings.Contains(diags[0].Detail, "kale stop") {
		t.Fatalf("opened: %v, %v", diags, err)
	}
	r.job.Checkpoint.Dir = was
	r.open("run")
	r.order("stop", 0)
	r.stops()
	r.job.Checkpoint.Dir = other
	r.reopen()
}

func TestStateOfAnotherVersionIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.s.want.Version = 99
	if err := r.s.save(); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), r.options("run")); err == nil || !strings.Contains(err.Error(), "version 99") || !strings.Contains(err.Error(), "move the folder away") {
		t.Errorf("opened: %v", err)
	}
}

// A file of the state that opens, and is damaged further in, is taken up, and the scheduler says so from the start.
func TestStateDamagedInPartIsToldOf(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if v := r.s.View(); len(v.Problems) > 0 {
		t.Fatalf("before: %q", v.Problems)
	}
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(r.state, "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("decisions")).Put(make([]byte, 16), []byte(`{"at":"2026`))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	was := folderHas(t, r.state)
	p, diags, err := NewPreview(t.Context(), r.options("run"))
	if err != nil || diags.HasErrors() || !strings.Contains(p.Damaged, "state.db: the file is damaged: move it away") {
		t.Errorf("a preview says %+v, %v, %v", p, diags, err)
	}
	if says, opens := DamagedState(r.state); !opens || !strings.Contains(says, "state.db: the file is damaged: move it away") {
		t.Errorf("looked at: %q, opens %v", says, opens)
	}
	if diff := cmp.Diff(was, folderHas(t, r.state)); diff != "" {
		t.Errorf("they changed the state folder (-was +is):\n%s", diff)
	}
	r.open("run")
	r.beat()
	if v := r.s.View(); len(v.Problems) != 1 || !strings.Contains(v.Problems[0], "state.db: the file is damaged: move it away") || !strings.Contains(v.Problems[0], "give the same kale run again") {
		t.Errorf("problems: %q", v.Problems)
	}
}

// folderHas are the files of a folder with what is in them.
func folderHas(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]string{}
	for _, f := range files {
		if raw, err := os.ReadFile(filepath.Join(dir, f.Name())); err == nil {
			has[f.Name()] = string(raw)
		}
	}
	return has
}

func TestDamagedStateSaysWhatToDo(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.state, "state.db"), []byte(strings.Repeat("rubbish ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), r.options("run")); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("opened: %v", err)
	}
	if _, _, err := NewPreview(t.Context(), r.options("run")); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("previewed: %v", err)
	}
	if says, opens := DamagedState(r.state); opens || !strings.Contains(says, "move it away") {
		t.Errorf("looked at: %q, opens %v", says, opens)
	}
}

func TestPreviewTouchesNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	for _, locked := range []bool{true, false} { // while the scheduler runs, and after it
		if !locked {
			if err := r.s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		p, diags, err := NewPreview(t.Context(), r.options("run"))
		if err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		if p.Locked != locked || len(p.Running) != 4 || len(p.Workloads) != 4 || p.Record.Observation.Hold.Unknown {
			t.Errorf("locked %v, want %v; %d running, %d wanted, hold %+v", p.Locked, locked, len(p.Running), len(p.Workloads), p.Record.Observation.Hold)
		}
		r.wantCalls()
	}
}

// Beside a scheduler that runs, a preview decides as that would: by the order that a person gave it, and by what it has learnt.
func TestPreviewDecidesAsTheSchedulerThatRuns(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(50, func(i int) time.Time { return time.Now().Add(time.Duration(i-50) * time.Second) })
	r.started(2)
	r.order("auto", 0)
	r.beats(3)
	preview := func(o Options) *Preview {
		t.Helper()
		p, diags, err := NewPreview(t.Context(), o)
		if err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		return p
	}
	if p := preview(r.options("run")); !p.Locked || !p.Unheard {
		t.Errorf("of a scheduler that says nothing: locked %v, unheard %v", p.Locked, p.Unheard)
	}
	for _, order := range []Order{{Kind: "auto"}, {Kind: "scale", Target: 3}, {Kind: "pause"}} {
		r.order(order.Kind, order.Target)
		wanted, err := WantedIn(r.s.store)
		if err != nil {
			t.Fatal(err)
		}
		was, err := json.Marshal(wanted)
		if err != nil {
			t.Fatal(err)
		}
		o := r.options("run")
		o.Wanted = wanted
		beside := preview(o)
		if now, err := json.Marshal(wanted); err != nil || !bytes.Equal(now, was) {
			t.Errorf("%s: a preview made of what was handed to it (%v)\n%s", order.Kind, err, now)
		}
		if err := r.s.Close(); err != nil {
			t.Fatal(err)
		}
		after := preview(r.options("run"))
		r.open("run")
		b, a := beside.Record, after.Record
		if !beside.Locked || beside.Unheard || after.Locked || b.Observation.Manual != r.s.want.Manual || b.Observation.Action != a.Observation.Action ||
			b.Decision.Target != a.Decision.Target || b.Decision.Kind != a.Decision.Kind || b.Decision.Source != a.Decision.Source || len(b.Observation.State) == 0 || !bytes.Equal(b.Observation.State, a.Observation.State) {
			t.Errorf("%s: locked %v, unheard %v; by hand %+v; beside the scheduler\n%s\nand without it\n%s", order.Kind, beside.Locked, beside.Unheard, b.Observation.Manual, b.Decision.Explain(), a.Decision.Explain())
		}
	}
}

// Of a job of which nothing lives, and which was not stopped, a preview says that, and what a run would decide: its chief's silence holds nothing. Nor does a preview log
// that nobody answers, which its decision says.
func TestPreviewOfAJobThatDied(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.fill(50, func(i int) time.Time { return time.Now().Add(time.Duration(i-50) * time.Second) })
	r.started(2)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	r.chief.stop()
	var log bytes.Buffer
	preview := func() *Preview {
		t.Helper()
		log.Reset()
		o := r.options("run")
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		p, diags, err := NewPreview(t.Context(), o)
		if err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		if strings.Contains(log.String(), "level=WARN") {
			t.Errorf("it logs\n%s", log.String())
		}
		return p
	}
	if p := preview(); p.Gone || !p.Record.Observation.Hold.Unknown {
		t.Errorf("with processes that live: gone %v, hold %+v", p.Gone, p.Record.Observation.Hold)
	}
	for _, id := range []backend.ID{server(0, 1), server(1, 1), worker(0, 1), worker(1, 1)} {
		if err := r.cluster.Exit("ctr", id, 137); err != nil {
			t.Fatal(err)
		}
	}
	p := preview()
	if o := p.Record.Observation; !p.Gone || o.Hold != (plan.Hold{}) || o.Workers != (plan.Workers{Pending: 2}) || !o.LagKnown || p.Record.LagUnknown != "" {
		t.Errorf("gone %v, hold %+v, workers %+v, lag known %v, %q", p.Gone, o.Hold, o.Workers, o.LagKnown, p.Record.LagUnknown)
	}
	if d := p.Record.Decision; d.Target < 1 || len(d.Hold) > 0 && d.Kind != plan.KindHold || len(p.Workloads) != 2+d.Target || len(p.Report.Placements) != 2+d.Target {
		t.Errorf("decides %+v, places %+v", d, p.Report)
	}
	r.wantCalls()
	if p.Ended != "it was not stopped" {
		t.Errorf("ended: %q", p.Ended)
	}
	for _, forced := range []bool{false, true} {
		st, err := state.Open(r.state)
		if err != nil {
			t.Fatal(err)
		}
		r.s.want.Stopping, r.s.want.Forced = true, forced
		if err := errors.Join(st.Put(desiredKey, r.s.want), st.Close()); err != nil {
			t.Fatal(err)
		}
		if p, want := preview(), r.s.want.ended(); !p.Gone || p.Ended != want || !strings.HasSuffix(want, "was interrupted") {
			t.Errorf("of a stop that was interrupted, forced %v: gone %v, ended %q, want %q", forced, p.Gone, p.Ended, want)
		}
	}
}

// envFullDisk makes the test binary the process whose disk fills up: the limit is the whole process's.
const envFullDisk = "KALE_TEST_FULL_DISK"

// When the state cannot be written, nothing is decided or changed, the operator is told why, and all goes on when there is room.
func TestFullDiskHolds(t *testing.T) {
	if os.Getenv(envFullDisk) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDiskHolds$", "-test.v")
		cmd.Env = append(os.Environ(), envFullDisk+"=1")
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("%s", out)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestFullDiskHolds") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	r := newRig(t, rigOptions{})
	r.started(2)
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := syscall.Rlimit{Cur: 0, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Skipf("the size of files cannot be limited here: %v", err)
	}
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "scale", Target: 4}}); err == nil || !strings.Contains(err.Error(), `scale job "ctr"`) || r.s.want.Manual.Target != 2 {
		t.Errorf("an order that cannot be saved: %v, pinned to %d", err, r.s.want.Manual.Target)
	}
	r.s.tickAt = r.now.Add(time.Hour) // no decision is due, but a repair
	if err := r.cluster.Exit("ctr", worker(1, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.beats(3)
	r.wantCalls()
	r.s.tickAt, r.s.want.Manual.Target = time.Time{}, 4 // and a decision that would lead on
	r.beats(3)
	r.wantCalls()
	if _, err := r.problem("cannot be saved"); err != nil {
		t.Error(err)
	}
	if v := r.s.View(); !v.Now.Equal(r.now) || v.Sample.Target != 2 {
		t.Errorf("the view is of %v, with the target %d", v.Now, v.Sample.Target)
	}
	if v := r.s.View(); v.State != StateRunning {
		t.Errorf("while the servers live it is %s: %q", v.State, v.Stuck)
	}
	r.hang(server(1, 1))
	r.beats(int(hungAfter/time.Second) + 10)
	r.wantCalls()
	if p, err := r.problem("ps-1-g1 has not answered for "); err != nil || !strings.HasSuffix(p, "; nothing comes of that until the scheduler's state can be saved") {
		t.Errorf("of a server that hangs: %q, %v", p, err)
	}
	if p, err := r.problem("cannot be saved"); err != nil || !strings.HasSuffix(p, ". What runs is left as it is") {
		t.Errorf("while a server hangs: %q, %v", p, err)
	}
	r.chief.with(func(s *rpc.JobStatus) { s.Servers[1].Info.Up = true })
	r.beat()
	if err := r.cluster.Exit("ctr", server(0, 1), 1); err != nil { // with the chief
		t.Fatal(err)
	}
	r.chief.stop()
	r.beats(3)
	r.wantCalls()
	if v := r.s.View(); v.State != StateStuck || v.Stuck != "ps-0-g1 cannot be started again" {
		t.Errorf("without its server it is %s: %q", v.State, v.Stuck)
	}
	if p, err := r.problem("cannot be saved"); err != nil || strings.Contains(p, "goes on") || !strings.HasSuffix(p, "ps-0-g1, without which nothing is trained, cannot be started again") {
		t.Errorf("without its server: %q, %v", p, err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	r.until("its server is started again", r.isLive("ps-0-g2 ps-1-g1 worker-0-g1 worker-1-g2"))
	r.chief.start()
	r.until("it goes on", r.settled(4))
	r.beat()
	if p, err := r.problem("cannot be saved"); err == nil {
		t.Errorf("the problem remains: %q", p)
	}
	r.reopen()
	if r.s.want.Target != 4 {
		t.Errorf("after a restart the target is %d", r.s.want.Target)
	}
}

// A disk that is all but full takes some writes and others not: that is one problem, in one wording, until there is room.
func TestDiskThatIsAllButFullIsOneProblem(t *testing.T) {
	if os.Getenv(envFullDisk) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDiskThatIsAllButFullIsOneProblem$", "-test.v")
		cmd.Env = append(os.Environ(), envFullDisk+"=1")
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "--- SKIP") {
			t.Skipf("%s", out)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestDiskThatIsAllButFullIsOneProblem") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	r := newRig(t, rigOptions{})
	r.started(2)
	signal.Ignore(syscall.SIGXFSZ)
	info, err := os.Stat(filepath.Join(r.state, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := syscall.Rlimit{Cur: uint64(info.Size()), Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Skipf("the size of files cannot be limited here: %v", err)
	}
	r.until("the state cannot be saved", func() error {
		_, err := r.problem("cannot be saved")
		return err
	})
	want := fmt.Sprintf("nothing is decided or changed, because the scheduler's state in %s cannot be saved: file too large; raise the limit on the size of files (ulimit -f). What runs trains on", r.state)
	for range 40 {
		r.beat()
		if got := r.s.View().Problems; !slices.Equal(got, []string{want}) {
			t.Fatalf("problems %q, want %q", got, want)
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	r.until("there is room again", func() error {
		if p, err := r.problem("cannot be saved"); err == nil {
			return errors.New(p)
		}
		return nil
	})
}

// That a chief does not answer any more mends no snapshot.
func TestSnapshotFailureOutlivesTheChief(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	const want = "parameter server 0: snapshots fail: write tablet 3: no space left on device"
	r.chief.with(func(s *rpc.JobStatus) { s.Servers[0].Metrics.SnapshotError = "write tablet 3: no space left on device" })
	r.beat()
	r.chief.stop()
	r.beats(2)
	if _, err := r.problem(want); err != nil {
		t.Error(err)
	}
	r.chief.with(func(s *rpc.JobStatus) { s.Servers[0].Metrics.SnapshotError = "" })
	r.chief.start()
	r.until("it is written", func() error {
		if p, err := r.problem(want); err == nil {
			return errors.New(p)
		}
		return nil
	})
}

// Who waits for a stop learns that there was one from the scheduler that has taken the job up since.
func TestLastStopOutlivesIt(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if at := r.s.View().LastStop; !at.IsZero() {
		t.Errorf("a job that never stopped says that it did at %v", at)
	}
	r.order("stop", 0)
	r.until("the job has stopped", func() error {
		if !r.s.want.Stopped {
			return errors.New("not yet")
		}
		return nil
	})
	at := r.s.View().LastStop
	r.reopen()
	r.started(1)
	if v := r.s.View(); at.IsZero() || !v.LastStop.Equal(at) || v.Stopped {
		t.Errorf("taken up again it says that it stopped at %v, stopped %v; want %v", v.LastStop, v.Stopped, at)
	}
}

// What only a job that begins takes up is said of one that has begun: where it starts to read, and the seed of its model.
func TestWhatOnlyABeginningTakesUp(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	began := *r.job
	changed := began
	changed.Stream.Start, changed.Model.Seed = job.Start{Kind: job.StartLatest}, began.Model.Seed+1
	if diags := CheckCheckpoint(&began); len(diags) > 0 {
		t.Errorf("as it began: %v", diags)
	}
	check := func(when string, says ...string) {
		t.Helper()
		diags := CheckCheckpoint(&changed)
		if len(diags) != len(says) {
			t.Fatalf("%s: %v", when, diags)
		}
		for i, d := range diags {
			if d.Severity != hcl.DiagWarning || !strings.Contains(d.Detail, says[i]) || !strings.Contains(d.Detail, CheckpointFolder(r.job)) {
				t.Errorf("%s: %v; want %q", when, d, says[i])
			}
		}
	}
	seed := fmt.Sprintf("It began with seed %d and keeps what it has learnt; %d ", began.Model.Seed, changed.Model.Seed)
	start := fmt.Sprintf(`It began at start = %q and goes on where it has got to; "latest" changes nothing of that.`, began.Stream.Start.Kind)
	check("before it is run", start, seed)
	r.job = &changed
	r.open("run")
	r.beats(3)
	check("after it was run", start, seed)
	if err := os.WriteFile(filepath.Join(CheckpointFolder(r.job), shapeFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("of a job that an older version began")
	r.reopen()
	r.beats(3)
	check("of one that this version goes on with")
}
