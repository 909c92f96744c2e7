package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// bereft is a supervisor that lives, and whose folder is not where it was started: somebody has moved or removed it. It cannot be told anything, and its folder's
// lock says nothing of it there.
type bereft struct {
	processID
	job, dir string // dir is where its folder was
	now      string // where its folder is; "": it was removed
}

// bereft gives the supervisors of a job, or where job is empty those of every job, whose folders were in r and are not there any more. The processes of this machine
// tell, and no file: those are what is missing. It costs a look at each of them.
func (r root) bereft(job string) []bereft {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil // nobody can tell then
	}
	space, _ := os.Readlink("/proc/self/ns/pid") // in another one, as in a container, the same path is another folder
	var found []bereft
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, ok := r.supervisorAt(pid)
		if !ok || job != "" && b.job != job {
			continue
		}
		if _, forked := r.supervisorAt(parent(pid)); forked { // its program, which has its folder already and is about to be executed
			continue
		}
		if its, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid")); err != nil || its != space {
			continue
		}
		if b.isBereft() {
			found = append(found, b)
		}
	}
	return found
}

// supervisorAt says whether a process is a supervisor of a folder that is, or was, in r.
func (r root) supervisorAt(pid int) (bereft, bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	argv := bytes.Split(bytes.TrimSuffix(raw, []byte{0}), []byte{0})
	if err != nil || len(argv) != 3 || string(argv[1]) != SuperviseCommand {
		return bereft{}, false
	}
	b := bereft{dir: string(argv[2])}
	b.job = filepath.Base(filepath.Dir(b.dir))
	b.processID, err = backend.ProcessOf(pid)
	return b, err == nil && filepath.Dir(b.dir) == r.jobDir(b.job)
}

// parent is a process's parent, 0 where that cannot be told.
func parent(pid int) int {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // what stands before may contain anything
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(fields[1]))
	return ppid
}

// isBereft compares the supervisor's working directory, which is its folder wherever that was moved, with what is where it was.
func (b *bereft) isBereft() bool {
	cwd := filepath.Join("/proc", strconv.Itoa(b.PID), "cwd")
	has, err := os.Stat(cwd)
	if err != nil {
		return false // it has ended, or is not ours to look at
	}
	if is, err := os.Stat(b.dir); err == nil && os.SameFile(has, is) {
		return false
	}
	b.now, _ = os.Readlink(cwd)
	if is, err := os.Stat(b.now); err != nil || !os.SameFile(has, is) {
		b.now = ""
	}
	return true
}

// whole refuses to go on where processes of the job, or where it is empty of any, live whose folders are not where they were: nothing is known of them then, and
// what would be started in their place would push them out.
func (s settings) whole(job string) error {
	lost := s.root().bereft(job)
	if len(lost) == 0 {
		return nil
	}
	job = lost[0].job
	lost = slices.DeleteFunc(lost, func(b bereft) bool { return b.job != job })
	const until = "Until then nothing is started, and only kale stop -force ends anything"
	if i := slices.IndexFunc(lost, func(b bereft) bool { return b.now != "" }); i >= 0 {
		from, to := parted(lost[i].now, lost[i].dir)
		return backend.Errorf(backend.Blocked, "processes of job %q live, and their folder was moved: %s puts it back, and all goes on. %s", job, backend.PutBack(from, to), until)
	}
	var pids []string
	for _, b := range lost {
		pids = append(pids, strconv.Itoa(b.PID))
	}
	return backend.Errorf(backend.Blocked, "processes of job %q live, and their folder %s was removed: kill %s ends them, and the job's scheduler starts them anew (kale run, where none runs). %s",
		job, topmostGone(lost[0].dir), strings.Join(pids, " "), until)
}

// endBereft ends by force the processes of a job whose folders are away, and waits for their end. Their supervisors cannot be told by a file; what they supervise
// dies with them, by the kernel's hand.
func (r root) endBereft(ctx context.Context, job string) error {
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	for _, b := range r.bereft(job) {
		failed := func(err error) error {
			return backend.Errorf(backend.Blocked, "end %s of job %q, whose folder is away: kill process %d: %w", filepath.Base(b.dir), job, b.PID, err)
		}
		if err := signalTo(b.processID, unix.SIGKILL); err != nil && !errors.Is(err, errNotThatProcess) {
			return failed(err)
		}
		for b.Alive() {
			select {
			case <-ctx.Done():
				return failed(ctx.Err())
			case <-time.After(endingEvery):
			}
		}
	}
	return nil
}

// found is whole where a supervisor is missing.
func (s settings) found(job string, views []view) error {
	if slices.ContainsFunc(views, view.lost) {
		return s.whole(job)
	}
	return nil
}

// parted takes from two paths what their ends have in common.
func parted(a, b string) (string, string) {
	for filepath.Base(a) == filepath.Base(b) && filepath.Dir(a) != a && filepath.Dir(b) != b {
		a, b = filepath.Dir(a), filepath.Dir(b)
	}
	return a, b
}

// topmostGone is the highest folder on the way to dir that is not there; dir where all are.
func topmostGone(dir string) string {
	for at := dir; filepath.Dir(at) != at; at = filepath.Dir(at) {
		if exists(at) {
			break
		}
		dir = at
	}
	return dir
}
