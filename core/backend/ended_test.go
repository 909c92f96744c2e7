package backend

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// How a process ended is said alike by the plugins, and by the scripts that two of them run on nodes.
func TestEndWords(t *testing.T) {
	scripts := map[string]string{"../../plugins/slurm/supervise.sh": "kale_how", "../../plugins/nomad/start.sh": "how"}
	for path, name := range scripts {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, text, found := strings.Cut(string(raw), "\n"+name+"() {")
		text, _, ends := strings.Cut(text, "\n}\n")
		if !found || !ends {
			t.Fatalf("%s has no function %s", path, name)
		}
		scripts[path] = name + "() {" + text + "\n}\n" + name + " "
	}
	for code, want := range map[string]string{
		"0": "code 0", "1": "code 1", "128": "code 128", "130": "signal 2 (interrupt)", "134": "signal 6 (aborted)", "137": "signal 9 (killed)",
		"139": "signal 11 (segmentation fault)", "143": "signal 15 (terminated)", "178": "signal 50", "255": "code 255",
	} {
		for path, script := range scripts {
			out, err := exec.Command("sh", "-c", script+code).Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%s of %s: %q (%v), want %q", path, code, got, err, want)
			}
		}
		n := 0
		for _, c := range code {
			n = 10*n + int(c-'0')
		}
		if got := EndWords(n); got != want {
			t.Errorf("%s: %q, want %q", code, got, want)
		}
	}
}
