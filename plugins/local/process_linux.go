package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// processID names one process for good: pids come again, pids with a start time do not.
type processID struct {
	PID   int
	Start uint64 // clock ticks since boot, from /proc/PID/stat
}

var errNotThatProcess = errors.New("the process is gone")

// identify gives the identity of the process that has the pid now.
func identify(pid int) (processID, error) {
	if pid <= 0 {
		return processID{}, errNotThatProcess
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processID{}, fmt.Errorf("%w: %w", errNotThatProcess, err)
	}
	// The second field is the name in brackets, which may hold anything; the fields after it are the 3rd and on.
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return processID{}, fmt.Errorf("/proc/%d/stat has no process name", pid)
	}
	fields := bytes.Fields(raw[end+1:])
	const startField = 22 - 3
	if len(fields) <= startField {
		return processID{}, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields)+2)
	}
	if state := fields[0]; state[0] == 'Z' || state[0] == 'X' {
		return processID{}, errNotThatProcess // it has ended and waits for its parent to take note
	}
	start, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return processID{}, fmt.Errorf("/proc/%d/stat: start time: %w", pid, err)
	}
	return processID{PID: pid, Start: start}, nil
}

// alive reports whether that very process lives.
func (p processID) alive() bool {
	now, err := identify(p.PID)
	return err == nil && now == p
}

// signal sends sig to that very process, or gives errNotThatProcess.
func (p processID) signal(sig syscall.Signal) error {
	if p.PID <= 0 {
		return errNotThatProcess
	}
	process, err := os.FindProcess(p.PID) // holds on to whoever has the pid now (pidfd), so the check below is no race
	if err != nil {
		return fmt.Errorf("%w: %w", errNotThatProcess, err)
	}
	defer func() { _ = process.Release() }() // only frees the descriptor
	if !p.alive() {
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
