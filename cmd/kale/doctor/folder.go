package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/cmd/internal/folder"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// What a folder must have room for, and how soon it must have written: below the first a snapshot of even a small model may not fit.
const (
	leastRoom  = 256 << 20
	littleRoom = 2 << 30
	slowSync   = time.Second
	trialBytes = 1 << 20
)

// folders tries the folder of checkpoints and the scheduler's own.
func (p Patient) folders() group {
	return group{trials: []trial{
		{check: "checkpoint folder", limit: diskLimit, needs: []string{"name", "checkpoint.dir"}, try: p.checkpoints},
		{check: "state folder", limit: diskLimit, needs: []string{"name"}, try: p.stateFolder},
	}}
}

func (p Patient) checkpoints(context.Context) []Finding {
	const check = "checkpoint folder"
	dir := filepath.Join(p.Job.Checkpoint.Dir, p.Job.Name)
	if diags := core.CheckFolder(p.Job); len(diags) > 0 {
		if _, err := writeTrial(existing(dir)); isFull(err) {
			diags[0].Detail += " " + makeRoom(dir)
		}
		return judged(check, diags, Finding{})
	}
	diags := core.CheckModel(p.Job, p.Wanted)
	if diags.HasErrors() { // what could be written in its place says nothing
		return judged(check, diags, Finding{})
	}
	f := tryFolder(check, dir, place(p.Job, "checkpoint.dir"))
	if f.State == OK && kindOf(dir) == inMemory {
		f = f.but(Warn, "It is in memory (tmpfs): the model is lost when this machine starts again. Use a folder on a disk.")
	}
	if !p.unsound("stream.topic", "features", "model", "servers") {
		diags = append(diags, core.CheckCheckpoint(p.Job)...)
	}
	if len(diags) > 0 {
		return append([]Finding{f}, judged("checkpoint", diags, Finding{})...)
	}
	return []Finding{f}
}

func (p Patient) stateFolder(context.Context) []Finding {
	const check = "state folder"
	f := tryFolder(check, p.StateDir, stateSetting)
	if diags := CheckState(p.StateDir); f.State == OK && len(diags) > 0 {
		return judged(check, diags, Finding{})
	}
	if f.State == OK && kindOf(p.StateDir) == onNetwork {
		f = f.but(Warn, "It is on a network file system, where locks and mapped files are not to be relied on: choose a folder on a local disk with -state-dir or $KALE_STATE_DIR.")
	}
	if f.State == Fail {
		return []Finding{f}
	}
	return append([]Finding{f}, p.lastState()...)
}

// lastState is what is wrong with the state that the job's last scheduler left, if anything.
func (p Patient) lastState() []Finding {
	says, opens := core.DamagedState(p.StateDir)
	if says == "" {
		return nil
	}
	f := ok("scheduler's state", "%s", says)
	if !opens {
		return []Finding{f.but(Fail, "Do so before the next kale run, which cannot take it up as it is.")}
	}
	return []Finding{f.but(Warn, "Do so before the next kale run, which would take it up as it is.")}
}

// stateSetting names what chooses the state folder.
const stateSetting = "-state-dir or $KALE_STATE_DIR"

// CheckState says, as diagnostics, why a scheduler could not keep a job's state in a folder. What is made for it is removed again.
func CheckState(dir string) hcl.Diagnostics {
	made, err := folder.Make(dir)
	defer made.Remove()
	if err == nil {
		err = tryLocks(dir)
	}
	detail := ""
	if err != nil {
		detail = fmt.Sprintf("%s is for the scheduler's own state: %v. %s", dir, err, folderAdvice(err, stateSetting))
	} else if _, err := api.SocketPath(dir); err != nil {
		detail = fmt.Sprintf("%v.", err)
	}
	if detail == "" {
		return nil
	}
	return hcl.Diagnostics{{Severity: hcl.DiagError, Summary: "The state folder cannot be used", Detail: detail}}
}

