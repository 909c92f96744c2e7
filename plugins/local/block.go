package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// block is what stands between the braces of backend "local" { … }.
type block struct {
	Slots        *int              `hcl:"slots,optional"`
	SlotsRange   hcl.Range         `hcl:"slots,attr_value_range"`
	Dir          *string           `hcl:"dir,optional"`
	DirRange     hcl.Range         `hcl:"dir,attr_value_range"`
	GPUs         *string           `hcl:"gpus,optional"`
	GPUsRange    hcl.Range         `hcl:"gpus,attr_value_range"`
	Trainer      *string           `hcl:"trainer,optional"`
	TrainerRange hcl.Range         `hcl:"trainer,attr_value_range"`
	Env          map[string]string `hcl:"env,optional"`
	EnvRange     hcl.Range         `hcl:"env,attr_value_range"`
}

// settings is a job's configuration, checked.
type settings struct {
	dir     string // absolute
	beside  string // the file that names dir for all schedulers of the job (backend.Home); empty: the block does
	slots   int
	gpus    bool              // use GPUs when there are any
	trainer string            // absolute path of the program to run for trainerName; empty: look for it
	env     map[string]string // wins over a workload's: it knows the machine
	owner   backend.Owner
}

// trainerName is the program name that the block's trainer stands for.
const trainerName = "kale-trainer"

// maxSlots bounds the block's slots: a machine does not run more processes that train.
const maxSlots = 10_000

func decode(cfg backend.Config) (settings, backend.Diagnostics) {
	var b block
	diags := backend.DecodeBlock(cfg, &b)
	s := settings{slots: runtime.NumCPU(), gpus: true, env: b.Env, owner: cfg.Owner}
	fail := func(subject hcl.Range, summary, detail string, args ...any) {
		diags = append(diags, backend.Mistake(subject, summary, detail, args...))
	}
	if b.Slots != nil {
		s.slots = *b.Slots
		if s.slots < 1 || s.slots > maxSlots {
			fail(b.SlotsRange, "Unsuitable number of slots",
				"slots is %d; it says how many workloads with one GPU this machine runs when it uses no GPUs, from 1 to %d.", s.slots, maxSlots)
		}
	}
	if b.GPUs != nil {
		switch *b.GPUs {
		case "auto":
		case "none":
			s.gpus = false
		default:
			fail(b.GPUsRange, "Unknown way to use GPUs",
				`gpus is %q; it is "auto" (the GPUs that NVML finds, else slots) or "none" (slots).`, *b.GPUs)
		}
	}
	if b.Trainer != nil {
		path, err := exec.LookPath(*b.Trainer)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			fail(b.TrainerRange, "Trainer cannot be run", "trainer is the path of the program %s: %v.", trainerName, err)
		}
		s.trainer = path
	}
	for name := range b.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			fail(b.EnvRange, "Unsuitable name of an environment variable", "env has the name %q; a name has no '='.", name)
		}
	}
	if detail := backend.OwnEnv(b.Env); detail != "" {
		fail(b.EnvRange, "Kale's own environment variable", "%s", detail)
	}
	var err error
	switch {
	case b.Dir != nil && *b.Dir == "":
		fail(b.DirRange, "Empty folder name", "dir is the folder in which the backend keeps its processes' state and logs; leave it out to use Kale's own.")
	case b.Dir != nil:
		s.dir, err = filepath.Abs(*b.Dir)
		if info, serr := os.Stat(s.dir); errors.Is(serr, unix.ENOTDIR) || serr == nil && !info.IsDir() {
			fail(b.DirRange, "dir is no folder", "dir is %s, which is a file or below one; name a folder for the processes' state and logs, which is made when it is absent.", s.dir)
		}
	case cfg.StateDir != "":
		if len(cfg.Shared) > 0 {
			s.beside = backend.HomePath(cfg.Shared[0], cfg.Job, "local")
		}
		s.dir, err = filepath.Abs(filepath.Join(cfg.StateDir, "backend-local"))
	case !diags.HasErrors():
		fail(hcl.Range{}, "No folder for state", "The scheduler named none, and neither does the block: set dir to a folder on a local disk.")
	}
	if err != nil {
		fail(b.DirRange, "Unsuitable folder", "dir cannot be made absolute: %v.", err)
	}
	return s, backend.FromHCL(cfg, diags)
}

// program gives the absolute path of what argv0 names: the block's trainer for the trainer, by whatever path the scheduler has for it, or else what
// backend.LookProgram finds.
func (s settings) program(self, argv0 string) (string, error) {
	if filepath.Base(argv0) == trainerName && s.trainer != "" {
		return s.trainer, nil
	}
	return backend.LookProgram(self, argv0)
}
