package nomadtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup is the name of the control group that holds those of the tasks of the cluster in a folder. Nomad's own default is shared by all agents
// of a machine, and stays.
func cgroup(dir string) string { return "kale-nomad-" + filepath.Base(dir) }

// removeCgroups removes the groups of that name in every hierarchy, and all below them. What ran in them has ended.
func removeCgroups(name string) error {
	var all []error
	for _, dir := range cgroups(name) {
		all = append(all, removeCgroup(dir))
	}
	return errors.Join(all...)
}

// cgroups are the folders of the groups of a name, one in each hierarchy.
func cgroups(name string) (dirs []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		found, err := filepath.Glob(pattern)
		if err != nil { // only of a pattern that is none
			panic("nomadtest: " + err.Error())
		}
		dirs = append(dirs, found...)
	}
	return dirs
}

// membersOf are the processes of the groups of a name and of those below them.
func membersOf(name string) (pids []int) {
	for _, dir := range cgroups(name) {
		// What cannot be read has gone meanwhile.
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			if filepath.Base(path) != "cgroup.procs" {
				return nil
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil //nolint:nilerr // as said
			}
			for _, field := range strings.Fields(string(raw)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// removeCgroup removes one group and those below it: they are folders that look full and are removed as empty ones.
func removeCgroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove a control group: %w", err)
	}
	var all []error
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, removeCgroup(filepath.Join(dir, e.Name())))
		}
	}
	deadline := time.Now().Add(sweepWithin)
	for {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			break
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) { // a process that has just ended holds it for a moment
			all = append(all, fmt.Errorf("remove the control group %s: %w", dir, err))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.Join(all...)
}
