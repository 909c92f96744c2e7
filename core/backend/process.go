package backend

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// drainPipes is how long after the plugin's end its output is still read, should a child of it hold the pipes open.
const drainPipes = 500 * time.Millisecond

// process is the plugin's process as go-plugin wants to see it (its runner.Runner). It exists because go-plugin's own
// runner tells nobody when the process ends, and waits for as long as anybody holds the output pipes.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *os.File
	childEnds      []*os.File // closed once the child has them
	parent         *os.File   // held open for as long as this process wants the plugin to live
	exited         chan struct{}
	waitErr        error // valid once exited is closed
	killed         atomic.Bool
	fell           syscall.Signal  // the signal that ended it, where it is none of ours; valid once exited is closed
	launch         context.Context // its end kills the process, until settled is called
	settled        func() bool
}

// newProcess prepares path with args; env is the whole environment. When launch ends before the process is settled,
// it is killed, so that a handshake that does not come can be given up.
func newProcess(launch context.Context, path string, args, env []string) (*process, error) {
	p := &process{
		cmd: exec.Command(path, args...), exited: make(chan struct{}),
		launch: launch, settled: func() bool { return true },
	}
	stdoutR, stdoutW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderrR, stderrW, err := os.Pipe()
	if err != nil {
		closeAll(stdoutR, stdoutW)
		return nil, err
	}
	parentR, parentW, err := os.Pipe()
	if err != nil {
		closeAll(stdoutR, stdoutW, stderrR, stderrW)
		return nil, err
	}
	p.stdout, p.stderr, p.parent = stdoutR, stderrR, parentW
	p.childEnds = []*os.File{stdoutW, stderrW, parentR}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = stdoutW, stderrW, []*os.File{parentR}
	p.cmd.Env = append(append([]string(nil), env...), envParentPipe+"="+strconv.Itoa(3))
	// A group of its own, so that Ctrl-C at the terminal reaches the scheduler only.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}

func setCloseOnExec(f *os.File) { unix.CloseOnExec(int(f.Fd())) }

// Start starts the process, and a goroutine that waits for its end.
func (p *process) Start(context.Context) error {
	err := p.cmd.Start()
	closeAll(p.childEnds...)
	if err != nil {
		closeAll(p.stdout, p.stderr, p.parent)
		return err
	}
	p.settled = context.AfterFunc(p.launch, p.kill)
	// Owned by p; ends soon after the process; touches waitErr before exited is closed, then only the pipes.
	go func() {
		state, err := p.cmd.Process.Wait()
		if err == nil && !state.Success() {
			err = fmt.Errorf("%v", state)
			if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() && !p.killed.Load() {
				p.fell = status.Signal()
			}
		}
		p.waitErr = err
		close(p.exited)
		p.parent.Close()
		time.Sleep(drainPipes)
		closeAll(p.stdout, p.stderr)
	}()
	return nil
}

// Wait waits for the end of the process; go-plugin calls it after it has read the output to its end.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return p.waitErr
}

// Kill ends the process with SIGKILL, which also ends a stopped one. It may be called at any time.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

func (p *process) kill() {
	p.killed.Store(true)
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Kill() // the only failure is that it has ended, which is what is wanted
	}
}

func (p *process) ID() string {
	if p.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

func (p *process) Name() string          { return p.cmd.Path }
func (p *process) Stdout() io.ReadCloser { return p.stdout }
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Diagnose is asked where the plugin's output ends, or begins with something else than a plugin's.
func (p *process) Diagnose(context.Context) string {
	select {
	case <-p.exited: // before go-plugin kills it, so that who ended it is known
	case <-time.After(drainPipes):
	}
	return "Is it a Kale backend plugin, built for this machine and of a version that this program knows?"
}

// PluginToHost and HostToPlugin change nothing: both live on one machine.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
