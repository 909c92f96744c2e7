// Command backend-processes shows how a backend of one's own is written: a whole Kale plugin in one file. It runs workloads as processes of this machine,
// with numbered slots and no GPUs, and keeps all it knows in a folder: the plugin may be killed at any time, and the next one finds everything again.
//
//	go build -o kale-backend-processes ./examples/backend-processes   # beside kale, or in the PATH
//
// A job asks for it with  backend "processes" { slots = 4 }.  Each workload has a keeper: this program, started with the argument "keep". It runs the
// workload, starts it again when it crashes, and carries out a release, also while there is no plugin. In DIR/JOB/worker-3-g2 are
//
//	spec.json    what to run, with its slots; written before the folder gets its name
//	lock         held (flock) by the keeper and the process below it: the one proof that either lives, and why there are never two
//	status.json  what the keeper last knew
//	released     "drained" or "forced", once the workload was given up
//	output.log   what it wrote; alloc/ is its own folder
//
// Every call holds DIR/lock, so calls see each other's work whole. plugins/local is the same idea made ready for daily use.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "keep" {
		if err := keep(os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "keep %s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "find this program:", err)
		os.Exit(1)
	}
	backend.Serve(func(*slog.Logger) backend.Backend { return newProcesses(self) })
}

// poll is how often a file or a lock is looked at.
const poll = 20 * time.Millisecond

// block is what stands between the braces of backend "processes" { … }.
type block struct {
	Slots      int       `hcl:"slots"` // workloads with one GPU that fit
	SlotsRange hcl.Range `hcl:"slots,attr_value_range"`
	Dir        string    `hcl:"dir,optional"` // "" is a folder of the job's
}

// processes implements backend.Backend.
type processes struct {
	self string // this program, to start keepers
	mu   sync.Mutex
	jobs map[string]block // what is configured
}

func newProcesses(self string) *processes { return &processes{self: self, jobs: map[string]block{}} }

func (p *processes) Info(context.Context) (backend.Info, error) {
	return backend.Info{Name: "processes", Version: "1", Drains: true, Survives: true}, nil
}

func (p *processes) Close() error { return nil }

func (p *processes) Configure(_ context.Context, cfg backend.Config) (backend.Diagnostics, error) {
	if err := backend.ValidJob(cfg.Job); err != nil {
		return nil, err
	}
	b := block{}
	diags := backend.DecodeBlock(cfg, &b)
	if !diags.HasErrors() && b.Slots < 1 {
		diags = append(diags, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "No slots", Detail: "slots is how many workers fit on this machine; give 1 or more.", Subject: b.SlotsRange.Ptr(),
		})
	}
	if diags.HasErrors() {
		return backend.FromHCL(cfg, diags), nil
	}
	b.Dir = cmp.Or(b.Dir, filepath.Join(cfg.StateDir, "backend-processes"))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs[cfg.Job] = b
	return backend.FromHCL(cfg, diags), nil
}

// enter gives the job's block, with its folder locked until unlock is called. It honours ctx.
func (p *processes) enter(ctx context.Context, job string) (b block, unlock func(), err error) {
	p.mu.Lock()
	b, ok := p.jobs[job]
	p.mu.Unlock()
	if !ok {
		return b, nil, backend.Errorf(backend.Blocked, "job %q is not configured; configure it first", job)
	}
	if err := os.MkdirAll(filepath.Join(b.Dir, job), 0o700); err != nil {
		return b, nil, backend.Errorf(backend.Blocked, "make the folder of job %q: %w; set dir to one that can be written", job, err)
	}
	for {
		lock, err := tryLock(filepath.Join(b.Dir, "lock"))
		if err == nil && lock != nil && ctx.Err() == nil {
			return b, func() { lock.Close() }, nil
		}
		if lock != nil {
			lock.Close()
		}
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return b, nil, backend.Errorf(backend.Unavailable, "lock the folder %s for job %q: %w", b.Dir, job, err)
		}
		pause(ctx, poll)
	}
}

