package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// The files of an instance's folder; the package comment says what each is.
const (
	specFile     = "spec.json"
	lockFile     = "lock"
	statusFile   = "status.json"
	releasedFile = "released"
	reservedFile = "reserved"
	spareFile    = "spare"
	outputFile   = "output.log"
	ownLogFile   = "supervisor.log"
)

// root is the folder that jobs share.
type root string

func (r root) lockPath() string         { return filepath.Join(string(r), "lock") }
func (r root) jobDir(job string) string { return filepath.Join(string(r), "jobs", job) }

func (s settings) root() root { return root(s.dir) }

// instance is one workload's folder, which may not exist.
type instance struct {
	dir string
	job string
	id  backend.ID
}

func (r root) instance(job string, id backend.ID) instance {
	return instance{dir: filepath.Join(r.jobDir(job), id.String()), job: job, id: id}
}

// name is the instance's as a device's holder.
func (i instance) name() string { return i.job + "/" + i.id.String() }

// spec is what the supervisor is to run. It is written once, before the folder gets its name.
type spec struct {
	Job       string
	ID        backend.ID
	Argv      []string // Argv[0] is an absolute path
	Env       map[string]string
	Devices   []string
	StopGrace time.Duration
	Files     []string `json:",omitempty"` // the names of those that it was given
}

// record is what the supervisor knows; only it writes it.
type record struct {
	Supervisor processID
	Child      processID // zero when there is none
	State      backend.State
	Final      bool // it must not be started again
	Restarts   int
	ExitCode   int
	Reason     string
	Started    time.Time
	Finished   time.Time
}

// view is one look at an instance.
type view struct {
	instance
	spec     spec
	record   record
	recorded bool        // there is a record
	held     bool        // a supervisor lives
	released backend.How // 0 when it was not
	broken   error       // the folder cannot be read: nothing is known
}

// over reports whether no process of the instance lives nor will.
func (v view) over() bool { return v.broken == nil && !v.held && (v.released != 0 || v.record.Final) }

// reaped reports whether a List has forgotten it.
func (v view) reaped() bool { return v.broken == nil && !v.held && v.released != 0 }

// unbegun says that no supervisor was seen to have it yet.
func (v view) unbegun() bool {
	return v.broken == nil && !v.held && !v.recorded && v.released == 0
}

// lost says that the instance has no supervisor where it should have one, or is not there at all.
func (v view) lost() bool { return !v.held && !v.over() }

// look reads the instance. The lock is tested before the record is read: a supervisor writes its last record before
// it lets go, so what is seen of a free instance is its end.
func (i instance) look() view {
	v := view{instance: i}
	v.held, v.broken = held(filepath.Join(i.dir, lockFile))
	how, err := readReleased(i.dir)
	if err != nil && v.broken == nil {
		v.broken = err
	}
	v.released = how
	if err := backend.ReadJSON(filepath.Join(i.dir, specFile), &v.spec); err != nil && v.broken == nil {
		v.broken = err
	}
	err = backend.ReadJSON(filepath.Join(i.dir, statusFile), &v.record)
	v.recorded = err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) && v.broken == nil {
		v.broken = err
	}
	return v
}

// forget removes what the workload was given, of which some may be secret, once it is over and given up: its files and its environment.
func (v view) forget() error {
	if len(v.spec.Files)+len(v.spec.Env) == 0 {
		return nil
	}
	if err := backend.RemoveFiles(v.dir, v.spec.Files); err != nil {
		return err
	}
	v.spec.Files, v.spec.Env = nil, nil
	return backend.WriteJSON(filepath.Join(v.dir, specFile), v.spec)
}

// status gives the contract's view of it.
func (v view) status() backend.Status {
	st := backend.Status{
		ID: v.id, State: v.record.State, Node: hostName(), Address: "127.0.0.1", Devices: v.spec.Devices,
		Restarts: v.record.Restarts, ExitCode: v.record.ExitCode, Reason: v.record.Reason,
		Started: v.record.Started, Finished: v.record.Finished,
	}
	if v.held {
		st.PID = v.record.Child.PID
	}
	switch {
	case v.broken != nil:
		st.State, st.Reason = backend.StateUnknown, fmt.Sprintf("its folder cannot be read: %v", v.broken)
	case v.held && v.released != 0:
		st.State, st.Reason = backend.StateStopping, "released, "+v.released.String()
	case v.held && !v.recorded:
		st.State = backend.StateStarting
	case v.held || v.record.Final:
	case v.released != 0:
		st.State, st.Reason = backend.StateExited, "released, "+v.released.String()
	case !v.recorded:
		st.State, st.Reason = backend.StateFailed, "it was accepted, but the backend was ended before it started it"
	default:
		st.State, st.Reason = backend.StateFailed, "its supervisor was ended from outside, and the process with it"
	}
	return st
}

// dirAdvice ends the messages about a state folder that cannot be used.
const dirAdvice = "; set dir in the backend block to a folder that can be read and written"

