package nomadtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// agent is one Nomad process: the server, or one client.
type agent struct {
	name    string
	dir     string // its own folder
	address string // of its HTTP API
	argv    []string
	env     []string

	cmd       *exec.Cmd
	done      chan struct{} // closed when the process has ended
	suspended bool
}

// start launches the process. The kernel kills it when this process ends, however that may be.
func (a *agent) start() error {
	log, err := os.OpenFile(filepath.Join(a.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(a.argv[0], a.argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = a.env, a.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	// Ends with the agent. It keeps its thread: the kernel kills the agent when the thread that started it ends.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start Nomad's agent %s: %w", a.name, err)
	}
	a.cmd, a.done = cmd, done
	return nil
}

// kill ends the process with SIGKILL and waits for its end. What it runs lives on.
func (a *agent) kill() {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.done
	a.cmd, a.suspended = nil, false
}

// stopWithin bounds the wait for an agent that was asked to end.
const stopWithin = 2 * time.Minute

// stop asks the process to end, and waits for that. What it runs lives on.
func (a *agent) stop() error {
	if a.cmd == nil {
		return nil
	}
	if err := a.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ask Nomad's agent %s to end: %w", a.name, err)
	}
	select {
	case <-a.done:
		a.cmd = nil
		return nil
	case <-time.After(stopWithin):
		return fmt.Errorf("agent %s of Nomad was asked to end and is there %v later; its log ends with:\n%s", a.name, stopWithin, a.tail())
	}
}

// ended reports whether the process has ended, whoever has ended it.
func (a *agent) ended() bool {
	if a.cmd == nil {
		return true
	}
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// suspend stops the process with SIGSTOP.
func (a *agent) suspend() error {
	if a.cmd == nil {
		return fmt.Errorf("suspend Nomad's agent %s: it does not run", a.name)
	}
	a.suspended = true
	return a.cmd.Process.Signal(syscall.SIGSTOP)
}

// resume lets it go on.
func (a *agent) resume() error {
	if a.cmd == nil {
		return fmt.Errorf("resume Nomad's agent %s: it does not run", a.name)
	}
	a.suspended = false
	return a.cmd.Process.Signal(syscall.SIGCONT)
}

// tail gives the end of the agent's log.
func (a *agent) tail() string {
	raw, err := os.ReadFile(filepath.Join(a.dir, "agent.log"))
	if err != nil {
		return err.Error()
	}
	return string(raw[max(0, len(raw)-3000):])
}

// envMark is in the environment of every process that descends from a cluster.
const envMark = "KALE_NOMADTEST"

// descendants gives the pids of the living processes that have this in their environment.
func descendants(variable string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(env, []byte(variable)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// sweepWithin bounds the time for the processes that were killed to be gone.
const sweepWithin = time.Minute

// sweepMarked kills the processes that have this in their environment.
func sweepMarked(variable string) error {
	return sweep(fmt.Sprintf("processes with %q", variable), func() []int { return descendants(variable) })
}

// sweep kills the processes that are found, by pid, until there are none; what says what they are.
func sweep(what string, find func() []int) error {
	deadline := time.Now().Add(sweepWithin)
	for {
		left := find()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s do not end: %v", what, left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// unmount takes away what clients without a mount namespace of their own have left mounted below dir.
func unmount(dir string) {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	lines := strings.Split(string(raw), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // the last mounted first
		fields := strings.Fields(lines[i])
		if len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH) // what stays is told of by the removal of the folder
		}
	}
}
