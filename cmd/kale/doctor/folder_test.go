package doctor

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/fake"
	"github.com/kale-sched/kale/core/state"
)

// What the job itself holds is told from what others hold.
func TestOwnPlaces(t *testing.T) {
	p := patient(t) // 2 to 4 workers with a GPU each
	b := fake.New(nil, fake.NewCluster(3))
	p.configure(t.Context(), b)
	ensure := func(job string, ranks ...int) {
		t.Helper()
		for _, rank := range ranks {
			w := backend.Workload{ID: backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: 1}, Argv: []string{"run"}, Resources: backend.Resources{GPUs: 1}}
			if _, err := b.Ensure(t.Context(), job, []backend.Workload{w}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := b.Configure(t.Context(), backend.Config{Job: "other"}); err != nil {
		t.Fatal(err)
	}
	ensure("other", 0)
	if f := p.has(t.Context(), b)[0]; strings.Contains(f.Says, "this job") {
		t.Errorf("while it does not run: %s", f.Says)
	}
	ensure("ctr", 0, 1)
	if f := p.has(t.Context(), b)[0]; !strings.Contains(f.Says, "0 free; 2 of those taken are this job's own") {
		t.Errorf("devices: %s", f.Says)
	}
	got := p.room(t.Context(), b)
	if diff := cmp.Diff([]string{"ok room for 2 workers", "warn room for 4 workers"}, says(got)); diff != "" || !strings.Contains(got[len(got)-1].Says, "2 workers of this job run already") {
		t.Errorf("%s%+v", diff, got)
	}
}

// While the plugin starts, whose socket goes into the state folder, that folder stays; in the end it is not there.
func TestStateFolderStaysForThePlugin(t *testing.T) {
	p := patient(t)
	tried := make(chan struct{})
	p.Launch = func(context.Context) (*backend.Client, error) {
		<-tried
		if _, err := os.Stat(p.StateDir); err != nil {
			t.Errorf("while the plugin starts: %v", err)
		}
		return nil, errors.New("no such program")
	}
	try := p.folders()
	state := try.trials[1].try
	try.trials[1].try = func(ctx context.Context) []Finding {
		defer close(tried)
		return state(ctx)
	}
	p.examine(t.Context(), p.backend(), try)
	if _, err := os.Stat(p.StateDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it left its folder: %v", err)
	}
}

// Folders are tried by writing, and left as they were.
func TestFolders(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := patient(t)
	try := func(dir string) Finding {
		p.Job.Checkpoint.Dir, p.StateDir = dir, filepath.Join(dir, "state")
		f, s := p.checkpoints(t.Context())[0], p.stateFolder(t.Context())[0]
		if (f.State == Fail) != (s.State == Fail) {
			t.Errorf("%s: %+v, but as state folder %+v", dir, f, s)
		}
		return f
	}
	for dir, want := range map[string]State{root: OK, filepath.Join(root, "a", "b"): OK, file: Fail, filepath.Join(file, "a"): Fail} {
		if f := try(dir); f.State == Fail != (want == Fail) || f.State == Fail && f.Do == "" {
			t.Errorf("%s: %+v, want %s", dir, f, want)
		}
	}
	if f := try("/proc"); f.State != Fail { // where nobody may make a file, root included
		t.Errorf("/proc: %+v", f)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// A state folder that cannot be used is told before anything starts, and nothing stays of the trial but what others have put there.
func TestCheckState(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(root, strings.Repeat("l", 100))
	for _, c := range []struct{ dir, runtime, says string }{
		{filepath.Join(root, "a", "b"), "", ""},
		{file, "", file},
		{filepath.Join(file, "a"), "", file},
		{"/proc/nope", "", "/proc/nope"},
		{long, "", ""},
		{long, filepath.Join(root, strings.Repeat("r", 100)), "a socket's path may have"},
	} {
		t.Setenv("XDG_RUNTIME_DIR", c.runtime)
		diags := CheckState(c.dir)
		if c.says == "" && len(diags) > 0 || c.says != "" && (!diags.HasErrors() || !strings.Contains(diags[0].Detail, c.says)) {
			t.Errorf("%s: %v, want %q", c.dir, diags, c.says)
		}
		if c.says != "" && !strings.Contains(diags[0].Detail, "hoose") {
			t.Errorf("%s: no advice in %q", c.dir, diags[0].Detail)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 1 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// The state that the job's last scheduler left is read, and left as it is: damage in part is warned of, and a file that kale run cannot take up is a failure.
func TestLastStateIsLookedAt(t *testing.T) {
	for _, c := range []struct {
		name  string
		state State // "": nothing is said
		write func(dir string) error
	}{
		{"none", "", func(string) error { return nil }},
		{"sound", "", func(dir string) error {
			st, err := state.Open(dir)
			if err != nil {
				return err
			}
			return st.Close()
		}},
		{"in part", Warn, func(dir string) error {
			st, err := state.Open(dir)
			if err != nil {
				return err
			}
			at := time.Unix(0, 0)
			if err := errors.Join(st.Append(state.Decisions, at, strings.Repeat("why ", 3000)), st.Close()); err != nil {
				return err
			}
			path := filepath.Join(dir, "state.db")
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.ReplaceAll(raw, []byte("why why "), []byte("why\xff\xffwhy")), 0o600)
		}},
		{"rubbish", Fail, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "state.db"), []byte(strings.Repeat("rubbish ", 1000)), 0o600)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := patient(t)
			if err := errors.Join(os.MkdirAll(p.StateDir, 0o700), c.write(p.StateDir)); err != nil {
				t.Fatal(err)
			}
			was, _ := os.ReadFile(filepath.Join(p.StateDir, "state.db"))
			var got State
			for _, f := range p.stateFolder(t.Context()) {
				if f.Check != "scheduler's state" {
					continue
				}
				if got = f.State; !strings.Contains(f.Says, "state.db") || !strings.Contains(f.Says, "move it away") {
					t.Errorf("it says %q", f.Says)
				}
			}
			if got != c.state {
				t.Errorf("it is found %q, want %q", got, c.state)
			}
			if is, _ := os.ReadFile(filepath.Join(p.StateDir, "state.db")); !bytes.Equal(was, is) {
				t.Error("the file was changed")
			}
		})
	}
}

// Of a disk that is full it is said which it is, how large, and how to see what fills it; a job that has trained is not sent to another folder.
func TestFullFolder(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("kale", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system can be mounted here, to fill it: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "fills"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	p := patient(t)
	p.Job.Checkpoint.Dir, p.StateDir = filepath.Join(dir, "a"), filepath.Join(dir, "state")
	for _, f := range []Finding{p.checkpoints(t.Context())[0], p.stateFolder(t.Context())[0]} {
		if f.State != Fail || !strings.Contains(f.Do, "file system at "+dir+", of whose 1 MiB are free 0 MiB: du -xh "+dir+" | sort -h") || strings.Contains(f.Do, "hoose") {
			t.Errorf("%+v", f)
		}
	}
}
