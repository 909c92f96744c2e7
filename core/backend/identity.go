package backend

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// Process names one process of this machine for good: pids come again, pids with a start time do not.
type Process struct {
	PID   int
	Start uint64 // clock ticks since boot, from /proc/PID/stat
}

// ErrNoProcess says that a process has ended.
var ErrNoProcess = errors.New("the process is gone")

// ProcessOf gives the identity of the process that has the pid now. ErrNoProcess: none has, or it has ended and waits for its parent to take note.
func ProcessOf(pid int) (Process, error) {
	fields, err := statOf(pid)
	if err != nil {
		return Process{}, err
	}
	const startField = 22 - 3
	if len(fields) <= startField {
		return Process{}, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields)+2)
	}
	if state := fields[0]; state[0] == 'Z' || state[0] == 'X' {
		return Process{}, ErrNoProcess
	}
	start, err := strconv.ParseUint(string(fields[startField]), 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("/proc/%d/stat: start time: %w", pid, err)
	}
	return Process{PID: pid, Start: start}, nil
}

// statOf gives the fields of a process's /proc/PID/stat from the third on, its state.
func statOf(pid int) ([][]byte, error) {
	if pid <= 0 {
		return nil, ErrNoProcess
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoProcess, err)
	}
	// The second field is the name in brackets, which may hold anything.
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return nil, fmt.Errorf("/proc/%d/stat has no process name", pid)
	}
	return bytes.Fields(raw[end+1:]), nil
}

// Suspended says that a process of this machine was stopped, by Ctrl-Z or a signal, and has not been told to go on; false where that cannot be told.
func Suspended(pid int) bool {
	fields, err := statOf(pid)
	return err == nil && len(fields) > 0 && fields[0][0] == 'T'
}

// Alive reports whether that very process lives.
func (p Process) Alive() bool {
	now, err := ProcessOf(p.PID)
	return err == nil && now == p
}
