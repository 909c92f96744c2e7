package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// LibraryEnv is the environment variable that names ONNX Runtime's library file and overrides every other place.
const LibraryEnv = "KALE_ONNXRUNTIME"

// ErrNoLibrary is in the chain of errors that say that ONNX Runtime's library was not found.
var ErrNoLibrary = errors.New("ONNX Runtime's library was not found")

// ErrNoCgo is what everything that needs the library answers in a program built without cgo.
var ErrNoCgo = errors.New("onnx: this program was built without cgo and cannot run models; build it with CGO_ENABLED=1 and a C compiler")

// ErrInterrupted is in the chain of the error of a [Session.Run] that [Session.Interrupt] has ended.
var ErrInterrupted = errors.New("it was interrupted")

// Locate finds ONNX Runtime's library. It looks at the file that KALE_ONNXRUNTIME names (and nowhere else when it is set), then
// beside the executable, then, from the executable's folder and from the working directory upward, at
// .deps/onnxruntime/libonnxruntime.so, where `make deps` puts it.
func Locate() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
	}
	cwd, err := os.Getwd()
	if err != nil {
		cwd = ""
	}
	return locate(os.Getenv(LibraryEnv), exe, cwd)
}

// locate is Locate with its surroundings as arguments: the variable's value, the executable's path and the working directory,
// each empty when unknown.
func locate(env, exe, cwd string) (string, error) {
	if env != "" {
		if !isFile(env) {
			return "", fmt.Errorf("onnx: %w: %s is %q, which is not a file; correct it, or unset it and run \"make deps\"",
				ErrNoLibrary, LibraryEnv, env)
		}
		return env, nil
	}
	var folders []string
	if exe != "" {
		folders = append(folders, filepath.Dir(exe))
		if p := filepath.Join(filepath.Dir(exe), libraryName()); isFile(p) {
			return p, nil
		}
	}
	if cwd != "" {
		folders = append(folders, cwd)
	}
	for _, folder := range folders {
		for dir := folder; ; dir = filepath.Dir(dir) {
			if p := filepath.Join(dir, ".deps", "onnxruntime", libraryName()); isFile(p) {
				return p, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("onnx: %w beside the program, nor as .deps/onnxruntime/%s in %q or above; run \"make deps\", or set %s to a library file of version %s or newer",
		ErrNoLibrary, libraryName(), folders, LibraryEnv, minVersion)
}

func libraryName() string {
	if runtime.GOOS == "darwin" {
		return "libonnxruntime.dylib"
	}
	return "libonnxruntime.so"
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
