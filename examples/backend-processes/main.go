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
//	released     "drained" or "forced", once the workload was given up; empty before
//	output.log   what it wrote; alloc/ is its own folder
//
// What it was given, its files and its environment, may be secret: List takes it out of alloc/ and spec.json before it shows the workload no more.
//
// DIR/JOB/owner.json says whose the job's name is. Every call holds DIR/lock, so calls see each other's work whole. plugins/local is the same idea made ready for daily use.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "keep" {
		if err := keep(os.Args[2]); err != nil {
			log.Fatalf("keep %s: %v", os.Args[2], err)
		}
		return
	}
	backend.Serve(func(*slog.Logger) backend.Backend { return &processes{self: backend.Executable()} })
}

// block is what stands between the braces of backend "processes" { … }.
type block struct {
	Slots      int       `hcl:"slots"` // workloads with one GPU that fit
	SlotsRange hcl.Range `hcl:"slots,attr_value_range"`
	Dir        string    `hcl:"dir,optional"` // "" is a folder of the job's
	owner      backend.Owner
}

func decode(cfg backend.Config) (b block, _ backend.Diagnostics) {
	diags := backend.DecodeBlock(cfg, &b)
	if backend.OnlyUnknown(diags) && b.Slots < 1 {
		diags = append(diags, backend.Mistake(b.SlotsRange, "No slots", "slots is how many workers fit on this machine; give 1 or more."))
	}
	b.owner = cfg.Owner
	b.Dir = cmp.Or(b.Dir, filepath.Join(cfg.StateDir, "backend-processes"))
	return b, backend.FromHCL(cfg, diags)
}

// processes implements backend.Backend.
type processes struct {
	self string // this program, to start keepers
	jobs backend.Jobs[block]
}

func (p *processes) Close() error { return nil }

func (p *processes) Info(context.Context) (backend.Info, error) {
	return backend.Info{Name: "processes", Version: "1", Drains: true, Survives: true}, nil
}

func (p *processes) Configure(ctx context.Context, cfg backend.Config) (backend.Diagnostics, error) {
	return p.jobs.Configure(ctx, cfg, decode)
}

// enter begins a call: it gives the job's block, with its folder locked until lock is closed, and what is wrong with each of the workloads.
func (p *processes) enter(ctx context.Context, job string, ws ...backend.Workload) (b block, lock *os.File, problems []*backend.Error, err error) {
	if b, err = p.jobs.Of(ctx, job); err != nil {
		return b, nil, nil, err
	}
	if problems, err = backend.ValidateAll(job, ws); err != nil {
		return b, nil, nil, err
	}
	if err = os.MkdirAll(filepath.Join(b.Dir, job), 0o700); err == nil {
		lock, err = backend.Lock(ctx, filepath.Join(b.Dir, "lock"))
	}
	if err != nil {
		return b, lock, problems, backend.Errorf(backend.FileCode(err), "use the folder %s for job %q: %w", b.Dir, job, err)
	}
	// Whose a name is matters as long as anything of the job is left.
	if err = b.owner.CheckFile(b.ownerFile(job), job, func() (bool, error) { return b.remains(job), nil }); err != nil {
		lock.Close()
	}
	return b, lock, problems, err
}

func (b block) ownerFile(job string) string { return filepath.Join(b.Dir, job, "owner.json") }

// remains says that something of the job is left.
func (b block) remains(job string) bool {
	return slices.ContainsFunc(b.scan(job), func(w look) bool { return !w.gone() })
}

// spec is what a keeper is to run.
type spec struct {
	backend.Workload          // without Files: they are in alloc/
	Given            []string // the names of Files
	Slots            []string
}

// look is one look at a workload's folder.
type look struct {
	dir      string
	id       backend.ID
	spec     spec
	last     backend.Status // what the keeper knew last
	held     bool           // its keeper or its process lives
	released string         // how it was given up, "" when it was not
	broken   error          // the folder cannot be read: nothing is known
}