// tryLock takes the lock at path for as long as the file is open, here or in a child; nil means that somebody has it.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// spec is what a keeper is to run.
type spec struct {
	Workload backend.Workload
	Slots    []string
}

// record is what a keeper knows; only it writes it.
type record struct {
	backend.Status
	Final bool // it ended by itself for good
}

// workload is one look at a workload's folder.
type workload struct {
	dir      string
	spec     spec
	record   record
	held     bool   // its keeper or its process lives
	released string // how it was given up, "" when it was not
	broken   error  // the folder cannot be read: nothing is known
}

func look(dir string, id backend.ID) workload {
	w := workload{dir: dir, record: record{Status: backend.Status{ID: id, State: backend.StateStarting}}}
	lock, err := tryLock(filepath.Join(dir, "lock"))
	w.held = err == nil && lock == nil
	if lock != nil {
		lock.Close()
	}
	released, rerr := os.ReadFile(filepath.Join(dir, "released"))
	w.released = string(released)
	w.broken = errors.Join(err, missingIsFine(rerr), backend.ReadJSON(filepath.Join(dir, "spec.json"), &w.spec),
		missingIsFine(backend.ReadJSON(filepath.Join(dir, "status.json"), &w.record)))
	w.record.ID, w.record.Devices = id, w.spec.Slots
	return w
}

// gone says that the workload was given up and nothing of it is left.
func (w workload) gone() bool { return w.broken == nil && !w.held && w.released != "" }

// over says that there is no process and that none may start any more.
func (w workload) over() bool { return w.gone() || w.broken == nil && !w.held && w.record.Final }

func (w workload) status() backend.Status {
	st := w.record.Status
	st.Node, st.Address = "localhost", "127.0.0.1"
	switch {
	case w.broken != nil:
		st.State, st.Reason = backend.StateUnknown, fmt.Sprintf("its folder cannot be read: %v", w.broken)
	case w.held && w.released != "":
		st.State, st.Reason = backend.StateStopping, "released, "+w.released
	case !w.held && !w.record.Final:
		st.State, st.PID, st.Reason = backend.StateFailed, 0, "its keeper was ended from outside, and the process with it"
	}
	return st
}

// scan looks at every workload of the job, ordered by ID; "*" is every job of the folder.
func (b block) scan(job string) (all []workload, err error) {
	dirs, err := filepath.Glob(filepath.Join(b.Dir, job, "*-g*"))
	for _, dir := range dirs {
		if id, err := backend.ParseID(filepath.Base(dir)); err == nil {
			all = append(all, look(dir, id))
		}
	}
	slices.SortStableFunc(all, func(x, y workload) int { return x.record.ID.Compare(y.record.ID) })
	return all, err
}

func (p *processes) List(ctx context.Context, job string) (out []backend.Status, complete bool, err error) {
	b, unlock, err := p.enter(ctx, job)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	all, err := b.scan(job)
	for _, w := range all {
		if !w.gone() {
			out = append(out, w.status())
		}
	}
	return out, err == nil, err
}

func (p *processes) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	if how != backend.Drained && how != backend.Forced {
		return backend.Invalidf("how", "release workloads of job %q: %v is no way to release", job, how)
	}
	b, unlock, err := p.enter(ctx, job)
	if err != nil {
		return err
	}
	defer unlock()
	var errs []error
	for _, id := range ids {
		w := look(filepath.Join(b.Dir, job, id.String()), id)
		if !errors.Is(w.broken, fs.ErrNotExist) && w.released != backend.Forced.String() { // a forced release is not taken back
			errs = append(errs, backend.WriteFile(filepath.Join(w.dir, "released"), []byte(how.String())))
		}
	}
	return errors.Join(errs...)
}

func (p *processes) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return nil, err
	}
	b, unlock, err := p.enter(ctx, job)
	if err != nil {
		return nil, err
	}
	defer unlock()
	out := make([]backend.Status, len(ws))
	for i, w := range ws {
		if problems[i] == nil {
			problems[i] = p.ensureOne(ctx, b, job, w)
		}
		if out[i] = (backend.Status{ID: w.ID, State: backend.StateFailed, Err: problems[i]}); problems[i] == nil {
			out[i] = look(filepath.Join(b.Dir, job, w.ID.String()), w.ID).status()
		}
	}
	return out, nil
}

