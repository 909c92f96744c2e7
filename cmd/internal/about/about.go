// Package about says what a program of Kale is: its version, and whether ONNX Runtime works in it. Each program prints it under "version",
// as text and as JSON; kale asks kale-trainer for its own before it starts any.
package about

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/kale-sched/kale/core/onnx"
)

// About describes a program.
type About struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// ONNX is the path of ONNX Runtime's library and ONNXVersion its version; both are empty where it cannot be used, and NoONNX says why.
	ONNX        string `json:"onnxruntime,omitempty"`
	ONNXVersion string `json:"onnxruntime_version,omitempty"`
	NoONNX      string `json:"onnxruntime_missing,omitempty"`
	// Broken says that there is a library, or one was named, and that it cannot be used.
	Broken bool `json:"onnxruntime_broken,omitempty"`
}

// Build is what the program is, without a look at ONNX Runtime.
func Build() About {
	v := About{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.read(info)
	}
	return v
}

// This is the program that runs. It loads ONNX Runtime and computes something with it on the device ("" is the CPU). environment is the value
// of the variable that names the library: with that set, there must be one.
func This(device, environment string) About {
	v := Build()
	rt, err := onnx.Try("", device)
	switch {
	case err == nil:
		v.ONNX, v.ONNXVersion = rt.Path(), rt.Version()
	case errors.Is(err, onnx.ErrNoCgo), errors.Is(err, onnx.ErrNoLibrary) && environment == "":
		v.NoONNX = err.Error()
	default:
		v.NoONNX, v.Broken = err.Error(), true
	}
	return v
}

func (v *About) read(info *debug.BuildInfo) {
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	if v.Revision != "" && strings.Contains(v.Version, v.Revision) {
		v.Version = "(devel)" // the one that Go makes of a revision says no more than that
	}
}

// Write prints it for people, under the program's name.
func (v About) Write(w io.Writer, program string) error {
	revision := ""
	if v.Revision != "" {
		revision = v.Revision
		if v.Modified {
			revision += ", modified"
		}
		revision = " (" + revision + ")"
	}
	library := fmt.Sprintf("%s from %s", v.ONNXVersion, v.ONNX)
	switch {
	case v.Broken:
		library = "cannot be used: " + v.NoONNX
	case v.ONNX == "":
		library = v.NoONNX
	}
	_, err := fmt.Fprintf(w, "%s %s%s\n%s %s\nONNX Runtime: %s\n", program, v.Version, revision, v.Go, v.Platform, library)
	return err
}
