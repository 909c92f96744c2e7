package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// stateRoot is the folder under which every job keeps one of its own.
func (a *app) stateRoot() (string, error) {
	switch {
	case a.stateDir != "":
		return filepath.Abs(a.stateDir)
	case a.getenv("KALE_STATE_DIR") != "":
		return filepath.Abs(a.getenv("KALE_STATE_DIR"))
	case filepath.IsAbs(a.getenv("XDG_STATE_HOME")): // a relative one is to be ignored (XDG base directory specification)
		return filepath.Join(a.getenv("XDG_STATE_HOME"), "kale"), nil
	case a.getenv("HOME") != "":
		return filepath.Join(a.getenv("HOME"), ".local", "state", "kale"), nil
	}
	return "", errors.New("no folder for the state of jobs: set KALE_STATE_DIR or HOME, or give -state-dir")
}

// jobDir is the folder of one job.
func (a *app) jobDir(name string) (string, error) {
	root, err := a.stateRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, name), nil
}

// invocation is how a job was last run: what a command that knows only the job's name needs to do the same again.
type invocation struct {
	Job      string            `json:"job,omitempty"` // whose folder it lies in, whatever name that was given since
	File     string            `json:"file"`          // absolute
	Vars     map[string]string `json:"vars,omitempty"`
	VarFiles []string          `json:"var_files,omitempty"` // absolute
	Plugins  string            `json:"plugin_dir,omitempty"`
	Trainer  string            `json:"trainer,omitempty"`
	Pool     string            `json:"pool,omitempty"` // absolute; the pool in which it was run, with these jobs
	With     []string          `json:"with,omitempty"`
}

// names are the arguments of a kale run that does the same again for the job of a name.
func (v invocation) names(name string) []string {
	if v.Pool == "" {
		return []string{name}
	}
	return append(slices.Clone(v.With), "-pool", v.Pool)
}

// anew are the arguments of a kale run of a file that has not run here.
func (v invocation) anew() []string {
	args := []string{v.File}
	for _, name := range slices.Sorted(maps.Keys(v.Vars)) {
		args = append(args, "-var", name+"="+v.Vars[name])
	}
	for _, file := range v.VarFiles {
		args = append(args, "-var-file", file)
	}
	return args
}

// invocationFile may hold secrets that were given with -var, so only its owner reads it.
const invocationFile = "invocation.json"

func saveInvocation(dir string, v invocation) error {
	v.Job = filepath.Base(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the job's state folder: %w", err)
	}
	if err := backend.WriteJSON(filepath.Join(dir, invocationFile), v); err != nil {
		return fmt.Errorf("remember how the job was run: %w", err)
	}
	return nil
}

// startedFile is what the job file said when the job was started last.
const startedFile = "started.hcl"

// keepStarted keeps what the job file says, for when it is gone or changed. Who could read the file need not be who may read the copy.
func (l *loaded) keepStarted() error {
	file := l.files[l.how.File]
	if file == nil {
		return nil // it is the copy
	}
	if err := backend.WriteFileMode(filepath.Join(l.dir, startedFile), file.Bytes, 0o600); err != nil {
		return fmt.Errorf("keep what the job file said: %w", err)
	}
	return nil
}

// loadInvocation reads how a job was last run; without that, what the scheduler keeps of its job file.
func loadInvocation(dir string) (invocation, error) {
	var v invocation
	raw, err := os.ReadFile(filepath.Join(dir, invocationFile))
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &v); err != nil {
			return v, fmt.Errorf("%s says how the job was run last, and is damaged (%w): remove the file, and give the job file with its variables instead of the job's name", filepath.Join(dir, invocationFile), err)
		}
		return v, nil
	case !errors.Is(err, fs.ErrNotExist):
		return v, err
	}
	raw, err = os.ReadFile(filepath.Join(dir, "jobfile"))
	v.File = strings.TrimSpace(string(raw))
	return v, err
}

// jobs lists the jobs that have a state folder.
func (a *app) jobs() ([]string, error) {
	names, _, err := a.stateFolders()
	return names, err
}

