package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, dir, job, want string }{
		{"no folder", "", "ctr", "set checkpoint.dir"},
		{"a job that leaves the folder", dir, "../ctr", "cannot name a folder"},
		{"no job", dir, "", "cannot name a folder"},
		{"a file", file, "ctr", "a file, not a folder"},
		{"not writable", closed, "ctr", "may not write there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.dir == closed && os.Geteuid() == 0 {
				t.Skip("root may write everywhere: run as another user to test this")
			}
			if _, err := Open(c.dir, c.job); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func TestJobsDoNotMeet(t *testing.T) {
	dir := t.TempDir()
	a, err := Open(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	inc := claimed(t, a, 0)
	if err := a.SaveJob(state(1), inc); err != nil {
		t.Fatal(err)
	}
	if _, err := b.LoadJob(); err == nil {
		t.Error("job b has the state of job a")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*", ".probe-*")); err != nil || len(left) > 0 {
		t.Errorf("probe files left: %v, %v", left, err)
	}
}
