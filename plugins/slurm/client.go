package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// Deadlines of Slurm's clients, which wait for nine seconds and more when slurmctld is down.
const (
	askTimeout    = 2 * time.Second  // for what only looks: the scheduler's own look is bounded too
	submitTimeout = 10 * time.Second // Slurm's own MessageTimeout
	cancelTimeout = 5 * time.Second
)

// client runs Slurm's command line.
type client struct {
	binDir   string // empty: $PATH
	clusters string // empty: the one of slurm.conf
}

func (c client) key() string { return c.binDir + "\x00" + c.clusters }

func (c client) path(name string) string {
	if c.binDir == "" {
		return name
	}
	return filepath.Join(c.binDir, name)
}

// cliError is a client that failed, or took too long.
type cliError struct {
	command string
	stderr  string
	err     error
}

func (e *cliError) Error() string {
	if e.stderr == "" {
		return fmt.Sprintf("%s: %v", e.command, e.err)
	}
	return fmt.Sprintf("%s: %s", e.command, e.stderr)
}

func (e *cliError) Unwrap() error { return e.err }

// run runs one client. What the environment says about formats and filters is kept from it; times are in UTC.
func (c client) run(ctx context.Context, timeout time.Duration, stdin, name string, args ...string) (stdout, stderr string, err error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if c.clusters != "" {
		args = append([]string{"--clusters=" + c.clusters}, args...)
	}
	cmd := exec.CommandContext(bounded, c.path(name), args...)
	cmd.Env = clientEnviron(backend.CleanEnviron())
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = time.Second
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err = cmd.Run()
	stderr = strings.TrimSpace(complaint.String())
	if err == nil {
		return out.String(), stderr, nil
	}
	if bounded.Err() != nil {
		err = fmt.Errorf("no answer within %v (is slurmctld down? try: scontrol ping): %w", timeout, bounded.Err())
	}
	return out.String(), stderr, &cliError{command: name, stderr: stderr, err: err}
}

// clientEnviron leaves out the variables that change what Slurm's clients do or print, and sets those that fix it.
func clientEnviron(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		drop := name == "TZ" || name == "LC_ALL" || name == "SLURM_TIME_FORMAT" || name == "SLURM_BITSTR_LEN" || name == "SLURM_CLUSTERS"
		for _, prefix := range []string{"SBATCH_", "SQUEUE_", "SCANCEL_", "SINFO_", "SALLOC_", "SRUN_", "SLURM_JOB_", "SLURM_STEP_"} {
			drop = drop || strings.HasPrefix(name, prefix)
		}
		if !drop {
			out = append(out, kv)
		}
	}
	return append(out, "TZ=UTC", "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
}

// refusals are what sbatch says when it refused for good, in lower case, with what that means, which attribute of the block it is about, and what to do.
// Anything else leaves the outcome open.
var refusals = []struct {
	says   string
	code   backend.Code
	attr   string // empty where no attribute is at fault, or where waiting may help
	advice string
}{
	{"invalid partition", backend.Blocked, attrPartition, "set partition to one that sinfo shows"},
	{"invalid account", backend.Unauthorised, attrAccount, "set account to one that you may use there (sacctmgr show assoc user=$USER)"},
	{"invalid qos", backend.Blocked, attrQOS, "set qos to one that your account has"},
	{"invalid user id", backend.Unauthorised, "", "ask the site for an account"},
	{"access/permission denied", backend.Unauthorised, "", "ask the site for access"},
	{"user's group not permitted", backend.Unauthorised, attrPartition, "ask the site for access to the partition, or set another"},
	{"requested node configuration is not available", backend.Blocked, "", "no node of the partition could ever run it: lower its GPUs, CPUs or memory, or change partition, constraint or gres"},
	{"more processors requested than permitted", backend.Blocked, "", "lower workers.cpu"},
	{"violates accounting/qos policy", backend.NoCapacity, "", "a limit of the account or QOS is reached"},
	{"reached limit on jobs", backend.NoCapacity, "", "a limit on submitted jobs is reached"},
	{"requested time limit is invalid", backend.Blocked, attrTime, "lower time to what the partition allows"},
	{"invalid feature", backend.Blocked, attrConstraint, "set constraint to features that sinfo -o %f shows"},
	{"reservation is invalid", backend.Blocked, attrReservation, "set reservation to one that scontrol show reservation shows"},
	{"reservation is not usable", backend.Blocked, "", "wait for the reservation, or leave it out"},
	{"invalid generic resource", backend.Blocked, attrGRES, "set gres to what sinfo -o %G shows"},
	{"invalid trackable resource", backend.Blocked, attrGRES, "set gpus or gres to what sinfo -o %G shows"},
	{"unrecognized option", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid option", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid directive", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid --", backend.Blocked, attrDirectives, "correct directives"},
	{"node count specification invalid", backend.Blocked, "", "no node of the partition could ever run it"},
	{"invalid license", backend.Blocked, attrDirectives, "correct directives: scontrol show licenses says what there is"},
	{"invalid node name", backend.Blocked, attrExclude, "correct exclude"},
	{"partition is in a state that doesn't allow", backend.Blocked, "", "the partition is closed: ask the site, or set another"},
	{"batch job submission is disabled", backend.Blocked, "", "ask the site"},
}

// refusal is that Slurm refused a job for good.
type refusal struct {
	*backend.Error
	attr   string // of the block, which is at fault; empty where none is
	said   string // what Slurm said
	advice string
}

// refused tells whether a failed sbatch was a refusal for good; nil when the outcome is open.
func refused(err error) *refusal {
	var e *cliError
	if !errors.As(err, &e) {
		return nil
	}
	if errors.Is(e.err, exec.ErrNotFound) || strings.Contains(e.err.Error(), "no such file") {
		return &refusal{Error: backend.Errorf(backend.Blocked, "%w; install Slurm's clients here, or set bin_dir to where they are", err)}
	}
	said := strings.ToLower(e.stderr)
	for _, r := range refusals {
		if strings.Contains(said, r.says) {
			return &refusal{Error: backend.Errorf(r.code, "%w; %s", err, r.advice), attr: r.attr, said: e.stderr, advice: r.advice}
		}
	}
	return nil
}
