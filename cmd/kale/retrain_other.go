//go:build !linux

package main

import (
	"os/exec"
	"syscall"
)

// bound gives a process a group of its own, so that Ctrl-C at the terminal reaches the scheduler only.
func bound(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// limit is left to the Go runtime's own (GOMEMLIMIT), where the system cannot bound another process.
func limit(int, trainBounds) error { return nil }