// ensureOne makes the workload's folder, if it has none, and starts its keeper, if it should have one and does not.
func (p *processes) ensureOne(ctx context.Context, b block, job string, w backend.Workload) *backend.Error {
	doing := fmt.Sprintf("start %s of job %q", w.ID, job)
	all, err := b.scan("*")
	if err != nil {
		return backend.Errorf(backend.Unavailable, "%s: %w", doing, err)
	}
	var known workload // the newest generation
	for _, other := range all {
		if id := other.record.ID; filepath.Base(filepath.Dir(other.dir)) == job && id.Role == w.ID.Role && id.Rank == w.ID.Rank {
			known = other
		}
	}
	switch generation := known.record.ID.Generation; {
	case known.broken != nil:
		return backend.Errorf(backend.Unavailable, "%s: read %s: %w", doing, known.dir, known.broken)
	case generation > w.ID.Generation, generation == w.ID.Generation && known.released != "":
		return backend.Errorf(backend.Gone, "%s: it was released or replaced; the newest is generation %d", doing, generation)
	case generation == w.ID.Generation && (known.held || known.over()):
		return nil
	case generation == w.ID.Generation:
		return p.startKeeper(doing, known.dir)
	}
	if known.dir != "" && !known.gone() {
		if err := known.replace(ctx); err != nil {
			return backend.Errorf(backend.Conflict, "%s: %w", doing, err)
		}
		all, _ = b.scan("*") // it could be read just now
	}
	program, err := exec.LookPath(w.Argv[0])
	if err != nil {
		return backend.Invalidf("argv[0]", "%s: %v; build or install it, or name it by its path", doing, err)
	}
	w.Argv = append([]string{program}, w.Argv[1:]...)
	free := b.free(all)
	if len(free) < w.Resources.GPUs {
		return backend.Errorf(backend.NoCapacity, "%s: needs %d slots, %d free", doing, w.Resources.GPUs, len(free))
	}
	dir := filepath.Join(b.Dir, job, w.ID.String())
	if err := create(dir, spec{Workload: w, Slots: free[:w.Resources.GPUs]}); err != nil {
		return backend.Errorf(backend.Blocked, "%s: write its folder: %w", doing, err)
	}
	return p.startKeeper(doing, dir)
}

// replace ends a workload for a higher generation. It waits for its end, with the folder locked: a forced one comes at once.
func (w workload) replace(ctx context.Context) error {
	if err := backend.WriteFile(filepath.Join(w.dir, "released"), []byte(backend.Forced.String())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for look(w.dir, w.record.ID).held {
		if pause(ctx, poll); ctx.Err() != nil {
			return fmt.Errorf("generation %d is still ending; ask again", w.record.ID.Generation)
		}
	}
	return nil
}

// holders gives who has each slot.
func (b block) holders(all []workload) map[string]string {
	by := map[string]string{}
	for _, w := range all {
		for _, slot := range w.spec.Slots {
			if !w.over() {
				by[slot] = filepath.Base(filepath.Dir(w.dir)) + "/" + w.record.ID.String()
			}
		}
	}
	return by
}

func (b block) free(all []workload) (slots []string) {
	held := b.holders(all)
	for i := range b.Slots {
		if name := "slot-" + strconv.Itoa(i); held[name] == "" {
			slots = append(slots, name)
		}
	}
	return slots
}

// create makes a workload's folder. Its log is there from the beginning, so that it can be followed.
func create(dir string, s spec) error {
	files := s.Workload.Files
	s.Workload.Files = nil
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return backend.WriteFolder(dir, map[string][]byte{"spec.json": raw, "output.log": nil}, files)
}

// startKeeper starts the keeper with the lock in its hands, so that no moment lies between the two. It is in a session of its own and outlives this process.
func (p *processes) startKeeper(doing, dir string) *backend.Error {
	lock, err := tryLock(filepath.Join(dir, "lock"))
	if err != nil || lock == nil {
		return backend.Errorf(backend.Conflict, "%s: lock %s: %w", doing, dir, cmp.Or(err, error(syscall.EWOULDBLOCK)))
	}
	defer lock.Close()
	cmd := exec.Command(p.self, "keep", dir)
	cmd.Env, cmd.Dir, cmd.ExtraFiles = backend.CleanEnviron(), dir, []*os.File{lock} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return backend.Errorf(backend.Blocked, "%s: start its keeper %s: %w", doing, p.self, err)
	}
	go func() { _ = cmd.Wait() }() // only reaps; ends with the keeper or this process
	return nil
}

