package rpc

import (
	"os"
	"path/filepath"
	"strings"
)

// JobStateFolder is where a job's state lies, below the job's own folder: the one record without which nothing else in the folder can be used.
const JobStateFolder = "job"

// Remains names what is in a job's own folder that is only ever written once the job's state is there (JobStateFolder). Where that is missing, it was lost: a
// job state that is made in its place begins a new model. What cannot be read is left out.
func Remains(folder string) []string {
	var out []string
	for _, kind := range []struct{ what, pattern string }{
		{"chief", "chief/*.json"}, {"memory", "memory/*.json"}, {"shape.json", "shape.json"}, {"tablets", "tablets/*/*.snap"}, {"token", "token"}, {"written", "written/*/*.json"},
	} {
		if Holds(folder, kind.pattern) {
			out = append(out, kind.what)
		}
	}
	return out
}

// Holds says that a folder has a file of a pattern (path.Match) below it, drafts left out.
func Holds(folder, pattern string) bool {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return false
	}
	first, rest, deeper := strings.Cut(pattern, "/")
	for _, e := range entries {
		fits, _ := filepath.Match(first, e.Name()) // the patterns are good ones
		switch {
		case !fits || strings.HasPrefix(e.Name(), "."):
		case !deeper, Holds(filepath.Join(folder, e.Name()), rest):
			return true
		}
	}
	return false
}
