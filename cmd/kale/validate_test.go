package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A cluster that cannot be asked is an error to who validates, at the attribute by which it is reached where that is wrong; who does not ask it is told nothing of it.
func TestValidateWithoutACluster(t *testing.T) {
	s := newShell(t).withPlugin("kale-backend-slurm")
	_, text := scaffolded(t, s)
	shared := t.TempDir()
	head, _, found := strings.Cut(withLine(t, text, "checkpoint", "dir", `"`+filepath.Join(shared, "checkpoint")+`"`), `  backend "local"`)
	if !found {
		t.Fatal(text)
	}
	for _, tt := range []struct{ rest, summary, place, says string }{
		{"unix:" + filepath.Join(shared, "none"), "No such socket", ":18: error: ", "Start slurmrestd"},
		{"http://127.0.0.1:1", "The cluster does not answer", ":3: error: ", "see that the cluster is up"},
	} {
		file := write(t, head+"  backend \"slurm\" {\n    shared_dir = \""+shared+"\"\n    rest       = \""+tt.rest+"\"\n  }\n}\n")
		r := s.run("validate", file)
		if r.code != exitFailed || r.out != "" || strings.Count(r.err, "error: ") != 1 ||
			!strings.Contains(r.err, tt.place+tt.summary) || !strings.Contains(strings.Join(strings.Fields(r.err), " "), tt.says) {
			t.Errorf("%s: exit code %d, %q; want %q and %q in\n%s", tt.rest, r.code, r.out, tt.place+tt.summary, tt.says, r.err)
		}
		if r := s.run("validate", "-offline", file); r.code != 0 || strings.Contains(r.err, tt.summary) {
			t.Errorf("%s: -offline: exit code %d\n%s", tt.rest, r.code, r.err)
		}
	}
}
