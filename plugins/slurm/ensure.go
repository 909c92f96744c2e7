package slurm

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// replaceTimeout bounds the wait for the end of what a higher generation replaces; the next Ensure goes on.
	replaceTimeout = 10 * time.Second
	// replaceEvery is how often it is looked at meanwhile.
	replaceEvery = 100 * time.Millisecond
	// keepReleased is how many released folders a job keeps for their logs, beside the newest of each rank.
	keepReleased = 32
)

// Ensure implements backend.Backend.
func (s *slurm) Ensure(ctx context.Context, name string, ws []backend.Workload) ([]backend.Status, error) {
	j, err := s.mine(ctx, name)
	if err != nil {
		return nil, err
	}
	problems, err := backend.ValidateAll(name, ws)
	if err != nil {
		return nil, err
	}
	end := sync.OnceFunc(j.starts.Begin(name, ws))
	defer end()
	if err := j.endReplaced(ctx, ws, problems); err != nil {
		return nil, err
	}
	if err := s.place(ctx, j, ws, problems); err != nil {
		return nil, err
	}
	end()
	views, _, err := j.look(ctx, j.queue.freshness())
	if err != nil {
		return nil, err
	}
	out := make([]backend.Status, len(ws))
	for i, w := range ws {
		v, known := find(views, w.ID)
		switch {
		case problems[i] != nil:
			out[i] = backend.Status{ID: w.ID, State: backend.StateFailed, Reason: problems[i].Message, Err: problems[i]}
			if known && problems[i].Code == backend.Unavailable {
				out[i].State = backend.StateUnknown
			}
		case !known:
			out[i] = backend.Status{ID: w.ID, State: backend.StateUnknown, Reason: "its folder cannot be seen"}
		default:
			out[i] = j.address(ctx, v)
		}
	}
	return out, nil
}

func find(views []view, id backend.ID) (view, bool) {
	for _, v := range views {
		if v.id == id {
			return v, true
		}
	}
	return view{}, false
}

// newestOf gives the highest generation of the id's role and rank.
func newestOf(views []view, id backend.ID) (view, bool) {
	var best view
	found := false
	for _, v := range views { // ordered by generation
		if v.id.Role == id.Role && v.id.Rank == id.Rank {
			best, found = v, true
		}
	}
	return best, found
}

// endReplaced ends by force the lower generations of what is asked for, and waits for their end.
func (j *job) endReplaced(ctx context.Context, ws []backend.Workload, problems []*backend.Error) error {
	views, _, err := j.look(ctx, quickest)
	if err != nil {
		return err
	}
	var ending []backend.ID
	for i, w := range ws {
		if problems[i] != nil || w.Beside {
			continue
		}
		for _, v := range views {
			if v.id.Role == w.ID.Role && v.id.Rank == w.ID.Rank && v.id.Generation < w.ID.Generation && !v.reaped() {
				if err := v.giveUp(backend.Forced, v.record.StopGrace); err != nil {
					problems[i] = backend.AsError(err)
				}
				ending = append(ending, v.id)
			}
		}
	}
	if len(ending) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	for {
		views, snap, err := j.look(bounded, 0)
		if err != nil || snap.err != nil {
			return nil // place says what is still there
		}
		j.enforce(bounded, views)
		markAway(views, j.nodesOf(bounded, views))
		if !slices.ContainsFunc(ending, func(id backend.ID) bool { v, ok := find(views, id); return ok && !v.settled() }) {
			return nil
		}
		select {
		case <-bounded.Done():
			return nil
		case <-time.After(replaceEvery):
		}
	}
}

