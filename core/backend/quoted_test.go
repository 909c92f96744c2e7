package backend_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
)

// What is shown to be repeated must mean the same to a shell.
func TestQuoted(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell to read it back: install sh")
	}
	args := []string{"run", "a b.hcl", "-var", `brokers=["k:9092"]`, "it's", "", "$HOME", "é", "a\\b", "-state-dir", "/x/y_z-1.2", "*", "a\nb"}
	out, err := exec.Command(sh, "-c", "for a in "+backend.Quoted(args...)+`; do printf '%s\000' "$a"; done`).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if diff := cmp.Diff(args, got); diff != "" {
		t.Errorf("read back by %s (-want +got):\n%s", sh, diff)
	}
}
