package backend

import (
	"fmt"
	"syscall"
)

// EndWords says how a process ended, by its exit code as [Status] has it: "code 1", "signal 9 (killed)".
func EndWords(code int) string {
	const signals = 64 // of Linux; other codes above 128 are the program's own
	if code <= 128 || code > 128+signals {
		return fmt.Sprintf("code %d", code)
	}
	sig := syscall.Signal(code - 128)
	if name := sig.String(); name != fmt.Sprintf("signal %d", int(sig)) {
		return fmt.Sprintf("signal %d (%s)", int(sig), name)
	}
	return fmt.Sprintf("signal %d", int(sig))
}
