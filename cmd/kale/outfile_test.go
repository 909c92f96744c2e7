package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
