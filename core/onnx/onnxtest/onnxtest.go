// Package onnxtest lets tests use ONNX Runtime where it is installed.
package onnxtest

import (
	"errors"
	"os"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
)

// Library opens ONNX Runtime for a test. Where it is not installed, or the test is built without cgo, the test skips and says what
// to do; a library that is there and unusable, or a wrong KALE_ONNXRUNTIME, fails it.
func Library(t testing.TB) *onnx.Runtime {
	t.Helper()
	rt, err := onnx.Open(onnx.Options{})
	switch {
	case errors.Is(err, onnx.ErrNoLibrary) && os.Getenv(onnx.LibraryEnv) == "", errors.Is(err, onnx.ErrNoCgo):
		t.Skipf("needs ONNX Runtime: run \"make deps\" (%v)", err)
	case err != nil:
		t.Fatal(err)
	}
	return rt
}

// Session makes a model ready to run on one CPU thread, and closes it when the test ends.
func Session(t testing.TB, model []byte) *onnx.Session {
	t.Helper()
	s, err := Library(t).NewSession(model, onnx.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close session: %v", err)
		}
	})
	return s
}