func (b block) look(job string, id backend.ID) look {
	w := look{dir: filepath.Join(b.Dir, job, id.String()), id: id}
	lock, err := backend.TryLock(filepath.Join(w.dir, "lock"))
	if w.held = err == nil && lock == nil; lock != nil {
		lock.Close()
	}
	released, rerr := os.ReadFile(filepath.Join(w.dir, "released"))
	w.released = string(released)
	w.broken = errors.Join(err, rerr, backend.ReadJSON(filepath.Join(w.dir, "spec.json"), &w.spec), backend.ReadJSON(filepath.Join(w.dir, "status.json"), &w.last))
	return w
}

// gone says that the workload was given up and nothing of it is left.
func (w look) gone() bool { return w.broken == nil && !w.held && w.released != "" }

// forget removes what the workload was given.
func (w look) forget() error {
	if len(w.spec.Given)+len(w.spec.Env) == 0 {
		return nil
	}
	if err := backend.RemoveFiles(w.dir, w.spec.Given); err != nil {
		return err
	}
	w.spec.Given, w.spec.Env = nil, nil
	return backend.WriteJSON(filepath.Join(w.dir, "spec.json"), w.spec)
}

// over says that there is no process and that none may start any more.
func (w look) over() bool { return w.gone() || w.broken == nil && !w.held && !w.last.State.Live() }

func (w look) status() backend.Status {
	st := w.last
	st.ID, st.Devices, st.Node, st.Address = w.id, w.spec.Slots, "localhost", "127.0.0.1"
	switch {
	case w.broken != nil:
		st.State, st.Reason = backend.StateUnknown, fmt.Sprintf("its folder cannot be read: %v", w.broken)
	case w.held && w.released != "":
		st.State, st.Reason = backend.StateStopping, "released, "+w.released
	case w.gone():
		st.State, st.Reason = backend.StateStopping, "released, "+w.released+"; what it was given cannot be removed from "+w.dir
	case !w.held && st.State.Live():
		st.State, st.PID, st.Reason = backend.StateFailed, 0, "its keeper was ended from outside, and the process with it"
	}
	return st
}

// release puts on record that the workload is given up, which its keeper sees. A forced release is not taken back.
func (w look) release(how backend.How) error {
	if w.released == backend.Forced.String() {
		return nil
	}
	return backend.WriteFile(filepath.Join(w.dir, "released"), []byte(how.String()))
}

// end ends the workload by force and waits for that, with the folder locked: it comes at once.
func (w look) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := w.release(backend.Forced); err != nil {
		return err
	}
	lock, err := backend.Lock(ctx, filepath.Join(w.dir, "lock"))
	if err == nil {
		err = lock.Close()
	}
	return err
}

// scan looks at every workload of the job, ordered by ID; "*" is every job of the folder.
func (b block) scan(job string) (all []look) {
	dirs, _ := filepath.Glob(filepath.Join(b.Dir, job, "*-g*")) // the pattern is sound
	for _, dir := range dirs {
		if id, err := backend.ParseID(filepath.Base(dir)); err == nil {
			all = append(all, b.look(filepath.Base(filepath.Dir(dir)), id))
		}
	}
	slices.SortStableFunc(all, func(x, y look) int { return x.id.Compare(y.id) })
	return all
}

// newest gives the highest generation of the id's role and rank; its generation is 0 where there is none.
func (b block) newest(job string, id backend.ID) (newest look) {
	for _, w := range b.scan(job) {
		if w.id.Role == id.Role && w.id.Rank == id.Rank {
			newest = w
		}
	}
	return newest
}

// devices gives all slots with their holders, and those that are free.
func (b block) devices() (all []backend.Device, free []string) {
	holders := map[string]string{}
	for _, w := range b.scan("*") {
		for _, slot := range w.spec.Slots {
			if !w.over() {
				holders[slot] = filepath.Base(filepath.Dir(w.dir)) + "/" + w.id.String()
			}
		}
	}
	for i := range b.Slots {
		slot := "slot-" + strconv.Itoa(i)
		if all = append(all, backend.Device{ID: slot, Node: "localhost", HeldBy: holders[slot]}); holders[slot] == "" {
			free = append(free, slot)
		}
	}
	return all, free
}

