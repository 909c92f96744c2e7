package slurm

import (
	"context"
	"errors"
	"os"
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
}

func (r row) phase() phase { return stateOf(r.state).phase }

// snapshot is one look at the queue. With err, rows are not known.
type snapshot struct {
	began time.Time // of the look: a job that was submitted later need not be in it
	rows  map[string][]row
	err   error
}

// queue looks at a cluster's queue, once for all jobs that are on it.
type queue struct {
	client  client
	slowest time.Duration

	mu      sync.Mutex // held during a look, so that callers share it
	last    snapshot
	states  map[string]string // by job number, of the last look
	changed time.Time         // when something was last seen or made to change
	nodes   []node
	nodesAt time.Time
}

func newQueue(c client, slowest time.Duration) *queue {
	return &queue{client: c, slowest: slowest, changed: time.Now()}
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

// The fields of a line, parted by a character that no field has; lines begin with another, since comments may have line ends.
const (
	lineMark    = "\x1e"
	fieldMark   = "\x1f"
	queueFormat = lineMark + "%i" + fieldMark + "%j" + fieldMark + "%T" + fieldMark + "%r" + fieldMark + "%N" + fieldMark + "%S" + fieldMark + "%l" + fieldMark + "%e" + fieldMark + "%k"
	queueFields = 9
)

// noncePrefix begins the comment of a Slurm job of ours.
const noncePrefix = "kale "

// poll gives a look at the queue that is not older than maxAge. A failed one counts too, so that a cluster that hangs is not asked by everybody in turn.
func (q *queue) poll(ctx context.Context, maxAge time.Duration) snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.last.began) < maxAge || ctx.Err() != nil {
		if q.last.began.IsZero() {
			return snapshot{err: errors.New("the queue was not asked for yet")}
		}
		return q.last
	}
	began := time.Now()
	// Not ctx: the answer serves others too.
	out, _, err := q.client.run(context.WithoutCancel(ctx), askTimeout, "", "squeue",
		"--noheader", "--states=all", "--user="+strconv.Itoa(os.Getuid()), "--format="+queueFormat)
	q.last = snapshot{began: began, err: err}
	if err != nil {
		q.last.began = time.Now() // it took its time
		return q.last
	}
	q.last.rows = parseQueue(out)
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

// parseQueue reads squeue's output: our jobs by their nonce.
func parseQueue(out string) map[string][]row {
	rows := map[string][]row{}
	cluster := ""
	for i, record := range strings.Split(out, lineMark) {
		fields := strings.SplitN(record, fieldMark, queueFields)
		if i > 0 && len(fields) == queueFields {
			if r, ok := parseRow(fields); ok {
				r.cluster = cluster
				rows[r.nonce] = append(rows[r.nonce], r)
			}
		}
		for line := range strings.Lines(record) { // squeue -M heads each cluster's lines
			if name, ok := strings.CutPrefix(line, "CLUSTER: "); ok {
				cluster = strings.TrimSpace(name)
			}
		}
	}
	return rows
}

func parseRow(f []string) (row, bool) {
	comment, _, _ := strings.Cut(f[8], "\n")
	_, nonce, ours := strings.Cut(comment, noncePrefix) // a site's plugin may have written before it
	if fields := strings.Fields(nonce); ours && len(fields) > 0 {
		nonce = fields[0]
	}
	if !ours || nonce == "" || !strings.HasPrefix(f[1], "kale:") {
		return row{}, false
	}
	r := row{id: f[0], name: f[1], state: f[2], reason: f[3], nodes: f[4], nonce: nonce, started: parseTime(f[5])}
	if limit, err := parseLimit(f[6]); err == nil && limit < endless && !r.started.IsZero() && r.phase() != phaseQueued {
		r.deadline = r.started.Add(limit)
		// The limit is in whole minutes; the end may have been set to any moment, or to an earlier one by a preemption with a grace.
		if end := parseTime(f[7]); !end.IsZero() && end.Before(r.deadline) {
			r.deadline = end
		}
	}
	return r, true
}

// endless is the time limit that Slurm gives a job which has none, when its partition has none either: a year.
const endless = 365 * 24 * time.Hour

// parseTime reads a time as clientEnviron makes Slurm print it; zero for N/A and the like.
func parseTime(s string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", strings.TrimSpace(s))
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
		if i != at && r.phase() != phaseOver && r.phase() != phaseEnding {
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

// cancel ends jobs: those that wait in one call, those that run in another. hard kills their processes at once.
func (q *queue) cancel(ctx context.Context, hard bool, rows ...row) error {
	byCluster := map[string][]string{}
	for _, r := range rows {
		byCluster[r.cluster] = append(byCluster[r.cluster], r.id)
	}
	var first error
	for cluster, ids := range byCluster {
		c := q.client
		if cluster != "" {
			c.clusters = cluster
		}
		for _, id := range ids {
			if hard { // scancel by itself sends SIGTERM first and grants KillWait, also with --signal=KILL; the script kills at once
				_, _, _ = c.run(ctx, cancelTimeout, "", "scancel", "--quiet", "--batch", "--signal=USR2", id)
			}
		}
		if _, _, err := c.run(ctx, cancelTimeout, "", "scancel", append([]string{"--quiet"}, ids...)...); err != nil && first == nil {
			first = err
		}
	}
	q.stir()
	return first
}

// terminate asks the jobs' scripts to stop.
func (q *queue) terminate(ctx context.Context, rows ...row) error {
	var first error
	for _, r := range rows { // in one call, one that has ended would keep the others from hearing
		c := q.client
		if r.cluster != "" {
			c.clusters = r.cluster
		}
		if _, _, err := c.run(ctx, cancelTimeout, "", "scancel", "--quiet", "--batch", "--signal=TERM", r.id); err != nil && first == nil {
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
