package core

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/rpc"
)

func TestEndedProcessGetsANewGenerationWithBackoff(t *testing.T) {
	for name, id := range map[string]func(uint64) backend.ID{
		"worker": func(g uint64) backend.ID { return worker(1, g) },
		"server": func(g uint64) backend.ID { return server(1, g) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.started(2)
			for g := uint64(1); g <= 4; g++ {
				if err := r.cluster.Exit("ctr", id(g), int(g%2)); err != nil { // exited well or badly, it is wanted
					t.Fatal(err)
				}
				began := r.now
				r.until("the next generation runs", func() error {
					if n := r.cluster.Starts("ctr", id(g+1)); n != 1 {
						return fmt.Errorf("it was started %d times", n)
					}
					return nil
				})
				// At once for the first, half a second, one and two after it, in beats of a second.
				if took, want := r.now.Sub(began), []time.Duration{0, 1, 1, 2, 3}[g]*time.Second; took > want {
					t.Errorf("end %d took %v to be mended, want %v", g, took, want)
				}
			}
			// After a while of peace it begins anew.
			r.now = r.now.Add(10 * time.Minute)
			if err := r.cluster.Exit("ctr", id(5), 1); err != nil {
				t.Fatal(err)
			}
			r.beat()
			if r.cluster.Starts("ctr", id(6)) != 1 {
				t.Error("an old failure makes a new one wait")
			}
		})
	}
}

