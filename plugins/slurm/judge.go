package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// missingFor is how long Slurm must have answered that it does not know a job before it is called lost.
	missingFor = 20 * time.Second
	// lateFor is how long a submission whose outcome is open may yet show up.
	lateFor = 2 * submitTimeout
	// lateReleasedFor is lateFor of one that was released meanwhile. Its script would see the release, and the job is cancelled where it shows up later still (givenUp).
	lateReleasedFor = 3 * time.Second
	// lastWordFor is how long the script's last word may take to be seen here after Slurm says that the job is over: file systems over a network
	// remember for a while what was there before.
	lastWordFor = 30 * time.Second
)

// orders is what this process has told Slurm and noticed; losing it repeats an order or lengthens a wait, and no more.
type orders struct {
	mu      sync.Mutex
	since   map[string]time.Time
	words   map[string]word // by nonce
	leaving bool            // something released may still be there
}

// word is what a script said last, and when it was first read here.
type word struct {
	text  string
	since time.Time
}

func newOrders() *orders {
	return &orders{since: map[string]time.Time{}, words: map[string]word{}, leaving: true}
}

// heard gives since when the word is the last one of nonce's script.
func (o *orders) heard(text, nonce string, now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.words[nonce].text != text {
		o.words[nonce] = word{text, now}
	}
	return o.words[nonce].since
}

// first gives when what and nonce were first named together: now, the first time.
func (o *orders) first(what, nonce string, now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := what + " " + nonce
	if o.since[key].IsZero() {
		o.since[key] = now
	}
	return o.since[key]
}

// due reports whether what was not done for nonce within the pause, and notes that it is done now.
func (o *orders) due(what, nonce string, now time.Time, pause time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	key := what + " " + nonce
	if last := o.since[key]; !last.IsZero() && now.Sub(last) < pause {
		return false
	}
	o.since[key] = now
	return true
}

func (o *orders) clear(what, nonce string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, what+" "+nonce)
}

func (o *orders) forget(nonce string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.words, nonce)
	for key := range o.since {
		if strings.HasSuffix(key, " "+nonce) {
			delete(o.since, key)
		}
	}
}

// judge writes the verdict on an instance once it is known, so that it is still known when Slurm has forgotten the job.
func (j *job) judge(v view, snap snapshot) view {
	if v.broken != nil || v.verdict != nil || snap.err != nil {
		return v
	}
	now := time.Now()
	found := verdict{At: now.UTC(), Node: v.report.Node}
	switch {
	case v.inQueue:
		j.told.clear("missing", v.record.Nonce)
		if v.row.cause == backend.EndPreemption {
			v.foreseen = j.told.first("preempted", v.record.Nonce, now)
		}
		if v.row.phase() == phaseQueued && v.claim != "" {
			v.requeued = snap.began.After(j.told.first("began", v.record.Nonce, now)) // else it began after the look, or while it was taken
		} else {
			j.told.clear("began", v.record.Nonce)
		}
		if v.wordless() {
			waited := now.Sub(j.told.first("wordless", v.record.Nonce, now))
			if !j.launchLost(v, waited) || !j.preclude(v) {
				return v
			}
			found.State, found.Node, found.Reason = verdictUnbegun, v.row.nodes, waited.Round(time.Second).String()
			break
		}
		j.told.clear("wordless", v.record.Nonce)
		if word := j.promised(v); word != "" {
			waited := now.Sub(j.told.heard(word, v.record.Nonce, now))
			if waited < promiseFor {
				return v
			}
			found.State, found.Reason = verdictStranded, waited.Round(time.Second).String()
			break
		}
		if j.endedByWord(v, now) {
			found.State = "COMPLETED"
			break
		}
		if v.row.phase() != phaseOver || v.awaitsLastWord() && now.Sub(j.told.first("over", v.record.Nonce, now)) < lastWordFor {
			return v
		}
		found.State, found.Reason = v.row.state, v.row.reason
		if found.Node == "" {
			found.Node = v.row.nodes
		}
		if found.State == "NODE_FAIL" {
			n, known := j.queue.node(context.Background(), v.row.cluster, found.Node, quickest)
			found.Ordered = known && n.stood(v.row.started)
		}
	case v.submission.Tried.IsZero():
		if v.release == nil {
			return v
		}
		found.State = verdictRejected // and if it is being submitted just now, its script sees the release
	case v.recent:
		return v
	case v.submission.JobID == "":
		late := lateFor
		if v.release != nil {
			late = lateReleasedFor
		}
		if now.Sub(v.submission.Tried) < late {
			return v
		}
		found.State = verdictRejected
	case v.report.over(): // it was cleared away long after its end
		found.State = "COMPLETED"
	case v.account != nil:
		found.State, found.Reason, found.ExitCode, found.Accounts = v.account.state, v.account.reason, v.account.exitCode, true
		if found.Node == "" {
			found.Node = v.account.node
		}
	default:
		if v.release == nil && now.Sub(j.told.first("missing", v.record.Nonce, now)) < missingFor {
			return v
		}
		found.State = verdictLost
	}
	if v.report.State != "" && !v.report.over() {
		n, known := j.queue.node(context.Background(), v.submission.Cluster, found.Node, quickest)
		found.Away = known && !n.answers() || found.State == "NODE_FAIL"
	}
	if found.State == "CANCELLED" || found.State == "COMPLETED" && !v.report.over() { // or it came to begin a second time, which is nothing
		found.Ours = v.cancelled(v.jobID())
	}
	if err := backend.WriteJSON(v.path(verdictFile), found); err != nil {
		j.lg.Warn("cannot write down how a job ended; trying again", "id", v.id.String(), "err", err)
		return v
	}
	j.told.forget(v.record.Nonce)
	j.lg.Info("a Slurm job is over", "id", v.id.String(), "slurm_job", v.submission.JobID, "state", found.State, "node", found.Node)
	v.verdict = &found
	return v
}

