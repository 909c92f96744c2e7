package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend"
)

// processID names one process for good.
type processID = backend.Process

var errNotThatProcess = backend.ErrNoProcess

// signalTo sends sig to that very process, or gives errNotThatProcess.
func signalTo(p processID, sig syscall.Signal) error {
	if p.PID <= 0 {
		return errNotThatProcess
	}
	process, err := os.FindProcess(p.PID) // holds on to whoever has the pid now (pidfd), so the check below is no race
	if err != nil {
		return fmt.Errorf("%w: %w", errNotThatProcess, err)
	}
	defer func() { _ = process.Release() }() // only frees the descriptor
	if !p.Alive() {
		return errNotThatProcess
	}
	err = process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return errNotThatProcess
	}
	return err
}

// childAttributes makes a child the leader of a process group of its own that is killed when the thread that started
// it ends: that thread must live as long as this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit blocks until the child with the pid has ended, and leaves it to be reaped: until then its pid, and so the
// id of its group, belongs to nobody else.
func awaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