// scanJob looks at every instance of the job, by ID. No folder means no instances.
func (r root) scanJob(job string) ([]view, error) {
	entries, err := os.ReadDir(r.jobDir(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "list workloads of job %q: %w%s", job, err, dirAdvice)
	}
	var views []view
	for _, e := range entries {
		id, err := backend.ParseID(e.Name())
		if err != nil {
			continue // a folder that is being made, or a stranger's
		}
		v := r.instance(job, id).look()
		if v.broken != nil {
			if _, err := os.Stat(v.dir); errors.Is(err, fs.ErrNotExist) {
				continue // it was pruned meanwhile
			}
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(a, b view) int { return a.id.Compare(b.id) })
	return views, nil
}

// ownerPath is the file that says whose the job's name is.
func (r root) ownerPath(job string) string { return filepath.Join(r.jobDir(job), "owner.json") }

// remains says that the job has instances of which something is left.
func (r root) remains(job string) (bool, error) {
	views, err := r.scanJob(job)
	return slices.ContainsFunc(views, func(v view) bool { return !v.reaped() }), err
}

// mine refuses a job whose name is another's.
func (s settings) mine(job string) error {
	err := s.owner.CheckFile(s.root().ownerPath(job), job, func() (bool, error) { return s.root().remains(job) })
	var unreadable *fs.PathError
	if errors.As(err, &unreadable) {
		return backend.Errorf(backend.FileCode(err), "%w%s", err, dirAdvice)
	}
	return err
}

// scan looks at every instance of every job.
func (r root) scan() ([]view, error) {
	jobs, err := os.ReadDir(filepath.Join(string(r), "jobs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "list jobs: %w%s", err, dirAdvice)
	}
	var all []view
	for _, j := range jobs {
		views, err := r.scanJob(j.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, views...)
	}
	return all, nil
}

// release puts on record that the instance is given up, and tells its supervisor.
func (i instance) release(how backend.How) error {
	if _, err := os.Stat(i.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	now, err := readReleased(i.dir)
	if err == nil && now != backend.Forced { // a forced release is not taken back
		err = i.writeReleased(how)
	}
	if err != nil {
		advice := ""
		switch {
		case fullDisk(err):
			advice = "; free some space there, or end its processes yourself"
		case errors.Is(err, unix.EROFS):
			advice = "; make that folder writable again, or end its processes yourself"
		}
		return backend.Errorf(backend.FileCode(err), "release %s of job %q: %w%s", i.id, i.job, err, advice)
	}
	// The order matters: a supervisor looks at the record of the release after it has written its own record, so
	// either it sees the release or this sees whom to tell.
	v := i.look()
	if !v.held {
		return nil
	}
	if err := signalTo(v.record.Supervisor, unix.SIGTERM); err != nil && !errors.Is(err, errNotThatProcess) {
		return backend.Errorf(backend.Unavailable, "release %s of job %q: signal its supervisor: %w", i.id, i.job, err)
	}
	return nil
}

// roomForRelease is the content of a record of a release before there is one, as long as any.
const roomForRelease = "        "

// writeReleased puts the release on record, on a full disk in the room that is kept for it: to end what runs is what frees a disk.
func (i instance) writeReleased(how backend.How) error {
	path, text := filepath.Join(i.dir, releasedFile), []byte(fmt.Sprintf("%-*s", len(roomForRelease), how))
	err := backend.WriteFile(path, text)
	if !fullDisk(err) {
		return err
	}
	room := filepath.Join(i.dir, reservedFile)
	if _, e := os.Stat(path); e == nil {
		room = path // drained before, and forced now
	}
	if e := overwrite(room, text); e != nil {
		return err // of before there was such a file, or where to write over a file takes room too
	}
	return os.Rename(room, path)
}

// recordRoom is how long every record is: one of which the next one is written in place is as long. A file of it takes a block of the usual file systems.
const recordRoom = 4096

// writeRecord puts on record what became of the workload; on a full disk in the room that is kept for it, which changes places with the record before: what runs
// goes on there, and whoever looks must see what runs.
func (i instance) writeRecord(r record) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	raw = append(raw, bytes.Repeat([]byte(" "), max(0, recordRoom-len(raw)))...) // which JSON does not mind
	path, spare := filepath.Join(i.dir, statusFile), filepath.Join(i.dir, spareFile)
	err = backend.WriteFile(path, raw)
	if !fullDisk(err) || len(raw) > recordRoom {
		return err
	}
	if e := overwrite(spare, raw); e != nil {
		return err // of before there was such a file, or where to write over a file takes room too
	}
	switch e := unix.Renameat2(unix.AT_FDCWD, spare, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); {
	case e == nil:
		return nil
	case errors.Is(e, unix.ENOENT): // the first record
		return os.Rename(spare, path)
	}
	return err
}

func fullDisk(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// overwrite writes over the begin of a file that is there, in place.
func overwrite(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func readReleased(dir string) (backend.How, error) {
	raw, err := os.ReadFile(filepath.Join(dir, releasedFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case strings.TrimSpace(string(raw)) == backend.Drained.String():
		return backend.Drained, nil
	}
	return backend.Forced, nil
}

// held reports whether some process holds the lock at path.
func held(path string) (bool, error) {
	f, err := os.Open(path) // to look is allowed on a file system that has become read-only
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // which lets go of what is taken here
	// Shared, so that two that look do not see each other; a supervisor that meets it waits (lockSelf).
	err = backend.Flock(f, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