const (
	// launchTimeout is how long a job may be said to run without a word of its script when its node's slurmd was started after it. An slurmd that dies at the
	// wrong moment loses the launch, and slurmctld finds that out at one of the node's next registrations, which may be half an hour away (it pings nodes
	// every third of SlurmdTimeout, and asks every twentieth time what they run).
	launchTimeout = 15 * time.Second
	// launchAtMost is how long it may be otherwise: a site's prolog takes time, and so does a launch on a machine that has much to do. It is doubled for
	// every generation before that was given up for it.
	launchAtMost = 10 * time.Minute
	// deafFor is how long it may be otherwise while its node does not answer Slurm, which gives the node up only after SlurmdTimeout, five minutes where a
	// site has not set it. The scheduler gives as long to what ran on such a node.
	deafFor = time.Minute
	// sinceAge is how old a look may be by which it is judged since when an slurmd runs, and whether it answers.
	sinceAge = 10 * time.Second
)

// launchLost reports whether nothing is to be expected any more from a job that was said to run for so long without a word of its script.
func (j *job) launchLost(v view, waited time.Duration) bool {
	if waited < j.launchIn {
		return false
	}
	n, known := j.queue.node(context.Background(), v.row.cluster, v.row.nodes, sinceAge)
	switch {
	case known && n.since.After(v.row.started):
		return true
	case !known || n.answers():
		j.told.clear("deaf", v.record.Nonce)
	case time.Since(j.told.first("deaf", v.record.Nonce, time.Now())) >= deafFor:
		return true
	}
	patience := launchAtMost
	for id := v.id; id.Generation > 1 && patience < 64*launchAtMost; patience *= 2 {
		id.Generation--
		var before verdict
		if err := backend.ReadJSON(j.instance(id).path(verdictFile), &before); err != nil || before.State != verdictUnbegun {
			break
		}
	}
	return waited >= patience
}

// wordless reports whether Slurm says that the job runs while nothing shows that its script has begun.
func (v view) wordless() bool {
	return v.row.phase() == phaseRunning && v.release == nil && v.claim == "" && v.report.State == ""
}

// promiseFor is how long a script may take to start its program, or start it again, after it said that it would in a moment: a file system over a network may
// show that late.
const promiseFor = lastWordFor

