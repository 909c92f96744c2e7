// Package guard starts a process that outlives the one which starts it where that is killed, and then cleans up after it.
//
// It waits at a pipe, the other end of which only its owner holds: a word there dismisses it, and the pipe's end without one is the owner's.
package guard

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Guard is the process, as its owner has it. A nil one guards nothing.
type Guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// Start starts a program as guard, in a session of its own, so that what ends the owner's does not end it. complain, unless nil, is where it writes its errors. The
// caller dismisses it.
func Start(complain io.Writer, program string, args ...string) (*Guard, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = "/", complain, &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the process that cleans up should this one be killed: %w", err)
	}
	return &Guard{cmd, pipe}, nil
}

// Dismiss ends the guard of an owner that has cleaned up by itself.
func (g *Guard) Dismiss() {
	if g == nil {
		return
	}
	_, _ = g.pipe.Write([]byte{'.'}) // a guard that is gone needs no word
	_ = g.pipe.Close()
	_ = g.cmd.Wait()
}

// Orphaned waits, in the guard's process, until its owner has dismissed it or is gone, and says whether it is gone. in is the process's standard input.
func Orphaned(in io.Reader) bool {
	word, err := io.ReadAll(in)
	return err == nil && len(word) == 0
}
