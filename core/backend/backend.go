// Package backend is the contract between the scheduler and whatever runs its processes (one machine, Nomad, Slurm),
// and the glue that puts a backend into a child process of its own.
//
// Input: workloads, each named by an ID (role, rank, generation). Output: their statuses, and what the cluster has.
// The contract is by identity and never by count: two callers that ask for the same ID get one process.
//
// Read Backend first, then client.go (launching and supervising a plugin), server.go (being one), and the package
// conformance, which every backend runs. The package fake is a scriptable backend for tests.
//
// To write a backend: implement Backend over whatever runs processes, keep all state there and none in memory, decode the
// job's block with DecodeBlock and give its mistakes (Mistake) back through FromHCL, answer with Errorf and a Code, check requests with
// ValidateAll, and call Serve in the main function of a program named kale-backend-NAME. Jobs (jobs.go) keeps what was made of
// the blocks; WatchByList and ReadLogFile (poll.go) serve where the cluster offers nothing better; folder.go has files that are whole
// or not there, and locks, for what a backend keeps on disk, and forget.go what removes it; LookProgram (program.go) finds the trainer; CleanEnviron is what child
// processes may inherit; owner.go tells two jobs of one name apart. Then run conformance.Run over it. examples/backend-processes does all this in one file.
package backend

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The roles that the scheduler uses. A backend treats a role as a name and gives it no meaning, save that Forget waits for no probe on a node that is away.
const (
	RoleServer = "ps"
	RoleWorker = "worker"
	// RoleProbe is of the short workloads with which kale doctor tries nodes: they end by themselves.
	RoleProbe = "doctor"
)

// Backend runs workloads somewhere.
//
// Every method is safe for concurrent use, honours its context, and is idempotent by (job, ID): a caller that did not
// hear the answer may ask again. State lives in the cluster and not in the Backend: a new Backend over the same
// cluster, given the same Config, finds everything again. Errors carry a Code (errors.go); a caller must read
// Unavailable as "unknown", never as "there is nothing".
type Backend interface {
	// Info says what the backend is and can do. It needs no configuration and does not block on the cluster.
	Info(ctx context.Context) (Info, error)

	// Configure decodes the job's backend block and must come before any call for that job. Mistakes in the block are
	// diagnostics with positions; the job is configured only when none of them is an error. Calling again replaces the
	// job's configuration; workloads that run are untouched. It starts nothing.
	Configure(ctx context.Context, cfg Config) (Diagnostics, error)

	// Plan says whether the workloads could be placed now, beside what runs and off what they are to avoid, with no side effect.
	// A shortage is in the Report, not an error.
	Plan(ctx context.Context, job string, ws []Workload) (Report, error)

	// Ensure starts those of the workloads that are missing, and leaves alone those that run or have ended by
	// themselves for good. The first specification under an ID wins: another one under the same ID changes nothing.
	//   - A generation above the newest known one of that role and rank replaces it: the old one is stopped, by force,
	//     before the new one starts; where its node does not answer the cluster, before anything else runs there.
	//   - A generation below it, or one that was released, is refused with Gone.
	// What does not fit now is refused with NoCapacity, or waits as pending where Info.Queues says so. A program that cannot be run is
	// refused too, or, where only the node can tell, ends as failed with the reason.
	// The answer has one Status for each workload, in order. What failed for one workload is in its Status.Err; the
	// error is for a call that could not be tried at all. It does not wait for workloads to be running.
	Ensure(ctx context.Context, job string, ws []Workload) ([]Status, error)

	// List gives every workload of the job that has not been released and reaped, ordered by role, rank, generation.
	// When it could not look everywhere, complete is false, what is absent is unknown, and the Err of what it could not look at says why.
	List(ctx context.Context, job string) (statuses []Status, complete bool, err error)

	// Release gives the workloads up: Drained asks them to stop and grants them their StopGrace, Forced ends them now
	// (also those that are draining). It returns once that is on record, without waiting for their end; List shows
	// them as stopping, then no longer. A released ID never starts again, and what it was given (Files, Env) is kept
	// nowhere once List no longer shows it. Unknown and released IDs are no error. Forced without an ID ends what of the job lives and List cannot show, where
	// the backend knows of such, as of processes whose folder was moved away.
	Release(ctx context.Context, job string, ids []ID, how How) error

	// Logs gives what the workload wrote, the last Tail lines of it, and goes on until the reader is closed, ctx ends
	// or the workload is gone when Follow is set. A released workload's logs stay readable for a while; after that,
	// and for an ID that never was, the error is Gone. Where a process was started again under the same ID, a line that
	// begins with LogBoundary parts what the one before wrote from what the next one writes.
	Logs(ctx context.Context, job string, id ID, opts LogOptions) (io.ReadCloser, error)

	// Inventory says what the cluster has and what of it is free, over all configured jobs.
	Inventory(ctx context.Context) (Inventory, error)

	// Watch hints that something changed; the caller looks with List. Events may be lost, doubled or late. The
	// channel is closed when ctx ends or the backend can no longer watch.
	Watch(ctx context.Context, job string) (<-chan Event, error)

	// Forget removes what is kept of the job's workloads of a role, or of every role where that is empty, once they have ended: their logs, their records and,
	// with the last of them, whose the name is. What it removed it says for people, one thing each. While one of them lives, or may, it removes nothing and is
	// Blocked; for another owner than the one on record it is Conflict, also when nothing lives. Where it cannot look everywhere it is Unavailable. An error says
	// what stays, and by which names it is found there. To forget what is forgotten is no error. IDs that are forgotten may start again.
	// A probe (RoleProbe) that was released and is on a node that is away does not count, and what is kept of it stays, for a later Forget.
	Forget(ctx context.Context, job, role string) (removed []string, err error)

	// Close frees what the Backend holds and leaves the workloads running. It is idempotent.
	Close() error
}