// Plan tries the workloads against the slots that are free.
func (p *processes) Plan(ctx context.Context, job string, ws []backend.Workload) (report backend.Report, err error) {
	problems, err := backend.ValidateAll(job, ws)
	if err != nil {
		return report, err
	}
	b, unlock, err := p.enter(ctx, job)
	if err != nil {
		return report, err
	}
	defer unlock()
	all, err := b.scan("*")
	free, needs := len(b.free(all)), 0
	left := free
	for i, w := range ws {
		place := backend.Placement{ID: w.ID, Node: "localhost", Fits: true}
		known := look(filepath.Join(b.Dir, job, w.ID.String()), w.ID)
		_, missing := exec.LookPath(cmp.Or(append(w.Argv, "")...))
		switch {
		case problems[i] != nil:
			place.Fits, place.Reason = false, problems[i].Message
		case known.broken == nil:
			place.Fits, place.Devices, place.Reason = known.released == "", known.spec.Slots, "it is there already"
		case missing != nil:
			place.Fits, place.Reason = false, missing.Error()
		default:
			needs += w.Resources.GPUs
			if left -= w.Resources.GPUs; left < 0 {
				place.Fits, place.Reason = false, "no slot is free for it"
			}
		}
		report.Placements = append(report.Placements, place)
	}
	if needs > free {
		report.Shortage = fmt.Sprintf("needs %d slots, %d free", needs, free)
	}
	return report, err
}

func (p *processes) Inventory(ctx context.Context) (inv backend.Inventory, err error) {
	p.mu.Lock()
	byDir := map[string]string{} // the job with the most slots speaks for a folder
	for job, b := range p.jobs {
		if byDir[b.Dir] == "" || b.Slots > p.jobs[byDir[b.Dir]].Slots {
			byDir[b.Dir] = job
		}
	}
	p.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		b, unlock, err := p.enter(ctx, byDir[dir])
		if err != nil {
			return inv, err
		}
		all, err := b.scan("*")
		unlock()
		if err != nil {
			return inv, err
		}
		holders := b.holders(all)
		for i := range b.Slots {
			name := "slot-" + strconv.Itoa(i)
			inv.Devices = append(inv.Devices, backend.Device{ID: name, Node: "localhost", HeldBy: holders[name]})
		}
		inv.Total, inv.Free = inv.Total+b.Slots, inv.Free+len(b.free(all))
	}
	return inv, nil
}

func (p *processes) Logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	b, unlock, err := p.enter(ctx, job)
	if err != nil {
		return nil, err
	}
	unlock()
	return backend.ReadLogFile(ctx, filepath.Join(b.Dir, job, id.String(), "output.log"), opts, func(ctx context.Context) bool {
		b, unlock, err := p.enter(ctx, job)
		if err != nil {
			return ctx.Err() == nil
		}
		defer unlock()
		return look(filepath.Join(b.Dir, job, id.String()), id).held
	})
}

func (p *processes) Watch(ctx context.Context, job string) (<-chan backend.Event, error) {
	if _, _, err := p.List(ctx, job); err != nil {
		return nil, err
	}
	return backend.WatchByList(ctx, p, job, 200*time.Millisecond, nil), nil
}