// What ends again and again after it has worked for a while is preempted, or its nodes die: it is no crash loop, and each end is mended at once.
func TestEndAfterHealthyRunIsMendedAtOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	for g := uint64(1); g <= 8; g++ {
		now := time.Now() // by which the fake says when it finished
		if err := r.cluster.SetTimes("ctr", worker(1, g), now.Add(-healthyRun-time.Second), now.Add(-healthyRun-time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := r.cluster.Exit("ctr", worker(1, g), 1); err != nil {
			t.Fatal(err)
		}
		r.beat()
		if n := r.cluster.Starts("ctr", worker(1, g+1)); n != 1 {
			t.Fatalf("end %d of a worker that had run for %v is not mended at the next look", g, healthyRun)
		}
	}
}

func TestBackoffDoublesUpToItsMost(t *testing.T) {
	s := &Scheduler{backoff: map[backend.ID]retry{}}
	now := time.Unix(1_800_000_000, 0)
	id := worker(3, 7)
	var got []time.Duration
	for range 9 {
		s.hold(id, now, 0)
		after := s.backoff[worker(3, 0)].after // of the rank, not of the generation
		got = append(got, after.Sub(now))
		now = after
	}
	ms := time.Millisecond
	want := []time.Duration{500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 16000 * ms, 32000 * ms, backoffMax, backoffMax}
	if !slices.Equal(got, want) {
		t.Errorf("waits %v, want %v", got, want)
	}
	s.hold(id, now, 5*backoffMax)
	if wait := s.backoff[worker(3, 0)].after.Sub(now); wait != 5*backoffMax {
		t.Errorf("the wait that the backend asked for became %v", wait)
	}
}

// What the state knows of is released: the next generation is taken, and saved before it is used.
func TestReleasedGenerationIsSkipped(t *testing.T) {
	m := &mortal{}
	r := newRig(t, rigOptions{wrap: func(b backend.Backend) backend.Backend { m.Backend = b; return m }})
	m.before = r.mustBeSaved
	other := fake.New(nil, r.cluster)
	if _, err := other.Configure(t.Context(), backend.Config{Job: "ctr"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []backend.ID{worker(0, 3), server(0, 1)} {
		if _, err := other.Ensure(t.Context(), "ctr", []backend.Workload{{ID: id, Argv: []string{"run"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.Release(t.Context(), "ctr", []backend.ID{worker(0, 3), server(0, 1)}, backend.Forced); err != nil {
		t.Fatal(err)
	}
	r.until("the job is wanted", func() error {
		if r.s.want.Target == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	r.s.tickAt = r.now.Add(time.Hour) // so that no decision saves what the rest must
	r.until("the job runs", r.isLive("ps-0-g2 ps-1-g1 worker-0-g4"))
	r.reopen()
	r.beats(3)
	r.mustBeLive("ps-0-g2 ps-1-g1 worker-0-g4")
}

func TestNoCapacityIsRetriedWithBackoffAndShown(t *testing.T) {
	r := newRig(t, rigOptions{slots: 1})
	r.started(1)
	r.order("scale", 2)
	r.beats(30)
	tries := len(r.calls())
	if tries < 4 || tries > 8 {
		t.Errorf("tried %d times in 30 s; the wait should double each time", tries)
	}
	p, err := r.problem("worker-1-g1 is not started")
	if err != nil || !strings.Contains(p, "needs 1 slots, 0 free (no capacity)") {
		t.Errorf("problem %q, %v", p, err)
	}
	if _, err := r.backend.Configure(t.Context(), backend.Config{Job: "ctr", Source: []byte("slots = 2\n"), Filename: "ctr.hcl"}); err != nil {
		t.Fatal(err)
	}
	r.until("there is room", r.settled(2))
	r.beat()
	if ps := r.s.View().Problems; len(ps) > 0 {
		t.Errorf("problems remain: %q", ps)
	}
}

// A backend that says when to ask again is asked then.
func TestRetryAfterIsHonoured(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("scale", 2)
	r.backend.FailNext(fake.OpEnsure, backend.RetryIn(10*time.Second, "the cluster is busy"))
	r.beat()
	if _, err := r.problem("the cluster is busy"); err != nil {
		t.Error(err)
	}
	r.beats(9)
	r.wantCalls("ensure worker-1-g1")
	r.beats(2)
	r.wantCalls("ensure worker-1-g1", "ensure worker-1-g1")
}

// A crash loop shows with the end of the log, within a beat, and goes away when the process stays up.
func TestCrashLoopIsShownWithTheEndOfItsLog(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	log := "time=… level=INFO msg=\"starting\"\nline two\n\n  kale-trainer: worker 0: no ONNX Runtime library: run make deps, or set KALE_ONNXRUNTIME\n"
	if err := r.cluster.Print("ctr", worker(0, 1), log); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.Exit("ctr", worker(0, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.beat()
	p, err := r.problem("worker-0-g1 has ended 1×: ended with code 1")
	if err != nil || !strings.HasSuffix(p, `; its log ends: line two | kale-trainer: worker 0: no ONNX Runtime library: run make deps, or set KALE_ONNXRUNTIME`) {
		t.Errorf("problem %q, %v", p, err)
	}
	r.joinAll()
	r.beat()
	if err := r.cluster.Crash("ctr", worker(0, 2)); err != nil { // its supervisor starts it again
		t.Fatal(err)
	}
	r.beat()
	if _, err := r.problem("worker-0-g2 has ended 2×: crashed and was started again; its log ends: started"); err != nil {
		t.Error(err)
	}
	r.now = r.now.Add(troubleRest)
	r.beat()
	if ps := r.s.View().Problems; len(ps) > 0 {
		t.Errorf("problems of a worker that is well: %q", ps)
	}
	if err := r.cluster.Crash("ctr", worker(0, 2)); err != nil {
		t.Fatal(err)
	}
	r.beat()
	if _, err := r.problem("worker-0-g2 has ended 1×: crashed"); err != nil {
		t.Error(err)
	}
}

// The end of the log that is shown is that of the process that died, whatever the next one has written meanwhile, and whenever it can be read.
func TestTailIsOfTheProcessThatDied(t *testing.T) {
	chatter := strings.Repeat("time=2026-01-01T00:00:00Z level=INFO msg=\"all is well\"\n", 60)
	print := func(r *rig, id backend.ID, text string) {
		t.Helper()
		if err := r.cluster.Print("ctr", id, text); err != nil {
			t.Fatal(err)
		}
	}
	crash := func(r *rig) {
		t.Helper()
		if err := r.cluster.Crash("ctr", worker(0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	broker := openBroker(t)
	for name, c := range map[string]struct {
		happens func(*rig)
		want    string
	}{
		"its successor has written more than is shown": {
			func(r *rig) { print(r, worker(0, 1), "the cause\n"); crash(r); print(r, worker(0, 1), chatter) },
			"worker-0-g1 has ended 1×: crashed and was started again; its log ends: started | the cause",
		},
		"it died twice between two looks": {
			func(r *rig) {
				print(r, worker(0, 1), "the first cause\n")
				crash(r)
				print(r, worker(0, 1), "time=1 level=ERROR msg=second\ntime=2 level=ERROR msg=second\n")
				crash(r)
				print(r, worker(0, 1), chatter)
			},
			"worker-0-g1 has ended 2×: crashed and was started again; its log ends: started | level=ERROR msg=second",
		},
		"it was killed, and had nothing to say about it": {
			func(r *rig) { print(r, worker(0, 1), chatter); crash(r) },
			"worker-0-g1 has ended 1×: crashed and was started again",
		},
		"it wrote little": {
			func(r *rig) { crash(r); crash(r); print(r, worker(0, 1), chatter) },
			"worker-0-g1 has ended 2×: crashed and was started again; its log ends: started",
		},
		"another generation follows, and the log cannot be read at once": {
			func(r *rig) {
				print(r, worker(0, 1), "the cause\n")
				if err := r.cluster.Exit("ctr", worker(0, 1), 3); err != nil {
					t.Fatal(err)
				}
				r.backend.FailNext(fake.OpLogs, backend.Errorf(backend.Unavailable, "scripted"))
				r.beat()
				print(r, worker(0, 2), chatter)
			},
			"worker-0-g1 has ended 1×: ended with code 3; its log ends: started | the cause",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{broker: broker})
			r.started(1)
			c.happens(r)
			r.beats(2)
			got, err := r.problem("worker-0")
			if err != nil || got != c.want {
				t.Errorf("problem %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}

// Of a log's last lines no part of a command to the terminal is left, wherever they are cut.
func TestLastWordsAreTame(t *testing.T) {
	red := "\x1b[31mERROR\x1b[0m no \x1b]8;;file\x07library\x1b]8;;\x07"
	long := strings.Repeat("\x1b[38;5;196mx\x1b[0m", tailRunes+1)
	for text, want := range map[string]string{
		red + "\n\x1b[1mlast\x1b[": "ERROR no library | last",
		"50 %\r100 %\tdone\x07\n":  "50 % 100 % done",
		long:                       strings.Repeat("x", tailRunes-1) + "…",
		"\u202ebackwards\xff":      "backwards?",
	} {
		if got := lastWords(text); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

func TestLastLife(t *testing.T) {
	mark := backend.LogBoundary + "why\n"
	for _, c := range []struct {
		text     string
		followed bool
		want     string
	}{
		{"", false, ""},
		{"", true, ""},
		{"a\n", false, "a\n"},
		{"the successor's\n", true, ""}, // a backend that marks no boundary
		{"a\n" + mark, true, "a\n"},
		{"a\n" + mark + "b\n", true, "a\n"},
		{"a\n" + mark + "b\n", false, "b\n"},
		{"a\n" + mark + " \n", false, "a\n"}, // it was asked to end, which is marked too
		{"a\n" + mark + mark + "b\n", true, ""},
		{"a\n" + mark + "b\n" + mark + "c\n", true, "b\n"},
	} {
		if got := lastLife(c.text, c.followed); got != c.want {
			t.Errorf("last life of %q, followed %v: %q, want %q", c.text, c.followed, got, c.want)
		}
	}
}

// What a supervisor tells while it waits to start a process again is heard, each end once.
func TestEndsAreCountedOnce(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	at := func(s int) time.Time { return time.Unix(1_800_000_000+int64(s), 0) }
	tr := &trouble{id: worker(0, 1)}
	r.s.troubles[placeOf(worker(0, 1))] = tr
	for i, c := range []struct {
		st    backend.Status
		times int
	}{
		{backend.Status{State: backend.StateRunning}, 0},
		{backend.Status{State: backend.StateStarting, Finished: at(1), Reason: "it crashed with code 1; it starts again in 1s"}, 1},
		{backend.Status{State: backend.StateStarting, Finished: at(1), Reason: "it crashed with code 1; it starts again in 1s"}, 1},
		{backend.Status{State: backend.StateRunning, Finished: at(1), Restarts: 1}, 1},
		{backend.Status{State: backend.StateRunning, Finished: at(5), Restarts: 3}, 3}, // two ends were missed
		{backend.Status{State: backend.StateFailed, Finished: at(6), Restarts: 3}, 4},
		{backend.Status{State: backend.StateFailed, Finished: at(6), Restarts: 3}, 4},
	} {
		c.st.ID = worker(0, 1)
		if r.s.compare(c.st, r.now); tr.times != c.times {
			t.Errorf("after look %d: ended %d times, want %d", i, tr.times, c.times)
		}
	}
	ended := backend.Status{ID: worker(0, 2), State: backend.StateUnknown, Finished: at(9), Restarts: 1, ExitCode: 137, Reason: "the cluster does not answer"}
	if r.s.compare(ended, r.now); tr.reason != "it ended with signal 9 (killed)" {
		t.Errorf("what ended while the cluster did not answer did so because %q", tr.reason)
	}
}

func TestLastWords(t *testing.T) {
	long := strings.Repeat("é", tailRunes+5)
	for in, want := range map[string]string{
		"":                          "",
		"\n \n":                     "",
		"one":                       "one",
		"a\nb\nc\nd\n":              "b | c | d",
		"up\nsame\nup\nsame\n":      "up | same",
		"time=1 same\ntime=2 same":  "same",
		"bad \xff byte\ttab\r\n":    "bad ? byte tab",
		long:                        long[:2*(tailRunes-1)] + "…", // é has two bytes
		long + "\nthe reason":       "the reason",
		"before\n" + long + "\nend": "end",
	} {
		if got := lastWords(in); got != want {
			t.Errorf("lastWords(%q) = %q, want %q", in, got, want)
		}
	}
}

// A scheduler that has lost its state finds everything again: nothing is killed or doubled, and the chief takes its token.
func TestLostStateIsFoundAgain(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	token := r.s.want.Token
	r.forget()
	if r.s.want.Token != token {
		t.Error("the token was lost with the state")
	}
	r.beats(3)
	if r.s.seen.chiefErr != nil {
		t.Fatal(r.s.seen.chiefErr)
	}
	r.wantCalls()
	if r.s.want.Target != 3 || r.s.workers().Running != 3 {
		t.Errorf("target %d, workers %+v", r.s.want.Target, r.s.workers())
	}
	r.order("scale", 4)
	r.until("it is in charge again", r.settled(4))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1 worker-1-g1 worker-2-g1 worker-3-g1")
	r.order("scale", 1)
	r.until("it is in charge again", r.settled(1))
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g1")
}

// forget ends the scheduler and opens another one without the state of the first.
func (r *rig) forget() {
	r.t.Helper()
	trainer := r.s.opt.Trainer
	if err := r.s.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.state = r.t.TempDir()
	r.open(trainer)
}

// With the state lost and an incomplete list, what is not listed must not be started again.
func TestLostStateWaitsForACompleteList(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(3)
	r.forget()
	r.backend.PartialNext(worker(0, 1), worker(1, 1), worker(2, 1))
	r.backend.FailNext(fake.OpList, backend.Errorf(backend.Unavailable, "scripted"))
	r.beats(4)
	r.wantCalls()
	if r.s.want.Target != 3 {
		t.Errorf("target %d", r.s.want.Target)
	}
}

// Generations that are newer than those in an old copy of the state are taken over too.
func TestOldStateLearnsWhatIsNewer(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("auto", 0)
	old, err := os.ReadFile(filepath.Join(r.state, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.Exit("ctr", worker(0, 1), 1); err != nil {
		t.Fatal(err)
	}
	r.started(3)
	if err := r.s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.state, "state.db"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	r.open("run")
	r.beats(3)
	r.wantCalls()
	r.mustBeLive("ps-0-g1 ps-1-g1 worker-0-g2 worker-1-g1 worker-2-g1")
	if r.s.want.Target != 3 {
		t.Errorf("target %d, want 3", r.s.want.Target)
	}
}

func TestTokenIsKeptForTheOwnerOnly(t *testing.T) {
	r := newRig(t, rigOptions{})
	path := filepath.Join(r.job.Checkpoint.Dir, "ctr", tokenFile)
	if _, err := os.Stat(path); err == nil {
		t.Fatal("the scheduler made the trainers' folder: who starts first would own it")
	}
	r.started(1)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode %v, want 0600", mode)
	}
	if err := keepToken(r.job, "another"); err != nil {
		t.Fatal(err)
	}
	if got, err := readToken(r.job); err != nil || got != r.s.want.Token {
		t.Errorf("token %q, %v: one that is there is never replaced", got, err)
	}
	drafts, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".scheduler-*"))
	if err != nil || len(drafts) > 0 {
		t.Errorf("drafts are left: %q, %v", drafts, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readToken(r.job); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty token: %v", err)
	}
	if err := os.WriteFile(path, []byte("two words\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readToken(r.job); err == nil || !strings.Contains(err.Error(), "is no token: remove it") {
		t.Errorf("what is no token: %v", err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := readToken(r.job); err == nil || !strings.Contains(err.Error(), "is a folder: remove it") {
		t.Errorf("a folder in the place of the token: %v", err)
	}
}

// Where both copies of the token are lost, a person must know what to do, and nothing is changed.
func TestLostTokenIsExplained(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	if err := os.Remove(filepath.Join(r.job.Checkpoint.Dir, "ctr", tokenFile)); err != nil {
		t.Fatal(err)
	}
	r.forget()
	r.order("scale", 1)
	r.beats(3)
	if _, err := r.problem("only kale stop -force and a new kale run"); err != nil {
		t.Error(err)
	}
	r.wantCalls()
	if err := r.s.obey(t.Context(), command{Order: Order{Kind: "stop", Force: true}}); err != nil {
		t.Fatal(err)
	}
	r.beat()
	if !r.s.want.Stopped || r.live() != "" {
		t.Errorf("stopped %v, live %q", r.s.want.Stopped, r.live())
	}
}

// A worker of a rank that the state knows and does not want is sent away in order.
func TestStrayIsDrained(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(2)
	r.order("auto", 0)
	r.s.want.Target, r.s.want.Ranks = 1, prefix(1) // as if the record of its leaving had been lost
	r.until("it leaves", r.isLive("ps-0-g1 ps-1-g1 worker-0-g1"))
	r.wantCalls("release worker-1-g1 drained")
	if asked := r.chief.asked(); len(asked) != 1 || asked[0] != "worker-1" {
		t.Errorf("asked to drain: %q", asked)
	}
}

// A pause is a person's: a new chief is told, and a scheduler that forgot it asks the chief.
func TestPauseOutlivesChiefAndScheduler(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.started(1)
	r.order("pause", 0)
	r.chief.with(func(s *rpc.JobStatus) { s.Paused = false }) // a new chief
	r.beats(2)
	if !r.s.seen.chief.GetPaused() {
		t.Error("the new chief was not told that the job is paused")
	}
	r.forget()
	r.beat()
	if !r.s.View().Manual.Paused || !r.s.seen.chief.GetPaused() {
		t.Error("the pause was forgotten with the state")
	}
	r.order("resume", 0)
	r.beats(2)
	if r.s.View().Manual.Paused || r.s.seen.chief.GetPaused() {
		t.Error("the job is paused after resume")
	}
}