// ID names one incarnation of one process of a job.
type ID struct {
	Role       string `json:"role"`       // a name: lower-case letters, digits and '-', beginning with a letter
	Rank       int    `json:"rank"`       // from 0
	Generation uint64 `json:"generation"` // from 1; a higher one replaces a lower one
}

// String gives the ID in the form "worker-3-g2".
func (id ID) String() string {
	return id.Role + "-" + strconv.Itoa(id.Rank) + "-g" + strconv.FormatUint(id.Generation, 10)
}

// ParseID reads what String writes.
func ParseID(s string) (ID, error) {
	bad := fmt.Errorf("%q is not a workload id such as \"worker-3-g2\"", s)
	rest, gen, ok := cutLast(s, "-g")
	if !ok {
		return ID{}, bad
	}
	role, rank, ok := cutLast(rest, "-")
	if !ok {
		return ID{}, bad
	}
	g, errG := strconv.ParseUint(gen, 10, 64)
	r, errR := strconv.Atoi(rank)
	id := ID{Role: role, Rank: r, Generation: g}
	if errG != nil || errR != nil || id.String() != s || id.Validate() != nil {
		return ID{}, bad
	}
	return id, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], true
}

// Compare orders IDs by role, rank and generation.
func (id ID) Compare(other ID) int {
	if c := strings.Compare(id.Role, other.Role); c != 0 {
		return c
	}
	if id.Rank != other.Rank {
		return id.Rank - other.Rank
	}
	switch {
	case id.Generation < other.Generation:
		return -1
	case id.Generation > other.Generation:
		return 1
	}
	return 0
}

// Workload is one process to run.
type Workload struct {
	ID        ID
	Argv      []string          // the program and its arguments; no secrets here, they show in process lists
	Env       map[string]string // added to the environment that the backend provides
	Files     map[string][]byte // by plain file name: written with mode 0600 into the folder that KALE_ALLOC_DIR names
	Resources Resources
	StopGrace time.Duration // from the request to stop until it is killed; 0 means DefaultStopGrace
	// Beside leaves the generation before it alone: the workload takes its place beside that one, holds it, and its process starts when that one has ended,
	// however it does; both are listed meanwhile. It is for backends with Info.Beside. Ensured later without it, it ends the one before by force as any other does.
	Beside bool
	// Avoid are nodes, named as in Status.Node, that it is to keep off. A backend that cannot choose nodes ignores it: Status.Node tells.
	Avoid []string
}

// DefaultStopGrace is how long a workload that names no grace may take to stop.
const DefaultStopGrace = 30 * time.Second

// EnvAllocDir names the environment variable with the folder that holds a workload's Files and is its own to write in.
const EnvAllocDir = "KALE_ALLOC_DIR"

// OwnEnv says what is wrong with an environment that a backend block gives to all processes where it sets what is each one's own; "": nothing.
func OwnEnv(env map[string]string) string {
	if _, has := env[EnvAllocDir]; !has {
		return ""
	}
	return "env sets " + EnvAllocDir + ", which names each process's own folder; leave it out."
}

// LogBoundary begins the line in a workload's log that says how a process ended which is followed by another one of the
// same ID. It is written at the end of the former, never before the first nor after one that is not followed.
const LogBoundary = "[kale] process ended: "

// Resources is what one workload needs; a zero field asks for nothing in particular.
type Resources struct {
	GPUs        int
	CPUMilli    int   // thousandths of a CPU
	MemoryBytes int64 // bytes
}