// keep runs the workload of a folder until it ends for good or is released. Its process dies with it, by the kernel's hand, and holds the lock too.
func keep(dir string) error {
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends
	k := keeper{dir: dir, lock: os.NewFile(3, "lock")}
	err := errors.Join(backend.ReadJSON(filepath.Join(dir, "spec.json"), &k.spec), missingIsFine(backend.ReadJSON(filepath.Join(dir, "status.json"), &k.record)))
	if err != nil {
		return err
	}
	if k.out, err = os.OpenFile(filepath.Join(dir, "output.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if k.record.PID != 0 {
		k.again("its keeper was killed, and the process with it")
	}
	for wait := 200 * time.Millisecond; k.released() == ""; wait = min(2*wait, 5*time.Second) {
		began := time.Now()
		if k.runOnce(); k.record.Final || k.released() != "" {
			break
		}
		if time.Since(began) > 10*time.Second {
			wait = 200 * time.Millisecond
		}
		for end := time.Now().Add(wait); time.Now().Before(end) && k.released() == ""; {
			time.Sleep(poll)
		}
		if k.released() == "" {
			k.again(k.record.Reason)
		}
	}
	return backend.WriteJSON(filepath.Join(dir, "status.json"), k.record)
}

type keeper struct {
	dir       string
	lock, out *os.File
	spec      spec
	record    record
}

func (k *keeper) released() string {
	how, _ := os.ReadFile(filepath.Join(k.dir, "released")) // not there: not released
	return string(how)
}

// again parts the logs of two processes of one ID by a line of its own.
func (k *keeper) again(why string) {
	last := []byte("\n")
	if info, err := k.out.Stat(); err == nil && info.Size() > 0 {
		_, _ = k.out.ReadAt(last, info.Size()-1) // at worst the line does not begin one
	}
	fmt.Fprintf(k.out, "%s%s%s\n", bytes.TrimPrefix([]byte("\n"), last), backend.LogBoundary, why)
	k.record.Restarts++
}

// runOnce runs the process to its end, and notes how that was.
func (k *keeper) runOnce() {
	w := k.spec.Workload
	cmd := exec.Command(w.Argv[0], w.Argv[1:]...)
	cmd.Dir, cmd.Env = filepath.Join(k.dir, "alloc"), append(backend.CleanEnviron(), backend.EnvAllocDir+"="+filepath.Join(k.dir, "alloc"))
	for name, value := range w.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = k.out, k.out, []*os.File{k.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	if err == nil {
		k.record.State, k.record.PID, k.record.Started, k.record.Reason = backend.StateRunning, cmd.Process.Pid, time.Now(), ""
		k.note()
		err = k.await(cmd)
	}
	code := 127
	if cmd.ProcessState != nil {
		if code = cmd.ProcessState.ExitCode(); code < 0 {
			code = 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		}
	}
	k.record.State, k.record.PID, k.record.ExitCode, k.record.Finished = backend.StateStarting, 0, code, time.Now()
	k.record.Reason = fmt.Sprintf("it ended with code %d (%v)", code, err)
	switch code {
	case 0:
		k.record.State, k.record.Final, k.record.Reason = backend.StateExited, true, "it ended with code 0: done"
	case 3: // another incarnation has its place
		k.record.State, k.record.Final = backend.StateFailed, true
	}
	k.note()
}

// await waits for the end of the process, and brings it about when the workload is released.
func (k *keeper) await(cmd *exec.Cmd) error {
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }() // what it left running, if anything
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var killAt time.Time
	for {
		switch how := k.released(); {
		case how == backend.Forced.String(), !killAt.IsZero() && time.Now().After(killAt):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		case how != "" && killAt.IsZero():
			killAt = time.Now().Add(cmp.Or(k.spec.Workload.StopGrace, backend.DefaultStopGrace))
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(poll):
		}
	}
}

// note writes the record. What cannot be written is written the next time; until then the plugin sees what was.
func (k *keeper) note() { _ = backend.WriteJSON(filepath.Join(k.dir, "status.json"), k.record) }

func missingIsFine(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
