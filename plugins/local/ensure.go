package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

const (
	// replaceTimeout bounds the wait for the end of what a higher generation replaces; the next Ensure goes on.
	replaceTimeout = 10 * time.Second
	// endingEvery is how often a process that is about to end is looked at.
	endingEvery = 5 * time.Millisecond
	// readyTimeout bounds the wait for a supervisor's first word.
	readyTimeout = 20 * time.Second
	// keepReleased is how many released folders a job keeps for their logs, beside the newest of each rank.
	keepReleased = 32
)

// Plan implements backend.Backend.
func (l *local) Plan(ctx context.Context, job string, ws []backend.Workload) (backend.Report, error) {
	at, err := l.at(ctx, job)
	if err != nil {
		return backend.Report{}, err
	}
	s := at.settings
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return backend.Report{}, err
	}
	if err := s.mine(job); err != nil {
		return backend.Report{}, err
	}
	views, err := s.root().scanJob(job)
	if err != nil {
		return backend.Report{}, err
	}
	p, err := l.pool(s)
	if err != nil {
		return backend.Report{}, err
	}
	var report backend.Report
	needs, free, others := 0, p.free(), p.others(job)
	for i, w := range ws {
		place := backend.Placement{ID: w.ID, Node: hostName()}
		newest, known := newestOf(views, w.ID)
		switch {
		case problems[i] != nil:
			place.Reason = problems[i].Message
		case known && newest.id.Generation > w.ID.Generation, known && newest.id == w.ID && newest.released != 0:
			place.Newest, place.Reason = newest.id.Generation, fmt.Sprintf("it was released or replaced: the newest is %s", newest.id)
		case known && newest.id == w.ID:
			place.Fits, place.Devices, place.Reason = true, newest.spec.Devices, "it is there already"
		default:
			if _, err := s.program(l.self, w.Argv[0]); err != nil {
				place.Reason = fmt.Sprintf("its program cannot be run: %v", err)
				break
			}
			needs += w.Resources.GPUs
			if known && !newest.over() { // its devices come free when it is replaced
				needs -= p.giveBack(newest.spec.Devices, newest.instance)
			}
			devices, err := p.take(w.Resources.GPUs, s.root().instance(job, w.ID))
			if err != nil {
				place.Reason = backend.AsError(err).Message
				report.Shortage = place.Reason
			} else {
				place.Fits, place.Devices = true, devices
			}
		}
		report.Placements = append(report.Placements, place)
	}
	if needs > free {
		report.Shortage = fmt.Sprintf("needs %s, %d free%s", p.noun(needs), free, others)
	}
	return report, nil
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

// Ensure implements backend.Backend. It gives out devices and makes folders under the lock of the state folder, and
// starts supervisors outside of it: two that start for one folder are told apart by the folder's own lock.
func (l *local) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	at, err := l.toStart(ctx, job)
	if err != nil {
		return nil, err
	}
	s := at.settings
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return nil, err
	}
	if err := s.mine(job); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(ws, func(w backend.Workload) bool { return !s.root().instance(job, w.ID).look().held }) {
		if err := s.whole(""); err != nil { // of any job: what they hold is not known either
			return nil, err
		}
	}
	defer l.starts.Begin(job, ws)()
	if err := l.endReplaced(ctx, s, job, ws, problems); err != nil {
		return nil, err
	}
	claimed := make([][]*os.File, len(ws))
	defer func() {
		for _, files := range claimed { // those that no supervisor has
			closeAll(files)
		}
	}()
	if err := l.place(ctx, s, job, ws, problems, claimed); err != nil {
		return nil, err
	}
	var starting sync.WaitGroup
	for i, w := range ws {
		if problems[i] != nil {
			continue
		}
		// Owned by this call, which waits for it; touches problems[i] and claimed[i] only.
		starting.Go(func() {
			if err := l.supervise(ctx, s.root().instance(job, w.ID), claimed[i]); err != nil {
				problems[i] = backend.Errorf(backend.CodeOf(err), "start %s of job %q: %w", w.ID, job, err)
			}
		})
	}
	starting.Wait()
	out := make([]backend.Status, len(ws))
	for i, w := range ws {
		if problems[i] != nil {
			out[i] = backend.Status{ID: w.ID, State: backend.StateFailed, Reason: problems[i].Message, Err: problems[i]}
			continue
		}
		out[i] = s.root().instance(job, w.ID).look().status()
	}
	return out, nil
}

// endReplaced ends by force the lower generations of what is asked for, and waits for their end, and for that of what a supervisor leaves for a moment that was killed.
func (l *local) endReplaced(ctx context.Context, s settings, job string, ws []backend.Workload, problems []*backend.Error) error {
	views, err := s.root().scanJob(job)
	if err != nil {
		return err
	}
	var pending []func() bool
	for i, w := range ws {
		if problems[i] != nil {
			continue
		}
		for _, v := range views {
			switch {
			case v.id.Role != w.ID.Role || v.id.Rank != w.ID.Rank || v.id.Generation > w.ID.Generation || v.reaped():
			case v.id == w.ID: // to be started again, if nobody else is at it
				pending = append(pending, func() bool { return !v.look().held && l.claims.has(v) })
			default:
				if err := v.release(backend.Forced); err != nil {
					problems[i] = backend.AsError(err)
				}
				pending = append(pending, func() bool { return v.look().held || l.claims.has(v) })
			}
		}
	}
	bounded, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	for _, isPending := range pending {
		for bounded.Err() == nil && isPending() {
			select {
			case <-bounded.Done():
			case <-time.After(endingEvery):
			}
		}
	}
	return nil
}