func (p *processes) Inventory(ctx context.Context) (inv backend.Inventory, err error) {
	blocks, widest := p.jobs.All(), map[string]string{} // by folder: of the jobs that share its slots, the one with the most speaks for it
	for job, b := range blocks {
		if b.Slots > blocks[widest[b.Dir]].Slots {
			widest[b.Dir] = job
		}
	}
	for _, job := range slices.Sorted(maps.Values(widest)) {
		b, lock, _, err := p.enter(ctx, job)
		if err != nil {
			return inv, err
		}
		devices, free := b.devices()
		lock.Close()
		inv.Devices, inv.Total, inv.Free = append(inv.Devices, devices...), inv.Total+len(devices), inv.Free+len(free)
	}
	return inv, nil
}

func (p *processes) List(ctx context.Context, job string) (out []backend.Status, complete bool, err error) {
	b, lock, _, err := p.enter(ctx, job)
	if err != nil {
		return nil, false, err
	}
	defer lock.Close()
	for _, w := range b.scan(job) {
		if !w.gone() || w.forget() != nil { // it stays listed until nothing of what it was given is left
			out = append(out, w.status())
		}
	}
	return out, true, nil
}

func (p *processes) Release(ctx context.Context, job string, ids []backend.ID, how backend.How) error {
	if how != backend.Drained && how != backend.Forced {
		return backend.Invalidf("how", "release workloads of job %q: %v is no way to release", job, how)
	}
	b, lock, _, err := p.enter(ctx, job)
	if err != nil {
		return err
	}
	defer lock.Close()
	var errs []error
	for _, w := range b.scan(job) {
		if slices.Contains(ids, w.id) {
			errs = append(errs, w.release(how))
		}
	}
	return errors.Join(errs...)
}

// Forget removes the folders of what has ended.
func (p *processes) Forget(ctx context.Context, job, role string) (removed []string, err error) {
	b, lock, _, err := p.enter(ctx, job)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := b.owner.CheckFile(b.ownerFile(job), job, func() (bool, error) { return true, nil }); err != nil {
		return nil, err
	}
	dir := filepath.Join(b.Dir, job)
	var all []backend.Status
	for _, w := range b.scan(job) {
		if st := w.status(); !w.gone() {
			all = append(all, st)
		} else {
			all = append(all, backend.Status{ID: w.id, State: backend.StateExited})
		}
	}
	ids, err := backend.Forgettable(job, role, all)
	if err == nil {
		removed, err = backend.ForgetFolders(dir, ids, filepath.Base(b.ownerFile(job)))
	}
	if err != nil {
		return nil, backend.Staying(err, "the folder %s", dir)
	}
	return removed, nil
}

// Plan tries the workloads against the slots that are free.
func (p *processes) Plan(ctx context.Context, job string, ws []backend.Workload) (report backend.Report, err error) {
	b, lock, problems, err := p.enter(ctx, job, ws...)
	if err != nil {
		return report, err
	}
	defer lock.Close()
	_, slots := b.devices()
	needs, free := 0, len(slots)
	for i, w := range ws {
		place := backend.Placement{ID: w.ID, Node: "localhost"}
		known := b.newest(job, w.ID)
		_, missing := backend.LookProgram(p.self, cmp.Or(append(w.Argv, "")...))
		switch {
		case problems[i] != nil:
			place.Reason = problems[i].Message
		case known.id == w.ID && known.released == "":
			place.Fits, place.Devices, place.Reason = true, known.spec.Slots, "it is there already"
		case known.id.Generation >= w.ID.Generation:
			place.Newest, place.Reason = known.id.Generation, "it was released or replaced: the newest is "+known.id.String()
		case missing != nil:
			place.Reason = missing.Error()
		default:
			needs += w.Resources.GPUs
			if !known.over() { // its slots come free when it is replaced
				free += len(known.spec.Slots)
			}
			if place.Fits = w.Resources.GPUs == 0 || needs <= free; !place.Fits {
				place.Reason = "no slot is free for it"
			}
		}
		report.Placements = append(report.Placements, place)
	}
	if needs > free {
		report.Shortage = fmt.Sprintf("needs %d slots, %d free", needs, free)
	}
	return report, nil
}