// wordFor is how long Slurm may take to see the end of what was released, after the script has told of it: usually a moment. Under a dead slurmd it takes minutes.
const wordFor = 5 * time.Second

// endedByWord reports whether what was released has ended by its script's word, which Slurm does not see. Its job is cancelled all the same (phantom).
func (j *job) endedByWord(v view, now time.Time) bool {
	if v.release == nil || !v.report.over() || v.row.phase() == phaseOver {
		j.told.clear("word", v.record.Nonce)
		return false
	}
	return now.Sub(j.told.first("word", v.record.Nonce, now)) >= wordFor
}

// promised gives the word by which the script of a job that is said to run starts its program, or "" where nothing is expected of it now: a script that was lost
// with its node between two processes leaves it, and Slurm may go on for half an hour to say that the job runs.
func (j *job) promised(v view) string {
	if v.row.phase() != phaseRunning || v.release != nil || v.report.State != backend.StateStarting {
		return ""
	}
	if !v.report.Finished.IsZero() {
		return v.report.Finished.String() + " " + v.report.Reason // each time anew
	}
	for id := v.id; v.record.Beside && id.Generation > 1; {
		id.Generation--
		before := j.instance(id)
		if _, err := os.Stat(before.dir); err != nil {
			continue
		}
		_, over := os.Stat(before.path(verdictFile))
		if _, settled := os.Stat(before.path(settledFile)); over != nil && settled != nil {
			return "" // it may live
		}
	}
	return v.report.Reason
}

// preclude takes the claim that the script would take, so that it never runs, and says whether it could.
func (j *job) preclude(v view) bool {
	err := os.Symlink("nobody", v.path(claimFile))
	if err != nil && !errors.Is(err, fs.ErrExist) { // it has begun after all
		j.lg.Warn("cannot keep a job from beginning late; trying again", "id", v.id.String(), "err", err)
	}
	return err == nil
}

// awaitsLastWord reports whether the job ended as its script ends it, with code 0, and what the script wrote at the end is not to be seen yet.
func (v view) awaitsLastWord() bool {
	return v.row.state == "COMPLETED" && v.release == nil && v.report.State != "" && !v.report.over()
}

// over reports whether no process of the instance lives nor will.
func (v view) over() bool { return v.broken == nil && v.verdict != nil }

// reaped reports whether a List has forgotten it.
func (v view) reaped() bool { return v.over() && v.release != nil }

// status gives the contract's view of it.
func (v view) status() backend.Status {
	st := backend.Status{
		ID: v.id, Node: v.report.Node, Devices: v.devices(), Restarts: v.report.Restarts, ExitCode: v.report.ExitCode,
		Submitted: v.submission.At, Started: v.report.First, Finished: v.report.Finished, Deadline: v.deadline(), EndCause: v.row.cause,
	}
	if st.Node == "" && v.inQueue && v.row.phase() != phaseQueued {
		st.Node = v.row.nodes
	}
	st.State, st.Reason = v.state()
	st.Away = v.away != ""
	st.Asks = st.EndCause == backend.EndWalltime && v.record.StopGrace > 0 && v.record.Warning >= v.record.StopGrace
	st.Behind = st.State == backend.StatePending && v.row.reason == reasonPriority
	st.Beside = v.record.Beside && v.report.First.IsZero() && st.State.Live()
	if st.State == backend.StateRunning || st.State == backend.StateStopping {
		st.PID = v.report.PID
	}
	if v.verdict != nil && !v.report.over() && v.verdict.ExitCode != 0 {
		st.ExitCode = v.verdict.ExitCode
	}
	if !st.State.Live() {
		st.Deadline, st.EndCause = time.Time{}, ""
		if st.Finished.IsZero() && v.verdict != nil {
			st.Finished = v.verdict.At
		}
	}
	return st
}

// deadline is from when on Slurm may ask it to stop, or end it. Of a limit that is short beside that it is the middle: earlier, nobody could do anything. Nor could
// anybody before a preemption was seen.
func (v view) deadline() time.Time {
	at := v.row.deadline
	if at.IsZero() || v.record.Warning == 0 {
		return at
	}
	from := at.Add(-min(v.record.Warning+warnEarly, at.Sub(v.row.started)/2))
	if from.Before(v.foreseen) {
		from = v.foreseen
	}
	if from.After(at) {
		return at
	}
	return from
}