// State is where a workload stands.
type State string

// A workload's states. In Exited and Failed there is no process, and the backend starts none by itself: the caller
// asks for a higher generation, or with Ensure for the same ID, which a process that ended by itself for good ignores.
const (
	StatePending  State = "pending"  // accepted, not placed yet
	StateStarting State = "starting" // placed; its process is being started, for the first time or again
	StateRunning  State = "running"
	StateStopping State = "stopping" // released or stopped, not gone yet
	StateExited   State = "exited"   // ended by itself and well, or as asked
	StateFailed   State = "failed"   // ended badly, cannot be started, or was lost
	StateUnknown  State = "unknown"  // the backend cannot tell
)

// Live reports whether a process of the workload may exist: everything but exited and failed.
func (s State) Live() bool { return s != StateExited && s != StateFailed }

// Placed reports whether a process of the workload may exist and has a place: it waits for none.
func (s State) Placed() bool { return s.Live() && s != StatePending }

// Status is what a backend knows about one workload.
type Status struct {
	ID        ID
	State     State
	Node      string    // the machine's name
	Address   string    // where other nodes reach that machine, without a port
	Devices   []string  // what CUDA_VISIBLE_DEVICES names, or "slot-N"
	PID       int       // of the current process, 0 when there is none or it is not known
	Restarts  int       // times that the process was started again under this ID
	ExitCode  int       // of the last process that ended; 128+n when signal n ended it; EndWords has it in words
	Reason    string    // for people: why it is in this state
	Submitted time.Time // when it was handed to the cluster; Started less this is the wait in its queue
	Started   time.Time
	Finished  time.Time
	Deadline  time.Time // from when on the cluster may end it by itself, or ask it to end; zero when it will not
	EndCause  EndCause  // why there is a Deadline
	Asks      bool      // at the Deadline, or later, the cluster asks it to end, and grants it its StopGrace before it ends it by itself: what drains then may go on until it is asked
	Beside    bool      // its process has not started: pending it waits for a place, starting it holds one, until the generation before it has ended
	Behind    bool      // it is pending, and others are before it in the cluster's queue: a place that comes free is theirs
	// Away: its node does not answer the cluster. Whether it runs is not known, and one that was released ends when the node is back or the cluster has given it up. Of one
	// that has ended by the cluster's word: it was given up with its node, which is away still, and may live there. A List has such a one though it was released.
	Away bool
	// Remarks are what others did to it in the cluster and what became of that, the oldest first, where it is as it should be again: each is told of once.
	Remarks []Remark
	Err     *Error // why the request for this workload failed; in a List that is not complete, why the cluster told nothing of it
}

// String is the status in a few words, as messages and tests show it.
func (st Status) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", st.ID, st.State)
	if st.Node != "" {
		fmt.Fprintf(&b, " on %s", st.Node)
	}
	if st.PID != 0 {
		fmt.Fprintf(&b, ", pid %d", st.PID)
	}
	if len(st.Devices) > 0 {
		fmt.Fprintf(&b, ", devices %s", strings.Join(st.Devices, " "))
	}
	if st.Restarts > 0 {
		fmt.Fprintf(&b, ", started again %d×", st.Restarts)
	}
	if !st.State.Live() {
		fmt.Fprintf(&b, ", exit code %d", st.ExitCode)
	}
	if st.Beside {
		b.WriteString(", beside the one before it")
	}
	if st.Behind {
		b.WriteString(", behind others in the queue")
	}
	if st.Away {
		b.WriteString(", on a node that is away")
	}
	for _, t := range []struct {
		what string
		at   time.Time
	}{{"submitted", st.Submitted}, {"started", st.Started}, {"finished", st.Finished}} {
		if !t.at.IsZero() {
			fmt.Fprintf(&b, ", %s %s", t.what, t.at.Format("15:04:05.000"))
		}
	}
	if !st.Deadline.IsZero() {
		fmt.Fprintf(&b, ", ends by %s, for %s", st.Deadline.Format("15:04:05.000"), st.EndCause)
	}
	if st.Reason != "" {
		fmt.Fprintf(&b, ": %s", st.Reason)
	}
	if st.Err != nil {
		fmt.Fprintf(&b, "; refused: %v", st.Err)
	}
	return b.String()
}

// Remark is something that happened to a workload and that a person should know of.
type Remark struct {
	At   time.Time
	Text string // begins without the workload's name
}

// How says how a workload is to be released.
type How int

// The ways to release a workload.
const (
	Drained How = iota + 1 // asked to stop, killed after its StopGrace
	Forced                 // killed now
)

