package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/kale-sched/kale/cmd/kale/doctor"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

type doctorFlags struct {
	jobFlags
	noProbe bool
	patient time.Duration
	insists bool // patient was given
	log     string
}

func doctorCommand(a *app) *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use: "doctor JOB.hcl", Short: "Try everything that a job needs, and say what to mend",
		Long: `Tries a job's set-up from end to end, many things at the same time: the brokers by the addresses that they tell their clients, the topics
and their records, the backend's plugin with its devices and its room, the trainer and ONNX Runtime, the folders, the state that the job's last scheduler left, ports and the clock. For what
is not well it says what to do. It starts no process of the job and leaves nothing behind.

It also has the backend run a short probe (1 CPU, 512 MiB or, where workers compute on GPUs, 2 GiB; no GPU) on up to four different nodes, one on this machine: each writes a file into
checkpoint.dir and reads those of the others, so that a folder that is not shared is found before a job depends on it, and tries from there
what a trainer would: its version, ONNX Runtime, its CUDA provider where workers need it, the brokers, the scheduler's address, the other nodes, and their clocks. Probes are released when
they have answered, when -probe-timeout is over (or, unless that is given, after 8 s where the cluster says that it has no place for one) and at Ctrl-C; what runs of the job is not touched, nor another look at the same time. The probes of a look
that was killed end by themselves a minute after its -probe-timeout at most, and the next look after that removes what they and it have left.
What the cluster keeps of probes goes with them, and beside those of another doctor with that one's.

Exit code 1: something has failed, so that the job would not run. What is only worth knowing is a warning, and leaves the exit code at 0. A node that is of no use,
as one where a probe does not begin or that does not answer its cluster, is a warning where the servers and workers.min have room on others, else a failure.
With -json each check has its state (ok, warn, fail, skip); ok is whether none has failed, failed and warnings are how many have and warn.`,
		Example: "  kale doctor ctr.hcl\n  kale doctor ctr.hcl -json | jq '.checks[] | select(.state == \"fail\")'",
		Args:    exactly("JOB.hcl"), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.insists = cmd.Flags().Changed("probe-timeout")
			return a.doctor(cmd.Context(), args[0], f)
		},
	}
	f.register(c)
	a.jsonFlag(c, "print what was found as JSON")
	c.Flags().BoolVar(&f.noProbe, "no-probe", false, "start nothing on the backend's nodes")
	c.Flags().DurationVar(&f.patient, "probe-timeout", time.Minute, "how long the probes may take to find a place and to answer")
	c.Flags().StringVar(&f.log, "log", "error", "least level of the log on standard error: "+logLevels)
	return c
}

func (a *app) doctor(ctx context.Context, arg string, f doctorFlags) error {
	lg, err := a.parseLogger(f.log)
	if err != nil {
		return usageError{err}
	}
	if f.patient <= 0 {
		return usageError{fmt.Errorf("-probe-timeout is %v: give a duration above 0, or -no-probe", f.patient)}
	}
	if f.noProbe {
		f.patient = 0
	}
	how, err := a.invocation(arg, f.jobFlags)
	if err != nil {
		return err
	}
	l, diags, err := a.read(how)
	if err != nil {
		return err
	}
	found := doctor.JobFile(how.File, job.Discreet(l.files, slices.Concat(diags, l.lacking)))
	if j := l.Job; j != nil {
		sockets := "" // the plugin's are not in a folder that the trial of the state folder makes and takes away
		if exists(l.dir) {
			sockets = l.dir
		}
		p := doctor.Patient{
			Job: j, StateDir: l.dir, Log: lg, ProbeLimit: f.patient, Insists: f.insists,
			Waits: func(check string, answer, end time.Duration) (over func()) {
				more := ""
				if end > 0 {
					more = fmt.Sprintf(", and then up to %s for the end of what was started for it", job.FormatDuration(end))
				}
				return a.await("no answer yet: %s; waiting up to %s%s\n", check, job.FormatDuration(answer), more)
			},
			Sound: func(path string) bool { return l.draft.Sound(path) },
			Launch: func(ctx context.Context) (*backend.Client, error) {
				path, diags := a.plugin(l)
				if len(diags) > 0 {
					return nil, errors.New(strings.TrimSuffix(diags[0].Detail, "."))
				}
				return backend.Launch(ctx, lg, path, backend.Options{SocketDir: sockets})
			},
		}
		if l.draft.Known("name") {
			p.Wanted, p.Unread = a.wanted(ctx, l.Name, l.dir)
		}
		p.Trainer, p.Env, p.NoTrainer = a.findTrainer(lg, l)
		if block := l.blockTrainer(); l.Backend.Name == job.BackendLocal {
			if block.Trainer != nil {
				p.TrainerAt = job.Place(block.TrainerRange)
			}
			if block.namesLibrary() {
				p.LibraryAt = job.Place(block.EnvRange)
			}
		}
		found = append(found, doctor.Examine(ctx, p)...)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("examine %s: %w", how.File, ctx.Err())
	}
	if a.asJSON {
		err = json.NewEncoder(a.out).Encode(map[string]any{
			"ok": !doctor.Failed(found), "failed": doctor.Count(found, doctor.Fail), "warnings": doctor.Count(found, doctor.Warn), "checks": found,
		})
	} else {
		width, _ := terminal(a.out)
		err = writeFindings(a.out, found, width)
	}
	if err == nil && doctor.Failed(found) {
		return errShown
	}
	return err
}

// writeFindings prints a line for each finding and, below it, what to do; lines are wrapped to width (0: not at all).
func writeFindings(w io.Writer, found []doctor.Finding, width int) error {
	widest := 0
	for _, f := range found {
		widest = max(widest, utf8.RuneCountInString(f.Check))
	}
	if width > 0 {
		widest = min(widest, width/3)
	}
	indent := strings.Repeat(" ", 6+widest+2)
	var out strings.Builder
	for _, f := range found {
		head := fmt.Sprintf("%-4s  %-*s  ", f.State, widest, f.Check)
		out.WriteString(hang(head, indent, f.Says, width))
		if f.Do != "" && f.State != doctor.OK {
			out.WriteString(hang(indent+"→ ", indent+"  ", f.Do, width))
		}
	}
	fmt.Fprintf(&out, "\n%d ok, %s, %d failed\n", doctor.Count(found, doctor.OK), job.Count(doctor.Count(found, doctor.Warn), "warning"), doctor.Count(found, doctor.Fail))
	_, err := io.WriteString(w, out.String())
	return err
}