// tryLocks writes a file into a folder and locks it, as the scheduler's state is.
func tryLocks(dir string) (err error) {
	tmp, err := os.MkdirTemp(dir, ".kale-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	lock, err := backend.TryLock(filepath.Join(tmp, "lock"))
	if err != nil {
		return fmt.Errorf("its file system does not lock files: %w", err)
	}
	defer lock.Close()
	_, err = lock.WriteString("kale")
	return err
}

// tryFolder writes a file into a folder, makes it durable, gives it another name, links it and reads it back, as snapshots and the scheduler's
// state are written. Folders that were not there are made for it; nothing stays. setting says what names the folder.
func tryFolder(check, dir, setting string) Finding {
	made, err := folder.Make(dir)
	defer made.Remove()
	var took time.Duration
	if err == nil {
		took, err = writeTrial(dir)
	}
	if err != nil {
		f := ok(check, "%s: %v", dir, err).but(Fail, folderAdvice(err, setting))
		if isFull(err) {
			f.Do = makeRoom(dir)
		}
		return f
	}
	left, err := roomIn(dir)
	if err != nil {
		return ok(check, "%s: its file system does not say how much room there is: %v", dir, err).but(Warn, "See yourself that there is enough.")
	}
	f := ok(check, "%s: written and made durable in %s, %s free", dir, job.Length(took), gigabytes(left.free))
	switch {
	case left.free < leastRoom:
		return f.but(Fail, makeRoom(dir))
	case left.free < littleRoom:
		return f.but(Warn, "That is little. "+makeRoom(dir))
	case took > slowSync:
		return f.but(Warn, "That is slow: a snapshot writes many files. Choose a faster disk.")
	}
	return f
}

func folderAdvice(err error, setting string) string {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Sprintf("Let this user write it, or choose another folder (%s).", setting)
	case isFull(err):
		return fmt.Sprintf("Make room, or choose another folder (%s).", setting)
	}
	return fmt.Sprintf("Choose another folder (%s).", setting)
}

// room is what a file system still takes, in bytes; noFiles: of files none, whatever their size.
type room struct {
	free, size int64
	noFiles    bool
}

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// makeRoom names the file system that is full, and how to see what fills it. In another folder a job that has trained would begin anew: none is proposed.
func makeRoom(dir string) string {
	at := mountOf(dir)
	left, err := roomIn(at)
	du := fmt.Sprintf("du -xh %s | sort -h", backend.Quoted(at))
	switch {
	case err != nil:
		return fmt.Sprintf("Make room on %s: %s shows what takes it.", at, du)
	case left.noFiles:
		return fmt.Sprintf("The file system at %s takes no more files (inodes): remove some there; du -x --inodes %s | sort -n shows where they are.", at, backend.Quoted(at))
	case left.free >= littleRoom:
		return fmt.Sprintf("The file system at %s has %s of %s free, so a quota is used up: have it raised, or remove some of your files there.", at, gigabytes(left.free), gigabytes(left.size))
	}
	return fmt.Sprintf("Make room on the file system at %s, of whose %s are free %s: %s shows what takes it.", at, gigabytes(left.size), gigabytes(left.free), du)
}

// existing is the deepest folder of a path that is there.
func existing(dir string) string {
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// mountOf is the topmost folder above dir, or dir itself, that is on dir's file system; of a folder that is not there, where it would be.
func mountOf(dir string) string {
	at := existing(dir)
	for at != filepath.Dir(at) && sameDevice(at, filepath.Dir(at)) {
		at = filepath.Dir(at)
	}
	return at
}

func sameDevice(a, b string) bool {
	var in, above syscall.Stat_t
	return syscall.Stat(a, &in) == nil && syscall.Stat(b, &above) == nil && in.Dev == above.Dev
}

// writeTrial gives how long it took until a file of a mebibyte was durable under its last name.
func writeTrial(dir string) (took time.Duration, err error) {
	tmp, err := os.MkdirTemp(dir, ".kale-doctor-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	content := bytes.Repeat([]byte("kale"), trialBytes/4)
	draft, final := filepath.Join(tmp, "draft"), filepath.Join(tmp, "final")
	began := time.Now()
	f, err := os.Create(draft)
	if err != nil {
		return 0, err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	if err := os.Rename(draft, final); err != nil {
		return 0, err
	}
	in, err := os.Open(tmp)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(in.Sync(), in.Close()); err != nil {
		return 0, fmt.Errorf("make the new name durable: %w", err)
	}
	took = time.Since(began)
	if err := os.Link(final, filepath.Join(tmp, "link")); err != nil {
		return 0, fmt.Errorf("its file system has no hard links, which keep the job's token from being replaced: %w", err)
	}
	back, err := os.ReadFile(final)
	if err == nil && !bytes.Equal(back, content) {
		err = errors.New("what was read back is not what was written")
	}
	return took, err
}

func gigabytes(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
