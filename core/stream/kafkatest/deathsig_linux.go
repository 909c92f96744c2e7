package kafkatest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the child killed when the thread that starts it ends, and so when this process is killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