// place makes the folders of those workloads that have none, and submits their jobs. What fails for one is put into problems; the error is for all.
func (s *slurm) place(ctx context.Context, j *job, ws []backend.Workload, problems []*backend.Error) error {
	j.place.Lock()
	defer j.place.Unlock()
	if err := j.take(ctx); err != nil {
		return err
	}
	views, snap, err := j.look(ctx, quickest)
	if err != nil {
		return err
	}
	markAway(views, j.nodesOf(ctx, views))
	var fresh []int
	for i, w := range ws {
		if problems[i] != nil {
			continue
		}
		newest, known := newestOf(views, w.ID)
		generation := newest.id.Generation
		switch {
		case known && generation > w.ID.Generation:
			problems[i] = backend.Errorf(backend.Gone, "start %s of job %q: generation %d has replaced it", w.ID, j.name, generation)
		case known && generation == w.ID.Generation && newest.release != nil:
			problems[i] = backend.Errorf(backend.Gone, "start %s of job %q: it was released; use a higher generation", w.ID, j.name)
		case known && generation == w.ID.Generation && !newest.unsubmitted():
			// It has its job.
		case known && generation < w.ID.Generation && !w.Beside && before(views, w.ID) != nil:
			problems[i] = before(views, w.ID).stillEnding(fmt.Sprintf("start %s of job %q", w.ID, j.name))
		default:
			fresh = append(fresh, i)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if snap.err != nil {
		return unavailable(fmt.Sprintf("start %d workloads of job %q", len(fresh), j.name), snap.err)
	}
	room, err := s.room(ctx, j)
	if err != nil {
		if j.set.maxPending == 0 {
			return err
		}
		j.lg.Warn("what is free is not known; jobs are submitted all the same, up to max_pending", "err", err)
	}
	bad := j.excluded(views, room)
	for _, x := range bad {
		j.lg.Warn("a node is left out", "node", x.node, "why", x.why, "until", x.lasts())
	}
	var ready []int // with their folders
	made := make([]view, len(ws))
	for _, i := range fresh {
		v, known := find(views, ws[i].ID)
		if !known {
			if v, problems[i] = j.create(ws[i], i, before(views, ws[i].ID), room); problems[i] != nil {
				continue
			}
		}
		made[i] = v
		ready = append(ready, i)
	}
	j.submitAll(ctx, ready, ws, made, views, nodesOf(bad), problems)
	j.prune(views)
	return nil
}

// submitAtOnce is how many submissions are under way at a time: slurmctld takes them one by one, but starting sbatch takes longer than that.
const submitAtOnce = 8

// submitAll submits the jobs of what has its folder. When Slurm does not answer for one, the rest is not tried: it is asked for again.
func (j *job) submitAll(ctx context.Context, ready []int, ws []backend.Workload, made, views []view, bad []string, problems []*backend.Error) {
	var silent atomic.Bool
	var wg sync.WaitGroup
	slots := make(chan struct{}, submitAtOnce)
	for _, i := range ready {
		slots <- struct{}{}
		// Owned by this call, which waits for it; touches problems[i] only.
		wg.Go(func() {
			defer func() { <-slots }()
			if silent.Load() || ctx.Err() != nil {
				problems[i] = backend.Errorf(backend.Unavailable, "start %s of job %q: not tried, since Slurm does not answer or time is up; ask again", made[i].id, j.name)
				return
			}
			_, known := find(views, made[i].id)
			if problems[i] = j.submit(ctx, made[i], !known, append(slices.Clone(bad), ws[i].Avoid...)); problems[i] != nil && problems[i].Code == backend.Unavailable {
				silent.Store(true)
			}
		})
	}
	wg.Wait()
}

// unsubmitted reports whether Ensure must submit the instance: Slurm does not have it and surely had it never, or its claim keeps a second job harmless.
func (v view) unsubmitted() bool {
	return v.broken == nil && v.polled == nil && v.verdict == nil && v.release == nil && v.claim == "" && !v.inQueue && !v.recent &&
		v.submission.JobID == "" && time.Since(v.submission.Tried) > 2*time.Second
}

// settled reports whether a higher generation may start: nothing of it lives, or it was given up and its node does not answer Slurm, which ends it there before
// anything else when the node is back. The new one keeps off that node.
func (v view) settled() bool {
	return v.over() || v.away != "" && v.givenUpByForce()
}

// settle lets what holds its place beside a generation begin that is not waited for any more: it looks for that in the folder of the other, as for its end.
func (j *job) settle(views []view) {
	for _, v := range views {
		if !v.record.Beside || !v.report.First.IsZero() || v.over() || v.release != nil {
			continue
		}
		for _, old := range views {
			if old.id.Role != v.id.Role || old.id.Rank != v.id.Rank || old.id.Generation >= v.id.Generation || old.over() || !old.settled() {
				continue
			}
			f, err := os.OpenFile(old.path(settledFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // once: List comes here at every look
			if err == nil {
				err = f.Close()
			}
			if err != nil && !errors.Is(err, fs.ErrExist) {
				j.lg.Warn("what waits for the end of a process that is given up cannot be told that; trying again", "id", v.id.String(), "err", err)
			}
		}
	}
}

// stillEnding refuses what a generation that has not ended keeps from starting.
func (v view) stillEnding(doing string) *backend.Error {
	where := ""
	if v.placed() {
		where = " on node " + v.row.nodes
		if v.row.phase() == phaseEnding {
			where += fmt.Sprintf(", which is taken to be away where that takes %v", unendingFor)
		}
	}
	return backend.Errorf(backend.Conflict, "%s: generation %d is still ending%s; ask again", doing, v.id.Generation, where)
}

// before gives the last generation before the id's that is to end first; nil: there is none.
func before(views []view, id backend.ID) (last *view) {
	for i, v := range views { // ordered by generation
		if v.id.Role == id.Role && v.id.Rank == id.Rank && v.id.Generation < id.Generation && !v.settled() {
			last = &views[i]
		}
	}
	return last
}

// create makes the workload's folder, if there is room for it. What it holds its place beside is old, which may be nil.
func (j *job) create(w backend.Workload, index int, old *view, room *room) (view, *backend.Error) {
	doing := fmt.Sprintf("start %s of job %q", w.ID, j.name)
	program, err := j.set.program(backend.Executable(), w.Argv[0])
	if err != nil {
		return view{}, backend.Invalidf(fmt.Sprintf("workloads[%d].argv[0]", index), "%s: %w; build or install it, or name it by its path on the nodes", doing, err)
	}
	for name := range w.Env {
		if !shellName.MatchString(name) {
			return view{}, backend.Invalidf(fmt.Sprintf("workloads[%d].env", index), "%s: environment variable %q: on Slurm a name has letters, digits and '_' only", doing, name)
		}
	}
	if e := room.admit(j.set, w.Resources, j.name+"/"+w.ID.String(), doing); e != nil {
		return view{}, e
	}
	r := record{Job: j.name, ID: w.ID, Nonce: rand.Text(), Resources: w.Resources, StopGrace: w.StopGrace, Created: time.Now().UTC(), Files: slices.Sorted(maps.Keys(w.Files))}
	if r.StopGrace == 0 {
		r.StopGrace = backend.DefaultStopGrace
	}
	r.Warning = j.set.warning(r.StopGrace)
	beside := ""
	if w.Beside && old != nil {
		r.Beside, beside = true, old.dir
	}
	v := view{instance: j.instance(w.ID), record: r}
	if err := v.write(r, runScript(j.set, v.instance, program, beside, w, r.StopGrace), w.Files); err != nil {
		return view{}, backend.Errorf(backend.FileCode(err), "%s: write its folder: %w%s", doing, err, dirAdvice)
	}
	return v, nil
}

// write makes the instance's folder: it is complete, or it is not there.
func (i instance) write(r record, script string, files map[string][]byte) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	// A log that is empty can be followed, and one that is there keeps its mode.
	return backend.WriteFolder(i.dir, map[string][]byte{recordFile: raw, scriptFile: []byte(script), outputFile: nil, slurmLogFile: nil}, files)
}

// submit hands the instance to Slurm, and finds out whether it arrived when sbatch does not say so. first: it was never tried before.
func (j *job) submit(ctx context.Context, v view, first bool, bad []string) *backend.Error {
	doing := fmt.Sprintf("submit %s of job %q", v.id, j.name)
	sub := submission{Tried: time.Now().UTC()}
	note := func() *backend.Error {
		if err := backend.WriteJSON(v.path(submissionFile), sub); err != nil {
			return backend.Errorf(backend.FileCode(err), "%s: write its folder: %w%s", doing, err, dirAdvice)
		}
		return nil
	}
	if e := note(); e != nil {
		return e
	}
	if _, err := os.Stat(v.path(releasedFile)); err == nil { // what is released from now on finds that it was tried
		return backend.Errorf(backend.Gone, "%s: it was released; use a higher generation", doing)
	}
	ref, err := j.queue.ctl.submit(ctx, j.submitIn, batch{j.set, v.instance, v.record, bad})
	j.queue.stir()
	if err == nil {
		sub.JobID, sub.Cluster, sub.At = ref.id, ref.cluster, time.Now().UTC()
		j.lg.Info("submitted to Slurm", "id", v.id.String(), "slurm_job", sub.JobID)
		return note()
	}
	if r := refused(err); r != nil {
		e := r.Error
		if first {
			if rerr := os.RemoveAll(v.dir); rerr != nil {
				j.lg.Warn("cannot remove the folder of a workload that Slurm refused", "id", v.id.String(), "err", rerr)
			}
		}
		e.Message = doing + ": " + e.Message
		return e
	}
	// It may have arrived all the same.
	snap := j.queue.poll(ctx, 0)
	if r, found, _ := pick(snap.rows[v.record.Nonce], ""); snap.err == nil && found {
		sub.JobID, sub.Cluster, sub.At, sub.Found = r.id, r.cluster, time.Now().UTC(), true
		j.lg.Info("sbatch failed, but Slurm has the job", "id", v.id.String(), "slurm_job", r.id, "err", err)
		return note()
	}
	if snap.err != nil {
		err = errors.Join(err, snap.err)
	}
	return backend.Errorf(backend.Unavailable, "%s: %w; whether Slurm has it is looked up before it is submitted again", doing, err)
}

// parseSubmitted reads what sbatch --parsable prints: the job's number, and the cluster's name after a semicolon where there are several.
func parseSubmitted(out string) (jobRef, error) {
	lines := strings.Fields(out)
	if len(lines) > 0 {
		id, cluster, _ := strings.Cut(lines[len(lines)-1], ";")
		if number(id) < 1<<62 {
			return jobRef{id, cluster}, nil
		}
	}
	return jobRef{}, fmt.Errorf("sbatch printed %q where a job's number was expected", out)
}

// prune removes folders of released workloads: all but the newest of each role and rank, which remembers what was released, and the last keepReleased
// others.
func (j *job) prune(views []view) {
	var old []view
	for i, v := range views {
		newest := i+1 == len(views) || views[i+1].id.Role != v.id.Role || views[i+1].id.Rank != v.id.Rank
		if v.reaped() && !newest {
			old = append(old, v)
		}
	}
	slices.SortFunc(old, func(a, b view) int { return a.verdict.At.Compare(b.verdict.At) })
	for _, v := range old[:max(0, len(old)-keepReleased)] {
		if err := os.RemoveAll(v.dir); err != nil {
			j.lg.Warn("cannot remove the folder of a released workload", "id", v.id.String(), "err", err)
		}
	}
}
