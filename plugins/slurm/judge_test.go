package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// What is said of a workload that Slurm lists, lists no more, never listed, or cannot be asked about, and when that becomes final.
func TestJudge(t *testing.T) {
	now := time.Now()
	submitted := submission{Tried: now.Add(-time.Hour), At: now.Add(-time.Hour), JobID: "7"}
	unclear := submission{Tried: now.Add(-time.Second)}
	running := report{State: backend.StateRunning, Node: "n1", First: now}
	again := report{State: backend.StateStarting, Node: "n1", First: now, Finished: now, Reason: "it crashed with code 1; it starts again in 0.4 s"}
	holds := report{State: backend.StateStarting, Node: "n1", Reason: "it holds its place until the generation before it has ended"}
	asked := report{State: backend.StateFailed, Node: "n1", First: now, Finished: now, Reason: "Slurm or a person asked it to stop (a time limit, a preemption, scancel); it ended with code 0"}
	askedLong := asked
	askedLong.Finished = now.Add(-time.Minute)
	exited := report{State: backend.StateExited, Reason: "it ended with code 0: done"}
	listed := func(state string) map[string][]row {
		return map[string][]row{"N": {{id: "7", nonce: "N", state: state, nodes: "n1", started: now.Add(-time.Hour)}}}
	}
	for _, tt := range []struct {
		name    string
		sub     submission
		report  report
		rows    map[string][]row
		failed  bool // the poll
		release bool
		missed  time.Duration // since when it is known to be missing
		silent  time.Duration // since when it is known to run without a word
		// restarted: its node's slurmd was started after it.
		restarted bool
		node      string        // the state of its node
		deaf      time.Duration // since when that is known not to answer
		unbegun   bool          // so was the generation before, until it was given up
		promised  time.Duration // since when its script is to start its program
		beside    verdict       // on the generation before, beside which it holds its place
		claim     string
		begun     time.Duration // since when its claim is known
		account   *ending
		logged    *string // what Slurm wrote into slurm.log; nil: the workload's folder is gone from here

		state   backend.State
		says    string
		verdict string
	}{
		{name: "running", sub: submitted, report: running, rows: listed("RUNNING"), state: backend.StateRunning},
		{name: "held", sub: submitted, rows: map[string][]row{"N": {{id: "7", nonce: "N", state: "PENDING", reason: "JobHeldUser"}}}, state: backend.StatePending, says: "scontrol release 7 lets it go"},
		{name: "silent script", sub: submitted, rows: listed("RUNNING"), state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent since before its slurmd was started", sub: submitted, rows: listed("RUNNING"), silent: 16 * time.Second, restarted: true, state: backend.StateFailed, says: "its script never began", verdict: verdictUnbegun},
		{name: "silent for a moment since", sub: submitted, rows: listed("RUNNING"), silent: 14 * time.Second, restarted: true, state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent, but begun", sub: submitted, rows: listed("RUNNING"), silent: time.Hour, restarted: true, claim: "7", state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent for minutes", sub: submitted, rows: listed("RUNNING"), silent: 9 * time.Minute, state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent for long", sub: submitted, rows: listed("RUNNING"), silent: 11 * time.Minute, state: backend.StateFailed, says: "its script never began", verdict: verdictUnbegun},
		{name: "silent on a node that does not answer", sub: submitted, rows: listed("RUNNING"), silent: 2 * time.Minute, node: "ALLOCATED*", deaf: 61 * time.Second, state: backend.StateFailed, says: "its script never began", verdict: verdictUnbegun},
		{name: "silent on a node that does not answer through slurmrestd", sub: submitted, rows: listed("RUNNING"), silent: 2 * time.Minute, node: "ALLOCATED+NOT_RESPONDING", deaf: 61 * time.Second, state: backend.StateFailed, says: "its script never began", verdict: verdictUnbegun},
		{name: "silent on a node that has just stopped to answer", sub: submitted, rows: listed("RUNNING"), silent: 2 * time.Minute, node: "ALLOCATED*", deaf: 59 * time.Second, state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent on a node that answers again", sub: submitted, rows: listed("RUNNING"), silent: 2 * time.Minute, node: "ALLOCATED", deaf: 61 * time.Second, state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent for long again", sub: submitted, rows: listed("RUNNING"), silent: 11 * time.Minute, unbegun: true, state: backend.StateStarting, says: "has written nothing yet"},
		{name: "silent for twice as long", sub: submitted, rows: listed("RUNNING"), silent: 21 * time.Minute, unbegun: true, state: backend.StateFailed, says: "its script never began", verdict: verdictUnbegun},
		{name: "between two processes", sub: submitted, report: again, rows: listed("RUNNING"), promised: 29 * time.Second, state: backend.StateStarting, says: "it starts again"},
		{name: "between two processes for long", sub: submitted, report: again, rows: listed("RUNNING"), promised: 31 * time.Second, state: backend.StateFailed, says: "its script on node n1 was to start it, and did not for 31s", verdict: verdictStranded},
		{name: "between two processes, released", sub: submitted, report: again, rows: listed("RUNNING"), promised: time.Hour, release: true, state: backend.StateStopping, says: "released"},
		{name: "beside one that lives", sub: submitted, report: holds, rows: listed("RUNNING"), promised: time.Hour, beside: verdict{Node: "n1"}, state: backend.StateStarting, says: "holds its place"},
		{name: "beside one that has ended", sub: submitted, report: holds, rows: listed("RUNNING"), promised: 29 * time.Second, beside: verdict{State: "COMPLETED"}, state: backend.StateStarting, says: "holds its place"},
		{name: "beside one that has long ended", sub: submitted, report: holds, rows: listed("RUNNING"), promised: 31 * time.Second, beside: verdict{State: "COMPLETED"}, state: backend.StateFailed, says: "its script on node n1 was to start it", verdict: verdictStranded},
		{name: "placed for long", sub: submitted, rows: listed("CONFIGURING"), silent: time.Hour, state: backend.StateStarting},
		{name: "asked to stop a moment ago", sub: submitted, report: asked, rows: listed("COMPLETING"), state: backend.StateStopping, says: "has asked it to stop"},
		{name: "asked to stop, and Slurm says by whom", sub: submitted, report: asked, rows: listed("CANCELLED"), state: backend.StateFailed, says: "somebody cancelled its job, on node n1 (Slurm job 7: CANCELLED)", verdict: "CANCELLED"},
		{name: "asked to stop by Slurm's warning", sub: submitted, report: asked, rows: listed("COMPLETED"), state: backend.StateFailed, says: "Slurm or a person asked it to stop", verdict: "COMPLETED"},
		{name: "asked to stop, and Slurm takes long", sub: submitted, report: askedLong, rows: listed("COMPLETING"), state: backend.StateFailed, says: "Slurm or a person asked it to stop"},
		{name: "ended, job still there", sub: submitted, report: exited, rows: listed("COMPLETING"), state: backend.StateExited, says: "done"},
		{name: "ended", sub: submitted, report: exited, rows: listed("COMPLETED"), state: backend.StateExited, says: "done", verdict: "COMPLETED"},
		{name: "preempted, and its program ended well", sub: submitted, report: exited, rows: listed("PREEMPTED"), state: backend.StateFailed, says: "a job of higher priority took its place", verdict: "PREEMPTED"},
		{name: "last word not seen yet", sub: submitted, report: running, rows: listed("COMPLETED"), state: backend.StateStopping, says: "last word"},
		{name: "killed from outside", sub: submitted, report: running, rows: listed("FAILED"), state: backend.StateFailed, says: "ended from outside", verdict: "FAILED"},
		{name: "never ran, on a node that has not the folder", sub: submitted, rows: listed("FAILED"), logged: new(""), state: backend.StateFailed, says: "that is not the same folder there", verdict: "FAILED"},
		{name: "never ran, and Slurm says why", sub: submitted, rows: listed("FAILED"), logged: new("cannot run /bin/sh"), state: backend.StateFailed, says: "slurm.log in its folder may say why", verdict: "FAILED"},
		{name: "never ran, and its folder is gone from here", sub: submitted, rows: listed("FAILED"), state: backend.StateFailed, says: "slurm.log in its folder may say why", verdict: "FAILED"},
		{name: "begun since the look", sub: submitted, rows: listed("PENDING"), claim: "7", state: backend.StateStarting, says: "has begun"},
		{name: "started since the look", sub: submitted, report: running, rows: listed("PENDING"), claim: "7", state: backend.StateRunning},
		{name: "crashed since the look", sub: submitted, report: again, rows: listed("PENDING"), claim: "7", state: backend.StateStarting, says: "it crashed with code 1"},
		{name: "ended since the look", sub: submitted, report: exited, rows: listed("PENDING"), claim: "7", state: backend.StateExited, says: "done"},
		{name: "requeued by hand", sub: submitted, report: running, rows: listed("PENDING"), claim: "7", begun: time.Minute, state: backend.StateStopping, says: "a second time"},
		{name: "Slurm silent", sub: submitted, report: running, failed: true, state: backend.StateUnknown, says: "does not answer"},
		{name: "Slurm silent, ended", sub: submitted, report: exited, failed: true, state: backend.StateExited, says: "done"},
		{name: "Slurm silent, released", sub: submitted, report: exited, failed: true, release: true, state: backend.StateStopping, says: "does not answer"},
		{name: "missing for a moment", sub: submitted, report: running, state: backend.StateUnknown, says: "does not list"},
		{name: "missing for long", sub: submitted, report: running, missed: time.Hour, state: backend.StateFailed, says: "no longer knows", verdict: verdictLost},
		{name: "missing, ended", sub: submitted, report: exited, state: backend.StateExited, says: "done", verdict: "COMPLETED"},
		{name: "missing, released", sub: submitted, report: running, release: true, state: backend.StateExited, says: "released", verdict: verdictLost},
		{name: "missing, and in the accounts", sub: submitted, report: running, account: &ending{state: "OUT_OF_MEMORY", exitCode: 137}, state: backend.StateFailed, says: "(Slurm job 7: OUT_OF_MEMORY, code 137, by the cluster's accounts)", verdict: "OUT_OF_MEMORY"},
		{name: "missing, never ran, and in the accounts", sub: submitted, account: &ending{state: "CANCELLED", reason: "by user 7", node: "n2"}, state: backend.StateFailed, says: "CANCELLED, by user 7, by the cluster's accounts", verdict: "CANCELLED"},
		{name: "just submitted", sub: submission{Tried: now, At: now.Add(time.Minute), JobID: "7"}, state: backend.StatePending, says: "submitted as Slurm job 7"},
		{name: "outcome open", sub: unclear, state: backend.StateUnknown, says: "may yet come"},
		{name: "outcome open for long", sub: submission{Tried: now.Add(-time.Hour)}, state: backend.StateFailed, says: "never came", verdict: verdictRejected},
		{name: "outcome open, released", sub: unclear, release: true, state: backend.StateStopping, says: "released"},
		{name: "outcome open for long, released", sub: submission{Tried: now.Add(-4 * time.Second)}, release: true, state: backend.StateExited, says: "released", verdict: verdictRejected},
		{name: "never submitted, released", release: true, state: backend.StateExited, says: "released", verdict: verdictRejected},
		{name: "never submitted", state: backend.StateFailed, says: "before it submitted it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := &job{name: "j", set: settings{dir: t.TempDir()}, lg: conformance.Logger(t), launchIn: launchTimeout, told: newOrders()}
			i := j.instance(worker(0, 2))
			if err := os.MkdirAll(i.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			v := view{instance: i, record: record{Nonce: "N"}, submission: tt.sub, report: tt.report, claim: tt.claim, account: tt.account}
			if tt.release {
				v.release = &release{How: "forced"}
			}
			snap := snapshot{began: now, rows: tt.rows}
			if tt.failed {
				snap.err = errors.New("squeue: no answer")
			}
			v.polled = snap.err
			if snap.err == nil {
				v.row, v.inQueue, v.surplus = pick(snap.rows["N"], v.claim)
				v.recent = !snap.began.After(later(v.submission.Tried, v.submission.At))
			}
			j.queue = &queue{nodes: []node{{name: "n1", since: now.Add(-2 * time.Hour)}}, nodesAt: time.Now()}
			if tt.restarted {
				j.queue.nodes[0].since = now
			}
			j.queue.nodes[0].state = tt.node
			if tt.deaf > 0 {
				j.told.first("deaf", "N", now.Add(-tt.deaf))
			}
			if tt.silent > 0 {
				j.told.first("wordless", "N", now.Add(-tt.silent))
			}
			if tt.logged != nil {
				for name, text := range map[string]string{slurmLogFile: *tt.logged, outputFile: ""} {
					if err := os.WriteFile(i.path(name), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if tt.claim != "" {
				if err := os.Symlink(tt.claim, i.path(claimFile)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.unbegun {
				before := j.instance(worker(0, 1))
				if err := errors.Join(os.MkdirAll(before.dir, 0o700), backend.WriteJSON(before.path(verdictFile), verdict{State: verdictUnbegun})); err != nil {
					t.Fatal(err)
				}
			}
			if tt.beside != (verdict{}) {
				v.record.Beside = true
				before := j.instance(worker(0, 1))
				err := os.MkdirAll(before.dir, 0o700)
				if err == nil && tt.beside.State != "" {
					err = backend.WriteJSON(before.path(verdictFile), tt.beside)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if word := j.promised(v); word != "" && tt.promised > 0 {
				j.told.heard(word, "N", now.Add(-tt.promised))
			}
			if tt.begun > 0 {
				j.told.first("began", "N", now.Add(-tt.begun))
			}
			if tt.missed > 0 {
				j.told.first("missing", "N", now.Add(-tt.missed))
			}
			v = j.judge(v, snap)
			st := v.status()
			if st.State != tt.state || !strings.Contains(st.Reason, tt.says) {
				t.Errorf("it is %s: %q; want %s and %q", st.State, st.Reason, tt.state, tt.says)
			}
			if tt.account != nil && st.ExitCode != tt.account.exitCode {
				t.Errorf("exit code %d, want %d", st.ExitCode, tt.account.exitCode)
			}
			var kept verdict
			err := backend.ReadJSON(i.path(verdictFile), &kept)
			if (err == nil) != (tt.verdict != "") || kept.State != tt.verdict {
				t.Errorf("the verdict on disk is %+v (%v), want %q", kept, err, tt.verdict)
			}
		})
	}
}

// Whoever plans by the deadline is done before Slurm asks a job to stop, which is some time before its limit.
func TestDeadlineIsBeforeTheWarning(t *testing.T) {
	started := time.Unix(1_700_000_000, 0)
	for _, tt := range []struct {
		limit, grace, want time.Duration // of the job; from its start to the deadline
		unwarned           bool
	}{
		{limit: 12 * time.Hour, grace: 30 * time.Second, want: 12*time.Hour - 2*time.Minute},
		{limit: 4 * time.Minute, grace: 10 * time.Second, want: 140 * time.Second},
		{limit: 3 * time.Minute, grace: 30 * time.Second, want: 90 * time.Second}, // asked half a minute before its end, or up to a minute earlier: not before that
		{limit: 2 * time.Minute, grace: 30 * time.Second, want: time.Minute},      // asked half a minute before its end, or up to a minute earlier
		{limit: 2 * time.Minute, grace: 30 * time.Second, want: 2 * time.Minute, unwarned: true},
	} {
		v := view{row: row{started: started, deadline: started.Add(tt.limit)}}
		if !tt.unwarned {
			v.record.Warning = settings{limit: tt.limit}.warning(tt.grace)
		}
		if got := v.deadline().Sub(started); got != tt.want {
			t.Errorf("limit %v, grace %v: the deadline is %v after the start, want %v", tt.limit, tt.grace, got, tt.want)
		}
	}
	for limit, asks := range map[time.Duration]bool{12 * time.Hour: true, 3 * time.Minute: true, 2 * time.Minute: true, time.Minute: false, 0: false} {
		grace := 30 * time.Second
		v := view{row: row{state: "RUNNING", started: started, deadline: started.Add(limit), cause: backend.EndWalltime}, record: record{StopGrace: grace, Warning: settings{limit: limit}.warning(grace)}}
		if got := v.status().Asks; got != asks {
			t.Errorf("with a limit of %v it is asked to end in time: %v", limit, got)
		}
	}
	seen := started.Add(2 * time.Hour)
	v := view{row: row{started: started, deadline: seen.Add(30 * time.Second)}, record: record{Warning: time.Minute}, foreseen: seen}
	if got := v.deadline(); !got.Equal(seen) {
		t.Errorf("a preemption that was seen at %v could end it from %v on", seen, got)
	}
	if at := (view{record: record{Warning: time.Minute}}).deadline(); !at.IsZero() {
		t.Errorf("one without a limit has the deadline %v", at)
	}
}

// A job that begins between the look at the queue and the look at its folder has its claim and still seems to wait: it must not be cancelled for having been put
// back into the queue. One that a later look still shows waiting was, and is.
func TestBeginsDuringTheLook(t *testing.T) {
	tl := &canceller{}
	j := &job{name: "j", set: settings{dir: t.TempDir()}, lg: conformance.Logger(t), launchIn: launchTimeout, told: newOrders(), queue: newQueue(tl, time.Second)}
	i := j.instance(worker(0, 1))
	at := func(began time.Time, state string) view {
		v := view{instance: i, record: record{Nonce: "N"}, submission: submission{Tried: began.Add(-time.Hour), At: began.Add(-time.Hour), JobID: "7"}, claim: "7"}
		v.row, v.inQueue = row{id: "7", nonce: "N", state: state}, true
		return j.judge(v, snapshot{began: began})
	}
	for _, state := range []string{"PENDING", "PENDING", "RUNNING"} { // the same look, twice; then the next
		v := at(time.Now().Add(-time.Millisecond), state)
		if j.enforce(t.Context(), []view{v}); len(tl.cancelled) > 0 || v.status().State == backend.StateStopping {
			t.Fatalf("%s: cancelled %v, and it is %+v", state, tl.cancelled, v.status())
		}
	}
	at(time.Now(), "PENDING")
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if j.enforce(t.Context(), []view{at(time.Now().Add(time.Second), "PENDING")}); len(tl.cancelled) != 1 || tl.cancelled[0].id != "7" {
		t.Errorf("put back into the queue: cancelled %v", tl.cancelled)
	}
}

// A job that has ended and that Slurm takes for running again, as a controller does that was killed before it had saved its end, is cancelled, once in a while: it
// would hold its place for minutes. One that has just ended is not.
func TestPhantomIsCancelled(t *testing.T) {
	for _, c := range []struct {
		state string
		ended time.Duration
		want  int
	}{{"RUNNING", time.Minute, 1}, {"RUNNING", time.Second, 0}, {"COMPLETING", time.Minute, 0}, {"COMPLETED", time.Minute, 0}} {
		for _, released := range []bool{false, true} {
			tl := &canceller{}
			j := &job{name: "j", set: settings{dir: t.TempDir()}, lg: conformance.Logger(t), told: newOrders(), queue: newQueue(tl, time.Second)}
			v := view{instance: j.instance(worker(0, 1)), record: record{Nonce: "N"}, verdict: &verdict{State: "COMPLETED"}, report: report{State: backend.StateExited, Finished: time.Now().Add(-c.ended)}}
			v.row, v.inQueue = row{id: "7", nonce: "N", state: c.state, nodes: "n1"}, true
			if released {
				v.release = &release{How: backend.Drained.String()}
			}
			for range 3 { // looks
				j.enforce(t.Context(), []view{v})
			}
			if len(tl.cancelled) != c.want {
				t.Errorf("%s, ended %v ago, released %v: cancelled %v", c.state, c.ended, released, tl.cancelled)
			}
		}
	}
}

// What this backend cancels itself is told as that, and why: by the next process too, and where the answer to the cancellation was lost.
func TestOwnCancelIsNobodyElses(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	lost := errors.New("scancel: no answer within 10s")
	for name, tt := range map[string]struct {
		node  node
		twice bool // Slurm has a second job of it, which began meanwhile
		fails error
		says  string
	}{
		"its node does not answer": {node: node{state: "DOWN*"}, says: "its node n1 failed, and Slurm put its job back into the queue; Kale cancelled it"},
		"its node came back":       {node: node{state: "IDLE", since: began.Add(time.Minute)}, fails: lost, says: "its node n1 failed, and Slurm put its job back into the queue; Kale cancelled it"},
		"its node was set down":    {node: node{state: "IDLE+DRAIN", since: began.Add(-time.Hour)}, says: "its node n1 was set down, and Slurm put its job back into the queue; Kale cancelled it"},
		"by hand":                  {node: node{state: "IDLE", since: began.Add(-time.Hour)}, fails: lost, says: "Slurm put its job back into the queue after it had begun"},
		"twice":                    {node: node{state: "MIXED"}, twice: true, fails: lost, says: "Slurm had two jobs of it; Kale cancelled the second, which had just begun"},
	} {
		t.Run(name, func(t *testing.T) {
			tl, dir := &canceller{fails: tt.fails}, t.TempDir()
			tt.node.name = "n1"
			open := func() *job { // a process
				q := newQueue(tl, time.Second)
				q.nodes, q.nodesAt = []node{tt.node}, time.Now().Add(time.Hour) // it is not asked for anew, however slow the test
				return &job{name: "j", set: settings{dir: dir}, lg: conformance.Logger(t), launchIn: launchTimeout, told: newOrders(), queue: q}
			}
			j := open()
			i := j.instance(worker(0, 1))
			sub := submission{Tried: began, At: began, JobID: "7"}
			err := errors.Join(i.write(record{Job: "j", ID: i.id, Nonce: "N"}, "", nil), backend.WriteJSON(i.path(submissionFile), sub),
				os.WriteFile(i.path(statusFile), fmt.Appendf(nil, "state=running\nnode=n1\nfirst=%d\n", began.Unix()), 0o600))
			if !tt.twice {
				err = errors.Join(err, os.Symlink("7", i.path(claimFile)))
			}
			if err != nil {
				t.Fatal(err)
			}
			look := func(after time.Duration, rows ...row) view {
				t.Helper()
				views, err := j.scan(t.Context(), snapshot{began: time.Now().Add(after), rows: map[string][]row{"N": rows}})
				if err != nil || len(views) != 1 {
					t.Fatalf("%+v, %v", views, err)
				}
				j.enforce(t.Context(), views)
				return views[0]
			}
			waits, over, id := row{id: "7", nonce: "N", state: "PENDING"}, row{id: "7", nonce: "N", state: "CANCELLED", nodes: "n1"}, "7"
			if tt.twice {
				second := waits
				second.id = "8"
				look(0, waits, second)
				if err := os.Symlink("8", i.path(claimFile)); err != nil {
					t.Fatal(err)
				}
				id, over.id = "8", "8"
			} else {
				look(0, waits)
				look(time.Second, waits)
			}
			if len(tl.cancelled) != 1 || tl.cancelled[0].id != id {
				t.Fatalf("cancelled: %v, want %s", tl.cancelled, id)
			}
			j = open()
			if st := look(2*time.Second, over).status(); st.State != backend.StateFailed || !strings.HasPrefix(st.Reason, tt.says) {
				t.Errorf("it is %s: %q; want %q", st.State, st.Reason, tt.says)
			}
		})
	}
}

// canceller is a controller that remembers what was cancelled and does nothing else.
type canceller struct {
	controller
	cancelled []jobRef
	fails     error // what a cancellation gives, which is done all the same
}

func (c *canceller) cancel(_ context.Context, jobs ...jobRef) error {
	c.cancelled = append(c.cancelled, jobs...)
	return c.fails
}

func (*canceller) nodes(context.Context) ([]node, error) { return nil, errors.New("no answer") }

// What has its folder and is only being submitted waits; where nobody submits it any more, it has failed.
func TestBeingSubmittedHasNotEnded(t *testing.T) {
	j := &job{name: "j", set: settings{dir: t.TempDir()}, lg: conformance.Logger(t), told: newOrders(), queue: newQueue(&canceller{}, time.Second), starts: &backend.Starts{}}
	w := backend.Workload{ID: worker(0, 1)}
	i := j.instance(w.ID)
	if err := i.write(record{Job: "j", ID: w.ID, Nonce: "N"}, "", nil); err != nil {
		t.Fatal(err)
	}
	is := func(when string, want backend.State, says string) {
		t.Helper()
		views, err := j.scan(t.Context(), snapshot{began: time.Now()})
		if err != nil || len(views) != 1 {
			t.Fatalf("%s: %+v, %v", when, views, err)
		}
		if st := views[0].status(); st.State != want || !strings.Contains(st.Reason, says) {
			t.Errorf("%s it is %s: %q", when, st.State, st.Reason)
		}
	}
	end := j.starts.Begin("j", []backend.Workload{w})
	is("before it is tried", backend.StatePending, "being submitted")
	if err := backend.WriteJSON(i.path(submissionFile), submission{Tried: time.Now().Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	is("while sbatch runs", backend.StatePending, "being submitted")
	end()
	time.Sleep(time.Millisecond)
	is("after sbatch has failed", backend.StateUnknown, "it may yet come")
	if err := os.Remove(i.path(submissionFile)); err != nil {
		t.Fatal(err)
	}
	is("without a try", backend.StateFailed, "was ended before it submitted it")
}
