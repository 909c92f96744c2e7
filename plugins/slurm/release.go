package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// killAfter is how long after its deadline a script that should have ended its workload by itself is killed with it.
	killAfter = time.Second
	// repeatAfter is how often an order that Slurm has taken is repeated while nothing comes of it.
	repeatAfter = 5 * time.Second
)

// Release implements backend.Backend. What Slurm does not hear now, it hears later: the record is on disk.
func (s *slurm) Release(ctx context.Context, name string, ids []backend.ID, how backend.How) error {
	if how != backend.Drained && how != backend.Forced {
		return backend.Invalidf("how", "release %d workloads of job %q: %v is no way to release", len(ids), name, how)
	}
	j, err := s.mine(ctx, name)
	if err != nil {
		return err
	}
	var first error
	for _, id := range ids {
		if err := id.Validate(); err != nil {
			return err
		}
		// Each is tried, whatever came of the ones before.
		inst := j.instance(id)
		var r record
		if err := backend.ReadJSON(inst.path(recordFile), &r); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := inst.giveUp(how, r.StopGrace); err != nil && first == nil {
			first = err
		}
	}
	j.told.setLeaving(true)
	if first != nil {
		return first
	}
	views, _, err := j.look(ctx, 0)
	if err != nil {
		return nil //nolint:nilerr // it is on record; the reaper tells Slurm
	}
	j.enforce(ctx, views)
	return nil
}

// giveUp puts on record that the instance is given up.
func (i instance) giveUp(how backend.How, grace time.Duration) error {
	failed := func(err error) error {
		return backend.Errorf(backend.FileCode(err), "release %s of job %q: %w", i.id, i.job, err)
	}
	var old release
	err := backend.ReadJSON(i.path(releasedFile), &old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(err)
	}
	if err == nil && (old.How == how.String() || old.How == backend.Forced.String()) {
		return nil // a forced release is not taken back, and a drain's deadline not put off
	}
	now := time.Now().UTC()
	r := release{How: how.String(), At: now, Deadline: now}
	if how == backend.Drained {
		r.Deadline = now.Add(grace)
	}
	if err := backend.WriteJSON(i.path(releasedFile), r); err != nil {
		if _, gone := os.Stat(i.dir); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
		return failed(err)
	}
	return nil
}

func (o *orders) setLeaving(leaving bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.leaving = leaving
}

// leaving reports whether something that was released, or is there twice, may still have to be ended.
func (j *job) leaving() bool {
	j.told.mu.Lock()
	defer j.told.mu.Unlock()
	return j.told.leaving
}

// givenUp reports whether Slurm still has the job of one that was given up because its script never began, or does not go on, or because the job had not come
// to Slurm when that was judged.
func (v view) givenUp() bool {
	return v.inQueue && v.verdict != nil && (v.verdict.State == verdictUnbegun || v.verdict.State == verdictStranded || v.verdict.State == verdictRejected) && v.row.goesOn()
}

// phantomAfter is how long Slurm may take a job for running whose script has ended.
const phantomAfter = 15 * time.Second

// phantom reports whether Slurm takes for running what has ended by its script's word, as a controller does that was killed before it had saved that: it would
// hold the place for minutes.
func (v view) phantom(now time.Time) bool {
	return v.inQueue && v.over() && v.report.over() && v.row.phase() == phaseRunning && !v.report.Finished.IsZero() && now.Sub(v.report.Finished) > phantomAfter
}