func (h How) String() string {
	switch h {
	case Drained:
		return "drained"
	case Forced:
		return "forced"
	}
	return "How(" + strconv.Itoa(int(h)) + ")"
}

// Config is one job's backend block and what the backend needs beside it.
type Config struct {
	Job                               string
	Source                            []byte // the bytes between the block's braces
	Filename                          string // the file that they come from
	StartLine, StartColumn, StartByte int    // the position of Source[0] in it, lines and columns from 1
	StateDir                          string // a folder that the backend may keep state in, if the block names none
	Variables                         []byte // a JSON object, offered to the block's expressions as var; may be empty
	// Shared are folders, absolute, that every node must reach under the same path (the job's checkpoints). A backend that knows what its
	// nodes share refuses, with a diagnostic, a folder that is not within it.
	Shared []string
	// SharedAt is where the job file names each of Shared, which is where a mistake about it belongs (SharedRange); of one that is not told, the list is shorter.
	SharedAt []Range
	// Owner says which job of that name this is. A name belongs to whose workloads were ensured under it, for as long as any of them is left: Plan, Ensure, List
	// and Release for another owner are Conflict, before anything is started or stopped. It is kept in the cluster, as all else is.
	Owner Owner
}

// Info describes a backend.
type Info struct {
	Name     string // "local"
	Version  string
	Drains   bool // Release(Drained) grants a grace
	GPUs     bool // it assigns GPUs
	Survives bool // workloads outlive the plugin and the scheduler
	Beside   bool // Workload.Beside is honoured
	Queues   bool // Ensure accepts what does not fit now: it waits as pending, with a Reason; otherwise it is refused with NoCapacity
}

// Report is the answer of Plan.
type Report struct {
	Placements []Placement // one for each workload, in order
	Shortage   string      // what is missing, "needs 3 GPUs, 1 free"; empty when all fit
	// Mistakes are what the cluster says is wrong in the job's block, each at its place: a partition that is not there, an account that may not be used.
	// Waiting does not help. They come with Plan and not with Configure, so that a block which a site's change made wrong still serves to look and to stop.
	Mistakes Diagnostics
}

// Fits reports whether every workload could be placed.
func (r Report) Fits() bool {
	for _, p := range r.Placements {
		if !p.Fits {
			return false
		}
	}
	return r.Shortage == "" && !r.Mistakes.HasErrors()
}

// Placement says where one workload would go.
type Placement struct {
	ID      ID
	Fits    bool
	Node    string
	Devices []string
	Reason  string // why it does not fit; of one that fits, what there is to say, as "runs already"
	// Newest is the newest generation known of its role and rank where it does not fit because it was released or replaced, for which Ensure would refuse it with
	// Gone: one above it may be started. Else 0.
	Newest uint64
}

// LogOptions says which part of a log is wanted.
type LogOptions struct {
	Tail   int // lines; 0 means all that is kept, negative means none of the past
	Follow bool
}

// Inventory is what the cluster has.
type Inventory struct {
	Total, Free int // devices: GPUs (MIG instances where a GPU is split), or slots
	Devices     []Device
	CPUMilli    int   // of all nodes; 0 when not known
	MemoryBytes int64 // of all nodes; 0 when not known
	// NodeCPUMilli and NodeMemoryBytes are the most that any one node has: no process can have more. 0 when not known.
	NodeCPUMilli    int
	NodeMemoryBytes int64
	// QueueWait is how long one more workload waits for a place, learnt from earlier ones (an upper quartile); 0 when not known. LearnQueueWait gives it.
	QueueWait time.Duration
	// Excluded are the nodes on which the backend starts nothing more of a job for a while, by its own judgement.
	Excluded []Exclusion
	// Silent are the nodes where a configured job's workloads could be if they answered their cluster, by its word; sorted. A backend that cannot tell names none.
	Silent []string
	// Faults are what a person has to mend in the cluster, each with what helps: a count that is wrong.
	Faults []string
}

// Exclusion is a node on which the backend starts nothing more of a job for a while.
type Exclusion struct {
	Job, Node string
	Reason    string    // "2 processes failed there at once"
	Until     time.Time // zero: as long as the reason lasts
}

// Device is one GPU, one MIG instance or one slot.
type Device struct {
	ID          string // GPU-…, MIG-… or slot-N
	Node        string
	Model       string // empty for a slot
	MemoryBytes int64
	HeldBy      string   // "job/worker-3-g1", or "user:job/…" where it is another user's; empty when free
	Utilisation *float64 // busy share in [0,1] over the driver's last sample period; nil when not known
}

// Event hints that a workload may be in a new state.
type Event struct {
	ID    ID
	State State
}
