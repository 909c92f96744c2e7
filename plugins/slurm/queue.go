package slurm

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// row is one job in Slurm's queue.
type row struct {
	id       string // the job's number
	cluster  string // empty but for clusters = …
	name     string
	nonce    string
	state    string
	reason   string
	nodes    string
	started  time.Time
	deadline time.Time // when Slurm ends it; zero when it has no time limit
	cause    backend.EndCause
}

func (r row) phase() phase { return stateOf(r.state).phase }

// goesOn reports whether Slurm neither has the job as over nor is ending it.
func (r row) goesOn() bool { return r.phase() != phaseOver && r.phase() != phaseEnding }

func (r row) ref() jobRef { return jobRef{r.id, r.cluster} }

// snapshot is one look at the queue. With err, rows are not known.
type snapshot struct {
	began time.Time // of the look: a job that was submitted later need not be in it; of one that failed, its end
	rows  map[string][]row
	err   error
	took  time.Duration // until it failed
}

// stands reports whether the look still does for who wants one that is not older than maxAge. One that failed does for as long as it took: who asks one thing
// after the other of a cluster that hangs waits for it once.
func (s snapshot) stands(maxAge time.Duration) bool {
	if s.err != nil {
		maxAge = max(maxAge, s.took)
	}
	return time.Since(s.began) < maxAge
}

// queue looks at a cluster's queue, once for all jobs that are on it.
type queue struct {
	ctl     controller
	slowest time.Duration

	mu      sync.Mutex // held during a look, so that callers share it
	last    snapshot
	states  map[string]string // by job number, of the last look
	changed time.Time         // when something was last seen or made to change
	nodes   []node
	nodesAt time.Time
	// noNodes is the last look at the nodes, if it failed: as with the queue, who asks one thing after the other of a cluster that hangs waits for it once.
	noNodes snapshot
	drained map[string]time.Time // since when nodes were seen to be drained, by cluster and name
	// held are the nodes that were seen to be taken out of use, by cluster and name; restored is when such were seen to be put into use again, by name.
	held     map[string]bool
	restored map[string]time.Time
	// leaked is how many GPUs Slurm counts wrongly, by cluster and name of the node, of nodes that were seen without a job.
	leaked map[string]int

	accounts accounts
}

func newQueue(c controller, slowest time.Duration) *queue {
	return &queue{ctl: c, slowest: slowest, changed: time.Now(), held: map[string]bool{}, restored: map[string]time.Time{}}
}

// quickest is how often Slurm is asked at most; slurmctld serves a squeue in milliseconds.
const quickest = 100 * time.Millisecond

// freshness is how old a look may be: a tenth of the time since something changed, so that one is quick while much happens and rare while nothing does.
func (q *queue) freshness() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return min(max(time.Since(q.changed)/10, quickest), q.slowest)
}

// stir notes that something is about to change.
func (q *queue) stir() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changed = time.Now()
}

// noncePrefix begins the comment of a Slurm job of ours.
const noncePrefix = "kale "

// poll gives a look at the queue that is not older than maxAge. A failed one counts too, so that a cluster that hangs is not asked by everybody in turn.
func (q *queue) poll(ctx context.Context, maxAge time.Duration) snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last.stands(maxAge) || ctx.Err() != nil {
		if q.last.began.IsZero() {
			return snapshot{err: errors.New("the queue was not asked for yet")}
		}
		return q.last
	}
	began := time.Now()
	rows, err := q.ctl.jobs(context.WithoutCancel(ctx)) // the answer serves others too
	q.last = snapshot{began: began, err: err}
	if err != nil {
		q.last.took, q.last.began = time.Since(began), time.Now()
		return q.last
	}
	q.last.rows = map[string][]row{}
	for _, r := range rows {
		q.last.rows[r.nonce] = append(q.last.rows[r.nonce], r)
	}
	states := map[string]string{}
	for _, rows := range q.last.rows {
		for _, r := range rows {
			states[r.cluster+"/"+r.id] = r.state
			if q.states != nil && q.states[r.cluster+"/"+r.id] != r.state {
				q.changed = time.Now()
			}
		}
	}
	q.states = states
	return q.last
}

// parseQueue reads squeue's output of a cluster: our jobs.
func parseQueue(out, cluster string) []row {
	var rows []row
	for i, record := range strings.Split(out, lineMark) {
		fields := strings.SplitN(record, fieldMark, queueFields)
		if i > 0 && len(fields) == queueFields {
			if r, ok := parseRow(fields); ok {
				r.cluster = cluster
				rows = append(rows, r)
			}
		}
	}
	return rows
}

