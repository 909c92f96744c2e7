package main

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// bound gives a process a group of its own, so that Ctrl-C at the terminal reaches the scheduler only, and lets it end with the thread that starts it.
func bound(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// limit bounds what a process may have and compute.
func limit(pid int, most trainBounds) error {
	data, cpu := most.memory, uint64(most.cpu.Seconds())
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: data, Max: data}, nil); err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_CPU, &unix.Rlimit{Cur: cpu, Max: cpu}, nil)
}
