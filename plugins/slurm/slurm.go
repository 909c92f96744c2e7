// Package slurm is the backend for Slurm: each workload is a single-node batch job of its own.
//
// Input: workloads, by the contract of core/backend. Output: Slurm jobs, and a folder for each on a file system that all nodes share. It speaks to
// Slurm through its command line (sbatch, squeue, scontrol, scancel), or through slurmrestd (rest = …), with deadlines of its own: controller.go. Nothing
// is kept in memory: Slurm's queue and the folders are the truth, so the plugin and the scheduler may end at any time, and what comes after them finds
// everything again.
//
//	DIR/JOB/worker-3-g2/record.json      what was asked for, and the nonce that its Slurm job carries; written before the job is submitted
//	                   /submission.json  that submission was tried, and the job's number once it is known
//	                   /run.sh           what the job runs: takes the claim, starts the workload, starts it again when it crashes
//	                   /claim            a link made by the first job that runs: a second one by mistake ends at once and runs nothing
//	                   /status           what run.sh knew last
//	                   /released         present once the workload was given up, with its deadline: it never starts again
//	                   /verdict.json     how Slurm says that the job ended, kept because Slurm forgets
//	                   /settled          present once nobody waits for its end any more: it was given up, on a node that does not answer
//	                   /cancels.json     why this backend cancels a job of its own accord: one that is too many, or was put back into the queue
//	                   /output.log       what the workload wrote last, about 8 MiB; output.log.1 is what it wrote before, 16 MiB at most, and what is older is
//	                                     gone. slurm.log beside it is what Slurm wrote
//	                   /alloc/           the workload's own folder and working directory (KALE_ALLOC_DIR)
//
// Submission is idempotent: sbatch may fail or time out after the job was accepted, so the queue is searched for the nonce before anything is submitted
// again; of two jobs for one workload the one that holds the claim stays, else the older. What Slurm does not answer about is unknown, never gone.
// A job that the queue no longer shows is looked up in the cluster's accounts, where it has any (sacct). Where it has none, what became of it is unknown, and
// after 20 seconds in which Slurm answers and does not know it, it is lost.
//
// A generation that is asked for beside the one before it (backend.Workload.Beside) is a job like any other: it waits for its turn in the queue while that one
// runs, its script then holds the place, and it starts the program when the folder of the one before says that this has ended (its status, or its verdict),
// or is not waited for any more (settled).
//
// A workload that Slurm ended (a time limit, a preemption, a dead node) has failed for good under its ID: a higher generation takes its place.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// slurm implements backend.Backend.
type slurm struct {
	lg       *slog.Logger
	submitIn time.Duration // how long sbatch may take
	launchIn time.Duration // how long a job may run without a word of its script

	mu      sync.Mutex
	jobs    map[string]*job
	queues  map[way]*queue // jobs of one cluster share a poll
	reaping bool           // the goroutine below runs
	closed  chan struct{}
	once    sync.Once
	running sync.WaitGroup
}

// job is a configured job.
type job struct {
	name     string
	set      settings
	queue    *queue
	lg       *slog.Logger
	submitIn time.Duration
	launchIn time.Duration
	place    *sync.Mutex // held while folders are made and jobs submitted; outlives a new configuration
	told     *orders
	starts   *backend.Starts
}

// New gives the backend. lg may be nil.
func New(lg *slog.Logger) backend.Backend {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	return &slurm{lg: lg, submitIn: submitTimeout, launchIn: launchTimeout, jobs: map[string]*job{}, queues: map[way]*queue{}, closed: make(chan struct{})}
}

// Info implements backend.Backend.
func (s *slurm) Info(context.Context) (backend.Info, error) {
	return backend.Info{Name: "slurm", Version: backend.BuildVersion(), Drains: true, GPUs: true, Survives: true, Beside: true}, nil
}

