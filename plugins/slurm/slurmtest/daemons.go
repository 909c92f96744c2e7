package slurmtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// daemon is one process that the cluster started.
type daemon struct {
	name  string // of its log
	env   []string
	argv  []string
	cmd   *exec.Cmd
	ended chan struct{}
}

// starter starts processes that the kernel kills when this process ends: from one thread, which lives as long as the cluster.
type starter struct {
	orders chan func()
}

func newStarter() *starter {
	s := &starter{orders: make(chan func())}
	// Owned by the Cluster, ends with stop; touches nothing by itself.
	go func() {
		runtime.LockOSThread()
		for f := range s.orders {
			f()
		}
	}()
	return s
}

func (s *starter) stop() { close(s.orders) }

func (s *starter) start(cmd *exec.Cmd) (*daemon, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	s.orders <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, err
	}
	d := &daemon{cmd: cmd, ended: make(chan struct{})}
	// Ends with the process, which Close ends; only reaps.
	go func() {
		defer close(d.ended)
		_ = cmd.Wait()
	}()
	return d, nil
}

// alive reports whether the process runs. A nil daemon does not.
func (d *daemon) alive() bool {
	if d == nil {
		return false
	}
	select {
	case <-d.ended:
		return false
	default:
		return true
	}
}

// end asks the process to stop, and kills it when it does not within the grace; a grace of 0 kills it at once.
func (d *daemon) end(grace time.Duration) {
	if !d.alive() {
		return
	}
	if grace > 0 {
		_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may be gone by now
		select {
		case <-d.ended:
			return
		case <-time.After(grace):
		}
	}
	_ = d.cmd.Process.Kill()
	<-d.ended
}

