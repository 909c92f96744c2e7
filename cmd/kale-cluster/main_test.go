package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClusterTakesAnEmptyFolder(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"", dir, filepath.Join(dir, "a", "b")} {
		if err := emptyFolder(d); err != nil {
			t.Errorf("%q: %v", d, err)
		}
	}
	file := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for d, want := range map[string]string{dir: "is not empty (it has a)", file: "not a directory"} {
		if err := emptyFolder(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", d, err, want)
		}
	}
}
