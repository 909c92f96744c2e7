package nomadtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// cgroup is the name of the control group that holds those of the tasks of the cluster in a folder. Nomad's own default is shared by all agents
// of a machine, and stays.
func cgroup(dir string) string { return "kale-nomad-" + filepath.Base(dir) }

// removeCgroups removes the groups of that name in every hierarchy, and all below them. What ran in them has ended.
func removeCgroups(name string) error {
	var all []error
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, dir := range found {
			all = append(all, removeCgroup(dir))
		}
	}
	return errors.Join(all...)
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
