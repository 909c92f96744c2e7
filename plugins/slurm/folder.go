package slurm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// The files of an instance's folder; the package comment says what each is.
const (
	recordFile     = "record.json"
	submissionFile = "submission.json"
	scriptFile     = "run.sh"
	claimFile      = "claim"
	statusFile     = "status"
	releasedFile   = "released"
	verdictFile    = "verdict.json"
	settledFile    = "settled" // nobody waits for its end any more (view.settled)
	cancelsFile    = "cancels.json"
	outputFile     = "output.log"
	slurmLogFile   = "slurm.log"
)

// record is what was asked for. It is written once, before the folder gets its name.
type record struct {
	Job       string
	ID        backend.ID
	Nonce     string
	Resources backend.Resources
	StopGrace time.Duration
	// Warning is how long before its time limit Slurm is told to ask it to stop; zero: it is not told.
	Warning time.Duration
	Created time.Time
	Files   []string `json:",omitempty"` // the names of those that it was given
	Beside  bool     `json:",omitempty"` // it holds its place until the generation before it has ended
}

// submission is what is known of handing the job to Slurm.
type submission struct {
	Tried   time.Time // when sbatch was last started
	At      time.Time // when it was accepted, by this machine's clock; zero while that is not known
	JobID   string
	Cluster string // where the block names clusters
	Found   bool   // the job was found in the queue after sbatch had failed
}

// release is that the workload was given up.
type release struct {
	How      string
	At       time.Time
	Deadline time.Time // when what is left is killed
}

// verdict is how Slurm says that the job ended.
type verdict struct {
	State  string // Slurm's, or one of the words below
	Reason string
	Node   string
	At     time.Time
	// ExitCode is the script's, by the cluster's accounts: 128+n when signal n ended it.
	ExitCode int  `json:",omitempty"`
	Accounts bool `json:",omitempty"` // the accounts told, and not the queue
	Ordered  bool `json:",omitempty"` // of NODE_FAIL: the node was well, and was set down by whoever may
	// Away: Slurm gave it up with its node, or the node did not answer when it was judged, and its script had said nothing of its end: it may live there.
	Away bool `json:",omitempty"`
	// Ours is why this backend cancelled the job; empty: it did not.
	Ours string `json:",omitempty"`
}

// Verdicts that are not Slurm's.
const (
	verdictLost     = "LOST"     // Slurm answers, and has long not known the job
	verdictRejected = "REJECTED" // it never came to Slurm
	verdictUnbegun  = "UNBEGUN"  // Slurm says that it runs, and its script never began
	verdictStranded = "STRANDED" // Slurm says that it runs, and its script does not go on
)

// cancels says of jobs, by their number, why this backend is cancelling them though nobody gave the workload up. It is written before Slurm is told: whatever
// becomes of the answer, a cancellation of ours is not taken for somebody else's.
type cancels map[string]string

// noteCancel puts on record that this backend cancels the job, and why.
func (i instance) noteCancel(jobID, why string) error {
	known := cancels{}
	if err := backend.ReadJSON(i.path(cancelsFile), &known); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if known[jobID] != "" {
		return nil
	}
	known[jobID] = why
	return backend.WriteJSON(i.path(cancelsFile), known)
}

// cancelled says why this backend cancelled the job; "" where it did not, or cannot tell.
func (i instance) cancelled(jobID string) string {
	known := cancels{}
	_ = backend.ReadJSON(i.path(cancelsFile), &known)
	return known[jobID]
}

// report is what run.sh knew last.
type report struct {
	State    backend.State // empty: it has said nothing
	Job      string
	Node     string
	Devices  []string
	PID      int
	Restarts int
	ExitCode int
	First    time.Time // when the first process was started
	Finished time.Time
	Quick    bool // it gave up because the program kept failing at once
	Reason   string
}

// over reports whether run.sh has ended by itself.
func (r report) over() bool { return r.State == backend.StateExited || r.State == backend.StateFailed }

// instance is one workload's folder, which may not exist.
type instance struct {
	dir string
	job string
	id  backend.ID
}

func (j *job) dir() string { return filepath.Join(j.set.dir, j.name) }

func (j *job) instance(id backend.ID) instance {
	return instance{dir: filepath.Join(j.dir(), id.String()), job: j.name, id: id}
}

func (i instance) path(name string) string { return filepath.Join(i.dir, name) }

// sharedDir is the block's shared_dir, in which the instance's folder is in that of its job.
func (i instance) sharedDir() string { return filepath.Dir(filepath.Dir(i.dir)) }

// view is one look at an instance, in its folder and in Slurm's queue.
type view struct {
	instance
	record     record
	submission submission
	report     report
	release    *release
	verdict    *verdict
	claim      string // the number of the job that holds it; empty when none does
	broken     error  // the folder cannot be read: nothing is known

	polled  error // why Slurm's queue is not known; nil when it is
	row     row   // the job in the queue
	inQueue bool
	// requeued is that it was in the queue once more after it had run: a look that began after its claim was seen shows it waiting.
	requeued bool
	behind   *backend.ID // the one of its job that is before it in the queue, and the first there; nil: there is none
	starting bool        // it is being submitted, or was when this was looked at
	recent   bool        // it was submitted after the look at the queue began: its absence says nothing
	surplus  []row
	foreseen time.Time // when it was first seen that Slurm preempts it
	away     string    // why a process of it may live on a node that does not answer, though it may be over; empty: it does (markAway)
	account  *ending   // how its job ended, by the cluster's accounts, when Slurm no longer shows it
}