// devices names the node with each, since every node counts its own from 0.
func (v view) devices() []string {
	var out []string
	for _, d := range v.report.Devices {
		out = append(out, deviceID(v.report.Node, d))
	}
	return out
}

func deviceID(node, index string) string { return node + ":" + index }

// silence is said of what Slurm could not be asked about.
const silence = "Slurm does not answer"

func (v view) state() (backend.State, string) {
	switch {
	case v.broken != nil:
		return backend.StateUnknown, fmt.Sprintf("its folder cannot be read: %v", v.broken)
	case v.verdict != nil:
		return v.ended()
	case v.polled != nil && v.report.over() && v.release == nil:
		return v.report.State, v.report.Reason
	case v.polled != nil && v.release != nil:
		return backend.StateStopping, "released, " + v.release.How + "; " + silence
	case v.polled != nil:
		return backend.StateUnknown, silence
	case v.release != nil && v.away != "":
		return backend.StateStopping, "released, " + v.release.How + "; " + v.away
	case v.release != nil:
		return backend.StateStopping, "released, " + v.release.How
	case v.away != "" && v.row.phase() == phaseRunning:
		return backend.StateUnknown, v.away + "; it may be running"
	case !v.inQueue:
		return v.absent()
	}
	return v.present()
}

// ended is the state of one whose job is over.
func (v view) ended() (backend.State, string) {
	switch {
	case v.release != nil && v.away != "":
		return backend.StateExited, "released, " + v.release.How + "; " + v.away + ", and Slurm has given it up with it"
	case v.release != nil:
		return backend.StateExited, "released, " + v.release.How
	case v.report.over() && !v.wasEnded():
		return v.report.State, v.report.Reason
	case v.verdict.State == verdictLost:
		return backend.StateFailed, fmt.Sprintf("Slurm no longer knows its job %s, and it left no word of its end", v.submission.JobID)
	case v.verdict.State == verdictRejected:
		return backend.StateFailed, "it never came to Slurm: sbatch failed, and no job of its name is there"
	case v.verdict.State == verdictStranded:
		return backend.StateFailed, fmt.Sprintf("its script on node %s was to start it, and did not for %s: it was lost with its node, which Slurm does not know; its job %s is cancelled",
			v.verdict.Node, v.verdict.Reason, v.submission.JobID)
	case v.verdict.State == verdictUnbegun:
		return backend.StateFailed, fmt.Sprintf("its job %s was said to run on node %s for %s, and its script never began: the launch was lost with its slurmd, or a prolog takes that long; it is cancelled",
			v.submission.JobID, v.verdict.Node, v.verdict.Reason)
	}
	if v.verdict.Ours != "" {
		return backend.StateFailed, v.verdict.Ours
	}
	reason := stateOf(v.verdict.State).says
	switch {
	case v.verdict.State != "FAILED":
	case v.report.State != "":
		reason = "its job was ended from outside: its script was killed, or its node came back without it"
	case v.claim == "" && v.unlogged():
		reason = fmt.Sprintf("its script never began, and nothing of its node is seen in shared_dir (%s): that is not the same folder there, or may not be written there. Set it to a folder "+
			"of a file system that this machine and every node mount at the same path", v.sharedDir())
	}
	if v.verdict.Ordered {
		reason = "its node was set down"
	}
	if v.verdict.Node != "" {
		reason += ", on node " + v.verdict.Node
	}
	reason += " (Slurm job " + v.submission.JobID + ": " + v.verdict.State
	if why := v.verdict.Reason; why != "" && why != "None" {
		reason += ", " + why
	}
	if v.verdict.ExitCode != 0 {
		reason += fmt.Sprintf(", code %d", v.verdict.ExitCode)
	}
	if v.verdict.Accounts {
		reason += ", by the cluster's accounts"
	}
	return backend.StateFailed, reason + ")"
}