func (p *processes) Ensure(ctx context.Context, job string, ws []backend.Workload) ([]backend.Status, error) {
	b, lock, problems, err := p.enter(ctx, job, ws...)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := b.owner.TakeFile(b.ownerFile(job), job, func() (bool, error) { return b.remains(job), nil }); err != nil {
		return nil, err
	}
	out := make([]backend.Status, len(ws))
	for i, w := range ws {
		if problems[i] == nil {
			problems[i] = p.ensureOne(ctx, b, job, w)
		}
		if out[i] = (backend.Status{ID: w.ID, State: backend.StateFailed, Err: problems[i]}); problems[i] == nil {
			out[i] = b.look(job, w.ID).status()
		}
	}
	return out, nil
}

// ensureOne makes the workload's folder, if it has none, and starts its keeper, if it should have one and does not.
func (p *processes) ensureOne(ctx context.Context, b block, job string, w backend.Workload) *backend.Error {
	doing := fmt.Sprintf("start %s of job %q", w.ID, job)
	known := b.newest(job, w.ID)
	switch generation := known.id.Generation; {
	case known.broken != nil:
		return backend.Errorf(backend.Unavailable, "%s: read %s: %w", doing, known.dir, known.broken)
	case generation > w.ID.Generation, generation == w.ID.Generation && known.released != "":
		return backend.Errorf(backend.Gone, "%s: it was released or replaced; the newest is generation %d", doing, generation)
	case generation == w.ID.Generation && (known.held || known.over()):
		return nil
	case generation == w.ID.Generation:
		return p.startKeeper(ctx, doing, known.dir)
	case generation > 0 && !known.gone():
		if err := known.end(ctx); err != nil {
			return backend.Errorf(backend.Conflict, "%s: generation %d is still ending: %w; ask again", doing, generation, err)
		}
	}
	program, err := backend.LookProgram(p.self, w.Argv[0])
	if err != nil {
		return backend.Invalidf("argv[0]", "%s: %w; build or install it, or name it by its path", doing, err)
	}
	_, free := b.devices()
	if len(free) < w.Resources.GPUs {
		return backend.Errorf(backend.NoCapacity, "%s: needs %d slots, %d free", doing, w.Resources.GPUs, len(free))
	}
	files := w.Files
	w.Argv, w.Files = append([]string{program}, w.Argv[1:]...), nil
	raw, _ := json.Marshal(spec{Workload: w, Given: slices.Collect(maps.Keys(files)), Slots: free[:w.Resources.GPUs]}) // it is plain data
	dir := filepath.Join(b.Dir, job, w.ID.String())
	// The log is there from the beginning, so that it can be followed.
	if err := backend.WriteFolder(dir, map[string][]byte{"spec.json": raw, "status.json": []byte(`{"State": "starting"}`), "released": nil, "output.log": nil}, files); err != nil {
		return backend.Errorf(backend.FileCode(err), "%s: write its folder: %w", doing, err)
	}
	return p.startKeeper(ctx, doing, dir)
}