// enforce tells Slurm what the records demand: what is released ends, what is there twice or put back into the queue is cancelled. What waits is
// cancelled before what runs. Orders are repeated while nothing comes of them.
func (j *job) enforce(ctx context.Context, views []view) {
	now := time.Now()
	var waiting, kill, ask []row
	left := false
	for _, v := range views {
		if v.reaped() {
			j.forget(v)
		}
		left = left || v.release != nil && !v.over()
		nonce := v.record.Nonce
		for _, r := range v.surplus {
			if j.told.due("surplus "+r.id, nonce, now, repeatAfter) {
				j.lg.Warn("a workload has two Slurm jobs; the surplus one is cancelled", "id", v.id.String(), "slurm_job", r.id)
				j.ownUp(v, r.id, fmt.Sprintf("Slurm had two jobs of it; Kale cancelled the second, which had just begun (Slurm job %s)", r.id))
				waiting = append(waiting, r)
			}
		}
		if v.givenUp() {
			left = true
			if j.told.due("given up", nonce, now, repeatAfter) {
				waiting = append(waiting, v.row)
			}
		}
		if v.phantom(now) && j.told.due("phantom "+v.row.id, "", now, repeatAfter) {
			j.lg.Warn("Slurm takes for running what has ended; its job is cancelled", "id", v.id.String(), "slurm_job", v.row.id)
			waiting = append(waiting, v.row)
		}
		if !v.inQueue || v.over() {
			continue
		}
		switch p := v.row.phase(); {
		case p == phaseOver, p == phaseEnding:
		case v.release == nil:
			if v.requeued && j.told.due("requeued", nonce, now, repeatAfter) {
				j.ownUp(v, v.row.id, j.whyRequeued(ctx, v))
				waiting = append(waiting, v.row)
			}
		case p == phaseQueued:
			if j.told.due("cancel", nonce, now, repeatAfter) {
				waiting = append(waiting, v.row)
			}
		case v.release.How == backend.Forced.String(), p == phasePlaced, now.After(v.release.Deadline.Add(killAfter)):
			if j.told.due("kill", nonce, now, repeatAfter) {
				kill = append(kill, v.row)
			}
		case v.report.over(): // it is about to end
		default:
			if j.told.due("ask", nonce, now, repeatAfter) {
				ask = append(ask, v.row)
			}
		}
	}
	j.told.setLeaving(left)
	for _, order := range []struct {
		what string
		give func() error
		rows []row
	}{
		{"cancel what waits", func() error { return j.queue.cancel(ctx, false, waiting...) }, waiting},
		{"ask scripts to stop", func() error { return j.queue.terminate(ctx, ask...) }, ask},
		{"kill what runs", func() error { return j.queue.cancel(ctx, true, kill...) }, kill},
	} {
		if len(order.rows) == 0 {
			continue
		}
		if err := order.give(); err != nil {
			j.lg.Warn("Slurm did not take an order; it is repeated", "order", order.what, "jobs", fmt.Sprint(len(order.rows)), "err", err)
		}
	}
}

// ownUp puts on record that a job is cancelled by this backend, and why.
func (j *job) ownUp(v view, jobID, why string) {
	if err := v.noteCancel(jobID, why); err != nil {
		j.lg.Warn("cannot note why a job is cancelled: it will seem to be somebody else's doing", "id", v.id.String(), "slurm_job", jobID, "err", err)
	}
}

// whyRequeued says of a job that was put back into the queue after it had begun how that came, as far as its node tells.
func (j *job) whyRequeued(ctx context.Context, v view) string {
	began := v.report.First
	what := "Slurm put its job back into the queue after it had begun: its node failed, slurmctld lost its start, or somebody requeued it"
	n, known := j.queue.node(ctx, v.submission.Cluster, v.report.Node, quickest)
	switch {
	case !known:
	case n.takenOut():
		what = fmt.Sprintf("its node %s was set down, and Slurm put its job back into the queue", n.name)
	case !n.answers(), !began.IsZero() && n.since.After(began):
		what = fmt.Sprintf("its node %s failed, and Slurm put its job back into the queue", n.name)
	}
	return fmt.Sprintf("%s; Kale cancelled it, since it must not run a second time under its ID (Slurm job %s)", what, v.row.id)
}

// forget removes what a workload was given, of which some may be secret, once it is over and given up: its files, and the script with its environment.
func (j *job) forget(v view) {
	script := v.path(scriptFile)
	if _, err := os.Lstat(script); errors.Is(err, fs.ErrNotExist) {
		return
	}
	err := backend.RemoveFiles(v.dir, v.record.Files)
	if err == nil {
		err = os.Remove(script) // last: as long as it is there, it is tried again
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.lg.Warn("cannot remove what a released workload was given; trying again", "id", v.id.String(), "err", err)
	}
}
