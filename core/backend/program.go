package backend

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
)

// Executable gives the path of this program, which a backend starts again, or whose neighbours it starts.
func Executable() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// BuildVersion gives the version that this program was built as, "(devel)" when it has none: what Info says.
func BuildVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "(devel)"
}

// LookProgram gives the absolute path of the program that argv0 names: a path as a shell takes it, or else the name of a program beside the program self,
// or of one in $PATH.
func LookProgram(self, argv0 string) (string, error) {
	if !strings.ContainsRune(argv0, filepath.Separator) {
		beside := filepath.Join(filepath.Dir(self), argv0)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	path, err := exec.LookPath(argv0)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// ExitCode gives the exit code of a process that has ended, 128+n when signal n ended it, and says the same in words.
func ExitCode(ended *os.ProcessState) (code int, how string) {
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	} else {
		code = ended.ExitCode()
	}
	return code, EndWords(code)
}
