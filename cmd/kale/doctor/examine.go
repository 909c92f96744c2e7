package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/cmd/internal/folder"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// Patient is a job and what would run it.
type Patient struct {
	Job      *job.Job
	StateDir string // the scheduler's folder for this job
	// Wanted is what the job's scheduler wants to run; Unread says why that is not known.
	Wanted *core.Wanted
	Unread error
	// Sound says that a part of the job file has no mistake; what rests on one that has is not tried. nil: all of it is sound.
	Sound func(path string) bool
	// Launch starts the backend's plugin; the caller of it closes that.
	Launch func(ctx context.Context) (*backend.Client, error)
	// Trainer is the path of the trainer program; NoTrainer says why there is none.
	Trainer   string
	NoTrainer error
	Env       map[string]string // given to trainers
	// TrainerAt and LibraryAt are where the backend block names the trainer and ONNX Runtime's library; empty: it does not.
	TrainerAt, LibraryAt string
	// ProbeLimit is how long probes on the backend's nodes may take to be placed and to answer; 0: none are started.
	ProbeLimit time.Duration
	// Insists has probes wait for a place for all of ProbeLimit, where the cluster says that it has none now.
	Insists bool
	Log     *slog.Logger
	Waits   Waits
}

// limits of trials. They are far above what is usual: what takes longer is as good as away.
const (
	networkLimit = 15 * time.Second
	readLimit    = 25 * time.Second
	diskLimit    = 15 * time.Second
	pluginLimit  = 40 * time.Second
)

// Examine tries everything that the job needs.
func Examine(ctx context.Context, p Patient) []Finding {
	return p.examine(ctx, p.kafka(), p.backend(), p.trainer(), p.folders(), p.machine())
}

func (p Patient) examine(ctx context.Context, groups ...group) []Finding {
	for _, g := range groups {
		for i := range g.trials {
			if t := &g.trials[i]; p.unsound(t.needs...) {
				t.try = func(context.Context) []Finding {
					if t.faultsOnly {
						return nil
					}
					return []Finding{{Check: t.check, State: Skip, Says: "not tried: it rests on what is wrong in the job file"}}
				}
			}
		}
	}
	made, _ := folder.Make(p.StateDir) // the plugin's socket goes there while the folder is tried: whether it can be made is for that trial
	defer made.Remove()
	return run(ctx, groups, p.Waits)
}

// unsound says that one of the job file's parts has a mistake.
func (p Patient) unsound(paths ...string) bool {
	return p.Sound != nil && slices.ContainsFunc(paths, func(path string) bool { return !p.Sound(path) })
}

// JobFile is what was found in a job file itself.
func JobFile(file string, diags hcl.Diagnostics) []Finding {
	return judged("job file", diags, ok("job file", "%s is valid", file))
}

// local says that the job's processes run on this machine.
func (p Patient) local() bool { return p.Job.Backend.Name == "local" }

// judged turns diagnostics of the job file into findings; without any, it is fine.
func judged(check string, diags hcl.Diagnostics, fine Finding) []Finding {
	var out []Finding
	for _, d := range diags {
		f := Finding{Check: check, State: Fail, Says: d.Summary, Do: d.Detail}
		if d.Severity == hcl.DiagWarning {
			f.State = Warn
		}
		if d.Subject != nil {
			f.Says = fmt.Sprintf("%s (%s)", d.Summary, job.Place(*d.Subject))
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return []Finding{fine}
	}
	return out
}