// place makes the folders of those workloads that have none, with their devices, and puts into claimed the claims of each that is to be started. What fails for one
// is put into problems; the error is for all.
func (l *local) place(ctx context.Context, s settings, job string, ws []backend.Workload, problems []*backend.Error, claimed [][]*os.File) error {
	unlock, err := s.root().lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	views, err := s.root().scanJob(job)
	if err != nil {
		return err
	}
	if err := s.owner.TakeFile(s.root().ownerPath(job), job, func() (bool, error) { return s.root().remains(job) }); err != nil {
		return err
	}
	if err := l.moveIn(ctx, job, s.dir); err != nil {
		return err
	}
	p, err := l.pool(s)
	if err != nil {
		return err
	}
	for i, w := range ws {
		if problems[i] != nil {
			continue
		}
		newest, known := newestOf(views, w.ID)
		generation := newest.id.Generation
		switch {
		case known && generation > w.ID.Generation:
			problems[i] = backend.Errorf(backend.Gone, "start %s of job %q: generation %d has replaced it", w.ID, job, generation)
		case known && generation == w.ID.Generation && newest.released != 0:
			problems[i] = backend.Errorf(backend.Gone, "start %s of job %q: it was released; use a higher generation", w.ID, job)
		case known && generation == w.ID.Generation:
			claimed[i], problems[i] = l.again(s, job, w, p, i, newest)
		case known && newest.held:
			problems[i] = backend.Errorf(backend.Conflict, "start %s of job %q: generation %d is still ending; ask again", w.ID, job, generation)
		default:
			claimed[i], problems[i] = l.create(s, job, w, p, i)
		}
	}
	l.prune(job, views)
	return nil
}

// again claims the GPUs of a workload that has its folder, and no supervisor.
func (l *local) again(s settings, job string, w backend.Workload, p *pool, index int, v view) ([]*os.File, *backend.Error) {
	gpus := gpusOf(v.spec.Devices)
	if len(gpus) == 0 || v.broken != nil || !v.lost() {
		return nil, nil
	}
	claimed, by, err := l.claims.takeAll(gpus, v.instance)
	switch {
	case err != nil:
		return nil, backend.Errorf(backend.CodeOf(err), "start %s of job %q: %w", w.ID, job, err)
	case claimed != nil:
		return claimed, nil
	case by.Dir == v.dir:
		return nil, nil // another plugin is just starting it
	case !v.record.Started.IsZero():
		return nil, backend.Errorf(backend.NoCapacity, "start %s of job %q: its GPU %s is held by %s meanwhile; a new generation of it can have another", w.ID, job, by.device, by)
	}
	// It never ran, and its generation stays until it does: nothing but the choice of its GPUs is lost with its folder.
	if err := os.RemoveAll(v.dir); err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "start %s of job %q: make its folder anew: %w", w.ID, job, err)
	}
	p.giveBack(gpus, v.instance)
	return l.create(s, job, w, p, index)
}

// create makes the workload's folder, and claims its GPUs: it is complete, or it is not there.
func (l *local) create(s settings, job string, w backend.Workload, p *pool, index int) ([]*os.File, *backend.Error) {
	doing := fmt.Sprintf("start %s of job %q", w.ID, job)
	program, err := s.program(l.self, w.Argv[0])
	if err != nil {
		return nil, backend.Invalidf(fmt.Sprintf("workloads[%d].argv[0]", index), "%s: %w; build or install it, or name it by its path", doing, err)
	}
	sp := spec{
		Job: job, ID: w.ID, Argv: append([]string{program}, w.Argv[1:]...), Env: map[string]string{}, StopGrace: w.StopGrace, Files: slices.Sorted(maps.Keys(w.Files)),
	}
	if sp.StopGrace == 0 {
		sp.StopGrace = backend.DefaultStopGrace
	}
	maps.Copy(sp.Env, w.Env)
	maps.Copy(sp.Env, s.env) // the block has the last word, but for what follows and what write sets
	inst := s.root().instance(job, w.ID)
	var claimed []*os.File
	if sp.Devices, claimed, err = p.claim(w.Resources.GPUs, inst); err != nil {
		return nil, backend.Errorf(backend.CodeOf(err), "%s: %w", doing, err)
	}
	if p.gpus { // who asked for none sees none
		sp.Env["CUDA_VISIBLE_DEVICES"] = strings.Join(sp.Devices, ",")
	}
	if err := inst.write(sp, w.Files); err != nil {
		closeAll(claimed)
		p.giveBack(sp.Devices, inst)
		return nil, backend.Errorf(backend.FileCode(err), "%s: write its folder: %w", doing, err)
	}
	l.lg.Info("workload placed", "job", job, "id", w.ID.String(), "devices", sp.Devices, "program", program)
	return claimed, nil
}