// stateFolders lists the jobs that have a state folder and, by job, the folders that were one before they were given another name.
func (a *app) stateFolders() (names []string, moved map[string][]string, err error) {
	root, err := a.stateRoot()
	if err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list the jobs of this machine: %w", err)
	}
	moved = map[string][]string{}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(root, e.Name())
		how, err := loadInvocation(dir)
		if _, starts := isStarting(dir); err == nil && how.movedTo(dir) {
			moved[how.Job] = append(moved[how.Job], dir)
		} else if backend.ValidJob(e.Name()) == nil && (starts || !errors.Is(err, fs.ErrNotExist)) { // one that cannot be read is there
			names = append(names, e.Name())
		}
	}
	return names, moved, nil
}

// movedTo says that a folder in which this was found is not where it was written: somebody has moved a job's state folder.
func (v invocation) movedTo(dir string) bool { return v.Job != "" && v.Job != filepath.Base(dir) }

// putBack is what helps a job whose state folder was moved.
func (a *app) putBack(name string, moved []string) string {
	dir, err := a.jobDir(name)
	if err != nil || len(moved) > 1 {
		return fmt.Sprintf("of %s, move the one back that it had last", strings.Join(moved, ", "))
	}
	return backend.PutBack(moved[0], dir) + " puts it back"
}

// wasMoved says of a folder that it is no job of its name.
func (a *app) wasMoved(name, dir string) error {
	text := fmt.Sprintf("%s was the state folder of job %q", dir, name)
	if own, err := a.jobDir(name); err == nil && exists(filepath.Join(own, invocationFile)) {
		return unknownJob{fmt.Errorf("%s, which has another one now", text)}
	}
	return unknownJob{fmt.Errorf("%s: %s", text, a.putBack(name, []string{dir}))}
}

// isFile says that an argument names a job file and not a job.
func isFile(arg string) bool {
	if strings.HasSuffix(arg, ".hcl") || strings.ContainsRune(arg, filepath.Separator) {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

// errNoJob says that no job of a name is known here.
var errNoJob = errors.New("no such job")

// unknownJob is errNoJob with what is known.
type unknownJob struct{ error }

func (unknownJob) Is(target error) bool { return target == errNoJob }

// noJob says that no job of a name is known here, and which are.
func (a *app) noJob(name string) error {
	if name == "" {
		return errors.New("the job's name, or its file, is empty: is a variable of the shell not set?")
	}
	root, err := a.stateRoot()
	if err != nil {
		return err
	}
	names, moved, err := a.stateFolders()
	here, byFile := fmt.Sprintf("no job %q is known on this machine (state folder %s)", name, root), "its job file in place of its name finds it also where its state was moved or removed"
	files, _ := filepath.Glob("*.hcl") // the pattern is right
	if info, err := os.Stat(name); err == nil && info.IsDir() && len(moved[name]) == 0 {
		hint := "name a job's file in it"
		if in, _ := filepath.Glob(filepath.Join(name, "*.hcl")); len(in) > 0 {
			hint = "did you mean " + strings.Join(in[:min(len(in), 3)], " or ") + "?"
		}
		return unknownJob{fmt.Errorf("%s; %s is a folder: %s", here, name, hint)}
	}
	switch dirs := moved[name]; {
	case len(dirs) > 0:
		return unknownJob{fmt.Errorf("%s: its state folder was moved: %s", here, a.putBack(name, dirs))}
	case slices.Contains(files, name+".hcl"):
		return unknownJob{fmt.Errorf("%s. Did you mean the file %s.hcl?", here, name)}
	case strings.Contains(name, ".") && job.Nearest(name, files) != "":
		return unknownJob{fmt.Errorf("%s. Did you mean the file %s?", here, job.Nearest(name, files))}
	case a.given.File != "":
		return unknownJob{errors.New(here)}
	case err != nil || len(names) == 0:
		return unknownJob{fmt.Errorf("%s: %s; kale run JOB.hcl runs it", here, byFile)}
	}
	return unknownJob{fmt.Errorf("%s. %sThere are: %s. Where it is another, %s", here, job.DidYouMean(name, names), strings.Join(names, ", "), byFile)}
}