// startKeeper starts the keeper with the lock in its hands, so that no moment lies between the two. It is in a session of its own and outlives this process.
func (p *processes) startKeeper(ctx context.Context, doing, dir string) *backend.Error {
	lock, err := backend.Lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return backend.Errorf(backend.FileCode(err), "%s: %w", doing, err)
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

func (p *processes) Logs(ctx context.Context, job string, id backend.ID, opts backend.LogOptions) (io.ReadCloser, error) {
	b, err := p.jobs.Of(ctx, job)
	if err != nil {
		return nil, err
	}
	return backend.ReadLogFile(ctx, filepath.Join(b.Dir, job, id.String(), "output.log"), opts, backend.LiveByList(p, job, id))
}

func (p *processes) Watch(ctx context.Context, job string) (<-chan backend.Event, error) {
	if _, err := p.jobs.Of(ctx, job); err != nil {
		return nil, err
	}
	return backend.WatchByList(ctx, p, job, 200*time.Millisecond, nil), nil
}

const (
	poll  = 20 * time.Millisecond  // how often a keeper looks whether it is released
	pause = 500 * time.Millisecond // between a crash and the next start
)

// keeper runs the workload of a folder.
type keeper struct {
	dir       string
	lock, out *os.File
	spec      spec
	status    backend.Status // as in the folder; only the keeper writes it
}

// keep runs the workload until it ends for good or is released. Its process dies with it, by the kernel's hand, and holds the lock too.
func keep(dir string) (err error) {
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends
	k := keeper{dir: dir, lock: os.NewFile(3, "lock")}
	k.out, err = os.OpenFile(filepath.Join(dir, "output.log"), os.O_APPEND|os.O_RDWR, 0)
	err = errors.Join(err, backend.ReadJSON(filepath.Join(dir, "spec.json"), &k.spec), backend.ReadJSON(filepath.Join(dir, "status.json"), &k.status))
	if err != nil {
		return err
	}
	goesOn := func() bool { return k.released() == "" && k.status.State.Live() }
	for again := !k.status.Started.IsZero(); goesOn(); again = true {
		if again {
			_ = backend.PartLog(k.out, cmp.Or(k.status.Reason, "its keeper was killed, and the process with it")) // a full disk must not stop it
			k.status.Restarts++
		}
		k.runOnce()
		for end := time.Now().Add(pause); goesOn() && time.Now().Before(end); time.Sleep(poll) {
		}
	}
	return k.note()
}

func (k *keeper) released() string {
	how, _ := os.ReadFile(filepath.Join(k.dir, "released")) // what cannot be read now is read soon
	return string(how)
}

// note writes the status. What cannot be written is written the next time; until then the plugin sees what was.
func (k *keeper) note() error {
	return backend.WriteJSON(filepath.Join(k.dir, "status.json"), k.status)
}

// runOnce runs the process to its end, and notes how that was.
func (k *keeper) runOnce() {
	st, alloc := &k.status, filepath.Join(k.dir, backend.AllocFolder)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cmd := exec.CommandContext(ctx, k.spec.Argv[0], k.spec.Argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = cmp.Or(k.spec.StopGrace, backend.DefaultStopGrace) // from that to SIGKILL
	cmd.Dir, cmd.Env = alloc, append(backend.CleanEnviron(), backend.EnvAllocDir+"="+alloc)
	for name, value := range k.spec.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = k.out, k.out, []*os.File{k.lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var how string
	if err := cmd.Start(); err != nil {
		st.ExitCode, how = 127, err.Error()
	} else {
		st.State, st.PID, st.Started, st.Reason = backend.StateRunning, cmd.Process.Pid, time.Now(), ""
		_ = k.note()
		k.await(cmd, stop)
		st.ExitCode, how = backend.ExitCode(cmd.ProcessState)
	}
	st.State, st.PID, st.Finished, st.Reason = backend.StateStarting, 0, time.Now(), "it ended with "+how
	switch st.ExitCode {
	case 0: // done
		st.State = backend.StateExited
	case 3: // another incarnation has its place
		st.State = backend.StateFailed
	}
	_ = k.note()
}

// await waits for the end of the process, and brings it about when the workload is released.
func (k *keeper) await(cmd *exec.Cmd, stop func()) {
	kill := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what it started; they may all have ended
	defer kill()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its state tells more
	}()
	for {
		switch k.released() {
		case backend.Drained.String():
			stop()
		case backend.Forced.String():
			kill()
		}
		select {
		case <-ended:
			return
		case <-time.After(poll):
		}
	}
}