// write makes the instance's folder: it is complete, or it is not there.
func (i instance) write(sp spec, files map[string][]byte) error {
	sp.Env[backend.EnvAllocDir] = filepath.Join(i.dir, backend.AllocFolder)
	raw, err := json.MarshalIndent(sp, "", "  ")
	if err != nil {
		return err
	}
	own := map[string][]byte{specFile: raw, lockFile: nil, reservedFile: []byte(roomForRelease), spareFile: bytes.Repeat([]byte(" "), recordRoom)}
	return backend.WriteFolder(i.dir, own, files)
}

// supervise starts the instance's supervisor if it should have one and does not, and waits until it says that it
// holds the folder. It is not this process's child for long: it has a session of its own and outlives it. The claims of its GPUs go over to it.
func (l *local) supervise(ctx context.Context, i instance, claimed []*os.File) error {
	defer closeAll(claimed)
	v := i.look()
	if v.broken != nil {
		return backend.Errorf(backend.FileCode(v.broken), "read its folder: %w", v.broken)
	}
	if v.held || v.over() {
		return nil
	}
	if len(claimed) != len(gpusOf(v.spec.Devices)) {
		return awaitOther(ctx, i)
	}
	ownLog, err := os.OpenFile(filepath.Join(i.dir, ownLogFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return backend.Errorf(backend.FileCode(err), "open its supervisor's log: %w", err)
	}
	defer ownLog.Close()
	readyR, readyW, err := os.Pipe()
	if err != nil {
		return backend.Errorf(backend.Unavailable, "start its supervisor: %w", err)
	}
	defer readyR.Close()
	cmd := exec.Command(l.self, SuperviseCommand, i.dir)
	cmd.Env = append(backend.CleanEnviron(), envReady+"="+strconv.Itoa(firstExtra), envClaims+"="+strconv.Itoa(len(claimed)))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = ownLog, ownLog, append([]*os.File{readyW}, claimed...)
	cmd.Dir = i.dir // not where this process happens to be, which may be unmounted some day
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	readyW.Close()
	if err != nil {
		return backend.Errorf(backend.Blocked, "start its supervisor %s: %w; install the program again", l.self, err)
	}
	// Ends with the supervisor or this process; only reaps, so that no zombie is left.
	go func() { _ = cmd.Wait() }()
	return awaitReady(ctx, readyR)
}

// awaitOther waits until another plugin, which has the claims of the instance's GPUs, has started its supervisor.
func awaitOther(ctx context.Context, i instance) error {
	bounded, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for i.look().lost() {
		select {
		case <-bounded.Done():
			return backend.Errorf(backend.Unavailable, "another plugin has its GPUs and has not started it in time; it is tried again")
		case <-time.After(endingEvery):
		}
	}
	return nil
}

// awaitReady reads the supervisor's first word: ready, or why it cannot be.
func awaitReady(ctx context.Context, ready *os.File) error {
	bounded, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	defer context.AfterFunc(bounded, func() {
		_ = ready.SetReadDeadline(time.Unix(1, 0)) // wakes the read; a pipe that is closed needs no waking
	})()
	line, err := bufio.NewReader(ready).ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	switch {
	case bounded.Err() != nil:
		return backend.Errorf(backend.Unavailable, "wait for its supervisor: %w", bounded.Err())
	case errors.Is(err, io.EOF):
		return backend.Errorf(backend.Unavailable, "its supervisor ended before it was ready; its folder has the log")
	case err != nil:
		return backend.Errorf(backend.Unavailable, "wait for its supervisor: %w", err)
	case line == readyWord:
		return nil
	}
	return backend.Errorf(backend.Blocked, "its supervisor cannot work: %s", line)
}

// prune removes folders of released workloads: all but the newest of each role and rank, which remembers what was
// released, and the last keepReleased others.
func (l *local) prune(job string, views []view) {
	var old []view
	for i, v := range views {
		newest := i+1 == len(views) || views[i+1].id.Role != v.id.Role || views[i+1].id.Rank != v.id.Rank
		if v.reaped() && !newest {
			old = append(old, v)
		}
	}
	slices.SortFunc(old, func(a, b view) int { return a.record.Finished.Compare(b.record.Finished) })
	for _, v := range old[:max(0, len(old)-keepReleased)] {
		if err := os.RemoveAll(v.dir); err != nil {
			l.lg.Warn("cannot remove the folder of a released workload", "job", job, "id", v.id.String(), "err", err)
		}
	}
}

// watchEvery is how often Watch looks.
const watchEvery = 200 * time.Millisecond

// Watch implements backend.Backend by looking again and again.
func (l *local) Watch(ctx context.Context, job string) (<-chan backend.Event, error) {
	if _, err := l.jobs.Of(ctx, job); err != nil {
		return nil, err
	}
	return backend.WatchByList(ctx, l, job, watchEvery, nil), nil
}
