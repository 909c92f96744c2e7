package onnx

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLocateOrder walks the places in the order of the rule: the variable, beside the executable, .deps above the executable, .deps
// above the working directory.
func TestLocateOrder(t *testing.T) {
	root := t.TempDir()
	place := func(parts ...string) string {
		p := filepath.Join(append([]string{root}, parts...)...)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	lib := libraryName()
	env := place("elsewhere", "my.so")
	exe := place("opt", "bin", "kale")
	cwd := filepath.Dir(place("home", "project", "deep", "file"))
	aboveCwd := place("home", ".deps", "onnxruntime", lib)
	aboveExe := place("opt", ".deps", "onnxruntime", lib)
	beside := place("opt", "bin", lib)

	for _, step := range []struct{ what, env, want string }{
		{"the variable", env, env},
		{"beside the executable", "", beside},
		{"above the executable", "", aboveExe},
		{"above the working directory", "", aboveCwd},
	} {
		got, err := locate(step.env, exe, cwd)
		if err != nil || got != step.want {
			t.Errorf("%s: got %q, %v; want %q", step.what, got, err, step.want)
		}
		if step.env == "" { // the next place counts once this one is gone
			if err := os.Remove(step.want); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := locate("", exe, cwd)
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "make deps") || !strings.Contains(err.Error(), LibraryEnv) {
		t.Errorf("got %v, want ErrNoLibrary with what to do", err)
	}
	for _, wrong := range []string{filepath.Join(root, "absent.so"), root} {
		if _, err := locate(wrong, exe, cwd); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), wrong) {
			t.Errorf("variable %q: got %v, want ErrNoLibrary that names it", wrong, err)
		}
	}
	if _, err := locate("", "", ""); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("got %v, want ErrNoLibrary where neither folder is known", err)
	}
}
