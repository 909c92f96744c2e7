//go:build !cgo

package onnx_test

import (
	"errors"
	"testing"

	"github.com/kale-sched/kale/core/onnx"
)

// TestWithoutCgo: graphs can be built, written and read; what needs the library says why it cannot.
func TestWithoutCgo(t *testing.T) {
	if _, err := onnx.Load(written(t)); err != nil {
		t.Error(err)
	}
	_, err := onnx.Open(onnx.Options{})
	if !errors.Is(err, onnx.ErrNoCgo) {
		t.Errorf("Open: got %v, want ErrNoCgo", err)
	}
	if _, err := new(onnx.Runtime).NewSession(nil, onnx.SessionOptions{}); !errors.Is(err, onnx.ErrNoCgo) {
		t.Errorf("NewSession: got %v, want ErrNoCgo", err)
	}
	if err := new(onnx.Session).Run(); !errors.Is(err, onnx.ErrNoCgo) {
		t.Errorf("Run: got %v, want ErrNoCgo", err)
	}
}