// unlogged reports whether neither the script nor Slurm has written anything into what this machine has of the workload's folder: a node that has the folder
// too logs there why it could not begin.
func (v view) unlogged() bool {
	for _, name := range []string{slurmLogFile, outputFile} {
		if info, err := os.Stat(v.path(name)); err != nil || info.Size() > 0 {
			return false // one that is gone from here, where it was made empty, says nothing of the node
		}
	}
	return true
}

// wasEnded tells of a workload whose program says that it is done, while Slurm says that it ended the job: a signal that reaches a program before the script
// around it looks to the script as if the program had ended by itself. Where the script was asked to stop, Slurm knows by whom.
func (v view) wasEnded() bool {
	if v.report.State != backend.StateExited && !v.wasAsked() {
		return false
	}
	switch v.verdict.State {
	case "CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY":
		return true
	}
	return false
}

// wasAsked reports whether the script ended the workload because it was asked to, by it knows not whom.
func (v view) wasAsked() bool {
	return v.report.State == backend.StateFailed && strings.HasPrefix(v.report.Reason, "Slurm or a person asked it to stop")
}

// askedFor is how long Slurm may take to say by whom a script was asked to stop: usually a second.
const askedFor = 5 * time.Second

// askedToStop is said meanwhile.
const askedToStop = "Slurm or a person has asked it to stop"

// askedJustNow reports whether the script was asked to stop, and Slurm may yet say by whom.
func (v view) askedJustNow() bool {
	return v.report.over() && v.wasAsked() && time.Since(v.report.Finished).Abs() < askedFor
}

// jobID is the number of the job that stands for it.
func (v view) jobID() string {
	if v.inQueue {
		return v.row.id
	}
	return v.submission.JobID
}

// absent is the state of one that Slurm does not list.
func (v view) absent() (backend.State, string) {
	switch {
	case v.report.over():
		return v.report.State, v.report.Reason
	case v.starting:
		return backend.StatePending, "it is being submitted to Slurm"
	case v.submission.Tried.IsZero():
		return backend.StateFailed, "it was accepted, but the backend was ended before it submitted it"
	case v.submission.JobID == "":
		return backend.StateUnknown, "sbatch failed, and Slurm does not list it; it may yet come"
	case v.recent:
		return backend.StatePending, "submitted as Slurm job " + v.submission.JobID
	}
	return backend.StateUnknown, "Slurm does not list its job " + v.submission.JobID
}

// present is the state of one that Slurm lists.
func (v view) present() (backend.State, string) {
	slurmSays := stateOf(v.row.state).says
	switch v.row.phase() {
	case phaseQueued:
		switch {
		case v.claim != "" && !v.requeued && v.askedJustNow():
			return backend.StateStopping, askedToStop
		case v.claim != "" && !v.requeued && v.report.State != "": // the look is older than that
			return v.report.State, v.report.Reason
		case v.claim != "" && !v.requeued:
			return backend.StateStarting, "its job has begun"
		}
		if v.requeued {
			return backend.StateStopping, "Slurm has put its job back into the queue; it is cancelled: it must not run a second time under its ID"
		}
		reason := v.row.reason
		if v.behind != nil {
			reason, slurmSays = reasonResources, slurmSays+", behind "+v.behind.String()+" of the same job"
		}
		if why := explain(reason); why != "" {
			slurmSays += ": " + strings.ReplaceAll(why, "JOB", v.row.id)
		}
		return backend.StatePending, slurmSays
	case phasePlaced:
		return backend.StateStarting, slurmSays
	case phaseRunning, phaseEnding:
		switch {
		case v.askedJustNow():
			return backend.StateStopping, askedToStop
		case v.report.over():
			return v.report.State, v.report.Reason
		case v.row.phase() == phaseEnding:
			return backend.StateStopping, slurmSays
		case v.report.State == "":
			return backend.StateStarting, "its job runs on node " + v.row.nodes + "; its script has written nothing yet"
		}
		return v.report.State, v.report.Reason
	case phaseOver:
		return backend.StateStopping, "its job is over; its script's last word is awaited"
	}
	return backend.StateUnknown, slurmSays
}
