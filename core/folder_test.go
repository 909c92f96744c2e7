package core

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A checkpoint folder that cannot be used is refused at its line, before anything is started; looking changes nothing.
func TestCheckpointFolder(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	locked := unwritable(t, root)
	for _, c := range []struct{ name, dir, says string }{
		{"there", root, ""},
		{"can be made", filepath.Join(root, "new", "deep"), ""},
		{"where nothing can be made", "/proc/nope", "cannot be written"},
		{"a file", file, "is a file"},
		{"under a file", filepath.Join(file, "a", "b"), "is a file"},
		{"not writable", locked, "cannot be written"},
		{"under one that is not writable", filepath.Join(locked, "a"), "cannot be written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.dir == "" || c.dir == "a" {
				t.Skip("needs a folder that this user may not write: run as another user than root, or mount something read-only")
			}
			j := parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", c.dir))
			diags := CheckFolder(j)
			if c.says == "" && len(diags) > 0 || c.says != "" && (len(diags) != 1 || !strings.Contains(diags[0].Error()+diags[0].Summary, c.says)) {
				t.Errorf("%v, want %q", diags, c.says)
			}
			if c.says != "" && diags[0].Subject.Start.Line != j.Range("checkpoint.dir").Start.Line {
				t.Errorf("it points at line %d", diags[0].Subject.Start.Line)
			}
		})
	}
	if left, err := os.ReadDir(root); err != nil || len(left) > 2 {
		t.Errorf("looking left %v, %v", left, err)
	}
}

// A full disk is no reason to choose another folder, where a job that has trained would begin anew.
func TestCheckpointFolderIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("kale", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("no file system can be mounted here, to fill it: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "fills"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	diags := CheckFolder(parseJob(t, fmt.Sprintf(rigJob, "b:1", rigTopic, "live", dir)))
	if len(diags) != 1 || !strings.HasSuffix(diags[0].Detail, "free some space there.") {
		t.Errorf("%v", diags)
	}
}

// unwritable is a folder that this process may not write, "" where there is none.
func unwritable(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(root, "locked")
	if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, "/sys", "/proc/sys"} {
		if unix.Access(d, unix.W_OK) != nil {
			return d
		}
	}
	return ""
}
