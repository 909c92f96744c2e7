package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// This file has what the Forgets of backends have in common.

// Forgettable gives the IDs of a role, or of every role where that is empty, and is Blocked where one of these lives, or may. The statuses are of all that is kept,
// of what List has forgotten too. A probe that was left on a node that is away is neither forgotten nor waited for: see LeftProbe.
func Forgettable(job, role string, all []Status) ([]ID, error) {
	var ids []ID
	var live []Status
	for _, st := range all {
		switch {
		case role != "" && st.ID.Role != role, st.LeftProbe():
		case st.State.Live() || st.Away:
			live = append(live, st)
		default:
			ids = append(ids, st.ID)
		}
	}
	if len(live) == 0 {
		return ids, nil
	}
	more := ""
	if n := len(live) - 1; n > 0 {
		more = fmt.Sprintf(", and %d more have not ended", n)
	}
	is := "is " + string(live[0].State)
	if live[0].Away {
		is = "may still run on node " + live[0].Node + ", which does not answer its cluster"
	}
	return nil, Errorf(Blocked, "%s of job %q %s%s%s: nothing is removed before that", live[0].ID, job, is, bracketed(live[0].Reason), more)
}

// LeftProbe reports whether it is a probe that was released, or given up, on a node that does not answer. It trains nothing and ends by itself, and what its node
// makes of it is known when that is back, which may be never: nothing waits for it.
func (s Status) LeftProbe() bool {
	return s.ID.Role == RoleProbe && s.Away && (s.State == StateStopping || !s.State.Live())
}

func bracketed(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// StaysThere parts, in the message of a Staying error, why from what stays.
const StaysThere = "; what stays there: "

// Staying is the error of a Forget that removed nothing, or not everything, with what stays.
func Staying(err error, format string, args ...any) error {
	e := *AsError(err)
	e.Message += StaysThere + fmt.Sprintf(format, args...)
	return &e
}

// ForgetFolders is the Forget of a backend that keeps each workload of a job in a folder below dir which has its ID as its name: it removes those of the IDs and,
// when no other is left there, the backend's own files and dir itself, unless strangers have files in it. Who calls it has locked out who makes such folders.
func ForgetFolders(dir string, ids []ID, own ...string) (removed []string, err error) {
	for _, id := range ids {
		if err := removeWhole(dir, id.String()); err != nil {
			return nil, err
		}
	}
	if len(ids) > 0 {
		removed = append(removed, fmt.Sprintf("the logs and records of %s in %s", processes(len(ids)), dir))
	}
	left, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return removed, nil
	}
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(left, func(e os.DirEntry) bool { _, err := ParseID(e.Name()); return err == nil }) {
		return removed, nil
	}
	strangers := false
	for _, e := range left {
		if !slices.Contains(own, e.Name()) && !strings.HasPrefix(e.Name(), draftPrefix) {
			strangers = true
		} else if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	if strangers {
		return removed, nil
	}
	return removed, os.Remove(dir)
}

// removeWhole removes a folder of dir under another name: another process that writes a file into it just then could else leave it with nothing but that.
func removeWhole(dir, name string) error {
	aside, err := os.MkdirTemp(dir, draftPrefix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, os.RemoveAll(aside))
	}
	for tries := 0; ; tries++ { // a write that was under way as the folder was moved may still arrive in it
		if err := os.RemoveAll(aside); !errors.Is(err, syscall.ENOTEMPTY) || tries == removeTries {
			return err
		}
	}
}

// removeTries is how often a folder that nobody can find any more is emptied again.
const removeTries = 10

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
