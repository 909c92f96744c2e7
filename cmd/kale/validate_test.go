package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kale-sched/kale/core/onnx"
	"github.com/kale-sched/kale/core/onnx/onnxtest"
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

// Of several job files each is validated, whatever is wrong with another, and what is said of one has its file's name before it.
func TestValidateSeveral(t *testing.T) {
	s := newShell(t).withPrograms()
	dir := t.TempDir()
	misspelt, err := os.ReadFile(filepath.Join("..", "..", "core", "job", "testdata", "misspelt.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	_, good := scaffolded(t, s)
	var files []string
	for name, text := range map[string]string{"a": good, "b": string(misspelt), "c": strings.Replace(good, `job "clicks"`, `job "c"`, 1)} {
		files = append(files, writeIn(t, dir, name+".hcl", text))
	}
	slices.Sort(files)
	a, b, c := files[0], files[1], files[2]
	none := filepath.Join(dir, "none.hcl")
	for _, tt := range []struct {
		args  []string
		code  int
		valid []string // files, as they are told
		heads []string
	}{
		{[]string{a, c}, exitDone, []string{a, c}, nil},
		{[]string{b, a}, exitFailed, []string{a}, []string{b}},
		{[]string{none, a, b, c}, exitFailed, []string{a, c}, []string{none, b}},
		{[]string{"nojob", a}, exitFailed, []string{a}, []string{"nojob"}},
	} {
		r := s.run(append([]string{"validate", "-offline"}, tt.args...)...)
		if r.code != tt.code || strings.Count(r.out, "is valid") != len(tt.valid) {
			t.Errorf("validate %q: exit code %d, want %d\n%s%s", tt.args, r.code, tt.code, r.out, r.err)
		}
		for _, file := range tt.valid {
			if !strings.Contains(r.out, file+": job ") {
				t.Errorf("validate %q: nothing of %s in\n%s", tt.args, file, r.out)
			}
		}
		for _, file := range tt.heads {
			if !strings.HasPrefix(r.err, file+":\n") && !strings.Contains(r.err, "\n\n"+file+":\n") {
				t.Errorf("validate %q: no head %s in\n%s", tt.args, file, r.err)
			}
		}
		r = s.run(append([]string{"validate", "-offline", "-json"}, tt.args...)...)
		var all []failed
		if err := json.Unmarshal([]byte(r.out), &all); err != nil || r.code != tt.code || len(all) != len(tt.args) {
			t.Errorf("validate -json %q: exit code %d, %v\n%s%s", tt.args, r.code, err, r.out, r.err)
			continue
		}
		for i, f := range all {
			if told := slices.Contains(tt.valid, tt.args[i]); told != (f.Error == "" && f.Valid != nil && *f.Valid) || !told && f.Error == "" {
				t.Errorf("validate -json %q: of %s: %+v", tt.args, tt.args[i], f)
			}
		}
	}
	// Of one it stays an object.
	var one judged
	if r := s.run("validate", "-offline", "-json", a); json.Unmarshal([]byte(r.out), &one) != nil || !one.Valid || one.Job == "" {
		t.Errorf("validate -json of one prints %s", r.out)
	}
}

// A model file that keeps the contract and computes nothing is no valid forecast.model.
func TestValidateRunsTheForecastModel(t *testing.T) {
	t.Parallel()
	onnxtest.Library(t)
	s := newShell(t).withPrograms()
	_, text := scaffolded(t, s)
	mute, good := filepath.Join(t.TempDir(), "mute.onnx"), filepath.Join(t.TempDir(), "good.onnx")
	writeModel(t, mute, "mute", time.Minute, 10, func(g *onnx.Graph, x *onnx.Tensor) *onnx.Tensor { return g.Log(g.Neg(x)) }) // NaN
	writeModel(t, good, "good", time.Minute, 10, same)
	for model, fails := range map[string]bool{mute: true, good: false} {
		file := write(t, withLine(t, withLine(t, withLine(t, text, "forecast", "model", `"`+model+`"`), "forecast", "interval", `"1m"`), "forecast", "horizon", `"10m"`))
		r := s.run("validate", "-offline", file)
		if told := strings.Contains(r.err, "The forecast model gives no forecast") && strings.Contains(strings.Join(strings.Fields(r.err), " "), "its output for bin 0 is NaN"); told != fails || (r.code != exitDone) != fails {
			t.Errorf("%s: exit code %d, %s", model, r.code, r.err)
		}
	}
}
