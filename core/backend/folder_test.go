package backend_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// contents gives what is below the folder, by path; a folder is "/".
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path) // both are absolute
		if found[name] = "/"; e.IsDir() {
			return nil
		}
		info, err := e.Info()
		if err == nil && info.Mode() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", name, info.Mode())
		}
		raw, rerr := os.ReadFile(path)
		found[name] = string(raw)
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"first", "the second, which is longer", ""} {
		if err := backend.WriteFile(filepath.Join(dir, "a"), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"a": text}, contents(t, dir)); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", text, diff)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "none/c"} { // a folder, and a file in one that is not there
		path := filepath.Join(dir, name)
		if err := backend.WriteFile(path, []byte("x")); err == nil || !strings.HasPrefix(err.Error(), "write "+path+": ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "", "b": "/"}, contents(t, dir)); diff != "" {
		t.Errorf("after a failure (-want +got):\n%s", diff)
	}
}

// What is no file is written to, and stays what it is: root could otherwise put a file in a device's place.
func TestWriteFileIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() { // ends with the writer, or with what stands in the pipe's place
		raw, _ := os.ReadFile(pipe) // what is read is compared below
		got <- string(raw)
	}()
	if err := backend.WriteFile(pipe, []byte("whole")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Fatalf("the pipe is %v (%v) now", info.Mode(), err)
	}
	if text := <-got; text != "whole" {
		t.Errorf("read %q", text)
	}
	if err := backend.WriteFile(os.DevNull, []byte("whole")); err != nil {
		t.Error(err)
	}
}

// A link stays one: its file is replaced.
func TestWriteFileBehindALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("old"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	if err := backend.WriteFile(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if raw, err := os.ReadFile(file); err != nil || string(raw) != "new" {
		t.Errorf("the file has %q (%v)", raw, err)
	}
	if to, err := os.Readlink(link); err != nil || to != "file" {
		t.Errorf("the link leads to %q (%v)", to, err)
	}
}

func TestJSONFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	var got backend.ID
	if err := backend.ReadJSON(path, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	want := backend.ID{Role: "worker", Rank: 3, Generation: 2}
	if err := backend.WriteJSON(path, want); err != nil {
		t.Fatal(err)
	}
	if err := backend.ReadJSON(path, &got); err != nil || got != want {
		t.Errorf("read %v, %v; want %v", got, err, want)
	}
	if err := backend.WriteFile(path, []byte(`{"Role": "wor`)); err != nil {
		t.Fatal(err)
	}
	if err := backend.ReadJSON(path, &got); err == nil {
		t.Error("half a file was read")
	}
}

func TestWriteFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "job", "worker-0-g1")
	if err := backend.WriteFolder(dir, map[string][]byte{"spec": []byte("s"), "log": nil}, map[string][]byte{"spec": []byte("the user's")}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"job": "/", "job/worker-0-g1": "/", "job/worker-0-g1/spec": "s", "job/worker-0-g1/log": "", "job/worker-0-g1/alloc": "/", "job/worker-0-g1/alloc/spec": "the user's",
	}
	if diff := cmp.Diff(want, contents(t, top)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, files := range map[string]map[string][]byte{"a folder that is there": nil, "a file in a folder that is not": {"no/such": nil}} {
		if err := backend.WriteFolder(dir, nil, files); err == nil {
			t.Errorf("%s: it was written", name)
		}
		if diff := cmp.Diff(want, contents(t, top)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := backend.TryLock(path)
	if err != nil || first == nil {
		t.Fatalf("TryLock of a free one = %v, %v", first, err)
	}
	if second, err := backend.TryLock(path); second != nil || err != nil {
		t.Errorf("TryLock of one that is taken = %v, %v", second, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if second, err := backend.Lock(ctx, path); second != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock of one that stays taken = %v, %v", second, err)
	}
	got := make(chan error)
	go func() {
		second, err := backend.Lock(t.Context(), path)
		if err == nil {
			err = second.Close()
		}
		got <- err
	}()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("Lock of one that comes free: %v", err)
	}
	if f, err := backend.TryLock(filepath.Join(path, "below")); f != nil || err == nil || backend.FileCode(err) != backend.Blocked {
		t.Errorf("TryLock in no folder = %v, %v", f, err)
	}
}

func TestFileCode(t *testing.T) {
	for err, want := range map[error]backend.Code{
		unix.ENOSPC: backend.Blocked, unix.EACCES: backend.Blocked, unix.EROFS: backend.Blocked,
		unix.EIO: backend.Unavailable, unix.ESTALE: backend.Unavailable, context.Canceled: backend.Unavailable,
	} {
		if got := backend.FileCode(&fs.PathError{Op: "open", Path: "x", Err: err}); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
}

func TestLookProgram(t *testing.T) {
	near, far := t.TempDir(), t.TempDir()
	for _, path := range []string{filepath.Join(near, "both"), filepath.Join(far, "both"), filepath.Join(far, "only-far"), filepath.Join(far, "not-near")} {
		if err := os.WriteFile(path, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(near, "not-near"), nil, 0o600); err != nil { // no program
		t.Fatal(err)
	}
	t.Setenv("PATH", far)
	for argv0, want := range map[string]string{
		"both": filepath.Join(near, "both"), "only-far": filepath.Join(far, "only-far"), "not-near": filepath.Join(far, "not-near"),
		filepath.Join(far, "both"): filepath.Join(far, "both"), "absent": "", "./both": "",
	} {
		if got, err := backend.LookProgram(filepath.Join(near, "self"), argv0); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %q, %v; want %q", argv0, got, err, want)
		}
	}
}

func TestJobs(t *testing.T) {
	var jobs backend.Jobs[string]
	decode := func(cfg backend.Config) (string, backend.Diagnostics) {
		if len(cfg.Source) == 0 {
			return "", backend.Diagnostics{{Summary: "Empty"}} // the zero severity is an error
		}
		return string(cfg.Source), nil
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context
		cfg  backend.Config
		bad  bool // the block
		fail bool // the call
		code backend.Code
	}{
		{t.Context(), backend.Config{Job: "a", Source: []byte("one")}, false, false, 0},
		{t.Context(), backend.Config{Job: "b", Source: []byte("two")}, false, false, 0},
		{t.Context(), backend.Config{Job: "a", Source: []byte("three")}, false, false, 0},
		{t.Context(), backend.Config{Job: "a"}, true, false, 0},
		{over, backend.Config{Job: "a", Source: []byte("four")}, false, true, backend.Unavailable},
		{t.Context(), backend.Config{Job: "a/b", Source: []byte("five")}, false, true, backend.InvalidField},
	} {
		diags, err := jobs.Configure(tt.ctx, tt.cfg, decode)
		if diags.HasErrors() != tt.bad || (err != nil) != tt.fail || err != nil && backend.CodeOf(err) != tt.code {
			t.Errorf("Configure(%+v) = %v, %v", tt.cfg, diags, err)
		}
	}
	if diff := cmp.Diff(map[string]string{"a": "three", "b": "two"}, jobs.All()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := jobs.Of(t.Context(), "b"); got != "two" || err != nil {
		t.Errorf("b is %q, %v", got, err)
	}
	if _, err := jobs.Of(t.Context(), "c"); err == nil || backend.CodeOf(err) != backend.Blocked {
		t.Errorf("c, which is not configured: %v", err)
	}
	if _, err := jobs.Of(over, "b"); !errors.Is(err, context.Canceled) || backend.CodeOf(err) != backend.Unavailable {
		t.Errorf("b, asked too late: %v", err)
	}
}
