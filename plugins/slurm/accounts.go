package slurm

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How often the accounts are asked: after an answer, after none, and where there are none to ask.
const (
	accountsEvery   = 2 * time.Second
	accountsPause   = 30 * time.Second
	accountsAbsent  = 10 * time.Minute
	accountsLookOut = 24 * time.Hour // how much earlier than its record a job may have been submitted, by other clocks
)

// accounts is when the database may be asked again. The zero value asks at once.
type accounts struct {
	mu   sync.Mutex
	next time.Time
}

// ended asks the database how jobs ended, all in one question; nothing where it cannot be asked now.
func (q *queue) ended(ctx context.Context, lg *slog.Logger, since time.Time, jobs []jobRef) []ending {
	q.accounts.mu.Lock()
	defer q.accounts.mu.Unlock()
	if len(jobs) == 0 || ctx.Err() != nil || time.Now().Before(q.accounts.next) {
		return nil
	}
	out, err := q.ctl.ended(ctx, since.Add(-accountsLookOut), jobs)
	pause := accountsEvery
	switch {
	case errors.Is(err, errNoAccounting):
		pause = accountsAbsent
		lg.Info("the cluster has no accounts: how a job ended that Slurm no longer shows stays unknown", "err", err)
	case err != nil:
		pause = accountsPause
		lg.Warn("the cluster's accounts do not answer; asking again", "after", pause, "err", err)
	}
	q.accounts.next = time.Now().Add(pause)
	return out
}

// consult asks the accounts for the ends of those instances that Slurm answers about and does not show any more, and that left no word of their own.
func (j *job) consult(ctx context.Context, views []view, snap snapshot) {
	if snap.err != nil {
		return
	}
	var missing []jobRef
	since := time.Now()
	for _, v := range views {
		if v.vanished() {
			missing = append(missing, v.ref())
			if v.record.Created.Before(since) {
				since = v.record.Created
			}
		}
	}
	for _, e := range j.queue.ended(ctx, j.lg, since, missing) {
		for i := range views {
			v := &views[i]
			// Numbers come again once Slurm's state was lost, so that name and time count too; of one that was put back into the queue the last run counts.
			if v.vanished() && v.ref() == e.jobRef && e.name == jobName(v.job, v.id) && e.submitted.After(v.record.Created.Add(-accountsLookOut)) &&
				stateOf(e.state).phase == phaseOver && (v.account == nil || v.account.submitted.Before(e.submitted)) {
				v.account = &e
			}
		}
	}
}

// vanished reports whether Slurm, which answers, does not show the instance's job any more, and how it ended is not known.
func (v view) vanished() bool {
	return v.broken == nil && v.verdict == nil && v.release == nil && !v.inQueue && !v.recent && v.submission.JobID != "" && !v.report.over()
}

// ref names the instance's job.
func (v view) ref() jobRef { return jobRef{v.submission.JobID, v.submission.Cluster} }

// parseAccounts reads what sacct prints of sacctFields. clusters says whether jobs are told apart by their cluster.
func parseAccounts(out string, clusters bool) []ending {
	var all []ending
	for line := range strings.Lines(out) {
		f := strings.SplitN(strings.TrimRight(line, "\r\n"), "|", strings.Count(sacctFields, ",")+1)
		if len(f) != strings.Count(sacctFields, ",")+1 || number(f[0]) == 1<<62 {
			continue
		}
		e := ending{jobRef: jobRef{id: f[0]}, name: f[2], exitCode: parseExitCode(f[4]), submitted: parseTime(f[6])}
		if clusters {
			e.cluster = f[1]
		}
		var by string // CANCELLED by 1001
		e.state, by, _ = strings.Cut(strings.TrimSuffix(f[3], "+"), " ")
		if user, ok := strings.CutPrefix(by, "by "); ok {
			e.reason = "by user " + user
		} else if f[7] != "None" {
			e.reason = f[7]
		}
		if n := f[5]; n != "None assigned" {
			e.node = n
		}
		all = append(all, e)
	}
	return all
}

// parseExitCode reads Slurm's "3:0", a code and a signal; 128+n when signal n ended it.
func parseExitCode(s string) int {
	code, sig, _ := strings.Cut(s, ":")
	n, _ := strconv.Atoi(code) // the client prints it; a nonsense is 0
	if k, _ := strconv.Atoi(sig); k > 0 {
		return 128 + k
	}
	return n
}
