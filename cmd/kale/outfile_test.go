package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/examples"
)

// That a result cannot be written is said before it is worked for, and by the name that was given.
func TestOutFileIsTriedFirst(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	trace := filepath.Join(dir, "rates.csv")
	if err := os.WriteFile(trace, []byte(daysOfTraffic()), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(dir, "nosuch")
	gone := "there is no folder " + none + ": make it, or name a file elsewhere\n"
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"forecast", "train", "-trace", trace, "-o", none + "/x.onnx"}, "write " + none + "/x.onnx: " + gone},
		{[]string{"forecast", "train", "-trace", trace, "-o", dir}, "write " + dir + ": it is a folder: name a file in it\n"},
		{[]string{"replay", "-trace", trace, "-o", none + "/x.html"}, "write " + none + "/x.html: " + gone},
		{[]string{"init", "-topic", "clicks", "-brokers", "127.0.0.1:1", "-o", none + "/x.hcl"}, "write " + none + "/x.hcl: " + gone},
		{[]string{"demo", "-report", none + "/x.html"}, "write " + none + "/x.html: " + gone},
	} {
		if r := s.run(tt.args...); r.code != exitFailed || r.out != "" || r.err != "kale: "+tt.says {
			t.Errorf("kale %s: exit code %d, %q; want %q:\n%s", quoted(tt.args), r.code, r.out, tt.says, r.err)
		}
	}
	for _, good := range []string{filepath.Join(dir, "new"), trace, os.DevNull} {
		if err := checkOut(good); err != nil {
			t.Error(err)
		}
	}
	if left := under(t, dir); strings.Join(left, " ") != trace {
		t.Errorf("what was only tried left %v", left)
	}
}

// What a result is made from is not what it is written over, by whatever name.
func TestOutFileIsNoInput(t *testing.T) {
	s := newShell(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trace, jobFile, vars, model := file("rates.csv", daysOfTraffic()), file("ctr.hcl", "job {}\n"), file("vars.hcl", "x = 1\n"), file("m.onnx", "no model\n")
	link, twin := filepath.Join(dir, "link"), filepath.Join(dir, "twin")
	if err := errors.Join(os.Symlink(trace, link), os.Link(trace, twin)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		out  string
		in   string
	}{
		{[]string{"replay", "-trace", trace}, trace, trace},
		{[]string{"replay", "-trace", trace}, link, trace},
		{[]string{"replay", "-trace", link}, twin, link},
		{[]string{"replay", "-trace", trace, "-job", jobFile}, jobFile, jobFile},
		{[]string{"replay", "-trace", trace, "-job", jobFile, "-var-file", vars}, vars, vars},
		{[]string{"replay", "-trace", trace, "-forecaster", model}, model, model},
		{[]string{"forecast", "train", "-trace", trace}, trace, trace},
		{[]string{"forecast", "train", jobFile}, jobFile, jobFile},
		{[]string{"forecast", "train", "-trace", trace, "-against", model}, model, model},
		{[]string{"forecast", "eval", "-trace", trace}, trace, trace},
		{[]string{"forecast", "eval", jobFile, "-var-file", vars}, vars, vars},
		{[]string{"forecast", "eval", "-trace", trace, "-model", model}, model, model},
	} {
		before := read(t, tt.out)
		r := s.run(append(tt.args, "-o", tt.out)...)
		want := "kale: write " + tt.out + ": it is the file that is read as " + tt.in + ": name another file to write\n"
		if r.code != exitFailed || r.out != "" || r.err != want {
			t.Errorf("kale %s -o %s: exit code %d, %q; want %q:\n%s", quoted(tt.args), tt.out, r.code, r.out, want, r.err)
		}
		if read(t, tt.out) != before {
			t.Errorf("kale %s: it wrote over %s", quoted(tt.args), tt.out)
		}
	}
	good := file("good.hcl", strings.Replace(string(examples.Replay), "forecast {", "forecast {\n model = \"m.onnx\"", 1))
	for out, args := range map[string][]string{good: {"report", good}, model: {"replay", "-job", good, "-trace", trace}} {
		if r := s.run(append(args, "-o", out)...); r.code != exitFailed || !strings.Contains(r.err, "it is the file that is read as "+out) {
			t.Errorf("%s: exit code %d: %s", quoted(args), r.code, r.err)
		}
	}
}