func (c *Cluster) launch(name string, env []string, argv ...string) (*daemon, error) {
	out, err := os.OpenFile(c.log(name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(c.Env(), env...), c.dir, out, out
	d, err := c.starter.start(cmd)
	if err == nil {
		d.name, d.env, d.argv = name, env, argv
	}
	return d, err
}

// mourn is what the guard runs: it waits until the process that holds its standard input is gone, and ends the jobs, which nobody else would: what
// names the cluster and is no job's is a person's own.
const mourn = `cat >/dev/null
left=yes tries=0
while [ -n "$left" ] && [ $tries -lt 20 ]; do
  left= tries=$((tries + 1))
  for p in /proc/[0-9]*; do
    env=$(tr '\0' '\n' <"$p/environ" 2>/dev/null) || continue
    printf '%s\n' "$env" | grep -qxF "SLURM_CONF=$1" || continue
    printf '%s\n' "$env" | grep -q '^SLURM_JOB_ID=' || continue
    kill -9 "${p#/proc/}" 2>/dev/null && left=yes
  done
done
[ -z "$2" ] || rm -rf "$2"`

// guard starts the process that cleans up if this one is killed. The daemons die with this process by themselves; Slurm's jobs do not.
func (c *Cluster) guard() error {
	remove := ""
	if c.own {
		remove = c.dir
	}
	cmd := exec.Command("sh", "-c", mourn, "sh", c.Conf(), remove)
	stdin, err := cmd.StdinPipe() // closed with this process
	if err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")} // not SLURM_CONF, or it would find itself
	if err := cmd.Start(); err != nil {
		return err
	}
	c.dismiss = func() {
		_ = cmd.Process.Kill() // before its input ends
		_ = cmd.Wait()
		_ = stdin.Close()
	}
	return nil
}

// EndLeftover does what the guard does, and returns when that is done: it ends what runs of a cluster whose folder this is and whose process is gone. It leaves the folder.
func EndLeftover(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", mourn, "sh", confIn(dir), "")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	return cmd.Run()
}

// StartController starts slurmctld, which keeps its state over KillController, and waits until it answers.
func (c *Cluster) StartController(ctx context.Context) error {
	path, err := find("slurmctld")
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed || c.control.alive() {
		c.mu.Unlock()
		return errors.New("start slurmctld: it runs already, or the cluster is closed")
	}
	c.control, err = c.launch("slurmctld", nil, path, "-D")
	control := c.control
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.answers(ctx, control)
}

// answers waits until a slurmctld that was started answers.
func (c *Cluster) answers(ctx context.Context, control *daemon) error {
	return c.wait(ctx, "slurmctld answers", func(ctx context.Context) error {
		if !control.alive() {
			return errors.New("slurmctld has ended")
		}
		_, err := c.Run(ctx, "squeue", "--noheader")
		return err
	})
}

// Settle waits until slurmctld has saved its state after now. It saves some seconds after a change: what a KillController before that takes away is
// lost, as on a real cluster, and its running jobs are killed as orphans once slurmctld is back. Whether it has is read in what it saved, not told by
// its time: a file's time is of another clock than this process's, and behind it.
func (c *Cluster) Settle(ctx context.Context) error {
	// A change that harms nothing, so that there is something to save. A cancellation that comes too late for it leaves a held job, which the next ends.
	mark := fmt.Sprintf("settled-%d-%d", os.Getpid(), settled.Add(1))
	if _, err := c.Run(ctx, "sbatch", "--hold", "--output=/dev/null", "--job-name=settle", "--comment="+mark, "--wrap=true"); err != nil {
		return err
	}
	if _, err := c.Run(ctx, "scancel", "--name=settle"); err != nil {
		return err
	}
	path := filepath.Join(c.dir, "state", "job_state")
	err := c.wait(ctx, "slurmctld has saved its state", func(context.Context) error {
		state, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(state, []byte(mark)) {
			err = errors.New("it has not yet")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w%s", err, c.complaints())
	}
	return nil
}

// settled counts what [Cluster.Settle] has changed, so that no two changes look the same.
var settled atomic.Int64

// Launched waits until slurmctld awaits no node's answer any more: each job that it has started it knows to be launched. A job's script begins before
// that answer comes, and to slurmctld the launch of one whose node dies in between has failed (JobLaunchFailure); its node has not (NODE_FAIL).
func (c *Cluster) Launched(ctx context.Context) error {
	return c.wait(ctx, "slurmctld awaits no answer of a node", func(ctx context.Context) error {
		out, err := c.Run(ctx, "sdiag")
		if err != nil {
			return err
		}
		for _, what := range []string{"Agent queue size:", "Agent count:"} {
			_, after, found := strings.Cut(out, what)
			n, _, _ := strings.Cut(after, "\n")
			if n = strings.TrimSpace(n); !found || n != "0" {
				err = errors.Join(err, fmt.Errorf("sdiag says %s %s", what, cmp.Or(n, "nothing")))
			}
		}
		return err
	})
}

// KillController ends slurmctld as kill -9 does; see Settle.
func (c *Cluster) KillController() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.control.end(0)
}

// PauseController stops slurmctld from running (resume=false) or lets it run on: it hangs, with its port open.
func (c *Cluster) PauseController(resume bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.control.alive() {
		return errors.New("pause slurmctld: it does not run")
	}
	if resume {
		return c.control.cmd.Process.Signal(syscall.SIGCONT)
	}
	return c.control.cmd.Process.Signal(syscall.SIGSTOP)
}

// StartNode starts the slurmd of node n, from 1.
func (c *Cluster) StartNode(n int) error {
	path, err := find("slurmd")
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.nodes[n-1].alive() {
		return fmt.Errorf("start node %s: it runs already, or the cluster is closed", Node(n))
	}
	argv := []string{path, "-D", "-N", Node(n)}
	if c.private {
		// The shell becomes slurmd, so that the process id is slurmd's.
		argv = append([]string{
			"unshare", "--mount", "--propagation", "private", "sh", "-c",
			`mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", c.NodePrivate(n), c.Private(),
		}, argv...)
	}
	c.nodes[n-1], err = c.launch(Node(n), nil, argv...)
	return err
}

// KillDaemon ends the slurmd of node n as kill -9 does. What its jobs run lives on, and is known again after StartNode.
func (c *Cluster) KillDaemon(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[n-1].end(0)
}

// KillNode ends node n as a power cut does: its slurmd and all that its jobs run; see Launched.
func (c *Cluster) KillNode(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[n-1].end(0)
	kill(c.managers(n)) // first: one that lived on would report that its script was killed by a signal, which is JobLaunchFailure
	kill(c.strays("SLURMD_NODENAME=" + Node(n)))
}

// Revive starts again the daemons that have ended, whoever has ended them, and names them. It waits until a slurmctld among them answers.
func (c *Cluster) Revive(ctx context.Context) (names []string, err error) {
	all := []**daemon{&c.database, &c.dbd, &c.control}
	for i := range c.nodes {
		all = append(all, &c.nodes[i])
	}
	c.mu.Lock()
	control := c.control
	for _, d := range append(all, &c.restd) {
		was := *d
		if c.closed || err != nil || was == nil || was.alive() {
			continue
		}
		if *d, err = c.launch(was.name, was.env, was.argv...); err != nil {
			*d, err = was, fmt.Errorf("start %s again: %w", was.name, err)
			continue
		}
		names = append(names, was.name)
	}
	begun := c.control
	c.mu.Unlock()
	if err == nil && begun != control {
		err = c.answers(ctx, begun)
	}
	return names, err
}

// Restart ends all daemons and starts them again; jobs that run go on.
func (c *Cluster) Restart(ctx context.Context) error {
	c.mu.Lock()
	for _, d := range append([]*daemon{c.control}, c.nodes...) {
		d.end(3 * time.Second)
	}
	c.mu.Unlock()
	if err := c.StartController(ctx); err != nil {
		return err
	}
	for n := range c.nodes {
		if err := c.StartNode(n + 1); err != nil {
			return err
		}
	}
	return nil
}

// Close ends all that the cluster started, jobs too, and removes its folder. It is idempotent.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.dismiss != nil {
		c.dismiss()
	}
	for _, d := range slices.Concat([]*daemon{c.control}, c.nodes, []*daemon{c.restd, c.dbd, c.database}) { // slurmctld first: nothing starts any more
		d.end(0) // they hold nothing that anybody wants
	}
	c.starter.stop()
	deadline := time.Now().Add(time.Minute)
	left := c.strays()
	for ; len(left) > 0 && time.Now().Before(deadline); left = c.strays() {
		kill(left)
		time.Sleep(5 * time.Millisecond)
	}
	var err error
	if len(left) > 0 {
		err = fmt.Errorf("end the private Slurm: processes are left: %v", left)
	}
	if c.own {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	return err
}

func kill(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone by now
	}
}

// managers gives node n's slurmstepd processes, told by the log that they write. Their environment tells nothing: their title is written over it.
func (c *Cluster) managers(n int) []int {
	all, _ := filepath.Glob("/proc/[0-9]*")
	var out []int
	for _, proc := range all {
		if name, _ := os.ReadFile(filepath.Join(proc, "comm")); !strings.HasPrefix(string(name), "slurmstepd") {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
		writes := slices.ContainsFunc(files, func(fd string) bool {
			path, _ := os.Readlink(fd) // it may be gone by now
			return path == c.log(Node(n))
		})
		if pid, err := strconv.Atoi(filepath.Base(proc)); err == nil && writes {
			out = append(out, pid)
		}
	}
	return out
}

// strays gives the processes of this cluster's jobs, told by its folder in their environment or command line, and by the variables where some are given.
func (c *Cluster) strays(variables ...string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // gone, or another's
		env = append([]byte{0}, env...)
		has := func(kv string) bool { return bytes.Contains(env, []byte("\x00"+kv+"\x00")) }
		if !has("SLURM_CONF="+c.Conf()) || slices.ContainsFunc(variables, func(kv string) bool { return !has(kv) }) {
			continue
		}
		name, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		job := bytes.Contains(env, []byte("SLURM_JOB_ID=")) || strings.HasPrefix(string(name), "slurmstepd")
		if job {
			out = append(out, pid)
		}
	}
	return out
}

// complaints gives the last errors of the daemons' logs, for a person whose cluster did not start.
func (c *Cluster) complaints() string {
	logs, _ := filepath.Glob(filepath.Join(c.dir, "log", "*"))
	var out []string
	for _, path := range logs {
		raw, _ := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		for _, l := range lines[max(0, len(lines)-200):] {
			if strings.Contains(l, "error") || strings.Contains(l, "fatal") {
				out = append(out, filepath.Base(path)+": "+l)
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "\n" + strings.Join(out[max(0, len(out)-10):], "\n")
}