func parseRow(f []string) (row, bool) {
	nonce := nonceOf(f[1], f[8])
	if nonce == "" {
		return row{}, false
	}
	r := row{id: f[0], name: f[1], state: f[2], reason: f[3], nodes: f[4], nonce: nonce, started: parseTime(f[5])}
	if r.phase() != phaseQueued {
		limit, err := parseLimit(f[6])
		if err != nil {
			limit = endless // UNLIMITED
		}
		r.deadline, r.cause = deadlineOf(r.started, limit, parseTime(f[7]))
	}
	return r, true
}

// deadlineOf gives when Slurm ends a job. The limit is in whole minutes; the end may have been set to any moment, or to an earlier one by a preemption with a
// grace, of a job without a limit too.
func deadlineOf(started time.Time, limit time.Duration, end time.Time) (time.Time, backend.EndCause) {
	switch deadline := started.Add(min(limit, endless)); {
	case !started.IsZero() && !end.IsZero() && end.Before(deadline):
		return end, backend.EndPreemption
	case started.IsZero() || limit >= endless:
		return time.Time{}, ""
	default:
		return deadline, backend.EndWalltime
	}
}

// nonceOf gives the nonce in a job's comment; "" when it is not ours.
func nonceOf(name, comment string) string {
	comment, _, _ = strings.Cut(comment, "\n")
	_, nonce, ours := strings.Cut(comment, noncePrefix) // a site's plugin may have written before it
	if fields := strings.Fields(nonce); ours && len(fields) > 0 && strings.HasPrefix(name, jobPrefix) {
		return fields[0]
	}
	return ""
}

// endless is the time limit that Slurm gives a job which has none, when its partition has none either: a year.
const endless = 365 * 24 * time.Hour

// timeForm is how Slurm's clients write times, in UTC as clientEnviron makes them.
const timeForm = "2006-01-02T15:04:05"

// parseTime reads a time as clientEnviron makes Slurm print it; zero for N/A and the like.
func parseTime(s string) time.Time {
	t, err := time.Parse(timeForm, strings.TrimSpace(s))
	if err != nil {
		return time.Time{}
	}
	return t
}

// pick gives the job that stands for a workload among those that carry its nonce: the one that holds the claim, else the oldest that is not over, else
// the oldest. The others, if they are not over, are too many.
func pick(rows []row, claim string) (best row, found bool, surplus []row) {
	at := -1
	better := func(a, b row) bool {
		switch {
		case (a.id == claim) != (b.id == claim):
			return a.id == claim
		case (a.phase() == phaseOver) != (b.phase() == phaseOver):
			return b.phase() == phaseOver
		}
		return number(a.id) < number(b.id)
	}
	for i, r := range rows {
		if at < 0 || better(r, rows[at]) {
			at = i
		}
	}
	if at < 0 {
		return row{}, false, nil
	}
	for i, r := range rows {
		if i != at && r.goesOn() {
			surplus = append(surplus, r)
		}
	}
	return rows[at], true, surplus
}

func number(id string) int {
	n, err := strconv.Atoi(id)
	if err != nil {
		return 1 << 62
	}
	return n
}

// cancel ends jobs. hard kills their processes at once.
func (q *queue) cancel(ctx context.Context, hard bool, rows ...row) error {
	var refs []jobRef
	for _, r := range rows {
		if refs = append(refs, r.ref()); hard { // by itself a cancellation sends SIGTERM first and grants KillWait; the script kills at once
			_ = q.ctl.signal(ctx, "USR2", r.ref()) // what does not hear is cancelled below
		}
	}
	err := q.ctl.cancel(ctx, refs...)
	q.stir()
	return err
}

// terminate asks the jobs' scripts to stop.
func (q *queue) terminate(ctx context.Context, rows ...row) error {
	var first error
	for _, r := range rows { // in one call, one that has ended would keep the others from hearing
		if err := q.ctl.signal(ctx, "TERM", r.ref()); err != nil && first == nil {
			first = err
		}
	}
	q.stir()
	return first
}

// unavailable is the error of a cluster that did not answer.
func unavailable(doing string, err error) *backend.Error {
	return backend.Errorf(backend.Unavailable, "%s: Slurm did not answer: %w", doing, err)
}
