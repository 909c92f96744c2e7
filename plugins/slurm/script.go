package slurm

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// supervise is the body of run.sh: it takes the claim, starts the workload, and starts it again when it crashes.
//
//go:embed supervise.sh
var supervise string

// maxOutput is how long output.log may be, in bytes, before what is in it becomes output.log.1, which is twice as long at most. It is looked at every five
// seconds, so that what is written in that time comes to it.
const maxOutput = 8 << 20

// quote makes one word of s for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// runScript gives run.sh for a workload: what is its own as variables, then the common body. It lies in the job's folder with mode 0600, since the
// environment may hold secrets, and is never handed to Slurm.
// beside is the folder of what must have ended before the program starts; "": nothing.
func runScript(s settings, i instance, program, beside string, w backend.Workload, grace time.Duration) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s of job %s. Written by Kale's Slurm backend.", w.ID, i.job)
	line("umask 077")
	line("unset SLURM_JWT")
	line("PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}; export PATH")
	line("kale_dir=%s", quote(i.dir))
	line("kale_beside=%s", quote(beside))
	line("kale_grace=%s", strconv.FormatFloat(grace.Seconds(), 'f', 3, 64))
	line("kale_bytes=%d", maxOutput)
	line("kale_boundary=%s", quote(strings.TrimSpace(backend.LogBoundary)))
	line("kale_fetch() {")
	if a := s.artifact; a != nil {
		line("  kale_artifact %s %s %s", quote(a.source), quote(a.sha256), quote(a.cache))
	} else {
		line("  :")
	}
	line("}")
	line("kale_prologue() {")
	line("  :")
	for _, p := range s.prologue {
		line("%s", p)
	}
	line("}")
	line("kale_environment() {")
	env := map[string]string{}
	maps.Copy(env, w.Env)
	maps.Copy(env, s.env) // the block knows the nodes
	env[backend.EnvAllocDir] = i.path(backend.AllocFolder)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		line("  export %s=%s", name, quote(env[name]))
	}
	line("}")
	line("kale_exec() {")
	words := []string{quote(program)}
	for _, a := range w.Argv[1:] {
		words = append(words, quote(a))
	}
	line("  exec %s", strings.Join(words, " "))
	line("}")
	b.WriteString(supervise)
	return b.String()
}

const (
	// warnBefore is how long before its time limit a job is asked to stop, beside its grace.
	warnBefore = 30 * time.Second
	// warnEarly is how much earlier than told Slurm may do it (sbatch's manual, --signal: "up to 60 seconds earlier than specified").
	warnEarly = time.Minute
)

// warning is how long before its time limit Slurm is told to ask a workload to stop: in time for a drain, but not so early that a short job would be asked at
// once, or would lose much of its time. Whoever renews workloads in time needs none; it is for when nobody does, or when no successor finds a place.
func (s settings) warning(grace time.Duration) time.Duration {
	if s.limit <= 0 {
		return 0
	}
	return min(grace+warnBefore, max(s.limit/6, min(warnBefore, s.limit/4)))
}

// script gives what sbatch reads: options, and a call of run.sh. Everybody may see it.
func (b batch) script() string {
	s, i, r := b.set, b.instance, b.record
	options := []string{
		"--job-name=" + jobName(i.job, i.id), fmt.Sprintf("--comment=%q", noncePrefix+r.Nonce),
		"--nodes=1", "--ntasks=1", "--no-requeue", "--export=HOME,USER,LOGNAME",
		"--chdir=" + i.path(backend.AllocFolder), "--output=" + i.path(slurmLogFile), "--open-mode=append",
	}
	options = append(options, s.resourceOptions(r.Resources)...)
	if r.Warning > 0 {
		options = append(options, fmt.Sprintf("--signal=B:TERM@%d", int(r.Warning.Seconds())))
	}
	if nodes := b.excluded(); nodes != "" {
		options = append(options, "--exclude="+nodes)
	}
	options = append(options, s.options...)
	for _, d := range s.directives {
		options = append(options, d.value)
	}
	var out strings.Builder
	out.WriteString("#!/bin/sh\n")
	for _, o := range options {
		out.WriteString("#SBATCH " + o + "\n")
	}
	out.WriteString(b.command())
	return out.String()
}

// command is what the job runs: run.sh, which is never handed to Slurm.
func (b batch) command() string {
	return fmt.Sprintf("exec /bin/sh %s\n", quote(b.instance.path(scriptFile)))
}

// excluded gives the nodes to keep off as a list.
func (b batch) excluded() string {
	nodes := b.exclude
	if b.set.exclude != "" {
		nodes = append([]string{b.set.exclude}, nodes...)
	}
	return strings.Join(nodes, ",")
}

// resourceOptions asks for what a workload needs.
func (s settings) resourceOptions(r backend.Resources) []string {
	need := s.need(r)
	out := []string{fmt.Sprintf("--cpus-per-task=%d", need.cpus)}
	if need.gpus > 0 {
		out = append(out, fmt.Sprintf(s.gpuOption, need.gpus))
	}
	if need.memoryMB > 0 {
		out = append(out, fmt.Sprintf("--mem=%dM", need.memoryMB))
	}
	return out
}

// need is what a workload takes of a node.
type need struct {
	gpus, cpus int
	memoryMB   int64
}

func (s settings) need(r backend.Resources) need {
	n := need{gpus: r.GPUs, cpus: max(1, (r.CPUMilli+999)/1000), memoryMB: (r.MemoryBytes + 1<<20 - 1) >> 20}
	if s.noGPUs {
		n.gpus, n.cpus = 0, max(n.cpus, r.GPUs)
	}
	return n
}