// Configure implements backend.Backend.
func (s *slurm) Configure(ctx context.Context, cfg backend.Config) (backend.Diagnostics, error) {
	if err := backend.ValidJob(cfg.Job); err != nil {
		return nil, err
	}
	set, diags := decode(cfg)
	if diags.HasErrors() {
		return diags, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, backend.Errorf(backend.Unavailable, "configure job %q: %w", cfg.Job, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[set.way]
	if q == nil {
		ctl, err := set.way.controller()
		if err != nil { // decode has tried
			return nil, backend.Errorf(backend.Blocked, "configure job %q: %w", cfg.Job, err)
		}
		q = newQueue(ctl, set.poll)
		s.queues[set.way] = q
	}
	j := &job{name: cfg.Job, set: set, queue: q, lg: s.lg.With("job", cfg.Job), submitIn: s.submitIn, launchIn: s.launchIn, place: &sync.Mutex{}, told: newOrders(), starts: &backend.Starts{}}
	if old := s.jobs[cfg.Job]; old != nil {
		j.place, j.told, j.starts = old.place, old.told, old.starts
	}
	s.jobs[cfg.Job] = j
	if !s.reaping {
		s.reaping = true
		s.running.Go(s.reap)
	}
	return diags, nil
}

// job gives the job's configuration.
func (s *slurm) job(ctx context.Context, name string) (*job, error) {
	if err := ctx.Err(); err != nil {
		return nil, backend.Errorf(backend.Unavailable, "job %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.jobs[name]
	if !ok {
		return nil, backend.Errorf(backend.Blocked, "job %q is not configured on the slurm backend; configure it first", name)
	}
	return j, nil
}

// mine gives the job's configuration, unless the job's name is another's.
func (s *slurm) mine(ctx context.Context, name string) (*job, error) {
	j, err := s.job(ctx, name)
	if err != nil {
		return nil, err
	}
	return j, j.set.owner.CheckFile(j.ownerPath(), name, j.remains(ctx))
}

// ownerPath is the file that says whose the job's name is.
func (j *job) ownerPath() string { return filepath.Join(j.dir(), "owner.json") }

// lockPath is locked by who changes it, or starts something under the name.
func (j *job) lockPath() string { return j.ownerPath() + ".lock" }

// takeTimeout bounds the wait for another scheduler that takes the same name.
const takeTimeout = 10 * time.Second

// take makes the job's name this job's, under a lock that schedulers on other machines respect as far as the shared file system does.
func (j *job) take(ctx context.Context) error {
	if j.set.owner.ID == "" {
		return nil
	}
	if err := os.MkdirAll(j.dir(), 0o700); err != nil {
		return backend.Errorf(backend.FileCode(err), "make the folder of job %q: %w%s", j.name, err, dirAdvice)
	}
	lock, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close() // of none too
	return j.set.owner.TakeFile(j.ownerPath(), j.name, j.remains(ctx))
}

// lock locks out schedulers on other machines, as far as the shared file system does; nil: it does not.
func (j *job) lock(ctx context.Context) (*os.File, error) {
	bounded, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	lock, err := backend.Lock(bounded, j.lockPath())
	switch {
	case err == nil:
		return lock, nil
	case bounded.Err() != nil, errors.Is(err, fs.ErrNotExist):
		return nil, backend.Errorf(backend.Unavailable, "take the name %q: %w", j.name, err)
	}
	j.lg.Warn("the shared folder does not lock files: two jobs that take one name at the same moment may both get it", "err", err)
	return nil, nil
}

// remains asks whether the job has instances of which something is left.
func (j *job) remains(ctx context.Context) func() (bool, error) {
	return func() (bool, error) {
		views, _, err := j.look(ctx, 0)
		return slices.ContainsFunc(views, func(v view) bool { return !v.reaped() }), err
	}
}

func (s *slurm) allJobs() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*job
	for _, j := range s.jobs {
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *job) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return out
}

// List implements backend.Backend. When Slurm does not answer, what is not known to have ended is unknown, and the list is not complete.
func (s *slurm) List(ctx context.Context, name string) ([]backend.Status, bool, error) {
	j, err := s.mine(ctx, name)
	if err != nil {
		return nil, false, err
	}
	views, snap, err := j.look(ctx, j.queue.freshness())
	if err != nil {
		return nil, false, err
	}
	j.enforce(ctx, views)
	nodes, told := j.nodesOf(ctx, views), false
	markAway(views, nodes)
	j.settle(views)
	var out []backend.Status
	for _, v := range views {
		if v.reaped() && v.away == "" {
			continue
		}
		st := j.address(ctx, v)
		j.tell(ctx, v, &st)
		if until, drained := j.queue.drainEnd(nodes, v.submission.Cluster, st.Node); drained && st.State.Live() && st.State != backend.StateStopping {
			st.OnDrainedNode(until)
		}
		if v.polled != nil && st.State.Live() {
			if st.Err = backend.Errorf(backend.Unavailable, silence+": %w", v.polled); refused(v.polled) != nil {
				st.Err = backend.Errorf(backend.Unavailable, "look at the queue: %s", refused(v.polled).Message)
			}
		}
		told = told || st.Err != nil
		out = append(out, st)
	}
	if snap.err != nil && !told { // nothing here could say why the list may not be all
		return nil, false, unlooked(snap.err)
	}
	return out, snap.err == nil, nil
}

// unlooked is the error of a queue that could not be looked at.
func unlooked(err error) *backend.Error { return unasked("look at the queue", err) }

// unasked is the error of what could not be asked: for good where Slurm refuses that, until it answers where it does not.
func unasked(doing string, err error) *backend.Error {
	if no := refused(err); no != nil {
		return no.Error
	}
	return unavailable(doing, err)
}

// look polls Slurm, if the last poll is older than maxAge, and reads the job's folders.
func (j *job) look(ctx context.Context, maxAge time.Duration) ([]view, snapshot, error) {
	snap := j.queue.poll(ctx, maxAge)
	if err := ctx.Err(); err != nil {
		return nil, snap, backend.Errorf(backend.Unavailable, "look at job %q: %w", j.name, err)
	}
	views, err := j.scan(ctx, snap)
	return views, snap, err
}

// nodesOf gives the nodes where something of the views may run; those of an earlier look where Slurm does not answer.
func (j *job) nodesOf(ctx context.Context, views []view) []node {
	if !slices.ContainsFunc(views, func(v view) bool { return v.placed() || v.leftAway() }) {
		return nil
	}
	maxAge := drainSeen
	if slices.ContainsFunc(views, func(v view) bool { return v.placed() && v.release != nil }) {
		maxAge = awaySeen
	}
	nodes, err := j.queue.lookWithin(ctx, maxAge)
	if err != nil {
		j.lg.Warn("cannot see which nodes answer Slurm, and which are being drained; trying again", "err", err)
	}
	return nodes
}

// placed reports whether a process of the view may live on the node that Slurm names.
func (v view) placed() bool {
	return v.inQueue && !v.over() && (v.row.phase() == phaseRunning || v.row.phase() == phaseEnding)
}

// leftAway reports whether Slurm has given the view's job up with a node that did not answer.
func (v view) leftAway() bool { return v.over() && v.verdict.Away && !v.report.over() }

// markAway notes of which views the node does not answer: Slurm says so, or it has been ending the job there in vain.
func markAway(views []view, nodes []node) {
	for i, v := range views {
		switch {
		case v.leftAway():
			at := slices.IndexFunc(nodes, func(n node) bool { return n.is(v.submission.Cluster, v.verdict.Node) })
			switch {
			case at < 0:
			case nodes[at].answers(): // its slurmd ends what Slurm does not know; nor is it asked again
				v.verdict.Away = false
				_ = backend.WriteJSON(v.path(verdictFile), v.verdict) // else it is found out once more
			default:
				views[i].away = fmt.Sprintf("its node %s does not answer Slurm", v.verdict.Node)
			}
		case !v.placed() || v.report.over():
		case slices.ContainsFunc(nodes, func(n node) bool { return n.is(v.submission.Cluster, v.row.nodes) && !n.answers() }):
			views[i].away = fmt.Sprintf("its node %s does not answer Slurm", v.row.nodes)
		case v.unending():
			views[i].away = "Slurm tries in vain to end it on " + v.row.nodes
		}
	}
}

// unendingFor is how long Slurm may take to end a job by force before its node is taken to be away: the script ends itself at once. Slurm says that a node does
// not answer only after it has asked it a few times, a third of SlurmdTimeout apart, which is minutes where a site has not set it.
const unendingFor = 15 * time.Second

// unending reports whether Slurm has been ending the view's job by force for longer than a node that answers takes.
func (v view) unending() bool {
	return v.row.phase() == phaseEnding && v.givenUpByForce() && time.Since(v.release.At) >= unendingFor
}

func (v view) givenUpByForce() bool {
	return v.release != nil && v.release.How == backend.Forced.String()
}

// address gives the instance's status, with where others reach its node.
func (j *job) address(ctx context.Context, v view) backend.Status {
	st := v.status()
	if st.Node != "" && st.State.Live() {
		st.Address = j.queue.addressOf(ctx, v.submission.Cluster, st.Node)
	}
	return st
}

// reapEvery is how often released workloads that are still there are looked after.
const reapEvery = time.Second

// reap sees to it that what was released ends by its deadline, also when nobody lists. It ends with Close, and touches what List touches.
func (s *slurm) reap() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := time.NewTicker(reapEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
		for _, j := range s.allJobs() {
			if !j.leaving() {
				continue
			}
			views, _, err := j.look(ctx, j.queue.freshness())
			if err != nil {
				j.lg.Warn("cannot look after what was released; trying again", "err", err)
				continue
			}
			j.enforce(ctx, views)
		}
	}
}

// Close implements backend.Backend. The workloads go on.
func (s *slurm) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.running.Wait()
	return nil
}

// watchEvery is how often Watch looks at the folders; Slurm is asked no oftener than freshness says.
const watchEvery = 500 * time.Millisecond

// Watch implements backend.Backend by looking again and again.
func (s *slurm) Watch(ctx context.Context, name string) (<-chan backend.Event, error) {
	if _, err := s.job(ctx, name); err != nil {
		return nil, err
	}
	return backend.WatchByList(ctx, s, name, watchEvery, nil), nil
}

// jobName is the name that a workload's Slurm job has.
func jobName(job string, id backend.ID) string { return fmt.Sprintf("%s%s:%s", jobPrefix, job, id) }

// jobPrefix begins the name of every Slurm job of ours.
const jobPrefix = "kale:"