// scan looks at every instance of the job, by ID. No folder means no instances.
func (j *job) scan(ctx context.Context, snap snapshot) ([]view, error) {
	began := time.Now()
	entries, err := os.ReadDir(j.dir())
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(j.set.dir); err == nil {
			return nil, nil // the job has started nothing yet
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, backend.Errorf(backend.FileCode(err), "list workloads of job %q: %w%s", j.name, err, dirAdvice)
		}
		return nil, nil
	}
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "list workloads of job %q: %w%s", j.name, err, dirAdvice)
	}
	var views []view
	for _, e := range entries {
		id, err := backend.ParseID(e.Name())
		if err != nil {
			continue // a folder that is being made, or a stranger's
		}
		v := j.instance(id).look(snap)
		if v.broken != nil {
			if _, err := os.Stat(v.dir); errors.Is(err, fs.ErrNotExist) {
				continue // it was pruned meanwhile
			}
		}
		v.starting = v.submission.JobID == "" && j.starts.Since(began, j.name, id)
		views = append(views, v)
	}
	j.consult(ctx, views, snap)
	for i := range views {
		views[i] = j.judge(views[i], snap)
	}
	slices.SortFunc(views, func(a, b view) int { return a.id.Compare(b.id) })
	markBehind(views)
	return views, nil
}

// markBehind notes which views wait behind one of their own job that is the first in the queue: what keeps that waiting keeps them too.
func markBehind(views []view) {
	waits := func(v view, reason string) bool {
		return v.inQueue && !v.over() && v.release == nil && v.row.phase() == phaseQueued && v.row.reason == reason
	}
	for i, v := range views {
		if !waits(v, reasonPriority) {
			continue
		}
		if at := slices.IndexFunc(views, func(o view) bool { return o.row.cluster == v.row.cluster && waits(o, reasonResources) }); at >= 0 {
			views[i].behind = &views[at].id
		}
	}
}

// dirAdvice ends the messages about a shared folder that cannot be used.
const dirAdvice = "; set shared_dir to a folder that this machine and all nodes can read and write"

// look reads the instance's folder, and finds its job in the queue.
func (i instance) look(snap snapshot) view {
	v := view{instance: i, polled: snap.err}
	keep := func(err error) {
		if err != nil && !errors.Is(err, fs.ErrNotExist) && v.broken == nil {
			v.broken = err
		}
	}
	// The report is read before the queue's answer is judged, and the queue was asked before: what ended in between shows its end.
	if err := backend.ReadJSON(i.path(recordFile), &v.record); err != nil {
		v.broken = err
	}
	keep(backend.ReadJSON(i.path(submissionFile), &v.submission))
	var err error
	v.report, err = readReport(i.path(statusFile))
	keep(err)
	var r release
	if err := backend.ReadJSON(i.path(releasedFile), &r); err == nil {
		v.release = &r
	} else {
		keep(err)
	}
	var verd verdict
	if err := backend.ReadJSON(i.path(verdictFile), &verd); err == nil {
		v.verdict = &verd
	} else {
		keep(err)
	}
	v.claim, err = os.Readlink(i.path(claimFile))
	keep(err)
	if v.submission.JobID == "" && number(v.claim) < 1<<62 {
		v.submission.JobID = v.claim // the answer to its submission was lost, but it ran
	}
	if snap.err == nil && v.record.Nonce != "" {
		v.row, v.inQueue, v.surplus = pick(snap.rows[v.record.Nonce], v.claim)
		v.recent = !snap.began.After(later(v.submission.Tried, v.submission.At))
	}
	return v
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// readReport reads what run.sh wrote: lines of name=value.
func readReport(path string) (report, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return report{}, err
	}
	var r report
	number := func(s string) int {
		n, _ := strconv.Atoi(s) // the script writes it; a nonsense is 0
		return n
	}
	second := func(s string) time.Time {
		if n := number(s); n > 0 {
			return time.Unix(int64(n), 0).UTC()
		}
		return time.Time{}
	}
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		switch key {
		case "state":
			r.State = backend.State(value)
		case "job":
			r.Job = value
		case "node":
			r.Node = value
		case "devices":
			if value != "" {
				r.Devices = strings.Split(value, ",")
			}
		case "pid":
			r.PID = number(value)
		case "restarts":
			r.Restarts = number(value)
		case "code":
			r.ExitCode = number(value)
		case "first":
			r.First = second(value)
		case "finished":
			r.Finished = second(value)
		case "quick":
			r.Quick = value == "1"
		case "reason":
			r.Reason = value
		}
	}
	return r, nil
}
