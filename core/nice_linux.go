package core

import (
	"runtime"
	"syscall"
)

// lowly has the goroutine that calls it run behind whatever else the machine has to do, on a thread of its own, which ends with it. A value of 5 takes a third of the
// processor beside another that wants it: with less, what this thread holds would be waited for.
func lowly() {
	runtime.LockOSThread()                                             // and never unlocked: a thread's place cannot be given back
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 5) // then it runs beside the others
}
